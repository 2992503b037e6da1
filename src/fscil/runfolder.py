"""The run folder: settings, predictions and states on disk. Every write is atomic, so a killed run loses at most its last minutes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.settings import differences

FORMAT = 1


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file in one step: a reader sees the old content or the new one, never half of it."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        if problem.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            reason = "the disk is full or a file-size limit is reached"
            raise FscilError(
                f"{path} could not be written: {reason}; everything learned before is kept, make room and run the same command again"
            ) from problem
        raise FscilError(f"{path} could not be written ({problem.strerror}); choose another folder with --out") from problem


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Any = None) -> None:
    """Tensors as safetensors; `notes` (anything JSON can hold) travels in the metadata."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, safetensors.torch.save(plain, {"notes": json.dumps(notes)}))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise FscilError(f"{path} is not a readable JSON file ({problem}); delete its run folder and run again") from problem


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Tensors and notes of a file written by `write_tensors`."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {})["notes"])
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 (not a dict)
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as problem:
        raise FscilError(f"{path} is not a checkpoint of this program ({problem}); delete it and run the same command again") from problem


class RunFolder:
    """One run on disk; see docs/architecture.md for the files in it."""

    def __init__(self, path: Path, writable: bool = True):
        self.path = path
        self.writable = writable  # only the first of several processes writes

    def open(self, description: dict[str, Any]) -> None:
        """Starts or continues the run `description` tells of; a folder that holds another run is refused and left alone."""
        if not self.writable:
            return
        self._lock()
        file = self.path / "run.json"
        if file.exists():
            self._check_same(read_json(file), description)
        else:
            write_json(file, description)

    def _lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_file = (self.path / ".lock").open("w")  # kept open: the lock lives as long as this object
        except OSError as problem:
            raise FscilError(f"{self.path} cannot be used as a run folder ({problem.strerror}); choose another with --out") from problem
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise FscilError(f"another process is working in {self.path}; wait for it or choose another --out") from problem

    def _check_same(self, there: dict[str, Any], here: dict[str, Any]) -> None:
        if there.get("format") != FORMAT:
            raise FscilError(f"{self.path} was written by another version (format {there.get('format')}); choose another --out")
        keys = ("method", "dataset", "seed", "settings", "protocol", "benchmark_fingerprint")
        changed = differences({k: there.get(k) for k in keys}, {k: here.get(k) for k in keys})
        if changed:
            shown = "; ".join(changed[:3]) + ("; …" if len(changed) > 3 else "")
            raise FscilError(f"{self.path} holds a run of another configuration ({shown}); choose another --out or delete the folder")
        moved = [k for k in ("versions", "machine", "precision") if there.get(k) != here.get(k)]
        if moved:
            there["continued_with"] = {k: here.get(k) for k in moved}
            write_json(self.path / "run.json", there)

    def finished(self, session: int) -> bool:
        """Whether a session was learned, tested and written completely (its JSON file is written last)."""
        return self._session(session, "session", "json").exists()

    def write_session(self, session: int, state: Mapping[str, Tensor], predictions: Mapping[str, np.ndarray], record: Any) -> None:
        if not self.writable:
            return
        write_tensors(self._session(session, "state", "safetensors"), state)
        content = safetensors.numpy.save({name: values.astype(np.int32) for name, values in predictions.items()})
        write_bytes(self._session(session, "predictions", "safetensors"), content)
        write_json(self._session(session, "session", "json"), record)
        for old in self.path.glob("stage-*.safetensors"):
            old.unlink()
        if session > 1:  # going on needs the newest state; the base state stays for those who teach other classes
            self._session(session - 1, "state", "safetensors").unlink(missing_ok=True)

    def state(self, session: int) -> dict[str, Tensor]:
        return read_tensors(self._session(session, "state", "safetensors"))[0]

    def stage(self, session: int, name: str) -> Path:
        """File of an unfinished (or finished) training stage inside a session."""
        return self.path / f"stage-{session:02d}-{name}.safetensors"

    def _session(self, session: int, kind: str, suffix: str) -> Path:
        return self.path / f"{kind}-{session:02d}.{suffix}"
