"""Clients that do everything at once, and note every change in a ledger before they ask for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from albums import BIRDS
from soak import lives
from soak.ledger import Ledger, is_whole, replayed
from soak.visitor import ANY, FORM, Answer, Gone, Visitor, form, noise

BASE = dict.fromkeys(BIRDS, 10)  # photos of each class that the model was learned from
REFUSALS = (404, 409, 412, 503)  # what a change may meet among others
FULL = 507
DEEDS = ("teach", "teach", "teach", "more", "unteach", "rename", "forget", "undo", "predict", "predict", "look")


@dataclass
class Class:
    """A class of one client, and what it has not yet done with it."""

    name: str
    digests: list[str]
    left: set[str] = field(default_factory=lambda: {"more", "unteach", "rename"})


class Client(threading.Thread):
    """Teaches classes of its own, changes its mind about them, asks and looks, until nobody answers."""

    def __init__(self, name: str, port: int, ledger: Ledger, seed: int, refusals: Sequence[int] = REFUSALS):
        super().__init__(daemon=True)
        self._name, self._ledger, self._refusals = name, ledger, refusals
        self._visitor, self._random = Visitor(port), random.Random(seed)
        self._classes: list[Class] = []
        self._number = 0
        self._leaving = threading.Event()
        self.complaints: list[str] = []
        self.asked = 0
        self.unsaved = 0  # changes that were answered by 507

    def run(self) -> None:
        try:
            while not self._leaving.is_set():
                getattr(self, f"_{self._random.choice(DEEDS)}")()
                self.asked += 1
        except Gone:
            return
        except Exception as problem:
            self.complaints.append(f"a client met {problem!r}")

    def leave(self) -> None:
        """Finishes what it does, and goes."""
        self._leaving.set()
        self.join()

    def _photos(self, number: int) -> bytes:
        return form([noise(self._random.getrandbits(31)) for _ in range(number)])

    def _teach(self) -> None:
        self._number += 1
        name = f"{self._name}-{self._number}"
        told = self._change(f"taught '{name}' from 2 photos", "POST", f"/v1/classes/{name}/photos", self._photos(2))
        if told:
            self._classes.append(Class(name, told["digests"]))

    def _one(self, deed: str) -> Class | None:
        chosen = [one for one in self._classes if deed in one.left]
        if not chosen:
            return None
        one = self._random.choice(chosen)
        one.left.discard(deed)
        return one

    def _more(self) -> None:
        if one := self._one("more"):
            path = f"/v1/classes/{one.name}/photos"
            self._change(f"taught '{one.name}' from 1 photo", "POST", path, self._photos(1))

    def _unteach(self) -> None:
        if one := self._one("unteach"):
            path = f"/v1/classes/{one.name}/photos/{one.digests[0]}"
            self._change(f"took 1 photo out of '{one.name}'", "DELETE", path)

    def _rename(self) -> None:
        if one := self._one("rename"):
            old, one.name = one.name, f"{one.name}-again"
            one.left = {"unteach"} & one.left  # a line of history with the new name could be one of the old name
            body = f'{{"name": "{one.name}"}}'.encode()
            if not self._change(f"renamed '{old}' to '{one.name}'", "PATCH", f"/v1/classes/{old}", body):
                self._classes.remove(one)

    def _forget(self) -> None:
        if self._classes:
            one = self._classes.pop(self._random.randrange(len(self._classes)))
            self._change(f"forgot '{one.name}'", "DELETE", f"/v1/classes/{one.name}")

    def _undo(self) -> None:
        def ask() -> str | None:
            answer = self._visitor.ask("POST", "/v1/undo", headers=ANY)
            return answer.told()["undone"] if self._accepted(answer) else None

        self._ledger.change(None, ask)

    def _change(self, text: str, method: str, path: str, body: bytes | None = None) -> dict[str, list[str]] | None:
        answers: list[Answer] = []
        kind = FORM if method == "POST" else {"Content-Type": "application/json", **ANY}

        def ask() -> str | None:
            answers.append(self._visitor.ask(method, path, body, kind))
            return text if self._accepted(answers[0]) else None

        return answers[0].told() if self._ledger.change(text, ask) else None

    def _accepted(self, answer: Answer) -> bool:
        if answer.status not in (200, 201, *self._refusals):
            self.complaints.append(f"a change was answered by {answer.status}: {answer.body[:200]!r}")
        self.unsaved += answer.status == FULL
        return answer.status in (200, 201)

    def _predict(self) -> None:
        answer = self._visitor.ask("POST", "/v1/predict", self._photos(1), FORM)
        if answer.status not in (200, 503):
            self.complaints.append(f"a question was answered by {answer.status}: {answer.body[:200]!r}")

    def _look(self) -> None:
        """What is known has to be what its history says, whatever is being written."""
        history, classes = self._visitor.get("/v1/history"), self._visitor.get("/v1/classes")
        if history["revision"] == classes["revision"]:
            lines = [step["text"] for step in reversed(history["steps"])]
            there = {one["name"]: one["photos"] for one in classes["classes"]}
            if is_whole(lines) and there != replayed(lines, BASE):
                self.complaints.append(f"half a change was seen at revision {history['revision']}")


class Terminal(threading.Thread):
    """Somebody who teaches the same file by commands."""

    def __init__(self, name: str, file: Path, photos: Path, ledger: Ledger):
        super().__init__(daemon=True)
        self._name, self._file, self._photos, self._ledger = name, file, photos, ledger
        self._process: lives.BaseProcess | None = None
        self.commands = 0

    def run(self) -> None:
        name = f"{self._name}-typed"
        folder = self._photos / name
        folder.mkdir()
        for number in range(2):
            (folder / f"{number}.png").write_bytes(noise(hash((name, number)) % 2**31))
        try:
            self._type(f"taught '{name}' from 2 photos", "teach", self._file, name, folder)
            self._type(f"renamed '{name}' to '{name}-again'", "rename", self._file, name, f"{name}-again")
        except Gone:
            return

    def kill(self) -> None:
        """kill -9, whatever it does."""
        if self._process is not None:
            self._process.kill()

    def _type(self, text: str, *tokens: object) -> None:
        def ask() -> str | None:
            self._process = lives.command(tokens, self._file.with_suffix(".typed.log"))
            self._process.join()
            if self._process.exitcode == -9:
                raise Gone("killed")
            return text if self._process.exitcode == 0 else None

        self.commands += self._ledger.change(text, ask)
