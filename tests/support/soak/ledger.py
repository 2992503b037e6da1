"""What a service has promised, held against what its model file says after any end.

Every change has a line of history of its own, so a line that is missing, or there without a reason, is seen.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Knowledge = dict[str, int]  # photos by class

STEP = re.compile(
    r"(?P<learned>learned the base classes from \d+ photos?)"
    r"|taught '(?P<taught>[^']+)' from (?P<more>\d+) photos?"
    r"|took (?P<less>\d+) photos? out of '(?P<untaught>[^']+)'"
    r"|renamed '(?P<old>[^']+)' to '(?P<new>[^']+)'"
    r"|forgot '(?P<forgotten>[^']+)'"
)


@dataclass
class Entry:
    """A change that was asked for: when, and when it was promised (None: nobody knows)."""

    text: str
    sent: float
    promised: float | None = None


class Ledger:
    """All changes of one model file; None as a text is an undo, which names what it takes back when it is answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._undone: set[str] = set()
        self._undoing = 0  # undos of which nobody knows what came of them
        self._refused: set[str] = set()
        self._replaced = 0.0  # when another model had taken the place of the file
        self.promised = 0

    def change(self, text: str | None, ask: Callable[[], str | None]) -> bool:
        """Asks for a change; `ask` gives its line of history, None if it was refused, and raises if nobody answers."""
        with self._lock:
            if text is None:
                self._undoing += 1
            else:
                self._entries[text] = Entry(text, time.monotonic())
        line = ask()
        with self._lock:
            if text is None:
                self._undoing -= 1
                self._undone |= {line} if line else set()
            elif line is None:
                self._refuse(text)
            elif self._entries[text].sent >= self._replaced:  # else it may have been promised for the model before
                self._entries[text].promised = time.monotonic()
            self.promised += line is not None
        return line is not None

    def _refuse(self, text: str) -> None:
        del self._entries[text]
        self._refused.add(text)

    def replaced(self, began: float, ended: float) -> None:
        """Another model took the place of the file between two moments: what was promised before is gone with it."""
        with self._lock:
            self._replaced = ended
            for entry in list(self._entries.values()):
                if entry.promised is not None and entry.promised < began:
                    self._refuse(entry.text)
                elif entry.sent < ended:
                    entry.promised = None

    def complaints(self, history: Sequence[str]) -> list[str]:
        """What is wrong with a history (oldest first) when nobody asks; what nobody knew is known after it."""
        there = set(history[1:])
        wrong = [f"twice in the history: {text}" for text in there if history.count(text) > 1]
        wrong += [f"refused or undone, but there: {text}" for text in there & (self._refused | self._undone)]
        wrong += [f"asked for by nobody: {text}" for text in there - set(self._entries) - self._refused - self._undone]
        missing = {e.text for e in self._entries.values() if e.promised is not None} - there - self._undone
        if len(missing) > self._undoing:
            wrong += [f"promised, but lost (or one of {self._undoing} undone): {text}" for text in sorted(missing)]
        self._undone |= missing
        wrong += self._disorder(history[1:])
        self._settle(there)
        return wrong

    def _disorder(self, lines: Sequence[str]) -> list[str]:
        """Lines before which one stands that was asked for only after they were promised."""
        wrong, latest = [], 0.0
        for line in lines:
            entry = self._entries.get(line)
            if entry is None:
                continue
            if entry.promised is not None and entry.promised < latest:
                wrong.append(f"later in the history than what followed it: {line}")
            latest = max(latest, entry.sent)
        return wrong

    def _settle(self, there: set[str]) -> None:
        self._undoing = 0
        for entry in list(self._entries.values()):
            if entry.text in there:
                entry.promised = entry.promised or time.monotonic()
            elif entry.promised is None:
                self._refuse(entry.text)


def is_whole(history: Sequence[str]) -> bool:
    """Whether a history (oldest first) still has its beginning: a model remembers the last thousand lines."""
    step = STEP.fullmatch(history[0]) if history else None
    return step is not None and step["learned"] is not None


def replayed(history: Sequence[str], base: Mapping[str, int]) -> Knowledge:
    """What a model knows that has gone through a history (oldest first)."""
    known = dict(base)
    for line in history:
        step = STEP.fullmatch(line)
        if step is None:
            raise ValueError(f"not a line of this run: {line}")
        _go(known, step)
    return known


def _go(known: Knowledge, step: re.Match[str]) -> None:
    if name := step["taught"]:
        known[name] = known.get(name, 0) + int(step["more"])
    elif name := step["untaught"]:
        known[name] -= int(step["less"])
        if not known[name]:
            del known[name]
    elif step["old"]:
        known[step["new"]] = known.pop(step["old"])
    elif step["forgotten"]:
        del known[step["forgotten"]]
