"""Memory that photos need, kept by the C library for the next photo."""

from __future__ import annotations

import ctypes
from contextlib import suppress

from fscil.serve.settings import MEGABYTE

TRIM, MAPPED = -1, -3  # as glibc's malloc.h numbers them
LARGEST = 32 * MEGABYTE  # what is larger, such as the pixels of a giant, goes back to the system at once
MOST = 2 * LARGEST  # unused at the end of a heap


def keep_memory() -> None:
    """Has glibc keep what is freed; with another C library nothing happens.

    Otherwise the pixels of each photo are mapped anew, page by page, which takes longer than some of its decoding.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(MAPPED, LARGEST)
        library.mallopt(TRIM, MOST)
