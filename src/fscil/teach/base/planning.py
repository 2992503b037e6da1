"""Plans: how base classes are going to be learned, and how long that takes on this machine."""

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
from fscil.teach.base.fitting import groups
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import folds
from fscil.teach.lessons.looking import TURNS, glance
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source
from fscil.text import count

Tell = Callable[[str], None]
Strength = Literal["auto", "prototypes", "transfer", "full"]
TURNED = 30  # photos per class that are also encoded turned around; more cost time and change little
HELD_OUT = 5  # every fifth photo is kept from a training of the encoder, for calibration
TRIED = 8  # photos that are encoded to see how fast it goes
LITTLE = 0.1  # of the time of looking at the photos: what a map may seem to take that nobody asked for; it may be twice
MAPS = 2  # one is trained to try it, and another to stay where the first wins


def quiet(text: str) -> None:
    """Where nobody listens: from Python, what is worth saying comes as a warning in the end."""


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """How the base classes are going to be learned."""

    strength: Literal["prototypes", "transfer", "full"]
    why: str
    trial: bool = False  # auto: a map is trained, too, if that takes little of the time of looking at the photos
    held: frozenset[int] = frozenset()  # full: positions of the photos kept from training
    turned: frozenset[int] = frozenset()  # positions of the photos that are also encoded turned around


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
    """About how many seconds it takes to look at a photo once, at all photos once, to fit, and to train maps."""

    photo: float
    looking: float
    fitting: float
    maps: float


def estimate(
    model: Model,
    sources: Sequence[Source],
    names: Sequence[Name],
    plan: LearningPlan,
    settings: transfer.Settings,
    known: int = 0,
) -> Estimate:
    """About how long learning takes on this machine, from a few photos, one read-out and a few tasks.

    So many photos are `known`: they need not be encoded again.
    """
    tried = sources[:: max(1, len(sources) // TRIED)][:TRIED]  # of several classes: photos may differ in size
    glance(model, tried[:2])  # the first photos take longer than all others
    began = time.perf_counter()
    glance(model, tried)
    photo = (time.perf_counter() - began) / max(1, len(tried))
    rows = rows_of(names)
    fitting, maps = _fitting_seconds(model, rows) if model.paired else 0.0, 0.0
    if plan.trial or plan.strength == "transfer":
        dim, counts = model.branches[0].encoder.dim, rows.bincount().tolist()
        maps = MAPS * transfer.seconds(dim, counts, bool(plan.turned), settings)
    return Estimate(photo, photo * max(0, len(sources) - known), fitting, maps)


def _fitting_seconds(model: Model, rows: Tensor) -> float:
    """About how long the read-outs of all rehearsals take, from one on random features."""
    total = 0.0
    for branch in {id(branch.encoder): branch for branch in model.branches}.values():
        features = torch.rand(len(rows), branch.encoder.dim, generator=torch.Generator().manual_seed(0))
        blank = Branch(branch.name, branch.encoder, "cosine", unit_means=True)
        began = time.perf_counter()
        blank.whitened(blank.whiten(features, rows))
        total += time.perf_counter() - began
    return total * (1 + len(folds(rows)))


def affordable(plan: LearningPlan, cost: Estimate, spent: float, tell: Tell) -> LearningPlan:
    """The plan without a trial that would take long beside looking at the photos; says what is done and how long.

    What is said includes the seconds spent so far: with few photos most of all went into starting, and into making the
    graph of an encoder where there was none. Saving is not foreseen; it takes less than reading the encoder did.
    """
    seconds, more = spent + cost.looking + cost.fitting + cost.photo * len(TURNS) * len(plan.turned), ""
    if plan.trial and cost.maps > LITTLE * cost.looking:
        plan, more = replace(plan, trial=False), "; --strength transfer also tries a trained map, which takes longer"
    elif plan.trial:
        seconds, more = seconds + cost.maps, ", and a trained map is tried"
    elif plan.strength == "transfer":
        seconds += cost.maps
    tell(f"{plan.strength}: {plan.why}; about {max(1, seconds):.0f} s{more}")
    return plan


def rows_of(names: Sequence[Name]) -> Tensor:
    """Rows 0 ... k - 1 in the order in which the names first come."""
    place = {name: row for row, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([place[name] for name in names])


def _by_name(names: Sequence[Name]) -> dict[Name, list[int]]:
    found: dict[Name, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found
