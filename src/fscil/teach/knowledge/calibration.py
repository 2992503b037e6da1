"""From scores to probabilities and to "not sure", fitted on photos and classes that no read-out was fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.knowledge.rehearsal import Rehearsal

TEMPERATURES = torch.logspace(-2, 9, 45, base=2)
WEIGHTS = (0.0, *torch.logspace(-3, 3, 13, base=2).tolist())
FEWEST = 8  # held-out photos below which nothing is fitted
SUMMARY = 401  # quantiles that a model keeps of held-out fits
ALIKE = 10  # classes of one set, however many are hidden, say less than so many about classes from elsewhere
USUAL = 0.05  # up to this share of false acceptance the highest fit of hidden photos is a bound, beyond it a lower one
MISLED = 0.01  # AUROC that lengths may cost in rehearsals, which are not sure of more
EACH = 8  # fits that stand for a class where hidden and taught classes are put together
HALVES = 8  # draws of half of the classes that show how the threshold grows with their number
MORE = 3  # a taught class says as much as so many hidden ones


@dataclass(frozen=True)
class Prior:
    """What sets of photos have in common, before any class was hidden."""

    below: float  # by so many deviations of known photos unknown ones fit worse
    below_weight: float  # hidden classes that say as much
    narrower: float  # deviation of unknown photos as a share of that of known ones
    narrower_weight: float  # hidden classes that say as much
    taught: float  # hidden classes that say as much as one that was taught

    @classmethod
    def of(cls, encoders: int) -> Prior:
        """That of so many encoders: the more, the further unknown photos lie below; 0: as earlier versions had it."""
        return cls(1.4 + 0.1 * encoders, 40, 0.9, 20, MORE) if encoders else cls(1.5, 12, 0.9, 40, 1)


@dataclass(frozen=True)
class Taught:
    """Fits of photos of so many classes that were taught later, at the measured number of classes."""

    classes: int
    unknown: np.ndarray  # (n,), each photo without its class
    known: np.ndarray  # (m,), each photo as if it had not been taught
    shift: float  # by which the fits of all photos are lowered, because there are more classes than were measured


@dataclass(frozen=True)
class Calibration:
    """Numbers fitted on held-out base photos; the defaults stand where there were too few of them."""

    temperature: float = 16.0  # probabilities are softmax(temperature * scores)
    margin: float = (
        0.0  # a photo's fit is its best evidence + margin * its lead over the second best; files of before have one
    )
    threshold: float | None = None  # fit below which a photo is "not sure"; None: every photo counts as known
    false_acceptance: float = 0.05  # share of unknown photos that may be taken for known
    accuracy: float | None = None  # share of the held-out photos that are recognised
    accepted: float | None = None  # share of the held-out photos that are known at this threshold
    auroc: float | None = None  # probability that a known photo fits better than an unknown one
    photos: int = 0  # held-out photos
    tightness: float | None = None  # mean cosine of two photos of a class; None: the scores are all evidence there is
    classes: int = 0  # for so many classes the threshold was measured; 0: it was not noted
    growth: float = 0.0  # by so much the fit of unknown photos grows when the number of classes doubles
    counted: float = 0.0  # as so many classes the hidden ones count for the threshold; 0: as many as they are
    encoders: int = 0  # so many sum up the evidence; 0: it was not noted, and the threshold follows an earlier rule
    rechecked: int = 0  # with so many taught classes the threshold was measured again
    known_fits: tuple[float, ...] = ()  # evenly spaced quantiles of the fits of held-out photos of known classes
    unknown_fits: tuple[float, ...] = ()  # and of classes that were held out

    def fit_of(self, evidence: Tensor) -> Tensor:
        """How well photos with this evidence (n, classes) fit what the model knows (n,), at the measured number."""
        shift = self.shift(evidence.shape[1])
        if evidence.shape[1] < 2:
            return evidence.amax(1) - shift
        best, second = evidence.topk(2, 1).values.unbind(1)
        lead = torch.where(second.isneginf(), 0.0, best - second)  # a hidden class leads over nothing
        return best + self.margin * lead - shift

    def shift(self, classes: int) -> float:
        """By how much unknown photos fit a model of so many classes better than the one that was measured."""
        return self.growth * math.log2(classes / self.classes) if self.classes and classes else 0.0

    def known(self, evidence: Tensor) -> Tensor:
        """Whether photos with this evidence (n, classes) belong to a class of the model (n,)."""
        if self.threshold is None:
            return torch.ones(len(evidence), dtype=torch.bool)
        return self.fit_of(evidence) >= self.threshold

    def accepted_among(self, classes: int) -> float | None:
        """Share of the held-out photos that are known in a model of so many classes, if it was measured for others."""
        shift = self.shift(classes)
        if self.rechecked or self.threshold is None or not shift:
            return self.accepted
        return float((np.array(self.known_fits) - shift >= self.threshold).mean())

    def at(self, false_acceptance: float, taught: Taught | None = None) -> Calibration:
        """The same with another share of unknown photos that may be taken for known, measured again if any are given.

        Hidden and taught classes are put together, each counting alike. The taught ones came from elsewhere: they are
        worth as much as a set of their own.
        """
        if not 0 < false_acceptance < 1:
            raise FscilError(f"the false acceptance is {false_acceptance}, but must lie between 0 and 1")
        if not self.unknown_fits:
            few = "too few base photos were held out; learn it again from more photos of at least two classes"
            why = "an earlier version made it; learn it again" if self.photos else few
            raise FscilError(f"this model does not know what another threshold would cost: {why}")
        known, unknown, worth = np.array(self.known_fits), np.array(self.unknown_fits), self.counted or self.classes
        prior = Prior.of(self.encoders)
        if taught is not None:
            unknown = np.concatenate([_spaced(unknown, self.classes), _spaced(taught.unknown, taught.classes)])
            worth += prior.taught * counted_as(taught.classes)
        threshold = _threshold(known, unknown, worth, prior, false_acceptance)
        accepted = float((known >= threshold).mean())
        if taught is not None:
            shown = np.concatenate([_spaced(known - taught.shift, self.classes), _spaced(taught.known, taught.classes)])
            accepted = float((shown >= threshold).mean())
        rechecked = taught.classes if taught is not None else 0
        moved = replace(self, threshold=threshold, false_acceptance=false_acceptance, accepted=accepted)
        return replace(moved, rechecked=rechecked)


def counted_as(classes: int) -> float:
    """What so many hidden classes of one set are worth: nearly as many if they are few, never more than ALIKE.

    Unknown photos may show relatives of known classes or none. Each further class of the same set says more about its
    own kind, and nothing about which of the two will come: that part of the error does not shrink with their number.
    """
    return classes * ALIKE / (classes + ALIKE)


def _spaced(fits: np.ndarray, classes: int) -> np.ndarray:
    """Evenly spaced quantiles of fits (n,), as many as so many classes are worth beside others; of none, none."""
    return np.quantile(fits, np.linspace(0, 1, EACH * classes)) if len(fits) else fits


def _threshold(known: np.ndarray, unknown: np.ndarray, classes: float, prior: Prior, rate: float) -> float:
    """The fit that a share of unknown photos reaches, from fits of known and unknown photos in rehearsals.

    It is classes that are unknown, and few were hidden: the upper end of their fits is the work of the two that happen
    to be most alike, and says nothing about the next class. Their middle says more, and their deviation some; both are
    drawn to what sets of photos have in common, the less the more classes there are. The tail is that of a normal
    distribution, but no higher than any photo of a hidden class came; who accepts more is told of lower ones.
    """
    usual = known.mean() - prior.below * known.std()
    middle = (classes * np.median(unknown) + prior.below_weight * usual) / (classes + prior.below_weight)
    narrow = prior.narrower * known.std()
    deviation = (classes * unknown.std() + prior.narrower_weight * narrow) / (classes + prior.narrower_weight)
    highest = np.quantile(unknown, min(1.0, 1 + USUAL - rate))
    return float(min(middle + NormalDist().inv_cdf(1 - rate) * deviation, highest))


def fit(
    made: Sequence[Rehearsal], weights: Sequence[float], false_acceptance: float, classes: int, encoders: int = 1
) -> Calibration:
    """Temperature and threshold of a model of so many classes whose branches have these weights."""
    photos = sum(int(r.known.sum()) for r in made)
    if photos < 2 * FEWEST or not any(bool((~r.known).any()) for r in made):
        return Calibration(false_acceptance=false_acceptance)
    scores = [(r.scores(weights)[r.known], r.truth[r.known]) for r in made]
    temperature = min(TEMPERATURES.tolist(), key=lambda t: _loss(t, scores))
    right = sum(int((s.argmax(1) == truth).sum()) for s, truth in scores)
    fitted = replace(
        _fits(made, weights, classes),
        temperature=temperature,
        accuracy=right / photos,
        counted=counted_as(classes),
        encoders=encoders,
        photos=photos // 2,  # each was in two rehearsals
    )
    return fitted.at(false_acceptance)


def misled_by_lengths(made: Sequence[Rehearsal]) -> bool:
    """Whether known photos would be told from unknown ones better if all features were of length 1.

    Where classes differ in length, as drawings may, it says more about the class than about whether it is known.
    """
    parts = [(r, r.evidence, r.without_lengths) for r in made]
    pairs = [(r.known, e.amax(1), plain.amax(1)) for r, e, plain in parts if e is not None and plain is not None]
    if not pairs:
        return False
    known, fits, plain = (torch.cat(part) for part in zip(*pairs, strict=True))
    return auroc(fits[known], fits[~known]) < auroc(plain[known], plain[~known]) - MISLED


def _fits(made: Sequence[Rehearsal], weights: Sequence[float], classes: int) -> Calibration:
    """How known and unknown photos fit; the latter are brought to the number of classes of the model."""
    evidence = [r.evidence if r.evidence is not None else r.scores(weights) for r in made]
    growth = float(np.mean([_growth(e[~r.known]) for e, r in zip(evidence, made, strict=True)]))
    measured = Calibration(classes=classes, growth=growth)
    known = torch.cat([e[r.known].amax(1) for e, r in zip(evidence, made, strict=True)])
    unknown = torch.cat([measured.fit_of(e[~r.known]) for e, r in zip(evidence, made, strict=True)])
    return replace(measured, auroc=auroc(known, unknown), known_fits=_summary(known), unknown_fits=_summary(unknown))


def _growth(evidence: Tensor) -> float:
    """By how much unknown photos (n, classes) fit all classes better than half of them, in the mean and at the top."""
    count = evidence.shape[1]
    if count < 2 or not len(evidence):
        return 0.0
    rng, levels = torch.Generator().manual_seed(0), torch.tensor([0.8, 0.85, 0.9, 0.95])
    whole = evidence.amax(1).quantile(levels).mean()
    halves = [torch.randperm(count, generator=rng)[: math.ceil(count / 2)] for _ in range(HALVES)]
    parts = torch.stack([evidence[:, half].amax(1).quantile(levels).mean() for half in halves])
    return max(0.0, float(whole - parts.mean()) / math.log2(count / math.ceil(count / 2)))


def _summary(fits: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{q:.6g}") for q in np.quantile(fits.numpy(), np.linspace(0, 1, min(SUMMARY, len(fits)))))


def balance(made: Sequence[Rehearsal], weights: Sequence[float]) -> list[float]:
    """Branch weights with the last one changed to what predicts the rehearsals best."""
    if sum(int(r.known.sum()) for r in made) < 2 * FEWEST:
        return list(weights)

    def loss(last: float) -> float:
        scores = [(r.scores([*weights[:-1], last])[r.known], r.truth[r.known]) for r in made]
        return min(_loss(t, scores) for t in TEMPERATURES.tolist())

    return [*weights[:-1], min(WEIGHTS, key=loss)]


def _loss(temperature: float, parts: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Cross-entropy that, as in Platt's scaling, counts one error more than was seen: certainty has to be earned."""
    right, wrong, photos = 0.0, 0.0, 0
    for scores, truth in parts:
        logits, at = temperature * scores, truth[:, None]
        right += float(logits.log_softmax(1).gather(1, at).sum())
        wrong += float((logits.scatter(1, at, -torch.inf).logsumexp(1) - logits.logsumexp(1)).clamp(min=-99).sum())
        photos += len(truth)
    extra = 1 / (photos + 2)
    return -((1 - extra) * right + extra * wrong) / photos


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Probability that a known photo (n,) fits better than an unknown one (m,); half of it where they are equal."""
    if not len(known) or not len(unknown):
        return float("nan")
    order = unknown.sort().values
    below = torch.searchsorted(order, known) + torch.searchsorted(order, known, right=True)
    return float(below.double().mean() / 2 / len(unknown))
