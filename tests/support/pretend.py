"""A device that is no CPU but computes like one: whole runs on it show what would mix devices on a GPU.

Its tensors hold real ones. Operations on both kinds raise where CUDA would refuse them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("lazy", 0)  # a kind of device that torch knows by name and that has nothing of its own
aten = torch.ops.aten
FUSED = "_get_fused_kernels_supported_devices"  # which torch asks before one kernel updates all parameters
COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXED = (
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
)  # CUDA takes their indices from main memory


class There(Tensor):
    """A tensor of the pretended device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> There:
        place = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        shell = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=DEVICE, **place)
        shell.held = held
        return shell

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = self.detach().clone()
        return nn.Parameter(copy, self.requires_grad) if isinstance(self, nn.Parameter) else copy

    def tolist(self) -> Any:
        return self.held.tolist()


class Pretence(TorchDispatchMode):
    """Sees what creates tensors on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `func` gives, on the device if it was asked for or an operand lies there."""
    leaves = tree_leaves((args, kwargs))
    operands = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    there = [operand for operand in operands if isinstance(operand, There)]
    asked = kwargs.get("device")
    stays = bool(there) if asked is None else torch.device(asked).type == DEVICE.type
    if there and func not in COPIES + INDEXED and any(not isinstance(o, There) and o.dim() for o in operands):
        raise RuntimeError(f"{func} mixes main memory and the device")
    if asked is not None and stays:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain, named = tree_map_only(There, lambda shell: shell.held, (args, kwargs))
    result = func(*plain, **named)
    if isinstance(result, Tensor):
        for shell in there:
            if shell.held is result:
                return shell  # an operation in place
    return tree_map_only(Tensor, There, result) if stays else result


@contextmanager
def pretended() -> Iterator[None]:
    """Inside, DEVICE can be used."""
    autocast = torch.autocast
    with pytest.MonkeyPatch.context() as patch, Pretence():
        patch.setattr(torch, "autocast", lambda kind, *rest, **more: autocast("cpu", *rest, **more))
        patch.setattr(sys.modules["torch.optim.optimizer"], FUSED, lambda: ["cpu", DEVICE.type])
        yield
