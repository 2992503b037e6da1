"""From the paths a user names to the run folders and results files behind them."""

from __future__ import annotations

from pathlib import Path

from fscil.errors import FscilError
from fscil.files import read_json
from fscil.report.runs import BROKEN, RESULTS_KIND

FACTS = "run.json"  # what makes a folder a run folder


def find(path: Path) -> list[Path]:
    """Run folders and results files at or below a path, sorted; run.json stands for its folder."""
    if not path.exists():
        raise FscilError(f"There is nothing at {path}: give a run folder, a parent of run folders or a results file.")
    if path.is_file() or (path / FACTS).is_file():
        return [path.parent if path.name == FACTS else path]
    folders = sorted(found.parent for found in path.rglob(FACTS))
    files = [file for file in sorted(path.rglob("*.json")) if file.parent not in folders and is_results(file)]
    if not folders and not files:
        raise FscilError(f"{path} holds no run (no run.json and no results file below it): `fscil run` makes one.")
    return folders + files


def is_results(file: Path) -> bool:
    try:
        return read_json(file, BROKEN).get("kind") == RESULTS_KIND
    except FscilError:
        return False
