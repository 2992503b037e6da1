"""Learning the base classes: choose a strength, look at the photos once, and fit a read-out to what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.branches import Branch
from fscil.teach.base import transfer
from fscil.teach.base.fitting import DEFAULTS, Learned, Wish, fit, groups
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import folds
from fscil.teach.lessons.looking import TURNS, Seen, glance, look
from fscil.teach.lessons.teaching import Lesson, repeated_advice, sort_out
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source, name_of
from fscil.text import count

Strength = Literal["auto", "prototypes", "transfer", "full"]
TURNED = 30  # photos per class that are also encoded turned around; more cost time and change little
HELD_OUT = 5  # every fifth photo is kept from a training of the encoder, for calibration
TRIED = 8  # photos that are encoded to see how fast it goes
CLASSES = 10  # from which on there are as many rehearsals as there ever are


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """How the base classes are going to be learned."""

    strength: Literal["prototypes", "transfer", "full"]
    why: str
    trial: bool = False  # auto: a map is trained, too, if that takes no longer than looking at the photos
    held: frozenset[int] = frozenset()  # full: positions of the photos kept from training
    turned: frozenset[int] = frozenset()  # positions of the photos that are also encoded turned around


Tell = Callable[[str], None]


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
    plan = affordable(plan, estimate(model, sources, plan, settings), tell)
    seen = look(model, sources, "looking at photos", plan.turned)
    called = [names[p] for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, called, {})
    titles = [name_of(sources[p], p) for p in seen.positions]
    advice = repeated_advice([titles[i] for i in repeated], {titles[i]: other for i, other in foreign.items()})
    if not taken:
        raise FscilError("none of the photos could be read; nothing was learned")
    called = [called[i] for i in taken]
    wish = Wish(
        strength=plan.strength, trial=plan.trial, false_acceptance=false_acceptance, settings=settings, seed=seed
    )
    features, told = fit(model, _learned(seen, taken, rows_of(called), plan), wish)
    if told:
        tell(told)
    model.begin(called, features, [seen.digests[i] for i in taken])
    if strength == "transfer" and model.origin.strength != "transfer":
        advice.append(told)
    return Lesson(len(taken), seen.unreadable, advice)


def _learned(seen: Seen, taken: list[int], rows: Tensor, plan: LearningPlan) -> Learned:
    positions = [seen.positions[i] for i in taken]
    held = turned = None
    if plan.held:
        held = torch.tensor([p in plan.held for p in positions])
        for row in set(rows.tolist()) - set(rows[~held].tolist()):  # its other photos could not be read
            held[rows == row] = False
    if seen.turned:
        missing = torch.full_like(next(iter(seen.turned.values())), torch.nan)
        turned = torch.stack([seen.turned.get(p, missing) for p in positions])
    return Learned([f[taken] for f in seen.features], rows, held, turned)


@dataclass(frozen=True)
class Split:
    """Positions of the photos kept from training and of those worth turning around; how many photos each class has."""

    held: frozenset[int]
    turned: frozenset[int]
    photos: list[int]


def split(names: Sequence[Name], seed: int) -> Split:
    """Of each class with three photos or more every fifth, but at least one, is kept for calibration."""
    rng = torch.Generator().manual_seed(seed)
    held, turned, photos = set(), set(), []
    for positions in _by_name(names).values():
        order = [positions[i] for i in torch.randperm(len(positions), generator=rng).tolist()]
        kept = max(1, len(order) // HELD_OUT) if len(order) > 2 else 0
        held |= set(order[:kept])
        turned |= set(order[:TURNED])
        photos.append(len(order))
    return Split(frozenset(held), frozenset(turned), photos)


def plan_for(model: Model, names: Sequence[Name], strength: Strength, seed: int) -> LearningPlan:
    """The strength asked for; `auto`: the read-out in closed form, beside which a map may be tried."""
    parts = split(names, seed)
    able, why_not = _transferable(model, parts.photos)
    if strength == "transfer" and not able:
        raise FscilError(f"strength transfer is not possible: {why_not}; take strength prototypes")
    if strength == "full":
        return LearningPlan(strength="full", why="trained end to end", held=parts.held)
    found = f"{count(len(parts.photos), 'class', 'classes')} with {count(len(names), 'photo')}"
    if strength == "transfer":
        turned = parts.turned if model.framing else frozenset()
        return LearningPlan(strength="transfer", why=f"a map is trained on {found}, as asked", turned=turned)
    why = "as asked" if strength == "prototypes" else found
    return LearningPlan(strength="prototypes", why=why, trial=strength == "auto" and able)


def _transferable(model: Model, photos: Sequence[int]) -> tuple[bool, str]:
    if len(model.branches) == 1:
        return False, "the encoder brings one branch alone, and a map needs a complementary one"
    if not model.paired:
        return False, "the encoder already brings a trained complementary branch"
    if not model.complementary:
        return False, "a map is trained beside one encoder alone"
    kept = [number - number // HELD_OUT for i, number in enumerate(photos) if i % groups(len(photos))]
    if not transfer.enough(kept):
        return False, "fewer than six classes have enough photos (five) to train on some and to try the map on others"
    return True, ""


class Estimate(NamedTuple):
    """About how many seconds it takes to look at a photo once, at all photos once, to fit, and to train two maps."""

    photo: float
    looking: float
    fitting: float
    maps: float


def estimate(model: Model, sources: Sequence[Source], plan: LearningPlan, settings: transfer.Settings) -> Estimate:
    """About how long learning takes on this machine, from a few photos, one fold and two tasks."""
    tried = sources[:TRIED]
    glance(model, tried[:2])  # the first photos take longer than all others
    began = time.perf_counter()
    glance(model, tried)
    photo = (time.perf_counter() - began) / max(1, len(tried))
    fitting, maps = _fitting_seconds(model, len(sources)) if model.paired else 0.0, 0.0
    if plan.trial or plan.strength == "transfer":
        transfer.seconds(model.branches[0].encoder.dim, settings)  # so do the first tasks
        maps = 2 * transfer.seconds(model.branches[0].encoder.dim, settings)  # one to try, one to stay
    return Estimate(photo, photo * len(sources), fitting, maps)


def _fitting_seconds(model: Model, photos: int) -> float:
    """About how long the read-outs of all rehearsals take, from one on random features."""
    rows, total = torch.arange(photos) % max(1, min(CLASSES, photos // 2)), 0.0
    for branch in {id(branch.encoder): branch for branch in model.branches}.values():
        features = torch.rand(photos, branch.encoder.dim, generator=torch.Generator().manual_seed(0))
        blank = Branch(branch.name, branch.encoder, "cosine", unit_means=True)
        began = time.perf_counter()
        blank.whitened(blank.whiten(features, rows))
        total += time.perf_counter() - began
    return total * (1 + len(folds(rows)))


def affordable(plan: LearningPlan, cost: Estimate, tell: Tell) -> LearningPlan:
    """The plan without a trial that would take longer than looking at the photos; says what is done and how long."""
    seconds = cost.looking + cost.fitting + cost.photo * len(TURNS) * len(plan.turned)
    if plan.strength == "transfer":
        seconds += cost.maps
    more = ""
    if plan.trial and cost.maps <= cost.looking:
        seconds, more = seconds + cost.maps, ", and a trained map is tried"
    elif plan.trial:
        plan = replace(plan, trial=False)
        more = f"; a trained map would take about {cost.maps:.0f} s more: --strength transfer tries it"
    tell(f"{plan.strength}: {plan.why}; about {max(1, seconds):.0f} s{more}")
    return plan


def learn_table(model: Model, features: Tensor, names: Sequence[Name], wish: Wish) -> str:
    """Teaches an empty model its base classes from ready features (n, dim); gives what is worth saying."""
    compared, told = fit(model, Learned(model.embed(features), rows_of(names)), wish)
    model.begin(names, compared)
    return told


def rows_of(names: Sequence[Name]) -> Tensor:
    """Rows 0 ... k - 1 in the order in which the names first come."""
    place = {name: row for row, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([place[name] for name in names])


def _by_name(names: Sequence[Name]) -> dict[Name, list[int]]:
    found: dict[Name, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found
