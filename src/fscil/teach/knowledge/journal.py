"""The journal of a model: every change is one step, and the last step can be taken back."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fscil.errors import FscilError
from fscil.nn.prototypes import ClassSums
from fscil.teach.names import NONE, Name
from fscil.text import count, few

Kind = Literal["learn", "teach", "forget", "rename", "erase", "unteach", "correct", "none", "adjust"]

UNDOABLE = 100  # steps that can be taken back; older ones stay as a line of history
REMEMBERED = 1000  # lines of history


@dataclass(frozen=True)
class Known:
    """All that a model holds of one class."""

    name: Name
    rows: tuple[ClassSums, ...]  # one per branch
    photos: tuple[bytes, ...]  # digests of the photos it was taught from


@dataclass(frozen=True)
class NotSure:
    """Where "not sure" begins, as `Calibration` has it."""

    threshold: float | None
    false_acceptance: float
    accepted: float | None
    rechecked: int = 0


@dataclass(frozen=True)
class Step:
    """One change: what it was about, and what the model held of these classes before (None: nothing)."""

    kind: Kind
    labels: tuple[int, ...] = ()
    names: tuple[Name, ...] = ()  # of these labels, as they were called then; a correction leads to the first
    photos: int = 0  # 0 in a lesson of several classes of which one was erased
    renamed: Name | None = None  # the new name
    before: tuple[Known | None, ...] | None = None  # None: cannot be taken back
    negatives: tuple[bytes, ...] | None = None  # photos of none of these before; None: they are the same after it
    not_sure: NotSure | None = None  # before; None: it is the same after it, or cannot be taken back
    share: float | None = None  # of unknown photos that may be taken for known, after the threshold was moved
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S"))

    def text(self) -> str:
        """The step as a line of history."""
        named, photos = few([repr(name) for name in self.names]), count(self.photos, "photo")
        target, sources = repr(self.names[0] if self.names else ""), few([repr(name) for name in self.names[1:]])
        return {
            "learn": f"learned the base classes from {photos}",
            "teach": f"taught {named}" + (f" from {photos}" if self.photos else ""),
            "forget": f"forgot {named}",
            "rename": f"renamed {named} to {self.renamed!r}",
            "erase": f"erased {photos if self.photos else 'a class'}",
            "unteach": f"took {photos} out of {named or NONE}",
            "correct": f"corrected {photos}" + (f" from {sources}" if sources else "") + f" to {target}",
            "none": f"kept {photos} as {NONE}" + (f", not as {named}" if named else ""),
            "adjust": f"moved the threshold of not sure to a false acceptance of {100 * (self.share or 0):g} %",
        }[self.kind]


class Journal:
    """The steps of a model, oldest first."""

    def __init__(self, steps: Sequence[Step] = ()):
        self.steps = list(steps)

    def add(self, step: Step) -> None:
        """Writes a step down; what lies too far back can no longer be undone."""
        self.steps.append(step)
        if len(self.steps) > UNDOABLE:
            self.steps[-UNDOABLE - 1] = _final(self.steps[-UNDOABLE - 1])
        del self.steps[:-REMEMBERED]

    def take_back(self) -> Step:
        """Removes the last step and gives it to the one who undoes it."""
        last = self.steps[-1] if self.steps else None
        if last is None or last.kind == "learn":
            raise FscilError("there is nothing to undo: the model is as it was learned")
        if last.before is None:
            why = f"{last.text()}, which is final" if last.kind == "erase" else "lies too far back"
            raise FscilError(f"the last change cannot be undone: it {why}")
        return self.steps.pop()

    def labels_called(self, name: Name) -> set[int]:
        """Labels that any step calls by this name; a text also finds a name that is a number."""
        calls = ((*pair, step.renamed) for step in self.steps for pair in _pairs(step))
        return {label for label, *names in calls if str(name) in [str(n) for n in names if n is not None]}

    def names_of(self, labels: Collection[int]) -> set[Name]:
        """Every name that any step gives these labels."""
        calls = ((*pair, step.renamed) for step in self.steps for pair in _pairs(step))
        return {name for label, *names in calls if label in labels for name in names if name is not None}

    def largest_label(self) -> int:
        """The largest label that any step is about, -1 if none is about any."""
        return max((label for step in self.steps for label in step.labels), default=-1)

    def erase(self, labels: Collection[int], names: Collection[Name]) -> None:
        """Removes every line about these labels or names, and with it the way back to any earlier state."""
        kept = []
        for step in self.steps:
            pairs = [(label, called) for label, called in _pairs(step) if label not in labels and called not in names]
            one_sided = step.kind == "correct" and len(pairs) < len(step.labels)
            if one_sided or (step.kind == "rename" and step.renamed in names):
                pairs = []
            if pairs or not step.labels:
                left, called = zip(*pairs, strict=True) if pairs else ((), ())
                photos = step.photos if len(left) == len(step.labels) else 0
                kept.append(_final(replace(step, labels=left, names=called, photos=photos)))
        self.steps = [*kept, Step("erase")]

    def erase_photos(self, number: int) -> None:
        """Removes all digests, and with them the way back to any earlier state."""
        self.steps = [_final(step) for step in self.steps]
        self.steps.append(Step("erase", photos=number))

    def photos(self) -> set[bytes]:
        """The digests of all photos that a step would bring back."""
        known = {photo for step in self.steps for one in step.before or () if one for photo in one.photos}
        return known | {photo for step in self.steps for photo in step.negatives or ()}


def _final(step: Step) -> Step:
    """The step as a line of history, without what would take it back."""
    return replace(step, before=None, negatives=None, not_sure=None)


def _pairs(step: Step) -> list[tuple[int, Name]]:
    return list(zip(step.labels, step.names, strict=True))
