"""The rule that cuts a data set into sessions, and the sessions themselves."""

import hashlib
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fscil.data import PUBLISHED, Protocol
from fscil.data.images import Images, Ingredients, free_memory
from fscil.errors import FscilError


@dataclass(frozen=True, kw_only=True)
class Session:
    """All that a method gets to see while it learns."""

    index: int
    classes: tuple[int, ...]
    train: Images
    held_out: Images | None = None  # base images kept from training, for choosing settings
    past: Images | None = None  # every earlier training image, only where the method declares the oracle
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flips: bool  # False: a mirrored image may belong to another class


def shuffled(indices: Tensor, seed: int) -> Tensor:
    """The images of one class in the order in which shots are taken from them; seed 1 gives TOPIC's lists."""
    return indices[torch.from_numpy(np.random.RandomState(seed).permutation(len(indices)))]


def indices_by_class(labels: Tensor, count: int) -> list[Tensor]:
    """For each of `count` classes the indices of its images, ascending."""
    return list(labels.argsort(stable=True).split(labels.bincount(minlength=count).tolist()))


class Benchmark:
    """A data set cut into a base session and few-shot sessions.

    >>> from fscil import benchmark
    >>> [len(session.train) for session in benchmark("glyphs").sessions()][1:3]
    [25, 25]
    """

    def __init__(self, name: str, ingredients: Ingredients, protocol: Protocol):
        self.name = name
        self.class_names = ingredients.class_names  # index = label
        self.mean, self.std, self.flips = ingredients.mean, ingredients.std, ingredients.flips
        self.base_classes = ingredients.base_classes if protocol.base_classes is None else protocol.base_classes
        self.ways = ingredients.ways if protocol.ways is None else protocol.ways
        self.shots = protocol.shots
        count = len(self.class_names)
        self._check(count)
        order = _permuted(tuple(range(count)), protocol.order_seed)
        self.order = (  # labels in the order they arrive
            *order[: self.base_classes],
            *_permuted(order[self.base_classes :], protocol.later_order_seed),
        )
        later = (self.order[start : start + self.ways] for start in range(self.base_classes, count, self.ways))
        self.session_classes = (self.order[: self.base_classes], *later)
        self.first_seen = {label: t for t, classes in enumerate(self.session_classes) for label in classes}
        self._train, self._test = ingredients.train, ingredients.test
        by_class = indices_by_class(self._train.labels, count)
        base = set(self.session_classes[0])  # all its images are learned: other shots leave the base session as it is
        seeds = [PUBLISHED.shots_seed if label in base else protocol.shots_seed for label in range(count)]
        self._shuffled = [shuffled(indices, seed) for indices, seed in zip(by_class, seeds, strict=True)]
        self._test_indices = indices_by_class(self._test.labels, count)

    def on(self, device: torch.device) -> "Benchmark":
        """The same sessions, whose images are read on a device."""
        moved = copy(self)
        moved._train, moved._test = self._train.on(device), self._test.on(device)
        return moved

    def taken(self, device: torch.device) -> int:
        """Bytes of a device that `on` takes: first the training images are moved, if they fit, then those of tests."""
        free = free_memory(device)
        train = self._train.taken(device, free)
        return train + self._test.taken(device, free - train)

    def _check(self, count: int) -> None:
        for setting in ("base_classes", "ways", "shots"):
            value = getattr(self, setting)
            if value < 1:
                raise FscilError(f"the protocol's {setting} is {value}, but must be at least 1")
        if self.base_classes > count:
            raise FscilError(f"the protocol asks for {self.base_classes} base classes, but {self.name} has {count}")

    def too_few(self) -> list[int]:
        """Labels of the classes with fewer training images than shots."""
        return [label for label, indices in enumerate(self._shuffled) if len(indices) < self.shots]

    def require_shots(self) -> None:
        """Refuse classes with fewer training images than shots."""
        short = self.too_few()
        if short:
            named = _first_five([f"{self.class_names[label]} ({len(self._shuffled[label])})" for label in short])
            advice = "add images, remove the class or lower --shots"
            raise FscilError(f"too few training images for {self.shots} shots in {named}: {advice}")

    def untested(self) -> list[int]:
        """Labels of the classes without a test image."""
        return [label for label, indices in enumerate(self._test_indices) if not len(indices)]

    def require_tests(self) -> None:
        """Refuse classes without a test image."""
        lacking = self.untested()
        if lacking:
            named = _first_five([self.class_names[label] for label in lacking])
            advice = "add one to each (where a split file is used, in its part test) or leave the class out"
            raise FscilError(f"there is no test image of {named}: {advice}")

    @property
    def session_count(self) -> int:
        return len(self.session_classes)

    def train_indices(self, session: int) -> Tensor:
        """Positions in the data set's training images of the images of a session, class by class in the drawn order."""
        shots = None if session == 0 else self.shots
        return _joined([self._shuffled[label][:shots] for label in self.session_classes[session]])

    def base(self, held_out: int = 0) -> Session:
        """The base session; `held_out` as in `sessions`."""
        return next(self.sessions(held_out=held_out))

    def sessions(self, oracle: bool = False, held_out: int = 0) -> Iterator[Session]:
        """The sessions in order; `held_out` images per base class are kept from training and handed out beside it."""
        past: list[Tensor] = []
        for t, classes in enumerate(self.session_classes):
            indices, kept = (self.train_indices(t), None) if t or not held_out else self._held_out(held_out)
            yield Session(
                index=t,
                classes=classes,
                train=self._train.select(indices),
                held_out=None if kept is None else self._train.select(kept),
                past=self._train.select(_joined(past)) if oracle and t else None,
                mean=self.mean,
                std=self.std,
                flips=self.flips,
            )
            past.append(indices)

    def _held_out(self, count: int) -> tuple[Tensor, Tensor]:
        """The base session's training indices without the last `count` of each class, and those."""
        base = [self._shuffled[label] for label in self.session_classes[0]]
        smallest = min(range(len(base)), key=lambda i: len(base[i]))
        if len(base[smallest]) <= count:
            name = self.class_names[self.session_classes[0][smallest]]
            have = len(base[smallest])
            lack = f"Class {name} has {have} training images, too few to keep {count} of them from training"
            raise FscilError(f"{lack}: lower --held_out")
        return _joined([indices[:-count] for indices in base]), _joined([indices[-count:] for indices in base])

    def test_indices(self, session: int) -> Tensor:
        """Positions in the data set's test images of the images of a session's classes, by label and then position."""
        return _joined([self._test_indices[label] for label in sorted(self.session_classes[session])])

    def test(self, upto: int) -> Images:
        """All test images of the classes of sessions 0..upto; test(t) begins with test(t - 1)."""
        return self._test.select(_joined([self.test_indices(t) for t in range(upto + 1)]))

    def fingerprint(self) -> str:
        """A digest of the session lists, the labels and the images: equal when two runs saw the same sessions."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.name, self.class_names, self.session_classes)).encode())
        lists = [self.train_indices(t) for t in range(self.session_count)]
        for numbers in (*lists, self._train.labels, self._test.labels):
            digest.update(numbers.numpy().astype("<i8").tobytes())
        for images in (self._train, self._test):
            digest.update(images.fingerprint())
        return digest.hexdigest()

    def base_fingerprint(self) -> str:
        """A digest of the base session alone: equal where other shots, or fewer classes later, come after the same."""
        return self._base_fingerprint

    @cached_property
    def _base_fingerprint(self) -> str:
        classes, indices = self.session_classes[0], self.train_indices(0)
        facts = (self.name, classes, [self.class_names[label] for label in classes], self.mean, self.std, self.flips)
        digest = hashlib.sha256(repr(facts).encode())
        digest.update(self._train.labels[indices].numpy().astype("<i8").tobytes())
        digest.update(self._train.select(indices).fingerprint())
        return digest.hexdigest()


def _permuted(labels: tuple[int, ...], seed: int | None) -> tuple[int, ...]:
    return labels if seed is None else tuple(np.random.RandomState(seed).permutation(labels).tolist())


def _first_five(names: Sequence[str]) -> str:
    """The names, of which a long list shows only the beginning."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.empty(0, dtype=torch.int64), *parts])
