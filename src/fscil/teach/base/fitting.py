"""What base photos are used for: a read-out, a map where it was asked for and wins, and a calibration of the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fscil.metrics import harmonic_mean
from fscil.nn.branches import Branch
from fscil.nn.relations import mean_of_labels, relate
from fscil.nn.whitening import Whitening
from fscil.running.progress import Bar
from fscil.teach.base import transfer
from fscil.teach.knowledge import calibration
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import SHOTS, Fold, Rehearsal, fold_of, folds, place_in_class, rehearse, typical
from fscil.text import count

ENOUGH = 8  # classes of which a third can be held out as new; of fewer one is
DEFAULTS = transfer.Settings()


@dataclass(frozen=True)
class Learned:
    """Pooled features of each branch (n, dim) with the rows 0 ... k - 1 of their classes."""

    features: list[Tensor]
    rows: Tensor
    held: Tensor | None = None  # photos (n,) that an encoder was not trained on; None: it was trained on none
    turned: Tensor | None = None  # (n, 3, dim); nan where a photo was not turned


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was asked for."""

    strength: Literal["prototypes", "transfer", "full"]
    trial: bool = False  # transfer may be tried, because it costs little
    false_acceptance: float = 0.05
    settings: transfer.Settings = DEFAULTS
    seed: int = 0


@dataclass(frozen=True)
class Trial:
    """What came of training a map without a third of the classes."""

    text: str
    weight: float = 0.0  # of the complementary branch; 0: the map is not used
    rehearsals: tuple[Rehearsal, ...] = ()


def fit(model: Model, learned: Learned, wish: Wish) -> tuple[list[Tensor], str]:
    """Fits read-out, map and calibration; gives features as the model compares them and what is worth saying."""
    if not model.paired:
        made = [
            r
            for f in folds(learned.rows, learned.held)
            for r in rehearse(model.branches, learned.features, learned.rows, f)
        ]
        _calibrate(model, made, learned.rows, wish.false_acceptance)
        _ask_for_evidence(model, learned.features, learned.rows)
        model.origin = replace(model.origin, strength=wish.strength, seed=wish.seed)
        return list(learned.features), ""
    trial = _tried(model, learned, wish) if wish.strength == "transfer" or wish.trial else Trial("")
    features = fit_readout(model.branches, learned.features, learned.rows)
    made = list(trial.rehearsals)
    if trial.weight:
        whole = torch.ones_like(learned.rows, dtype=torch.bool)
        model.branches[1].see_through(complement(learned, whole, wish))
        model.branches[1].weight.fill_(trial.weight)
        features[1] = model.branches[1].whitened(learned.features[1])
    else:
        means = mean_of_labels(model.branches[0].counted(features[0]), learned.rows)[1]
        made = [r for f in folds(learned.rows, means=means) for r in _refitted(model.branches, learned, f)]
    if calibration.misled_by_lengths(made):
        features, made = _without_lengths(model.branches, features), [r.of_length_one() for r in made]
    _calibrate(model, made, learned.rows, wish.false_acceptance)
    _ask_for_evidence(model, features, learned.rows)
    model.origin = replace(model.origin, strength="transfer" if trial.weight else "prototypes", seed=wish.seed)
    return features, trial.text


def fit_readout(branches: Sequence[Branch], pooled: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    """Fits the read-out to pooled features of each branch (n, dim); gives them as they are compared.

    Cosines are taken of features that are centred, whitened and of length 1. The squared distance has no say about
    features of an encoder unless a map is trained for it; about a table of numbers it may have.
    """
    features = []
    for branch, f in zip(branches, pooled, strict=True):
        branch.unit_means = branch.relation == "cosine"
        branch.weight.fill_(0.0 if branch.unit and not branch.unit_means else 1.0)
        features.append(branch.whiten(f, rows) if branch.weight else branch.whitened(f))
    return features


def fresh_readout(branches: Sequence[Branch], learned: Learned, fold: Fold) -> tuple[list[Branch], list[Tensor]]:
    """Branches on the same encoders whose read-out was fitted to the photos of a fold alone, and what they see."""
    fresh = [Branch(b.name, b.encoder, b.relation, b.views, unit=b.unit, directed=b.directed) for b in branches]
    fit_readout(fresh, [f[fold.fitted] for f in learned.features], learned.rows[fold.fitted])
    return fresh, [branch.whitened(f) for branch, f in zip(fresh, learned.features, strict=True)]


def _without_lengths(branches: Sequence[Branch], features: Sequence[Tensor]) -> list[Tensor]:
    """From now on features have length 1, also those that were made already, one (n, dim) per branch."""
    alike = [branch.counted(f) for branch, f in zip(branches, features, strict=True)]
    for branch in branches:
        branch.stretched = False
    return alike


def _refitted(branches: Sequence[Branch], learned: Learned, fold: Fold) -> list[Rehearsal]:
    fresh, seen = fresh_readout(branches, learned, fold)
    return rehearse(fresh, seen, learned.rows, fold)


def _calibrate(model: Model, made: Sequence[Rehearsal], rows: Tensor, false_acceptance: float) -> None:
    """Weighs the complementary branch of a table of numbers; fits probabilities and "not sure" to rehearsals."""
    weights = [float(branch.weight) for branch in model.branches]
    if made and model.complementary and model.framing is None and model.branches[1].weight:
        weights = calibration.balance(made, weights)
        model.branches[1].weight.fill_(weights[1])
    encoders = max(1, sum(branch.unit_means for branch in model.branches))
    model.calibration = calibration.fit(made, weights, false_acceptance, int(rows.max()) + 1, encoders)


def _ask_for_evidence(model: Model, features: Sequence[Tensor], rows: Tensor) -> None:
    """ "Not sure" is decided as in the rehearsals: by evidence, where a branch has what it is made of."""
    for branch, f in zip(model.branches, features, strict=True):
        if branch.unit_means:
            tight = typical(mean_of_labels(branch.counted(f), rows)[1], rows.bincount())
            model.calibration = replace(model.calibration, tightness=tight)
            return


def _tried(model: Model, learned: Learned, wish: Wish) -> Trial:
    """Trains a map without a third of the classes, and says whether it wins when they are taught from five photos."""
    fold = fold_of(learned.rows, groups(int(learned.rows.max()) + 1), 0)
    if not transfer.enough(learned.rows[fold.fitted].bincount().tolist()):
        return Trial("no map is trained: without the photos held out, fewer than five classes have enough (four)")
    weighing, judging = shared_out(fold, learned.rows)
    fresh, seen = fresh_readout(model.branches, learned, fold)
    without = accuracy(fresh, seen, learned.rows, judging)
    if math.isnan(without):
        return Trial("no map is trained: no photo is left to try it on")
    fresh[1].see_through(complement(learned, fold.fitted, wish))
    seen[1] = fresh[1].whitened(learned.features[1])
    weight = calibration.balance(rehearse(fresh, seen, learned.rows, weighing), [1.0, 1.0])[1]
    fresh[1].weight.fill_(weight)
    with_map = accuracy(fresh, seen, learned.rows, judging)
    new = len(learned.rows.unique()) - len(learned.rows[fold.fitted].unique())
    asked = int((judging.asked & ~shots_of(learned.rows, judging)).sum())
    held = f"on {count(asked, 'base photo')}, {count(new, 'class', 'classes')} held out as new"
    text = f"harmonic mean {without:.1f} % without and {with_map:.1f} % with a trained map, {held}"
    if not with_map > without:
        return Trial(f"the map is not used: {text}")
    return Trial(f"the map is used: {text}", weight, tuple(rehearse(fresh, seen, learned.rows, fold)))


def shared_out(fold: Fold, rows: Tensor) -> tuple[Fold, Fold]:
    """A fold that asks every other photo kept aside, to choose by, and one that asks all others, to judge by.

    What was chosen on photos is better on these than on others. Photos of hidden classes choose nothing, so all judge.
    """
    aside = (fold.asked & torch.isin(rows, rows[fold.fitted])).nonzero()[:, 0]
    choosing = torch.zeros_like(fold.asked)
    choosing[aside[1::2]] = True
    return Fold(fold.fitted, choosing), Fold(fold.fitted, fold.asked & ~choosing)


def groups(classes: int) -> int:
    """Into how many groups classes are parted, one of which is held out as new where a map is tried."""
    return 3 if classes >= ENOUGH else classes


def accuracy(branches: Sequence[Branch], features: Sequence[Tensor], rows: Tensor, fold: Fold) -> float:
    """Harmonic mean in percent of photos kept aside and of classes that a fold hides, taught from five photos each.

    nan: of one kind there are none.
    """
    tried = answered(branches, features, rows, fold)
    base, new = (100 * float(tried.right[part].float().mean()) for part in (~tried.hidden, tried.hidden))
    return harmonic_mean(base, new)


class Tried(NamedTuple):
    """Photos that a fold asks about, whether each was named right, and whether its class had been hidden."""

    asked: Tensor  # (n,), of all photos
    right: Tensor  # (asked,)
    hidden: Tensor  # (asked,)


def answered(branches: Sequence[Branch], features: Sequence[Tensor], rows: Tensor, fold: Fold) -> Tried:
    """What becomes of photos kept aside and of classes that a fold hides, once these are taught from a few photos."""
    hidden, shots = ~torch.isin(rows, rows[fold.fitted]), shots_of(rows, fold)
    used, asked = fold.fitted | shots, fold.asked & ~shots
    pairs = list(zip(branches, features, strict=True))
    scores = torch.stack(
        [b.weight * relate(b.relation, f[asked], mean_of_labels(b.counted(f[used]), rows[used])[1]) for b, f in pairs]
    )
    return Tried(asked, rows[used].unique()[scores.sum(0).argmax(1)] == rows[asked], hidden[asked])


def shots_of(rows: Tensor, fold: Fold) -> Tensor:
    """The photos (n,) from which classes that a fold hides are taught: five each, of fewer all but one to ask about."""
    hidden = ~torch.isin(rows, rows[fold.fitted])
    return hidden & (place_in_class(rows) < (rows.bincount() - 1).clamp(max=SHOTS)[rows])


def complement(learned: Learned, use: Tensor, wish: Wish) -> Whitening:
    """The map that RESA makes of some photos (n,), on the scale at which its relation predicts best."""
    rng = torch.Generator().manual_seed(wish.seed)
    f, rows, scale = learned.features[1][use], learned.rows[use].unique(return_inverse=True)[1], wish.settings.scale
    means = mean_of_labels(f, rows)[1]
    turned = None if learned.turned is None else learned.turned[use]
    some = torch.ones_like(rows, dtype=torch.bool) if turned is None else ~turned[:, 0, 0].isnan()
    cached = transfer.Cached(f[some], None if turned is None else turned[some], rows[some])
    g = transfer.fitted_scale(means, transfer.dropped(f[some], wish.settings.dropout, rng), rows[some], scale).g
    with Bar("complementary map", wish.settings.tasks) as bar:
        A = transfer.train(cached, means, g, wish.settings, rng, bar)
    return Whitening(torch.zeros(len(A)), transfer.fitted_scale(means @ A, f @ A, rows, scale).g * A, 1.0)
