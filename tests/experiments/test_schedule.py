"""Cells at once, each in a process of its own."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from apart import tiny_experiment
from fscil.experiments.schedule import bases_first, log_file, side_by_side
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


def test_the_first_cell_of_each_seed_begins_first_so_that_fewer_wait_for_a_base(tmp_path: Path) -> None:
    def cell(seed: int, name: str) -> TinyRun:
        return TinyRun(**{**vars(tiny_experiment(tmp_path, "cosine", {}, variant=name)), "seed": seed})

    runs = [cell(seed, name) for seed in (0, 1, 2) for name in ("a", "b", "c")]
    order = [(run.seed, run.variant) for run in bases_first(runs)]
    assert order == [(0, "a"), (1, "a"), (2, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (2, "b"), (2, "c")]


DRIVER = """
import sys
from pathlib import Path
from apart import tiny_experiment
from fscil.experiments.schedule import side_by_side
from tiny_children import TinyRun

endless = {"base.epochs": 100_000}
runs = [vars(tiny_experiment(Path(sys.argv[1]), "cosine", endless, variant=name)) for name in ("one", "two")]
list(side_by_side([TinyRun(**{**run, "seed": seed}) for seed, run in enumerate(runs)], 2))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that runs two cells at once which would take hours."""
    support = Path(__file__).parent.parent / "support"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(support), *filter(None, sys.path)])}
    process = subprocess.Popen([sys.executable, "-c", DRIVER, tmp_path], env=environment, start_new_session=True)
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # also cells that have not ended by themselves
    process.wait()


def test_when_the_driver_is_killed_its_cells_end_and_leave_their_folders_to_others(
    driver: subprocess.Popen, tmp_path: Path
) -> None:
    def at_work() -> list[bool]:
        return [is_locked(lock) for lock in tmp_path.glob("folder/*/seed*/.lock")]

    assert within(100, lambda: len(list(tmp_path.glob("folder/*/seed*/stage-*.safetensors"))) == 2)
    assert at_work() == [True, True]
    driver.kill()
    driver.wait()
    assert within(10, lambda: at_work() == [False, False])


def is_locked(file: Path) -> bool:
    with file.open("r+") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def within(seconds: float, happens: Callable[[], bool]) -> bool:
    last = time.monotonic() + seconds
    while not happens() and time.monotonic() < last:
        time.sleep(0.05)
    return happens()
