"""Memory that is freed and soon needed again, kept by the C library."""

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # as glibc's malloc.h numbers them
NEVER = 2**31 - 1


def keep_freed_memory(up_to: int | None = None) -> None:
    """Has glibc keep what is freed, in pieces of at most `up_to` bytes; with another C library nothing happens.

    Otherwise every large tensor and the pixels of every photo are new memory, which the system clears page by page:
    that takes as long as a good part of the work they are made for.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        if up_to is None:
            library.mallopt(MMAP_MAX, 0)
            library.mallopt(TRIM_THRESHOLD, NEVER)
        else:
            library.mallopt(MMAP_THRESHOLD, up_to)
            library.mallopt(TRIM_THRESHOLD, 2 * up_to)
