"""A service killed over and over, at any moment of its work; after each end the file is held against all promises."""

from __future__ import annotations

import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

import tiny  # noqa: F401 (the encoder of the model)
from albums import BIRDS, QUICK, empty_model, photos
from fscil.teach.base import learning
from fscil.teach.knowledge.model import Model
from fscil.teach.storage import modelfile
from soak.crowd import BASE, Client, Terminal
from soak.ledger import Ledger, replayed
from soak.lives import Life
from soak.visitor import Visitor

CLIENTS = 16
LONGEST = 1.5  # seconds of work between a start and a kill
LONGEST_HISTORY = 300  # lines; then a new file takes its place
ENDS = (0, -signal.SIGTERM)  # of a service that was asked to stop; uvicorn passes the signal on when all is done
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "FSCIL_RUNTIME": "torch"}


@dataclass
class Tally:
    """What was done, and what was wrong."""

    kills: int = 0
    aimed: int = 0  # of them while a file was being written
    requests: int = 0
    commands: int = 0
    promised: int = 0
    lines: int = 0  # of history that were checked
    complaints: list[str] = field(default_factory=list)

    def text(self) -> str:
        facts = f"{self.kills} kills ({self.aimed} while the file was written), {self.requests} requests"
        return f"{facts}, {self.commands} commands, {self.promised} promised changes: {len(self.complaints)} complaints"


def learned(folder: Path) -> Path:
    """A model file of six classes of ten photos, with the tiny encoder; one that is there already is taken."""
    file = folder / "learned.fscil"
    sources = [photo for kind, name in enumerate(BIRDS) for photo in photos(folder / "album" / name, kind, range(10))]
    if not file.exists():
        model = empty_model()
        learning.learn(model, sources, [photo.parent.name for photo in sources], settings=QUICK)
        modelfile.save(model, file)
    return file


class Siege:
    """Lives of services of one file, each ended by a kill."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, random.Random(seed)
        self._learned = learned(folder)
        self._file = folder / "birds.fscil"
        self.tally = Tally()
        self._renew()

    def _renew(self) -> None:
        shutil.copy(self._learned, self._file)
        self._ledger = Ledger()

    def kill_once(self) -> None:
        """One life: it starts, all come, it is killed, the file is checked."""
        life = Life(self._file, self._folder / "service.log", ENVIRONMENT)
        self._compare(life)
        number = self.tally.kills
        clients = [
            Client(f"{number}-{i}", life.port, self._ledger, self._random.getrandbits(31)) for i in range(CLIENTS)
        ]
        terminal = Terminal(str(number), self._file, self._folder, self._ledger)
        before = self._ledger.promised
        for one in (*clients, terminal):
            one.start()
        self._await_moment()
        life.kill()
        if self._random.random() < 0.5:
            terminal.kill()
        for one in (*clients, terminal):
            one.join()
        self.tally.kills += 1
        self.tally.commands += terminal.commands
        self.tally.promised += self._ledger.promised - before
        for client in clients:
            self.tally.requests += client.asked
            self.tally.complaints += client.complaints
        self._check()

    def _await_moment(self) -> None:
        """Waits for a moment: any, or the next in which a file is being written."""
        time.sleep(self._random.uniform(0.05, LONGEST))
        if self._random.random() < 0.5:
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                if any(self._folder.glob("birds.fscil.*.partial")):
                    self.tally.aimed += 1
                    return

    def _check(self) -> None:
        model = modelfile.load(self._file)
        history = [step.text() for step in model.journal.steps]
        self.tally.lines += len(history)
        self.tally.complaints += self._ledger.complaints(history) + unsound(model)
        if len(history) > LONGEST_HISTORY:
            self._renew()

    def _compare(self, life: Life) -> None:
        """What a service says after its start is what the file holds."""
        model, visitor = modelfile.load(self._file), Visitor(life.port)
        if visitor.get("/v1/model")["revision"] != model.revision:
            self.tally.complaints.append("after a start the service is not at the revision of the file")

    def end(self) -> None:
        """A last life, ended in peace: all that was accepted is there, and nothing is left beside the file."""
        life = Life(self._file, self._folder / "service.log", ENVIRONMENT)
        clients = [Client(f"last-{i}", life.port, self._ledger, i) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(LONGEST)
        code = life.stop()
        for client in clients:
            client.join()
            self.tally.complaints += client.complaints
        self._check()
        left = [path.name for path in self._folder.glob("*.partial")]
        self.tally.complaints += [f"left beside the file: {left}"] if left else []
        self.tally.complaints += [f"a service that was asked to stop ended with {code}"] if code not in ENDS else []


def unsound(model: Model) -> list[str]:
    """What in a model is not what its history and its photos make of it."""
    history = [step.text() for step in model.journal.steps]
    known = {str(n): int(c) for n, c in zip(model.classes, model.branches[0].prototypes.counts.tolist(), strict=True)}
    wrong = []
    if known != replayed(history, BASE):
        wrong.append(f"classes are not what the history says: {known}")
    for label, digests in model.photos.items():
        totals = [branch.prototypes.take(label).total for branch in model.branches]
        pairs = zip(totals, model.memory.sums(digests, model.branches), strict=True)
        if not all(torch.allclose(total.double(), kept, atol=1e-4) for total, kept in pairs):
            wrong.append(f"the sums of {model.names[label]!r} are not those of its photos")
    return wrong


def besiege(folder: Path, kills: int, seconds: float, seed: int) -> Tally:
    """Kills a service as often as asked for, or as the time allows."""
    siege, end = Siege(folder, seed), time.monotonic() + seconds
    while siege.tally.kills < kills and time.monotonic() < end and not siege.tally.complaints:
        siege.kill_once()
    siege.end()
    return siege.tally
