"""What those who visit the service do: send photos, and wait for something to happen."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def sent(photos: Sequence[Path]) -> list[tuple[str, Any]]:
    """Photos as a form."""
    return [("photos", (photo.name, photo.read_bytes(), "image/png")) for photo in photos]


def until(happens: Callable[[], bool], seconds: float) -> bool:
    """Whether something happens within some seconds."""
    end = time.monotonic() + seconds
    while not (there := happens()) and time.monotonic() < end:
        time.sleep(0.02)
    return there
