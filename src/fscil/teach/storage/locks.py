"""A lock on a file that is replaced whenever it is written."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fscil.errors import FscilError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process holds the file, and holds it."""
    file = _held(path)
    try:
        yield
    finally:
        file.close()


def _held(path: Path) -> BinaryIO:
    """The open and locked file; one that was replaced while we waited is no longer the file.

    Opened for writing: NFS gives an exclusive lock to nobody else. Not `lockf`: its lock ends as soon as this process
    closes the file anywhere, and who holds it also reads it.
    """
    while True:
        try:
            file = path.open("r+b")
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
            file.close()
        except PermissionError as problem:
            raise FscilError(f"{path} may not be changed ({problem.strerror}); allow it, or change a copy") from problem
        except OSError as problem:
            advice = "give a model file made by fscil learn PHOTOS --save FILE"
            raise FscilError(f"{path} cannot be opened ({problem.strerror}); {advice}") from problem
