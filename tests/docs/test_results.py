"""Numbers in the README are measured: every row of its result tables is found in a file below results/."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NUMBERS = re.compile(r"\d+\.\d\d")

pytestmark = pytest.mark.skipif(
    not (ROOT / "results").exists(), reason="the results are not part of the source distribution"
)


def measured() -> set[tuple[str, ...]]:
    """Session accuracies and average of every committed result, sum and branches, as they are printed."""
    rows = set()
    for file in (ROOT / "results").rglob("*.json"):
        result = json.loads(file.read_text("utf-8"))
        for scores in result["metrics"].values():
            rows.add(tuple(f"{value:.2f}" for value in (*scores["accuracy"], scores["average"])))
    return rows


def readme_rows() -> list[tuple[str, ...]]:
    """Rows of the README that claim to be ours: they are not marked as published."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    found = [tuple(NUMBERS.findall(line)) for line in lines if line.startswith("|") and "published" not in line]
    return [row for row in found if len(row) >= 10]


def test_every_row_of_ours_was_measured() -> None:
    rows = readme_rows()
    assert rows
    known = measured()
    assert [row for row in rows if not any(row[: len(k)] == k for k in known)] == []


def test_results_tell_how_they_were_made() -> None:
    for file in (ROOT / "results").rglob("*.json"):
        result = json.loads(file.read_text("utf-8"))
        assert {"command", "seed", "git", "machine", "macs", "seconds", "settings", "versions"} <= set(result), file
        assert "/tmp" not in file.read_text("utf-8"), file
