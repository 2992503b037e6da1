"""Learning the base classes: choose a strength, look at the photos once, train and calibrate on what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.relations import mean_of_labels
from fscil.running.progress import Bar
from fscil.teach import calibration, transfer
from fscil.teach.journal import Name, count
from fscil.teach.looking import TURNS, Seen, glance, look
from fscil.teach.model import Model
from fscil.teach.photos import Source, name_of
from fscil.teach.teaching import Lesson, repeated_advice, sort_out

Strength = Literal["auto", "prototypes", "transfer", "full"]
TURNED = 30  # photos per class that are also encoded turned around; more cost time and change little
HELD_OUT = 5  # every fifth photo is kept from training, for calibration
MANY = 5000  # photos of which a fifth is enough to calibrate on
TRIED = 8  # photos that are encoded to see how fast it goes


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """How the base classes are going to be learned."""

    strength: Literal["prototypes", "transfer", "full"]
    why: str
    held: frozenset[int]  # positions of the photos kept from training
    turned: frozenset[int]  # positions of the photos that are also encoded turned around
    seconds: float = 0.0


@dataclass(frozen=True)
class Learned:
    """Features of each branch (n, dim) with the rows 0 ... k - 1 of their classes; `held`: kept from training."""

    features: list[Tensor]
    rows: Tensor
    held: Tensor
    turned: Tensor | None  # (n, 3, dim); nan where a photo was not turned


Tell = Callable[[str], None]
DEFAULTS = transfer.Settings()


def learn(
    model: Model,
    sources: Sequence[Source],
    names: Sequence[Name],
    strength: Strength = "auto",
    false_acceptance: float = 0.05,
    settings: transfer.Settings = DEFAULTS,
    seed: int = 0,
    tell: Tell = lambda text: None,
) -> Lesson:
    """Teaches an empty model its base classes from photos; `tell` hears what is done, why and for how long."""
    plan = plan_for(model, names, strength, seed)
    plan = replace(plan, seconds=seconds(model, sources, plan, settings))
    tell(f"{plan.strength}: {plan.why}; about {plan.seconds:.0f} s")
    seen = look(model, sources, "looking at photos", plan.turned)
    called = [names[p] for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, called, {})
    titles = [name_of(sources[p], p) for p in seen.positions]
    advice = repeated_advice([titles[i] for i in repeated], {titles[i]: other for i, other in foreign.items()})
    if not taken:
        raise FscilError("none of the photos could be read; nothing was learned")
    called = [called[i] for i in taken]
    learned = _learned(seen, taken, rows_of(called), plan)
    kept = [seen.digests[i] for i in taken]
    weaker = learn_features(model, learned, called, plan.strength, false_acceptance, settings, seed, kept)
    if weaker:
        (tell if strength == "auto" else advice.append)(weaker)
    return Lesson(len(taken), seen.unreadable, advice)


def _learned(seen: Seen, taken: list[int], rows: Tensor, plan: LearningPlan) -> Learned:
    positions = [seen.positions[i] for i in taken]
    held = torch.tensor([p in plan.held for p in positions])
    for row in set(rows.tolist()) - set(rows[~held].tolist()):  # its other photos could not be read
        held[rows == row] = False
    turned = None
    if seen.turned:
        missing = torch.full_like(next(iter(seen.turned.values())), torch.nan)
        turned = torch.stack([seen.turned.get(p, missing) for p in positions])
    return Learned([f[taken] for f in seen.features], rows, held, turned)


@dataclass(frozen=True)
class Split:
    """Positions of the photos kept from training and of those worth turning around; how many each class trains on."""

    held: frozenset[int]
    turned: frozenset[int]
    trained: list[int]


def split(names: Sequence[Name], seed: int) -> Split:
    """Of each class with three photos or more every fifth, but at least one, is kept for calibration."""
    rng = torch.Generator().manual_seed(seed)
    held, turned, trained = set(), set(), []
    for positions in _by_name(names).values():
        order = [positions[i] for i in torch.randperm(len(positions), generator=rng).tolist()]
        kept = max(1, len(order) // HELD_OUT) if len(order) > 2 else 0
        held |= set(order[:kept])
        turned |= set(order[: kept + TURNED])
        trained.append(len(order) - kept)
    return Split(frozenset(held), frozenset(turned), trained)


def plan_for(model: Model, names: Sequence[Name], strength: Strength, seed: int) -> LearningPlan:
    """The strength asked for or, for `auto`, the strongest that takes seconds and that the photos suffice for."""
    parts = split(names, seed)
    able, why_not = _transferable(model, parts.trained)
    if strength == "transfer" and not able:
        raise FscilError(f"strength transfer is not possible: {why_not}; take strength prototypes")
    if strength == "full":
        return LearningPlan(strength="full", why="trained end to end", held=parts.held, turned=frozenset())
    if strength == "prototypes" or not able:
        why = "as asked" if able else why_not
        return LearningPlan(strength="prototypes", why=why, held=parts.held, turned=frozenset())
    found = f"{count(len(parts.trained), 'class', 'classes')} with {count(len(names), 'photo')}"
    why = f"{found} suffice to train a complementary map"
    return LearningPlan(
        strength="transfer", why=why, held=parts.held, turned=parts.turned if model.framing else frozenset()
    )


def _transferable(model: Model, trained: Sequence[int]) -> tuple[bool, str]:
    if len(model.branches) == 1:
        return False, "the encoder brings one branch alone, and a map needs a complementary one"
    if not model.complementary:
        return False, "the encoder already brings a trained complementary branch"
    if not transfer.enough(trained):
        return False, "fewer than five classes have enough photos (five) to train anything on"
    return True, ""


def seconds(model: Model, sources: Sequence[Source], plan: LearningPlan, settings: transfer.Settings) -> float:
    """About how long learning takes on this machine, from a few photos and two tasks."""
    tried = sources[:TRIED]
    began = time.perf_counter()
    glance(model, tried)
    passes = len(sources) + len(TURNS) * len(plan.turned)
    encoding = (time.perf_counter() - began) / max(1, len(tried)) * passes
    if plan.strength != "transfer":
        return encoding
    return encoding + 2 * transfer.seconds(model.branches[0].encoder.dim, settings)  # once to calibrate, once to stay


def learn_features(
    model: Model,
    learned: Learned,
    names: Sequence[Name],
    strength: str,
    false_acceptance: float = 0.05,
    settings: transfer.Settings = DEFAULTS,
    seed: int = 0,
    photos: Sequence[bytes] = (),
) -> str:
    """Trains the complementary map if asked for, calibrates on the held-out photos, and takes the classes in.

    Gives the reason if prototypes are used where a map was asked for, else nothing.
    """
    features, weaker = list(learned.features), ""
    if model.complementary:
        branch, (g, A) = model.branches[1], complement(learned, strength, settings, seed)
        branch.feature_scale.fill_(g)
        if A is not None:
            branch.whitening.copy_(A)
        elif strength == "transfer":
            strength, weaker = "prototypes", f"{_why_no_map(learned)}; prototypes are used"
        features[1] = g * features[0] @ branch.whitening
    kinds, weights = [b.relation for b in model.branches], [float(b.weight) for b in model.branches]
    made = []  # on features that the held-out photos had no part in
    turns = folds(learned, strength)
    for held in turns:
        shown = calibration.thinned(held, 2 * len(turns) * len(set(names)))  # each in two rehearsals
        parts = (~held, shown)
        (train, rows), (kept, kept_rows) = (([f[part] for f in features], learned.rows[part]) for part in parts)
        made += calibration.rehearsals(kinds, train, rows, kept, kept_rows)
    if made:
        if model.complementary:
            weights = calibration.balance(made, weights)
            model.branches[1].weight.fill_(weights[1])
        model.calibration = calibration.fit(made, weights, false_acceptance)
    if strength == "transfer" and bool(learned.held.any()):  # once more, with them: nothing is left to be measured
        branch.whitening.copy_(trained_map(learned, torch.ones_like(learned.held), settings, seed))
        features[1] = branch.feature_scale * features[0] @ branch.whitening
    model.origin = replace(model.origin, strength=strength)
    model.begin(names, features, photos)
    return weaker


def _why_no_map(learned: Learned) -> str:
    if _trainable(learned):
        return "the trained map did not help on the photos that were held out"
    return "without the photos left out, fewer than five classes have enough (five) to train a map on"


def _trainable(learned: Learned) -> bool:
    return transfer.enough(learned.rows[~learned.held].bincount().tolist())


def folds(learned: Learned, strength: str) -> list[Tensor]:
    """Which photos (n,) to calibrate on, one mask after the other.

    Where nothing was trained on the photos, each can take its turn as one that was held out.
    """
    if strength != "prototypes":
        return [learned.held] if bool(learned.held.any()) else []
    place, several = calibration.place_in_class(learned.rows), learned.rows.bincount()[learned.rows] > 2
    turns = [(place % HELD_OUT == fold) & several for fold in range(HELD_OUT)]
    used = 1 if len(learned.rows) > MANY else HELD_OUT
    return [held for held in turns[:used] if bool(held.any())]


class Complement(NamedTuple):
    """What the complementary branch makes of frozen features f: g * f @ A, or g * f where A is None."""

    g: float
    A: Tensor | None


def complement(learned: Learned, strength: str, settings: transfer.Settings, seed: int) -> Complement:
    """A feature scale and, for `transfer`, a trained map, if it predicts the held-out photos better than none."""
    f, rows, train = learned.features[0], learned.rows, ~learned.held
    means = mean_of_labels(f[train], rows[train])[1]
    shown = learned.held if bool(learned.held.any()) else train
    plain = transfer.fitted_scale(means, f[shown], rows[shown], settings.scale)
    if strength != "transfer" or not _trainable(learned):
        return Complement(plain.g, None)
    A = trained_map(learned, train, settings, seed)
    mapped = transfer.fitted_scale(means @ A, f[shown] @ A, rows[shown], settings.scale)
    return Complement(mapped.g, A) if mapped.loss < plain.loss else Complement(plain.g, None)


def trained_map(learned: Learned, train: Tensor, settings: transfer.Settings, seed: int) -> Tensor:
    """The map that RESA makes of some photos (n,)."""
    rng = torch.Generator().manual_seed(seed)
    means = mean_of_labels(learned.features[0][train], learned.rows[train])[1]
    use = train if learned.turned is None else train & ~learned.turned[:, 0, 0].isnan()
    f, rows = learned.features[0][use], learned.rows[use]
    cached = transfer.Cached(f, None if learned.turned is None else learned.turned[use], rows)
    hidden = transfer.dropped(f, settings.dropout, rng)
    g = transfer.fitted_scale(means, hidden, rows, settings.scale).g
    with Bar("complementary map", settings.tasks) as bar:
        return transfer.train(cached, means, g, settings, rng, bar)


def rows_of(names: Sequence[Name]) -> Tensor:
    """Rows 0 ... k - 1 in the order in which the names first come."""
    place = {name: row for row, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([place[name] for name in names])


def _by_name(names: Sequence[Name]) -> dict[Name, list[int]]:
    found: dict[Name, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found
