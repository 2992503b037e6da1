"""The model file as a service sees it: one snapshot to ask, one writer that changes the file and then the snapshot.

The writer drains all changes that wait, applies each to a copy under the lock of the file, saves, and answers only when
file and folder are on the disk. What others write is read as soon as the file is another one.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fscil.errors import FscilError
from fscil.files import DiskFailure
from fscil.serve.problems import Problem
from fscil.teach.knowledge.model import Model
from fscil.teach.storage import modelfile

LOOK_AGAIN = 0.2  # seconds between two looks at the file
PATIENCE = 60.0  # seconds for the last change; another process may hold the file
AT_ONCE = 64  # changes that are written together
LOST = "the change could not be saved, and nothing was changed"
FAILED = "the disk failed; the service changes nothing until somebody has looked after it and started the service again"
LOG = logging.getLogger("fscil.serve")

Revisions = Sequence[str] | None  # of which one has to be the model's; None: any


@dataclass(frozen=True)
class Done:
    """What came of a change, the model after it, and the revision to which it led.

    Of changes that are written together only the last leads to the model's: who wants to take back an earlier one has
    to look again, because a later one is somebody else's.
    """

    value: Any
    model: Model
    revision: str


@dataclass(frozen=True)
class Applied:
    """What came of a change, and how many of those that are written together had been made by then."""

    value: Any
    place: int


@dataclass(frozen=True)
class Change:
    """What somebody wants to do to the model, and what they believe it to be."""

    apply: Callable[[Model], Any]
    expected: Revisions
    done: Future[Done] = field(default_factory=Future)


class Store:
    """The model in a file, for many who ask and many who teach."""

    def __init__(self, path: Path, most: int):
        self._path = path
        self._changes: queue.Queue[Change] = queue.Queue(most)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
        self._file = _identity(path)
        self._model = _warm(modelfile.load(path))
        self.fault: str | None = None  # why the file could not be read last time
        self.failed = False  # whether the disk did: then nothing is changed any more

    @property
    def path(self) -> Path:
        return self._path

    @property
    def model(self) -> Model:
        """The newest state; it never changes, a later one takes its place."""
        return self._model

    @property
    def waiting(self) -> int:
        """Changes that wait to be written."""
        return self._changes.qsize()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def open(self) -> None:
        """Begins to write, and to look at the file."""
        self._thread.start()

    def close(self) -> None:
        """Ends after what was accepted."""
        self._stopping.set()
        self._thread.join(PATIENCE)

    def submit(self, apply: Callable[[Model], Any], expected: Revisions) -> Future[Done]:
        """Asks for a change; a future that is cancelled before its turn changes nothing."""
        change = Change(apply, expected)
        try:
            self._changes.put_nowait(change)
        except queue.Full as problem:
            raise Problem(503, "too many changes wait; try again soon", headers={"Retry-After": "1"}) from problem
        return change.done

    def _work(self) -> None:
        while True:
            changes = self._drained()
            if changes:
                self._make(changes)
            elif self._stopping.is_set():
                return
            else:
                self._look()

    def _drained(self) -> list[Change]:
        changes: list[Change] = []
        try:
            changes.append(self._changes.get(timeout=LOOK_AGAIN))
            while len(changes) < AT_ONCE:
                changes.append(self._changes.get_nowait())
        except queue.Empty:
            pass
        return changes

    def _look(self) -> None:
        """Takes over what another process has written."""
        try:
            self._refresh()
        except Exception as problem:
            if str(problem) != self.fault:
                LOG.error("the model file cannot be read: %s", problem)
            self.fault = str(problem)

    def _refresh(self) -> None:
        file = _identity(self._path)
        if file != self._file:
            self._model = _warm(modelfile.load(self._path, self._model))
            self._file = file
        self.fault = None

    def _make(self, waiting: Sequence[Change]) -> None:
        claimed = False
        try:
            with modelfile.held(self._path):
                changes, claimed = _claimed(waiting), True
                self._answer(changes, self._outcomes(changes))  # the old file gives its room back only after that
        except Exception as problem:
            LOG.error("the model file cannot be held: %s", problem)
            if not claimed:
                changes = _claimed(waiting)
                self._answer(changes, [Problem(507, LOST)] * len(changes))

    def _outcomes(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        """Of each change what came of it, once the disk has it."""
        outcomes: list[Applied | Exception]
        try:
            if self.failed:
                raise Problem(507, FAILED)
            self._refresh()
            model, outcomes = self._applied(changes)
            if model is not self._model:
                self._save(model)
        except Exception as problem:
            LOG.error("a change could not be saved: %s", problem)
            outcomes = [problem if isinstance(problem, Problem) else Problem(507, LOST)] * len(changes)
        return outcomes

    def _answer(self, changes: Sequence[Change], outcomes: Sequence[Applied | Exception]) -> None:
        made = max((outcome.place for outcome in outcomes if isinstance(outcome, Applied)), default=0)
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Applied):
                passed = f"-{outcome.place}" if outcome.place < made else ""
                change.done.set_result(Done(outcome.value, self._model, f"{self._model.revision}{passed}"))
            else:
                change.done.set_exception(outcome)

    def _save(self, model: Model) -> None:
        try:
            modelfile.write(model, self._path)
        except FscilError as problem:
            self.failed = self.failed or isinstance(problem, DiskFailure)
            if _identity(self._path) != self._file:
                why = "the change was made, but the disk failed: it may not outlast a power cut"
                raise Problem(500, why) from problem
            raise
        self._file = _identity(self._path)
        self._model = _warm(model)

    def _applied(self, changes: Sequence[Change]) -> tuple[Model, list[Applied | Exception]]:
        """The model after changes, and of each what came of it; one that fails leaves no trace."""
        outcomes: list[Applied | Exception] = []
        model, place = self._model, 0
        for change in changes:
            try:
                if change.expected is not None and (model is not self._model or model.revision not in change.expected):
                    raise Problem(412, "the model was changed by somebody else; look at it again, then repeat")
                trial = model.copy()
                value = change.apply(trial)
                if _differ(model, trial):
                    model, place = trial, place + 1
                outcomes.append(Applied(value, place))
            except Exception as problem:
                outcomes.append(problem)
        return model, outcomes


def _claimed(changes: Sequence[Change]) -> list[Change]:
    """The changes that nobody has given up; from now on nobody can."""
    return [change for change in changes if change.done.set_running_or_notify_cancel()]


def _differ(before: Model, after: Model) -> bool:
    """Whether a step was made or taken back."""
    old, new = before.journal.steps, after.journal.steps
    return len(old) != len(new) or (bool(old) and old[-1] is not new[-1])


def _warm(model: Model) -> Model:
    """A model that computes nothing of its own when it is asked, so that many may ask it at once."""
    if model.names:
        nothing = [torch.zeros(1, branch.encoder.dim) for branch in model.branches]
        model.scores(nothing)
        model.evidence(nothing)
    return model


def _identity(path: Path) -> tuple[int, int, int, int]:
    """What a file replaced by another one does not have in common with it; opened, because NFS then asks the server."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
    except OSError as problem:
        raise FscilError(
            f"{path} cannot be opened ({problem.strerror}); give a model file made by fscil learn"
        ) from problem
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size
