"""Later sessions as planning tells of them before anything is learned: what a method will have kept when they begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.data.sessions import Session
from fscil.nn.memory import first_of_each, quota


@dataclass(frozen=True, kw_only=True)
class Foreseen(Session):
    """A later session with the labels of all images that were learned before it."""

    of_base: Tensor  # (b,) those of the base session
    of_later: Tensor  # (l,) those of the later sessions before this one

    @property
    def before(self) -> Tensor:
        """Labels (b + l,) of all images learned before this session."""
        return torch.cat([self.of_base, self.of_later])

    @property
    def after(self) -> Tensor:
        """Labels (b + l + n,) of all images learned when it ends."""
        return torch.cat([self.before, self.train.labels])


def foreseen(sessions: Iterable[Session]) -> Iterator[Foreseen]:
    """The later ones of all sessions of a benchmark, in order."""
    base, *later = sessions
    of_later = base.train.labels[:0]
    for session in later:
        yield Foreseen(**vars(session), of_base=base.train.labels, of_later=of_later)
        of_later = torch.cat([of_later, session.train.labels])


def told(session: Session) -> Foreseen:
    """The session that `plan_new` of a method is asked about, where its plan depends on what came before."""
    if not isinstance(session, Foreseen):
        raise TypeError("the plan of this session depends on those before it; take it from foreseen()")
    return session


def kept_of_each(labels: Tensor, per_class: int) -> Tensor:
    """Labels (m,) of the exemplars of images (n,) of which at most `per_class` of each class are kept."""
    return labels[first_of_each(labels, per_class)]


def kept_in_all(labels: Tensor, memory: int) -> Tensor:
    """Labels (m,) of the exemplars of images (n,) where all classes seen share a memory of this size."""
    return kept_of_each(labels, quota(memory, len(labels.unique())))
