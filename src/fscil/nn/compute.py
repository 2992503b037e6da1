"""Counting compute: multiply-adds of convolutions and matrix products, three forward passes for an image trained on."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn


class Meter:
    """MACs and images that went through encoders while this meter was counting."""

    def __init__(self) -> None:
        self.macs = 0
        self.trained = 0


_active: list[Meter] = []


@contextmanager
def counting(meter: Meter) -> Iterator[Meter]:
    """Lets `meter` count every encoder pass inside the block."""
    _active.append(meter)
    try:
        yield meter
    finally:
        _active.remove(meter)


def is_counting() -> bool:
    """Whether anybody wants to know; finding out what an image costs takes a tenth of a second."""
    return bool(_active)


def add(macs: int) -> None:
    """Counts compute that was spent before, on what is taken over now."""
    for meter in _active:
        meter.macs += macs


def macs_per_image(module: nn.Module, pixels: int) -> int:
    """Multiply-adds of one forward pass of one image of pixels x pixels."""
    from torch.utils.flop_counter import FlopCounterMode  # late: it imports a compiler

    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        deepcopy(module).to("meta").requires_grad_(False).eval()(torch.zeros(1, 3, pixels, pixels, device="meta"))
    return counter.get_total_flops() // 2


def record(encoder: nn.Module, images: Tensor, macs_of_one: int) -> None:
    """Adds one encoder pass over images (n, 3, p, p) to the meters that are counting."""
    if not _active:
        return
    trained = torch.is_grad_enabled() and any(p.requires_grad for p in encoder.parameters())
    for meter in _active:
        meter.macs += (3 if trained else 1) * len(images) * macs_of_one
        meter.trained += len(images) * trained
