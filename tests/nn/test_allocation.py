"""Freed memory is kept for what comes next, and nothing happens where the C library cannot."""

import platform
import subprocess
import sys

import pytest

from fscil.nn import allocation

PIECE = 8 << 20
PAGES = PIECE // 4096
FAULTS = f"""
import resource
from fscil.nn.allocation import keep_freed_memory
keep_freed_memory(UP_TO)
bytearray({PIECE})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray({PIECE})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.parametrize(("up_to", "kept"), [("None", True), (f"{4 * PIECE}", True), (f"{PIECE // 2}", False)])
def test_a_piece_of_memory_serves_the_next(up_to: str, kept: bool) -> None:
    program = FAULTS.replace("UP_TO", up_to)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert (int(told.stdout) < PAGES) == kept


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: object())
    allocation.keep_freed_memory()
