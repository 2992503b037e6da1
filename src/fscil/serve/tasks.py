"""What waits for decoders and encoder: the photos of a request, and turns at the cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fscil.data.framing import Framing
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen
from fscil.teach.seeing.photos import Unreadable, Upload


@dataclass(frozen=True)
class Cut:
    """A photo as the encoder is shown it: crop uint8 (p, p, 3), digest, whether it is of almost one colour, small."""

    crop: Tensor
    digest: bytes
    plain: bool
    small: bytes | None


class Task:
    """The photos of one request: cut by threads that decode, then encoded; nobody else waits in between."""

    def __init__(
        self, model: Model, framing: Framing, photos: Sequence[Upload], small: bool, then: Callable[[Seen], Any]
    ):
        self.model, self.framing, self.photos, self.small, self._then = model, framing, photos, small, then
        self.result: Future[Any] = Future()
        self._cuts: list[Cut | Unreadable | None] = [None] * len(photos)  # None: not yet
        self._lock, self._begun, self._missing = threading.Lock(), 0, len(photos)

    def begin(self) -> int | None:
        """The position of a photo that nobody has begun; None: there is none, or nobody waits for it."""
        with self._lock:
            if self._begun == len(self.photos) or self.result.done():
                return None
            self._begun += 1
            return self._begun - 1

    def finish(self, position: int, cut: Cut | Unreadable) -> bool:
        """Notes what came of a photo; whether it was the last one."""
        with self._lock:
            self._cuts[position] = cut
            self._missing -= 1
            return not self._missing

    def fail(self, problem: BaseException) -> None:
        """Tells who waits; the first problem counts."""
        with suppress(InvalidStateError):
            self.result.set_exception(problem)

    @property
    def crops(self) -> list[Tensor]:
        """Of the photos that could be read."""
        return [cut.crop for cut in self._cuts if isinstance(cut, Cut)]

    def answer(self, features: list[Tensor]) -> None:
        """Tells who waits what becomes of the photos with these features, one (n, dim) per branch."""
        try:
            self.result.set_result(self._then(self._seen(features)))
        except Exception as problem:
            self.fail(problem)

    def _seen(self, features: list[Tensor]) -> Seen:
        """What was found out about the photos."""
        seen = Seen(features=features)
        for position, cut in enumerate(self._cuts):
            if isinstance(cut, Unreadable):
                seen.unreadable.append(cut)
            elif cut is not None:
                seen.positions.append(position)
                seen.digests.append(cut.digest)
                seen.plain += [position] if cut.plain else []
                seen.small |= {} if cut.small is None else {cut.digest: cut.small}
        return seen


@dataclass(frozen=True)
class Job:
    """Other work that belongs to the thread of the encoder."""

    work: Callable[[], Any]
    result: Future[Any]


class Turns:
    """Who may use the cores: the encoder takes all of them, so that few photos are decoded beside it.

    More would be decoded early, and then wait, while the encoder alone leaves gaps between the layers of its network.
    """

    def __init__(self, beside: int):
        self._beside, self._decoding, self._encoding = beside, 0, False
        self._changed = threading.Condition()

    @contextmanager
    def decoding(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._encoding or self._decoding < self._beside)
            self._decoding += 1
        try:
            yield
        finally:
            with self._changed:
                self._decoding -= 1
                self._changed.notify()

    @contextmanager
    def encoding(self) -> Iterator[None]:
        with self._changed:
            self._encoding = True
        try:
            yield
        finally:
            with self._changed:
                self._encoding = False
                self._changed.notify_all()
