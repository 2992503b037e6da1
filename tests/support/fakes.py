"""A GPU that is not there: tensors on `cuda` have shapes but no values, and every wait of the host for them raises.

Main memory stays real, so that batches and tasks are drawn as ever; torch's FakeTensorMode stands for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda", 0)
aten = torch.ops.aten


class HostWaits(Exception):
    """In a step the host would wait for the device."""


class FakeGpu(TorchDispatchMode):
    """What touches the device is fake, everything else is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.strict = False  # whether waits raise; reading a value always does
        self.operations = 0  # on the device, while waits raised
        self.losses: list[Tensor] = []  # of the steps that a test makes

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
        elif from_host:
            raise HostWaits(f"{func} mixes main memory and the device")


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Inside, `cuda` can be used without a GPU."""
    with FakeTensorMode(allow_non_fake_inputs=True), FakeGpu() as gpu:
        yield gpu
