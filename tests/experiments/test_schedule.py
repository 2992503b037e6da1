"""Cells at once, each in a process of its own."""

import json
from pathlib import Path

from apart import tiny_experiment
from fscil.experiments.schedule import log_file, side_by_side
from tiny_children import TinyRun


def test_cells_at_once_share_a_base_and_one_that_fails_stops_none(tmp_path: Path) -> None:
    changes = {"one": {}, "two": {"new_bonus": 0.1}, "bad": {"held_out": 30}}  # a tiny class has 30 images
    runs = [
        TinyRun(**vars(tiny_experiment(tmp_path, "cosine", change, variant=name))) for name, change in changes.items()
    ]
    errors = {end.run.variant: end.error for end in side_by_side(runs, 2)}
    assert (errors["one"], errors["two"]) == ("", "")
    assert "too few to keep 30 of them from training" in errors["bad"]
    first, second = (json.loads((run.folder / "session-00.json").read_text())["stages"][0] for run in runs[:2])
    assert first == second  # a base that is taken over brings its seconds along
    assert "FscilError" in log_file(runs[2]).read_text()
