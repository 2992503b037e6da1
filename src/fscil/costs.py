"""What learning costs: seconds, compute and images, over all devices and all processes that worked on it."""

import time
from dataclasses import dataclass

from fscil.devices import Devices
from fscil.nn.compute import Meter


@dataclass
class Stage:
    """What a stage cost, over all devices and all processes that worked on it."""

    name: str
    seconds: float = 0.0
    macs: int = 0
    images: int = 0  # trained on
    steps: int = 0


class Stopwatch:
    """Reads seconds and compute since its start into a stage, on top of what earlier processes spent."""

    def __init__(self, stage: Stage, meter: Meter, devices: Devices):
        self.stage, self.meter, self.devices = stage, meter, devices
        self.began, self.macs, self.images = time.perf_counter(), meter.macs, meter.trained
        self.earlier = Stage(stage.name)

    def inherit(self, spent: Stage) -> None:
        self.earlier.seconds += spent.seconds
        self.earlier.macs += spent.macs
        self.earlier.images += spent.images

    def read(self) -> None:
        macs, images = self.devices.totals(self.meter.macs - self.macs, self.meter.trained - self.images)
        self.stage.seconds = self.earlier.seconds + time.perf_counter() - self.began
        self.stage.macs = self.earlier.macs + macs
        self.stage.images = self.earlier.images + images
