"""Model: a recogniser that can be taught and corrected; it knows classes by name, and no method."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.prototypes import ClassSums
from fscil.settings.names import suggestion
from fscil.teach.knowledge.album import Album
from fscil.teach.knowledge.calibration import Taught
from fscil.teach.knowledge.journal import Journal, Kind, Known, NotSure, Step
from fscil.teach.knowledge.recheck import taught_fits
from fscil.teach.knowledge.recogniser import Recogniser
from fscil.teach.names import Name, check_name, check_names, check_spelling


@dataclass(eq=False)
class Model(Recogniser):
    """A recogniser with the names of its classes, the photos they were taught from and a journal."""

    journal: Journal = field(default_factory=Journal)
    names: dict[int, Name] = field(default_factory=dict)  # by label, in the order in which the classes came
    photos: dict[int, tuple[bytes, ...]] = field(default_factory=dict)  # digests by label
    base: int = 0  # labels below this one are those of the base session
    revision: str | None = None  # of the file it was loaded from or last saved to
    album: Album = field(default_factory=Album)

    def copy(self) -> Model:
        """One that can be changed while this one is asked; what no lesson changes is shared."""
        parts = [part for b in self.branches for part in (b.encoder, b.whitening, b.centre)]
        fixed = (self.framing, self.origin, self.calibration)
        shared = [*parts, *fixed, *self.journal.steps, *self.photos.values()]
        twin = copy.deepcopy(self, {id(part): part for part in shared})
        twin.compute_like(self)
        return twin

    def compute_like(self, other: Model) -> None:
        """Encodes photos with what another model of the same encoders has made of them."""
        self._quick = other._quick

    @property
    def classes(self) -> list[Name]:
        """Names in the order of the columns of `scores`."""
        return list(self.names.values())

    def label(self, name: Name) -> int:
        """The label of a class; a text also finds a class whose name is a number."""
        for label, known in self.names.items():
            if known == name and type(known) is type(name):
                return label
        texts = {str(known): label for label, known in self.names.items()}
        if str(name) in texts:
            return texts[str(name)]
        check_spelling(name)
        raise FscilError(f"the model knows no class {name!r}; {suggestion(str(name), texts)}")

    def name_of(self, text: str) -> Name:
        """The class that a text means: one that is known or, where classes are called by numbers, by a new number."""
        for name in self.names.values():
            if str(name) == text:
                return name
        kind = type(next(iter(self.names.values()), text))
        if kind in (int, float):
            with suppress(ValueError):
                return kind(text)
        self.check_kind(text)
        return text

    def check_kind(self, name: Name) -> None:
        """Refuses a text where classes are called by numbers, and a number where they are called by texts."""
        known = next(iter(self.names.values()), name)
        if isinstance(known, str) != isinstance(name, str):
            raise FscilError(f"the classes are called like {known!r}; {name!r} is of another kind")

    def teach(self, names: Sequence[Name], features: Sequence[Tensor], photos: Sequence[bytes] = ()) -> None:
        """Counts features (one (n, dim) per branch) into the classes `names` (n,); a new name becomes a class."""
        check_names(names)
        by_name = {name: label for label, name in self.names.items()}
        following = self.next_label()
        for name in dict.fromkeys(names):
            if name not in by_name:
                by_name[name] = following
                following += 1
        labels = [by_name[name] for name in names]
        self.note("teach", dict(zip(labels, names, strict=True)), photos=len(names))
        self.count_in(labels, names, features, photos)
        self.recheck()

    def begin(self, names: Sequence[Name], features: Sequence[Tensor], photos: Sequence[bytes] = ()) -> None:
        """Takes the base classes in, in the order of their first photo, as the first step of the journal."""
        labels = {name: label for label, name in enumerate(dict.fromkeys(names))}
        check_names(labels)
        self.base = len(labels)
        self.journal.add(Step("learn", photos=len(names)))
        self.count_in([labels[name] for name in names], names, features, photos)

    def forget(self, name: Name) -> None:
        """Removes a class; `undo` brings it back."""
        label = self.label(name)
        self.note("forget", {label: self.names[label]})
        self._remove(label)
        self.recheck()

    def rename(self, name: Name, new: Name) -> None:
        """Gives a class another name."""
        label = self.label(name)
        self.check_kind(new)
        check_name(new)
        if any(new == other and label != at for at, other in self.names.items()):
            raise FscilError(f"there is already a class {new!r}; forget it first or choose another name")
        self.note("rename", {label: self.names[label]}, renamed=new)
        self.names[label] = new

    def erase(self, name: Name) -> set[int]:
        """Removes every trace of a class, also from the journal; this is final, and nothing before it can be undone.

        Gives the labels that it had; it may have been forgotten and taught again.
        """
        past = self.journal.labels_called(name) - set(self.names)
        known = str(name) in map(str, self.names.values())
        labels = past | {self.label(name)} if known or not past else past
        names = self.journal.names_of(labels) | {self.names[label] for label in labels if label in self.names}
        for label in labels & set(self.names):
            self._remove(label)
        self.recheck()
        self.journal.erase(labels, names - set(self.names.values()))
        self.tidy()
        return labels

    def adjust(self, false_acceptance: float) -> None:
        """Moves the threshold of "not sure" to another share of unknown photos that may be taken for known."""
        moved = self.calibration.at(false_acceptance, self._taught())
        self.journal.add(Step("adjust", before=(), not_sure=self._not_sure(), share=false_acceptance))
        self.calibration = moved

    @property
    def accepted(self) -> float | None:
        """Share of the held-out photos of known classes that are known, with as many classes as there are now."""
        return self.calibration.accepted_among(len(self.names))

    def recheck(self) -> None:
        """Measures the threshold of "not sure" again with the taught classes whose features are kept, after a change.

        It follows from what is known now: a class that is taught and forgotten leaves the threshold as it was.
        """
        taught = self._taught()
        if taught is not None or self.calibration.rechecked:
            self.calibration = self.calibration.at(self.calibration.false_acceptance, taught)

    def _taught(self) -> Taught | None:
        return taught_fits(self, {label: photos for label, photos in self.photos.items() if label >= self.base})

    def _not_sure(self) -> NotSure:
        c = self.calibration
        return NotSure(c.threshold, c.false_acceptance, c.accepted, c.rechecked)

    def undo(self) -> Step:
        """Takes the last step back and gives it."""
        step = self.journal.take_back()
        for label, known in zip(step.labels, step.before or (), strict=True):
            self._restore(label, known)
        self.negatives = self.negatives if step.negatives is None else step.negatives
        if step.not_sure is not None:  # not computed again: another version may have set it
            self.calibration = replace(self.calibration, **vars(step.not_sure))
        self.tidy()
        return step

    def tidy(self) -> None:
        """Lets go of features and pictures that no class, no photo of none of these and no journal step needs."""
        none = {*self.negatives, *(photo for step in self.journal.steps for photo in step.negatives or ())}
        taught = self.journal.photos() | {photo for photos in self.photos.values() for photo in photos}
        self.memory.keep_only(none | taught if self.memory.keep else none)
        self.album.keep_only(none | taught)

    @contextmanager
    def beside(self, classes: Sequence[Sequence[ClassSums]]) -> Iterator[None]:
        """For a while there are more classes behind the others, without names, given by their sums in each branch."""
        labels = range(self.next_label(), self.next_label() + len(classes))
        for label, rows in zip(labels, classes, strict=True):
            self._put(label, rows)
        try:
            yield
        finally:
            self.changed(labels)
            for label in labels:
                for branch in self.branches:
                    branch.prototypes.remove(label)

    def next_label(self) -> int:
        """The label of a class to come: one that no class has ever had."""
        return max(self.journal.largest_label(), next(reversed(self.names), -1), self.base - 1) + 1

    def note(
        self,
        kind: Kind,
        about: dict[int, Name],
        photos: int = 0,
        renamed: Name | None = None,
        negatives: tuple[bytes, ...] | None = None,
    ) -> None:
        """Writes down a change of some classes, before it is made."""
        before = tuple(self._known(label) for label in about)
        known = (tuple(about), tuple(about.values()), photos, renamed, before, negatives)
        self.journal.add(Step(kind, *known, self._not_sure() if self.calibration.counted else None))

    def _known(self, label: int) -> Known | None:
        if label not in self.names:
            return None
        rows = tuple(branch.prototypes.take(label) for branch in self.branches)
        return Known(self.names[label], rows, self.photos.get(label, ()))

    def count_in(
        self, labels: Sequence[int], names: Iterable[Name], features: Sequence[Tensor], photos: Sequence[bytes]
    ) -> None:
        """Adds features (one (n, dim) per branch) to classes, without a word in the journal."""
        self.changed(labels)
        if photos:
            features = self.memory.instead_of(photos, features)
            if self.memory.keep:
                self.memory.add(photos, features)
        for branch, f in zip(self.branches, features, strict=True):
            branch.prototypes.add(torch.tensor(labels), branch.counted(f))
        self.names |= dict(zip(labels, names, strict=True))
        added: dict[int, list[bytes]] = {}
        for label, photo in zip(labels, photos, strict=False):
            added.setdefault(label, []).append(photo)
        for label, digests in added.items():
            self.photos[label] = self.photos.get(label, ()) + tuple(digests)

    def take_out(self, sources: Mapping[int, list[int]], photos: Sequence[bytes], features: Sequence[Tensor]) -> None:
        """Takes the photos at some positions out of each class: its sums become those of its other photos.

        A class without photos goes. `features` (one (n, dim) per branch) serve where those of the others are not known.
        """
        for label, positions in sources.items():
            left = list(self.photos[label])
            for position in positions:
                left.remove(photos[position])
            number = self.branches[0].prototypes.take(label).photos - len(positions)
            if number == 0:
                self._remove(label)
                continue
            complete = len(left) == number and all(photo in self.memory for photo in left)
            rows = [branch.prototypes.take(label) for branch in self.branches]
            own = [b.counted(f[positions]) for b, f in zip(self.branches, features, strict=True)]
            gone = [f.double().sum(0) for f in own]
            kept = self.memory.sums(left, self.branches) if complete else []
            totals = kept or [r.total - g for r, g in zip(rows, gone, strict=True)]
            self._put(label, [ClassSums(t, number, r.bias) for t, r in zip(totals, rows, strict=True)])
            self.photos.pop(label)
            if left:
                self.photos[label] = tuple(left)

    def _put(self, label: int, rows: Sequence[ClassSums]) -> None:
        self.changed([label])
        for branch, row in zip(self.branches, rows, strict=True):
            branch.prototypes.put(label, row)

    def _remove(self, label: int) -> None:
        self.changed([label])
        for branch in self.branches:
            branch.prototypes.remove(label)
        del self.names[label]
        self.photos.pop(label, None)

    def _restore(self, label: int, known: Known | None) -> None:
        if known is None:
            self._remove(label)
            return
        self._put(label, known.rows)
        self.names = dict(sorted({**self.names, label: known.name}.items()))
        self.photos.pop(label, None)
        if known.photos:
            self.photos[label] = known.photos
