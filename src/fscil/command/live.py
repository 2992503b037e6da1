"""The cells of an experiment while they run: a table that is drawn again and again, read from their run folders."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from fscil.command.show import duration
from fscil.text import printable

if TYPE_CHECKING:
    from fscil.experiments.schedule import Ended
    from fscil.running.experiment import RunSpec

STEP = re.compile(r"^(session \d+: .+): (\d+) of (\d+)", re.MULTILINE)  # as `Bar` writes it into a log
SECONDS = 2.0  # between two looks at the run folders
COLUMNS = ("cell", "state", "session", "accuracy", "time left")
WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"
ORDER = (RUNNING, FAILED, FINISHED, WAITING)  # what is shown first where not all fits


class Progress(NamedTuple):
    """How far a run folder is."""

    sessions: int
    planned: int
    accuracy: float | None


class Step(NamedTuple):
    """How far a stage of training was when its process told of it."""

    stage: str
    done: int
    total: int
    at: float  # seconds of the clock


def last_step(log: Path, start: int) -> Step | None:
    """The last step that the log of a cell tells of, behind its first `start` bytes."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            told = STEP.findall(file.read().decode("utf-8", "replace"))
            at = time.time() - log.stat().st_mtime
    except OSError:  # nobody has told anything yet
        return None
    return Step(told[-1][0], int(told[-1][1]), int(told[-1][2]), time.monotonic() - max(0.0, at)) if told else None


def progress(folder: Path) -> Progress:
    """The finished sessions of a run folder, and the accuracy after the last of them."""
    from fscil.errors import FscilError
    from fscil.report.runs import TOTAL, read_folder

    try:
        there = read_folder(folder)
    except FscilError:  # not begun, or about to be written
        return Progress(0, 0, None)
    done = len(there.learning)
    return Progress(done, there.facts["sessions"], there.curves[TOTAL].accuracies[-1] if done else None)


class Board:
    """What is known about each cell."""

    def __init__(self, runs: Sequence[RunSpec], names: Sequence[str]):
        from fscil.experiments.schedule import log_file

        self.logs = {run.folder: log_file(run) for run in runs}
        self.told = {folder: log.stat().st_size if log.exists() else 0 for folder, log in self.logs.items()}  # before
        self.steps: dict[Path, tuple[Step, Step]] = {}  # the first and the last one known of the stage at work
        self.names = {run.folder: name for run, name in zip(runs, names, strict=True)}
        self.states = dict.fromkeys(self.names, WAITING)
        self.reached = dict.fromkeys(self.names, Progress(0, 0, None))
        self.began: dict[Path, float] = {}
        self.took: list[float] = []  # seconds of finished cells
        self.since = time.time() - 1  # file systems may round times
        self.turn = threading.Lock()  # cells end in one thread, the table is drawn in another

    def look(self) -> None:
        """Reads the folders of the cells that have not ended."""
        for folder, state in list(self.states.items()):
            if state in (WAITING, RUNNING) and (folder / "run.json").exists():
                reached, begins = progress(folder), state == WAITING and self._at_work(folder)
                with self.turn:
                    self._note(folder, reached, begins)

    def _note(self, folder: Path, reached: Progress, begins: bool) -> None:
        """Takes in what was read of a cell, unless it has ended meanwhile."""
        if self.states[folder] not in (WAITING, RUNNING):
            return
        self.reached[folder] = reached
        if begins:
            self.states[folder], self.began[folder] = RUNNING, time.monotonic()
        if self.states[folder] == RUNNING:
            self._follow(folder)

    def _follow(self, folder: Path) -> None:
        step = last_step(self.logs[folder], self.told[folder])
        if step:
            first, _ = self.steps.get(folder, (step, step))
            self.steps[folder] = (first if first.stage == step.stage else step, step)

    def _at_work(self, folder: Path) -> bool:
        """Whether somebody has opened the run since; asking for its lock might take it away from who begins."""
        lock = folder / ".lock"
        return lock.exists() and lock.stat().st_mtime >= self.since

    def end(self, ended: Ended) -> None:
        folder = ended.run.folder
        with self.turn:
            self.states[folder] = FAILED if ended.error else FINISHED
        self.reached[folder] = progress(folder)
        if folder in self.began and not ended.error:
            self.took.append(time.monotonic() - self.began[folder])

    def left(self, folder: Path) -> float | None:
        """Seconds until a running cell ends, if it takes as long as those before."""
        if self.states[folder] != RUNNING or not self.took:
            return None
        return max(0.0, sum(self.took) / len(self.took) - (time.monotonic() - self.began[folder]))

    def of_stage(self, folder: Path) -> float | None:
        """Seconds until the stage at which a running cell trains ends, by the steps that it has made so far."""
        if self.states[folder] != RUNNING or folder not in self.steps:
            return None
        first, last = self.steps[folder]
        began = Step(first.stage, 0, first.total, self.began[folder])  # as long as there is one step alone
        before = first if last.done > first.done else began
        a_step = (last.at - before.at) / max(1, last.done - before.done)
        return max(0.0, (last.total - last.done) * a_step - (time.monotonic() - last.at))

    def in_all(self) -> str:
        """One line about all cells."""
        counts = {state: list(self.states.values()).count(state) for state in ORDER}
        running = counts[RUNNING] or 1
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        if not self.took:
            stages = [left for folder in self.states if (left := self.of_stage(folder)) is not None]
            return f"{text}; more than {duration(max(stages))} left" if stages else text
        mean = sum(self.took) / len(self.took)
        seconds = mean * counts[WAITING] / running + max((self.left(f) or 0.0 for f in self.states), default=0.0)
        return f"{text}; about {duration(seconds)} left"

    def rows(self, most: int) -> list[tuple[str, ...]]:
        """The cells that fit, those at work first."""
        places = {folder: i for i, folder in enumerate(self.states)}
        folders = sorted(self.states, key=lambda f: (ORDER.index(self.states[f]), places[f]))
        shown = sorted(folders[:most], key=places.__getitem__)
        return [self.row(folder) for folder in shown]

    def row(self, folder: Path) -> tuple[str, ...]:
        at, left, stage = self.reached[folder], self.left(folder), self.of_stage(folder)
        sessions = f"{at.sessions} of {at.planned}" if at.planned else ""
        accuracy = "" if at.accuracy is None else f"{at.accuracy:.2f}"
        bound = "" if stage is None else f"> {duration(stage)}"  # what comes behind it is not known
        time_left = bound if left is None else duration(left)
        return self.names[folder], self.states[folder], sessions, accuracy, time_left


class LiveTable:
    """While it is entered, the board is drawn on the terminal every few seconds."""

    def __init__(self, board: Board, console: Console):
        self.board, self.console = board, console
        self.live = Live(console=console, auto_refresh=False, transient=False)
        self.over = threading.Event()
        self.painter = threading.Thread(target=self._paint, daemon=True)

    def __enter__(self) -> LiveTable:
        self.live.start()
        self.painter.start()
        return self

    def _paint(self) -> None:
        while not self.over.wait(SECONDS):
            self.draw()

    def draw(self) -> None:
        self.board.look()
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for place, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if place > 1 else "left")
        for row in self.board.rows(max(3, self.console.height - 5)):
            table.add_row(*map(printable, row))
        self.live.update(Group(table, self.board.in_all()), refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.painter.join()
        self.draw()
        self.live.stop()
