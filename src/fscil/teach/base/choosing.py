"""Which encoder: the usual one, or its layout where that names clearly more of the user's own photos right.

ImageNet's classes are things. Where classes are signs, drawings or patterns, what counts is where the lines are; the
last layers of a net for things no longer know it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fscil.nn.branches import Views
from fscil.nn.efficientnet_lite import LAYOUT_PIXELS
from fscil.teach.base.fitting import Learned, answered, fresh_readout, groups
from fscil.teach.base.learning import look_at_lengths
from fscil.teach.base.planning import Tell, quiet, rows_of
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import fold_of
from fscil.teach.lessons.looking import glance
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source

Item = TypeVar("Item")
CLASSES = 20  # most that are tried
PHOTOS = 200  # most that are looked at, in all
FEWEST_CLASSES, FEWEST_PHOTOS = 4, 8  # classes, and photos of each, below which nothing is tried
SURE = 2.0  # deviations of a coin by which the rival has to win the photos that only one of the two names right


def model_for(
    encoder: str,
    weights: str | None,
    pixels: int | None,
    views: Views,
    sources: Sequence[Source],
    names: Sequence[Name],
    tell: Tell = quiet,
) -> Model:
    """A model without classes on the encoder asked for; `auto`: on the one that suits these photos."""
    if encoder != backbones.AUTO or weights:
        return backbones.of_encoder(backbones.DEFAULT if encoder == backbones.AUTO else encoder, weights, pixels, views)
    usual = backbones.of_encoder(backbones.DEFAULT, None, pixels, views)
    some = sample(names)
    if not some or (pixels is not None and pixels < LAYOUT_PIXELS):
        return usual
    layout = backbones.of_encoder(backbones.LAYOUT, None, pixels, views)
    photos, called = [sources[i] for i in some], [names[i] for i in some]
    right, rival = (rightly_named(model, photos, called) for model in (usual, layout))
    if not clearly_better(rival, right):
        return usual
    percent = " and ".join(f"{100 * float(part.double().mean()):.0f} %" for part in (rival, right))
    tell(f"{backbones.LAYOUT} suits these photos better than the usual encoder: {percent} of {len(right)} named right")
    return layout


def sample(names: Sequence[Name]) -> list[int]:
    """Positions of some photos of some classes, evenly spaced; none where there are too few to tell anything."""
    found: dict[Name, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    large = [positions for positions in found.values() if len(positions) >= FEWEST_PHOTOS]
    if len(large) < FEWEST_CLASSES:
        return []
    chosen = _spread(large, CLASSES)
    return [position for positions in chosen for position in _spread(positions, PHOTOS // len(chosen))]


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many items, evenly spaced."""
    number = min(most, len(items))
    return [items[i * len(items) // number] for i in range(number)]


def rightly_named(model: Model, photos: Sequence[Source], names: Sequence[Name]) -> Tensor:
    """Of each time a photo is asked about (n,) whether it is named right, a third of the classes at a time being new.

    The order is the same for every model. Empty: too few photos could be read to tell anything.
    """
    look_at_lengths(model.branches)
    seen = glance(model, photos, f"trying {model.origin.encoder}")
    called = [names[i] for i in seen.positions]
    if not sample(called):  # too many photos could not be read
        return torch.zeros(0, dtype=torch.bool)
    rows = rows_of(called)
    learned, number = Learned(seen.features, rows), groups(int(rows.max()) + 1)
    parts = []
    for turn in range(number):
        fold = fold_of(rows, number, turn)
        parts.append(answered(*fresh_readout(model.branches, learned, fold), rows, fold).right)
    return torch.cat(parts)


def clearly_better(rival: Tensor, usual: Tensor) -> bool:
    """Whether the rival is right (n,) more often, by more than chance, where only one of the two is right."""
    won, lost = int((rival & ~usual).sum()), int((usual & ~rival).sum())
    return won - lost > SURE * math.sqrt(won + lost)
