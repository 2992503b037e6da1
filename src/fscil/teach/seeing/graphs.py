"""ONNX graphs of encoders, and what belongs to them, in the user's cache: made once, and again if deleted.

Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fscil.errors import FscilError

VERSION = 1  # of how encoders become graphs
UNUSED = 60 * 24 * 3600.0  # seconds after which nobody misses a graph
CHOICES = ("auto", "onnx", "torch")


def choice() -> str:
    """What encodes photos, as $FSCIL_RUNTIME says; auto: ONNX Runtime where it is installed."""
    name = os.environ.get("FSCIL_RUNTIME") or "auto"
    if name not in CHOICES:
        raise FscilError(f"the variable FSCIL_RUNTIME is {name!r}, but must be one of {', '.join(CHOICES)}")
    return name


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "fscil" / "encoders"


def place(encoder: str, digest: str, pixels: int) -> Path:
    """Where the graph of an encoder is kept; networks with equal weights may still compute different things."""
    key = json.dumps([VERSION, encoder, digest, pixels])
    return folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.onnx"


def opened(graph: Path | bytes, threads: int) -> Any:
    """A session of ONNX Runtime: images (n, 3, p, p) -> features (n, dim)."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait by spinning take the cores from those that decode the next photos.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what goes wrong comes as an exception
    if isinstance(graph, bytes):
        return InferenceSession(graph, options)
    note_use(graph)
    return InferenceSession(str(graph), options)


def note_use(file: Path) -> None:
    """A file that is used stays."""
    with suppress(OSError):
        os.utime(file)


def remove_unused() -> None:
    """Makes room: what no command has opened for a long time is removed."""
    for file in folder().iterdir():
        with suppress(OSError):  # another process was faster
            if time.time() - file.stat().st_mtime > UNUSED:
                file.unlink()
