"""The first of two devices without the second: what they would exchange stays as it is."""

from types import SimpleNamespace

import pytest
import torch

from fscil.running.devices import Devices


def first_of_two(patch: pytest.MonkeyPatch, device: torch.device) -> Devices:
    """Fails where it is asked for more than steps and the ends of stages need."""
    patch.setattr(torch.distributed, "all_reduce", lambda tensor: None)
    patch.setattr(Devices, "totals", lambda devices, *numbers: list(numbers))
    return Devices(SimpleNamespace(global_rank=0, world_size=2, device=device, broadcast=lambda value: value))
