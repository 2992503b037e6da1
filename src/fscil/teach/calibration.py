"""From scores to probabilities and to "not sure", fitted on photos of base classes that were kept from training.

Rehearsals imitate what comes later: in each, half of the classes have prototypes of at most five photos, as if they had
just been taught. Unknown photos are imitated by hiding the class a photo belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fscil.nn.relations import Relation, mean_of_labels, relate

SHOTS = 5
TEMPERATURES = torch.logspace(-2, 9, 45, base=2)
WEIGHTS = torch.logspace(-3, 3, 13, base=2)
MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
FEWEST = 8  # held-out photos below which nothing is fitted
MOST = 3_000_000  # scores on which weights and temperature are searched; more only take longer
ODD = 0.05  # share of held-out photos that count as unlike their class


@dataclass(frozen=True)
class Calibration:
    """Numbers fitted on held-out base photos; the defaults stand where there were too few of them."""

    temperature: float = 16.0  # probabilities are softmax(temperature * scores)
    margin: float = 0.0  # a photo's fit is its best score + margin * its lead over the second best
    threshold: float | None = None  # fit below which a photo is "not sure"; None: every photo counts as known
    odd: float | None = None  # similarity to its class below which a taught photo is unlike the others
    false_acceptance: float = 0.05  # share of unknown photos that may be taken for known
    accuracy: float | None = None  # share of the held-out photos that are recognised
    accepted: float | None = None  # share of the held-out photos that are known at this threshold
    auroc: float | None = None  # probability that a known photo fits better than one whose class is hidden
    photos: int = 0  # held-out photos

    def fit_of(self, scores: Tensor) -> Tensor:
        """How well photos with these scores (n, classes) fit what the model knows (n,)."""
        if scores.shape[1] < 2:
            return scores.amax(1)
        best, second = scores.topk(2, 1).values.unbind(1)
        lead = torch.where(second.isneginf(), 0.0, best - second)  # a hidden class leads over nothing
        return best + self.margin * lead

    def known(self, scores: Tensor) -> Tensor:
        """Whether photos with these scores (n, classes) belong to a class of the model (n,)."""
        if self.threshold is None:
            return torch.ones(len(scores), dtype=torch.bool)
        return self.fit_of(scores) >= self.threshold


@dataclass(frozen=True)
class Rehearsal:
    """Relations of each branch (photos, classes) of held-out photos, and their true columns (photos,)."""

    relations: list[Tensor]
    truth: Tensor

    def scores(self, weights: Sequence[float]) -> Tensor:
        return torch.stack([w * relation for w, relation in zip(weights, self.relations, strict=True)]).sum(0)


def rehearsals(
    relations: Sequence[Relation], train: Sequence[Tensor], rows: Tensor, held: Sequence[Tensor], held_rows: Tensor
) -> list[Rehearsal]:
    """Two rehearsals, each with few photos for another half of the classes.

    `train` and `held` hold the features of each branch, `rows` and `held_rows` their classes 0 ... k - 1.
    """
    place, made = place_in_class(rows), []
    for half in (0, 1):
        used = (place < SHOTS) | (rows % 2 != half)
        prototypes = [mean_of_labels(f[used], rows[used])[1] for f in train]
        closeness = [relate(r, f, W) for r, f, W in zip(relations, held, prototypes, strict=True)]
        made.append(Rehearsal(closeness, held_rows))
    return made


def place_in_class(rows: Tensor) -> Tensor:
    """For each photo how many photos of its class come before it (n,)."""
    counts, order = rows.bincount(), rows.argsort(stable=True)
    place = torch.zeros_like(rows)
    place[order] = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows[order]]
    return place


def thinned(held: Tensor, scores: int) -> Tensor:
    """A mask (n,) with only so many of the held-out photos, evenly spread, that at `scores` for each there are MOST."""
    positions = held.nonzero()[:, 0]
    shown = torch.zeros_like(held)
    shown[positions[:: max(1, math.ceil(len(positions) * scores / MOST))]] = True
    return shown


def fit(made: Sequence[Rehearsal], weights: Sequence[float], false_acceptance: float) -> Calibration:
    """Temperature, margin and threshold for scores with these branch weights."""
    scores, truth = torch.cat([r.scores(weights) for r in made]), torch.cat([r.truth for r in made])
    if len(truth) < 2 * FEWEST or scores.shape[1] < 2:
        return Calibration(false_acceptance=false_acceptance)
    temperature = min(TEMPERATURES.tolist(), key=lambda t: _loss(t * scores, truth))
    hidden = scores.scatter(1, truth[:, None], -torch.inf)
    trials = [Calibration(temperature, margin) for margin in (MARGINS if scores.shape[1] > 2 else (0.0,))]
    areas = [auroc(c.fit_of(scores), c.fit_of(hidden)) for c in trials]
    best = trials[int(np.argmax(areas))]
    known, unknown = best.fit_of(scores), best.fit_of(hidden)
    threshold = float(unknown.quantile(1 - false_acceptance))
    own = torch.cat([r.relations[0] for r in made]).gather(1, truth[:, None])
    return Calibration(
        temperature=temperature,
        margin=best.margin,
        threshold=threshold,
        odd=float(own.quantile(ODD)),
        false_acceptance=false_acceptance,
        accuracy=float((scores.argmax(1) == truth).float().mean()),
        accepted=float((known >= threshold).float().mean()),
        auroc=max(areas),
        photos=len(truth) // 2,  # each was in two rehearsals
    )


def balance(made: Sequence[Rehearsal], weights: Sequence[float]) -> list[float]:
    """Branch weights with the last one changed to what predicts the rehearsals best."""
    truth = torch.cat([r.truth for r in made])
    if len(truth) < 2 * FEWEST or made[0].relations[0].shape[1] < 2:
        return list(weights)

    def loss(last: float) -> float:
        scores = torch.cat([r.scores([*weights[:-1], last]) for r in made])
        return min(_loss(t * scores, truth) for t in TEMPERATURES.tolist())

    return [*weights[:-1], min(WEIGHTS.tolist(), key=loss)]


def _loss(logits: Tensor, truth: Tensor) -> float:
    """Cross-entropy that, as in Platt's scaling, counts one error more than was seen: certainty has to be earned."""
    at = truth[:, None]
    right = logits.log_softmax(1).gather(1, at).mean()
    wrong = (logits.scatter(1, at, -torch.inf).logsumexp(1) - logits.logsumexp(1)).mean()
    extra = 1 / (len(truth) + 2)
    return -float((1 - extra) * right + extra * wrong)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Probability that a known photo (n,) fits better than an unknown one (m,); half of it where they are equal."""
    if not len(known) or not len(unknown):
        return float("nan")
    order = unknown.sort().values
    below = torch.searchsorted(order, known) + torch.searchsorted(order, known, right=True)
    return float(below.double().mean() / 2 / len(unknown))
