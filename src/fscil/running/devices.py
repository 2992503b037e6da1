"""The processes that share a run, started and connected by Lightning Fabric.

Each holds the whole model and takes its share of every batch and of every episode's queries. Tested with processes on
one CPU (gloo). No real GPU was used: tests run the steps on a fake one, which has shapes but no values.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from fscil.errors import FscilError

T = TypeVar("T")
# The first process may wait for a base that another run trains, and all others for the first.
LONGEST_WAIT = timedelta(days=7)


class Devices:
    """One process alone (the default), or one of several that work together."""

    def __init__(self, fabric: Any = None, device: torch.device | None = None):
        self._fabric = fabric
        self.rank = fabric.global_rank if fabric else 0
        self.count = fabric.world_size if fabric else 1
        self.device = fabric.device if fabric else device or torch.device("cpu")

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its mean over the devices, all in one exchange."""
        if self.count == 1 or not tensors:
            return
        flat = self._joined(tensors)
        with self._together():
            torch.distributed.all_reduce(flat)  # not Fabric's, which has the host wait for all devices before
        self.fill(tensors, flat.div_(self.count))

    def collect(self, tensors: Sequence[Tensor]) -> Tensor:
        """What each device holds in its tensors: (devices, numbers)."""
        with self._together():
            numbers: Tensor = self._fabric.all_gather(self._joined(tensors))
        return numbers

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.flatten().to(self.device) for tensor in tensors])

    def fill(self, tensors: Sequence[Tensor], flat: Tensor) -> None:
        """Puts numbers (numbers,), one after the other, into the tensors they come from."""
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def totals(self, *numbers: int) -> list[int]:
        """The sum over the devices of each number."""
        if self.count == 1:
            return list(numbers)
        with self._together():
            sums: Tensor = self._fabric.all_reduce(torch.tensor(numbers, device=self.device), reduce_op="sum")
        return sums.tolist()

    def agree(self, value: T) -> T:
        """The first device's value, on every device."""
        if self.count == 1:
            return value
        with self._together():
            same: T = self._fabric.broadcast(value)
        return same

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as problem:
            raise FscilError(
                "another process of this run has ended; if it did not say why, run the same command again to continue"
            ) from problem


@functools.cache
def launch(count: int) -> Devices:
    """`count` connected processes, one per GPU or CPU core: Fabric starts this command again for each further one."""
    cuda = torch.cuda.is_available()
    check_count(count)
    if count == 1:
        return Devices(device=torch.device("cuda" if cuda else "cpu"))
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    fabric = Fabric(accelerator="cuda" if cuda else "cpu", devices=count, strategy=DDPStrategy(timeout=LONGEST_WAIT))
    fabric.launch()
    return Devices(fabric)


def check_count(count: int) -> None:
    """Refuses more processes than there are GPUs or, without any, CPU cores."""
    cuda = torch.cuda.is_available()
    available = max(1, torch.cuda.device_count() if cuda else usable_cores())
    if not 1 <= count <= available:
        kind = "GPUs" if cuda else "CPU cores"
        raise FscilError(f"--devices {count} is not possible: this machine has {available} {kind}; ask for fewer")


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Usable cores that are this process's own: it has as many threads, which processes side by side divide.

    At least two, where there are: some programs that start processes give each a single thread whatever there is.
    """
    return min(usable_cores(), max(2, torch.get_num_threads()))
