"""What the sessions of finished cells gave, as it comes: a CSV file, or TensorBoard's files."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from fscil.errors import FscilError
from fscil.report.runs import TOTAL, read_folder
from fscil.running.experiment import RunSpec

Kind = Literal["csv", "tensorboard"]
COLUMNS = ("accuracy", "base", "new", "harmonic")


def journal(kind: Kind, out: Path) -> Callable[[RunSpec], None]:
    """Who writes down a finished cell."""
    return Sheet(out / "progress.csv").add if kind == "csv" else Board(out / "tensorboard").add


class Sheet:
    """A CSV file with one line for each session; it grows with every cell."""

    def __init__(self, file: Path):
        self.file = file

    def add(self, run: RunSpec) -> None:
        fresh = not self.file.exists()
        with self.file.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(("cell", "seed", "session", *COLUMNS))
            for session, values in enumerate(_sessions(run)):
                writer.writerow((run.folder.parent.name, run.seed, session, *(f"{value:.4f}" for value in values)))


class Board:
    """A folder for TensorBoard, with one run for each cell."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as problem:
            raise FscilError("--log tensorboard needs more packages: pip install 'fscil[tensorboard]'") from problem
        self.folder, self.writer = folder, SummaryWriter

    def add(self, run: RunSpec) -> None:
        with self.writer(str(self.folder / run.folder.parent.name / run.folder.name)) as writer:
            for session, values in enumerate(_sessions(run)):
                for name, value in zip(COLUMNS, values, strict=True):
                    writer.add_scalar(name, value, session)


def _sessions(run: RunSpec) -> list[tuple[float, ...]]:
    curve = read_folder(run.folder).curves[TOTAL]
    return [tuple(getattr(session, name) for name in COLUMNS) for session in curve.sessions]
