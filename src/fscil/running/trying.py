"""A run in which a method makes a few steps of a stage, so that planning learns how long they take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from fscil.running.descent import Descent
from fscil.running.devices import Devices
from fscil.running.progress import Bar, Patience
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Epoch, Loop
from fscil.running.training import Run

FEWEST = 3  # epochs, where a stage has as many
PATIENCE = 0.5  # seconds, after which no further epoch begins


class Trial(Run):
    """A run whose stages end after a few epochs; it neither shows nor keeps anything of them."""

    def epochs(
        self, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int, stop_after: int = 0
    ) -> Iterator[Epoch]:
        loop = Loop(self, name, keeps, trains, descent, steps, stop_after)
        loop.bar, loop.user = Bar(name, loop.total, shown=False), Patience(shown=False)
        ends = time.perf_counter() + PATIENCE
        with torch.random.fork_rng(devices=[]):  # random layers are seeded step by step
            for number in range(descent.epochs):
                if number < FEWEST or time.perf_counter() < ends:
                    yield Epoch(loop, number, start=0)


def trial(device: torch.device, precision: torch.dtype) -> Trial:
    """A run of its own on a device, of nets that compute in `precision`."""
    nowhere = Path("nowhere")
    used = str(precision).removeprefix("torch.")
    return Trial(RunFolder(nowhere, writable=False), 0, nowhere, Devices(device=device), used)
