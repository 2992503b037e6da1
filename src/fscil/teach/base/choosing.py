"""Which encoder: the usual one, or its layout where that names clearly more of the user's own photos right; or two.

ImageNet's classes are things. Where classes are signs, drawings or patterns, what counts is where the lines are; the
last layers of a net for things no longer know it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.branches import Views
from fscil.nn.efficientnet_lite import LAYOUT_PIXELS
from fscil.teach.base.fitting import Learned, answered, fresh_readout, groups
from fscil.teach.base.learning import look_at_lengths
from fscil.teach.base.planning import Tell, quiet, rows_of
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import fold_of
from fscil.teach.lessons.looking import NOTHING, Known, Seen, look
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source

Item = TypeVar("Item")
CLASSES = 20  # most that are tried
PHOTOS = 200  # most that are looked at, in all
FEWEST_CLASSES, FEWEST_PHOTOS = 4, 8  # classes, and photos of each, below which nothing is tried
SIGN_VIEWS: Views = "negative"  # a sign may be dark on bright or bright on dark
SURE = 2.0  # deviations of a coin by which the rival has to win the photos that only one of the two names right


class Chosen(NamedTuple):
    """A model without classes, and the features that it has made of some of the photos already."""

    model: Model
    known: Known = NOTHING


def model_for(
    encoder: str,
    weights: str | None,
    pixels: int | None,
    views: Views,
    sources: Sequence[Source],
    names: Sequence[Name],
    tell: Tell = quiet,
) -> Chosen:
    """A model without classes on the encoder asked for; `auto` and `best`: on what suits these photos."""
    if encoder == backbones.BEST:
        if weights:
            raise FscilError(f"{encoder} takes two encoders with their own weights; omit --weights, or name an encoder")
        if views != "one":
            raise FscilError(f"{encoder} chooses the views of a photo as well; omit --views, or name an encoder")
        two = backbones.of_encoder(backbones.TWO, None, pixels, "flip")  # first: it says if weights are missing
        suiting = _suiting(pixels, "one", sources, names, tell)
        signs = suiting.model.origin.encoder == backbones.LAYOUT  # whose mirror images are other signs
        return Chosen(backbones.of_encoder(backbones.TWO_LAYOUTS, None, pixels, SIGN_VIEWS) if signs else two)
    if encoder == backbones.AUTO and not weights:
        return _suiting(pixels, views, sources, names, tell)
    name = backbones.DEFAULT if encoder == backbones.AUTO else encoder
    return Chosen(backbones.of_encoder(name, weights, pixels, views))


def _suiting(pixels: int | None, views: Views, sources: Sequence[Source], names: Sequence[Name], tell: Tell) -> Chosen:
    """The usual encoder, or its layout, which also sees negatives unless other views were asked for."""
    usual = backbones.of_encoder(backbones.DEFAULT, None, pixels, views)
    some = sample(names)
    if not some or (pixels is not None and pixels < LAYOUT_PIXELS):
        return Chosen(usual)
    layout = backbones.of_encoder(backbones.LAYOUT, None, pixels, SIGN_VIEWS if views == "one" else views)
    photos, called = [sources[i] for i in some], [names[i] for i in some]
    seen, other = (_tried(model, photos) for model in (usual, layout))
    right, rival = rightly_named(usual, seen, called), rightly_named(layout, other, called)
    if not clearly_better(rival, right):
        return Chosen(usual, seen.known())
    percent = " and ".join(f"{100 * float(part.double().mean()):.0f} %" for part in (rival, right))
    tell(f"{backbones.LAYOUT} suits these photos better than the usual encoder: {percent} of {len(right)} named right")
    return Chosen(layout, other.known())


def _tried(model: Model, photos: Sequence[Source]) -> Seen:
    """What a model makes of photos before anything is fitted."""
    look_at_lengths(model.branches)
    return look(model, photos, f"trying {model.origin.encoder}")


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


def rightly_named(model: Model, seen: Seen, names: Sequence[Name]) -> Tensor:
    """Of each time one of the photos is asked about (n,) whether it is named right, a third of the classes being new.

    The order is the same for every model. Empty: too few photos could be read to tell anything.
    """
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
