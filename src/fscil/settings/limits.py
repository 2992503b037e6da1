"""Settings that must lie within limits."""

import math

from fscil.errors import FscilError


def within(settings: object, **limits: tuple[float, float]) -> None:
    """Refuses settings that lie outside their limits, and those that are no number or infinite."""
    for name, (low, high) in limits.items():
        value = getattr(settings, name)
        if not low <= value <= high or not math.isfinite(value):
            raise FscilError(f"the setting {name} is {value}, but must lie between {low} and {high}")
