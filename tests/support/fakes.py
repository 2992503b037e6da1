"""A GPU that is not there: tensors on `cuda` have shapes but no values, and every wait of the host for them raises.

Main memory stays real, so that batches and tasks are drawn as ever; torch's FakeTensorMode stands for the device. What
is sent there has to be pinned before: from other memory CUDA takes larger tensors only when it has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
WRITTEN_BY_INDEX = (aten.index_put.default, aten.index_put_.default)


class HostWaits(Exception):
    """In a step the host would wait for the device."""


class FakeGpu(TorchDispatchMode):
    """What touches the device is fake, everything else is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.strict = False  # whether waits raise; reading a value always does
        self.operations = 0  # on the device, while waits raised
        self.losses: list[Tensor] = []  # of the steps that a test makes
        self.pinned = WeakIdKeyDictionary()  # tensors in main memory that the device can fetch by itself

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        there = [leaf for leaf in leaves if isinstance(leaf, FakeTensor)]
        asked = kwargs.get("device")
        goes = asked is not None and torch.device(asked).type == "cuda"
        if not there and not goes:
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if self.strict:
            self.operations += 1
            here = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.device.type == "cpu" and leaf.dim()]
            self._refuse_waits(func, kwargs, args, bool(here))
        return func(*args, **kwargs)

    def _refuse_waits(self, func: Any, kwargs: dict[str, Any], args: Any, from_host: bool) -> None:
        """Copies to the host wait for the device, and so do copies to the device that are not told not to."""
        if func is aten._to_copy.default:
            target, source = torch.device(kwargs.get("device") or args[0].device), args[0].device
            if target.type == "cpu" and source.type == "cuda":
                raise HostWaits("a copy to main memory")
            if target.type == "cuda" and source.type == "cpu" and not kwargs.get("non_blocking"):
                raise HostWaits("a copy to the device that blocks")
            if target.type == "cuda" and source.type == "cpu" and args[0] not in self.pinned:
                raise HostWaits("a copy to the device of memory that is not pinned")
        elif from_host:
            raise HostWaits(f"{func} mixes main memory and the device")
        elif func in WRITTEN_BY_INDEX and any(i is not None and i.dtype == torch.bool for i in args[1]):
            raise HostWaits("a mask whose places are counted first")
        elif isinstance(kwargs.get("generator"), torch.Generator):
            raise HostWaits("numbers drawn on the device by a generator of the host")

    def pin(self, tensor: Tensor) -> Tensor:
        """What `Tensor.pin_memory` does here."""
        copy = tensor.clone()
        self.pinned[copy] = True
        return copy


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Inside, `cuda` can be used without a GPU."""
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True), FakeGpu() as gpu:
        patch.setattr(Tensor, "pin_memory", lambda tensor: gpu.pin(tensor))
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
        yield gpu
