"""What an experiment shows while it runs, and what it writes down as it goes."""

import csv
import io
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from apart import always_tiny, tiny_experiment  # noqa: F401 (fixture)
from fscil.command import live
from fscil.command.live import Board, LiveTable
from fscil.errors import FscilError
from fscil.experiments.journal import journal
from fscil.experiments.schedule import Ended, log_file
from fscil.running.experiment import execute


def test_the_board_tells_state_session_accuracy_and_time_left(tmp_path: Path) -> None:
    runs = [tiny_experiment(tmp_path, "cosine", variant=name) for name in ("one", "two", "three")]
    board = Board(runs, ["one", "two", "three"])
    assert [row[1] for row in board.rows(9)] == ["waiting"] * 3
    execute(runs[0])
    board.look()
    name, state, session, accuracy, left = board.rows(9)[0]
    assert (name, state, session, left) == ("one", "running", "4 of 4", "")
    assert 0 <= float(accuracy) <= 100
    board.end(Ended(runs[0], ""))
    execute(runs[1])
    (runs[1].folder / "session-03.json").unlink()
    board.look()
    assert board.rows(9)[1][1:3] == ("running", "3 of 4")
    assert re.fullmatch(r"\d+ s", board.rows(9)[1][4])
    board.end(Ended(runs[2], "no memory"))
    assert [row[1] for row in board.rows(9)] == ["finished", "running", "failed"]
    assert [row[0] for row in board.rows(2)] == ["two", "three"]  # what is at work, and what went wrong
    assert re.fullmatch(r"1 running, 1 failed, 1 finished; about \d+ s left", board.in_all())


def test_before_a_cell_has_ended_its_steps_tell_how_long_it_takes_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now = tiny_experiment(tmp_path, "cosine"), [1000.0]
    log = log_file(run)
    log.parent.mkdir()
    log.write_text("session 0: base: 900 of 1000 loss 1.0\n")  # of an earlier process
    board = Board([run], ["one"])
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(live.time, "time", lambda: log.stat().st_mtime)
    execute(run)
    board.look()
    assert board.row(run.folder)[1:5:3] == ("running", "")
    now[0] += 50
    with log.open("a") as file:
        file.write("session 0: base: 100 of 1000 loss 2.0\n")
    board.look()
    assert board.row(run.folder)[4] == "> 8 min"  # 900 steps of half a second
    now[0] += 30
    with log.open("a") as file:
        file.write("session 0: base: 400 of 1000 loss 1.5\n")
    board.look()
    assert board.row(run.folder)[4] == "> 60 s"  # a step of a tenth, since the first line
    assert board.in_all() == "1 running; more than 60 s left"
    board.end(Ended(run, ""))
    assert board.row(run.folder)[4] == ""


def test_a_cell_that_was_begun_before_is_waiting_until_somebody_opens_it(tmp_path: Path) -> None:
    run = tiny_experiment(tmp_path, "cosine")
    execute(run)
    os.utime(run.folder / ".lock", (1, 1))
    board = Board([run], ["one"])
    board.look()
    assert board.rows(1)[0][1:3] == ("waiting", "4 of 4")


def test_the_table_is_drawn_on_a_terminal(tmp_path: Path) -> None:
    run = tiny_experiment(tmp_path, "cosine")
    paper = io.StringIO()
    board = Board([run], ["the only cell"])
    with LiveTable(board, Console(file=paper, force_terminal=True, width=100, highlight=False)):
        execute(run)
        board.end(Ended(run, ""))
    assert "the only cell" in paper.getvalue()
    assert "1 finished" in paper.getvalue()


def test_sessions_are_written_down_as_csv(tmp_path: Path) -> None:
    runs = [tiny_experiment(tmp_path, "cosine", seed=seed) for seed in (0, 1)]
    write = journal("csv", tmp_path)
    for run in runs:
        execute(run)
        write(run)
    with (tmp_path / "progress.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["seed"], line["session"]) for line in lines] == [(str(s), str(t)) for s in (0, 1) for t in range(4)]
    assert all(0 <= float(line["accuracy"]) <= 100 for line in lines)


def test_sessions_are_written_down_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'fscil[tensorboard]'")
    run = tiny_experiment(tmp_path, "cosine")
    execute(run)
    journal("tensorboard", tmp_path)(run)
    assert list((tmp_path / "tensorboard" / "cosine-paper" / "seed0").glob("events.*"))
    shutil.rmtree(tmp_path / "tensorboard")


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(FscilError, match=r"pip install 'fscil\[tensorboard\]'"):
        journal("tensorboard", tmp_path)


def test_a_cell_that_ends_while_it_is_looked_at_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_experiment(tmp_path, "cosine")
    board = Board([run], ["one"])
    execute(run)
    plain = live.progress

    def meanwhile(folder: Path) -> live.Progress:
        monkeypatch.setattr(live, "progress", plain)
        board.end(Ended(run, ""))
        return plain(folder)

    monkeypatch.setattr(live, "progress", meanwhile)
    board.look()
    assert board.rows(9)[0][1] == "finished"
