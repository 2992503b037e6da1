"""Learning the base classes: look at the photos once, and fit a read-out to what was seen."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.branches import Branch
from fscil.teach.base import transfer
from fscil.teach.base.fitting import DEFAULTS, Learned, Wish, fit
from fscil.teach.base.planning import LearningPlan, Strength, Tell, affordable, estimate, plan_for, quiet, rows_of
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import NOTHING, Known, Seen, look
from fscil.teach.lessons.teaching import Lesson, left_out, repeated_advice, sort_out
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source, name_of
from fscil.text import count


def learn(
    model: Model,
    sources: Sequence[Source],
    names: Sequence[Name],
    strength: Strength = "auto",
    false_acceptance: float = 0.05,
    settings: transfer.Settings = DEFAULTS,
    seed: int = 0,
    tell: Tell = quiet,
    began: float | None = None,
    known: Known = NOTHING,
) -> Lesson:
    """Teaches an empty model its base classes from photos; `tell` hears what is done, why and for how long.

    `began` is when work for it began, on the clock of `time.perf_counter`; else now. `known` are features
    that the model has made of some of the photos already.
    """
    if not sources:
        raise FscilError("there are no photos to learn from; give some of each class")
    began = time.perf_counter() if began is None else began
    plan = plan_for(model, names, strength, seed)
    if model.paired:
        look_at_lengths(model.branches)
    cost = estimate(model, sources, names, plan, settings, len(known))
    plan = affordable(plan, cost, time.perf_counter() - began, tell)
    seen = look(model, sources, "looking at photos", plan.turned, known)
    called = [names[p] for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, called, {})
    titles = [name_of(sources[p], p) for p in seen.positions]
    advice = repeated_advice([titles[i] for i in repeated], {titles[i]: other for i, other in foreign.items()})
    if not taken:
        first = seen.unreadable[0]
        raise FscilError(f"none of the {count(len(sources), 'photo')} could be read, the first {first}")
    called = [called[i] for i in taken]
    wish = Wish(
        strength=plan.strength, trial=plan.trial, false_acceptance=false_acceptance, settings=settings, seed=seed
    )
    features, told = fit(model, _learned(seen, taken, rows_of(called), plan), wish)
    if told:
        tell(told)
    _begin(model, called, features, [seen.digests[i] for i in taken])
    model.album.add(seen.small)
    return Lesson(len(taken), seen.unreadable, [*advice, *left_out(names, model.classes)])


def look_at_lengths(branches: Sequence[Branch]) -> None:
    """Features of an encoder are told how long they were; those of a table mean whatever their owner wants."""
    for branch in branches:
        if branch.unit and branch.relation == "cosine":
            branch.directed, branch.stretched, branch.length = True, True, None


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


def learn_table(model: Model, features: Tensor, names: Sequence[Name], wish: Wish) -> str:
    """Teaches an empty model its base classes from ready features (n, dim); gives what is worth saying."""
    compared, told = fit(model, Learned(model.embed(features), rows_of(names)), wish)
    _begin(model, names, compared)
    return told


def _begin(model: Model, names: Sequence[Name], features: Sequence[Tensor], photos: Sequence[bytes] = ()) -> None:
    """Takes the base classes in, in the branches that have a say; only now is it known which do."""
    heard = [f for branch, f in zip(model.branches, features, strict=True) if branch.weight]
    model.drop_silent()
    model.begin(names, heard, photos)
