"""What learning costs: seconds, compute and images, over all devices and all processes that worked on it."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fscil.nn.compute import Meter
from fscil.running.devices import Devices


@dataclass
class Cost:
    """What a stage cost, over all devices and all processes that worked on it."""

    name: str
    seconds: float = 0.0
    macs: int = 0
    images: int = 0  # trained on
    steps: int = 0

    def less(self, *parts: Cost) -> Cost:
        """What is left of it after some parts."""
        seconds, macs, images = (
            getattr(self, name) - sum(getattr(part, name) for part in parts) for name in ("seconds", "macs", "images")
        )
        return Cost("rest", seconds, macs, images)


class Stopwatch:
    """Reads seconds and compute since its start into a stage, on top of what earlier processes spent."""

    def __init__(self, stage: Cost, meter: Meter, devices: Devices):
        self.stage, self.meter, self.devices = stage, meter, devices
        self.began, self.macs, self.images = time.perf_counter(), meter.macs, meter.trained
        self.earlier = Cost(stage.name)

    def inherit(self, spent: Cost) -> None:
        self.earlier.seconds += spent.seconds
        self.earlier.macs += spent.macs
        self.earlier.images += spent.images

    def read(self) -> Cost:
        """What it cost so far, which the stage knows from now on."""
        macs, images = self.devices.totals(self.meter.macs - self.macs, self.meter.trained - self.images)
        self.stage.seconds = self.earlier.seconds + time.perf_counter() - self.began
        self.stage.macs = self.earlier.macs + macs
        self.stage.images = self.earlier.images + images
        return self.stage


def forget_peak_memory() -> None:
    """Lets `peak_memory` tell of what comes from here on; only Linux can forget."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Most bytes that this process held in main memory since the peak before was forgotten."""
    with suppress(OSError, StopIteration):  # Linux: getrusage would also tell of the process that started this one
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
