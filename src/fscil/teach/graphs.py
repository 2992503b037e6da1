"""ONNX graphs of encoders in the user's cache: made once, used by every command, and made again if deleted.

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
        raise FscilError(f"FSCIL_RUNTIME is {name!r}, but must be one of {', '.join(CHOICES)}")
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
    options.log_severity_level = 4  # what goes wrong comes as an exception
    return InferenceSession(str(graph) if isinstance(graph, Path) else graph, options)


def remove_unused() -> None:
    """Makes room: graphs that no command has opened for a long time are removed."""
    for file in folder().iterdir():
        with suppress(OSError):  # another process was faster
            if time.time() - file.stat().st_mtime > UNUSED:
                file.unlink()
