"""Rehearsals: what will happen to a model, played with base photos before it happens.

In each rehearsal some classes are hidden from all that is fitted to features: they play the unknown. Of the others some
photos are kept aside, and half of the classes are known from at most five photos, as if they had just been taught.
Nobody knows whether what is unknown will be a relative of a known class or of none. So where several classes are hidden
at a time, in every other rehearsal they are relatives of each other, and in the others they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.nn.branches import Branch
from fscil.nn.relations import evidence_form, mean_of_labels, relate, tightness

SHOTS = 5
FOLDS = 10
FEWEST = 5  # every fifth photo, at most, is kept aside
SOME = 1000  # photos of which half as many folds are enough
MANY = 5000  # photos of which two folds are enough
MOST = 3_000_000  # relations of one branch in all rehearsals; more only take longer


@dataclass(frozen=True)
class Rehearsal:
    """Relations of each branch (photos, classes), what "not sure" is decided on, and true columns (photos,)."""

    relations: list[Tensor]
    evidence: Tensor | None  # (photos, classes); None: the weighted sum of the relations
    truth: Tensor  # -1: a photo of a class that is hidden
    without_lengths: Tensor | None = None  # the evidence if all features were of length 1

    @property
    def known(self) -> Tensor:
        return self.truth >= 0

    def of_length_one(self) -> Rehearsal:
        """The same if all features were of length 1."""
        return replace(self, evidence=self.without_lengths)

    def scores(self, weights: Sequence[float]) -> Tensor:
        return torch.stack([w * relation for w, relation in zip(weights, self.relations, strict=True)]).sum(0)


@dataclass(frozen=True)
class Fold:
    """Which photos (n,) are fitted to, and which are asked about; of a hidden class none is fitted to."""

    fitted: Tensor
    asked: Tensor


def folds(rows: Tensor, held: Tensor | None = None, means: Tensor | None = None) -> list[Fold]:
    """Classes take turns at being hidden, photos at being kept aside; of MANY photos there are two turns, not all.

    `held` (n,): the only photos that an encoder was not trained on; it was trained on others of their classes.
    Relatives are found by the class means (k, d), if these are given. The more is left to fit to, the more a rehearsal
    is like the model, and the fewer the photos, the more it matters.
    """
    number = min(FOLDS if len(rows) <= SOME else FOLDS // 2, int(rows.max()) + 1)
    if number < 2:
        return []  # without its only class nothing is left to fit to
    used = 2 if len(rows) > MANY and number > 2 else number
    turns = None if means is None else hiding_turns(means, number)
    return [fold_of(rows, number, turn, held, turns) for turn in range(used)]


def hiding_turns(means: Tensor, number: int) -> Tensor:
    """In which of a number of folds each class with means (k, d) is hidden (k,): in every other one with relatives."""
    unit = F.normalize(means.float(), dim=1)
    likeness, turns, size = unit @ unit.T, torch.full((len(means),), -1), len(means) // number
    for turn in range(1, number, 2):
        left = (turns < 0).nonzero()[:, 0]
        turns[left[likeness[left[0], left].topk(size).indices]] = turn
    left, others = (turns < 0).nonzero()[:, 0], torch.arange(0, number, 2)
    turns[left] = others[torch.arange(len(left)) % len(others)]
    return turns


def fold_of(rows: Tensor, number: int, turn: int, held: Tensor | None = None, hiding: Tensor | None = None) -> Fold:
    """One of a number of folds; `hiding` (k,) says in which of them a class is hidden, by default they take turns."""
    hidden = (rows % number if hiding is None else hiding[rows]) == turn
    several = rows.bincount()[rows] > 2
    aside = (place_in_class(rows) % max(number, FEWEST) == turn) & several if held is None else held
    asked = hidden | aside if held is None else held
    return Fold(~hidden & ~aside, _thinned(asked, 2 * number * (int(rows.max()) + 1)))


def rehearse(branches: Sequence[Branch], features: Sequence[Tensor], rows: Tensor, fold: Fold) -> list[Rehearsal]:
    """Two rehearsals of one fold, each with few photos for another half of the classes.

    `features` are those of each branch (n, dim), made by what was fitted to the photos of the fold alone.
    """
    shown, place = rows[fold.fitted], place_in_class(rows[fold.fitted])
    labels = shown.unique()
    if not len(labels):
        return []
    column = torch.full((int(rows.max()) + 1,), -1)
    column[labels] = torch.arange(len(labels))
    made = []
    for half in (0, 1):
        used = (place < SHOTS) | (column[shown] % 2 != half)
        W = [
            mean_of_labels(branch.counted(f[fold.fitted][used]), shown[used])[1]
            for branch, f in zip(branches, features, strict=True)
        ]
        asked = [f[fold.asked] for f in features]
        relations = [relate(branch.relation, f, w) for branch, f, w in zip(branches, asked, W, strict=True)]
        counts = column[shown[used]].bincount()
        units = [(branch, f, w) for branch, f, w in zip(branches, asked, W, strict=True) if branch.unit_means]
        means = [w for _, _, w in units]
        evidence = _evidence([f for _, f, _ in units], means, counts)
        plain = _evidence([branch.counted(f) for branch, f, _ in units], means, counts)
        made.append(Rehearsal(relations, evidence, column[rows[fold.asked]], plain))
    return made


def _evidence(features: Sequence[Tensor], means: Sequence[Tensor], counts: Tensor) -> Tensor | None:
    """The evidence (n, classes) of features (n, dim) for class means (c, dim), summed over branches."""
    forms = [evidence_form(W, counts, typical(means[0], counts)) for W in means]  # a model keeps that of one branch
    parts = [f @ form.keys.T + form.bias for f, form in zip(features, forms, strict=True)]
    return torch.stack(parts).sum(0) if parts else None


def typical(W: Tensor, counts: Tensor) -> float:
    """The tightness of most classes with means W (c, d); of single photos nothing is known."""
    found = tightness(W, counts)
    return float(found.mean()) if len(found) else 1.0


def place_in_class(rows: Tensor) -> Tensor:
    """For each photo how many photos of its class come before it (n,)."""
    counts, order = rows.bincount(), rows.argsort(stable=True)
    place = torch.zeros_like(rows)
    place[order] = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows[order]]
    return place


def _thinned(asked: Tensor, scores: int) -> Tensor:
    """A mask (n,) with only so many of the photos, evenly spread, that at `scores` for each there are MOST."""
    positions = asked.nonzero()[:, 0]
    shown = torch.zeros_like(asked)
    shown[positions[:: max(1, math.ceil(len(positions) * scores / MOST))]] = True
    return shown
