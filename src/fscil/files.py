"""Files that are replaced in one step: a kill or a full disk never costs what was there."""

import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fscil.errors import FscilError

FORMAT = 1  # of run folders, and of the results files made from them
IDENTITY = (
    "method",
    "dataset",
    "seed",
    "settings",
    "protocol",
    "benchmark_fingerprint",
)  # what decides a run's numbers
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
UNABLE = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR)  # folders that cannot be synced
ABANDONED = 24 * 3600.0  # seconds after which nobody is still writing a file


class DiskFailure(FscilError):
    """The disk did not take what was written, and nobody knows what else it has lost."""


def write_bytes(path: Path, *content: bytes | memoryview) -> None:
    """Replaces a file in one step: a reader sees the old content or the new one, never half of it.

    The content may come in parts. When the function returns, it outlasts a power cut.

    A link stays a link, and who may read the file stays as it was. What is no file, such as /dev/stdout, is written to.
    """
    given, path = path, Path(os.path.realpath(path))  # /dev/stdout of a pipe has no real path
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        if given.exists() and not given.is_file():
            given.write_bytes(b"".join(content))
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            if path.exists():  # before anything is in it
                partial.chmod(stat.S_IMODE(path.stat().st_mode))
            file.writelines(content)
            file.flush()
            _sync(file.fileno(), path)
        partial.replace(path)
        _sync_folder(path)
    except OSError as problem:
        _discard(partial)
        if problem.errno in FULL:
            kept = "what it held before is kept, " if path.exists() else ""
            raise FscilError(
                f"{path} could not be written: the disk is full or a file-size limit is reached; "
                f"{kept}make room and run the same command again"
            ) from problem
        raise FscilError(f"{path} could not be written ({problem.strerror}); choose another place") from problem
    except BaseException:
        _discard(partial)
        raise


def _sync(number: int, path: Path) -> None:
    """Has the disk take what was written. An error is final: asked again, a kernel may say that all is well."""
    try:
        os.fsync(number)
    except OSError as problem:
        if problem.errno in (*FULL, *UNABLE):
            raise
        raise DiskFailure(
            f"{path} could not be written: the disk failed ({problem.strerror}); look after it, or choose another place"
        ) from problem


def _sync_folder(path: Path) -> None:
    """Makes a new name in a folder outlast a power cut; without it the old file may come back."""
    try:
        number = os.open(path.parent, os.O_RDONLY)
        try:
            _sync(number, path)
        finally:
            os.close(number)
    except OSError as problem:
        if problem.errno not in UNABLE:
            raise


def check_writable(path: Path) -> None:
    """Refuses a place where `write_bytes` would fail, before hours of work; writes nothing that stays."""
    path = Path(os.path.realpath(path))
    try:
        if path.exists():
            path.open("r+b").close()
        folder = next(place for place in path.parents if place.exists())
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        raise FscilError(f"{path} could not be written ({problem.strerror}); choose another place") from problem


def _discard(partial: Path) -> None:
    with suppress(OSError):  # why it could not be written says more than why it cannot be removed
        partial.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Removes what processes that were killed while they wrote left in a folder that many processes write into."""
    for partial in folder.glob("*.partial"):
        with suppress(OSError):  # another process was faster, or it is somebody else's
            if time.time() - partial.stat().st_mtime > ABANDONED:
                partial.unlink()


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Waits until no other process is inside with the same lock file; the file stays, since others may wait for it."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
        fcntl.lockf(file, fcntl.LOCK_EX)  # unlike flock, not inherited by loader workers
    except OSError as problem:
        raise FscilError(f"{lock} cannot be locked ({problem.strerror}); choose another --out") from problem
    with file:
        yield


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"))  # half a character becomes its escape, which JSON knows


def read_json(path: Path, otherwise: str) -> dict[str, Any]:
    """The object in a file; `otherwise` is the advice for those who have a file that holds none."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as problem:
        raise FscilError(f"{path} cannot be read ({problem.strerror}): {otherwise}") from problem
    except (ValueError, RecursionError) as problem:
        raise FscilError(f"{path} cannot be read (it is no complete JSON): {otherwise}") from problem
    if not isinstance(content, dict):
        raise FscilError(f"{path} was not written by fscil, it holds no JSON object: {otherwise}")
    return content


def run_identity(facts: Mapping[str, Any]) -> str:
    """The digest that every file of a run carries, from what run.json says about it."""
    return hashlib.sha256(json.dumps([facts.get(key) for key in IDENTITY], sort_keys=True).encode()).hexdigest()


def run_of(file: Path) -> str | None:
    """The digest of the run that a file of tensors belongs to; None where the file does not tell."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            notes = json.loads((tensors.metadata() or {}).get("notes", "{}"))
    except (SafetensorError, OSError, ValueError) as problem:
        raise FscilError(f"{file} is missing or cannot be read") from problem
    return notes.get("run") if isinstance(notes, dict) else None
