"""The taught photos nearest to a photo: which of them an answer comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.relations import cosine
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.corrections import places
from fscil.teach.names import Name


@dataclass(frozen=True)
class Neighbour:
    """A taught photo, its class (NONE: of none of these), and its cosine with the photo that was asked about."""

    photo: bytes
    name: Name
    likeness: float


def nearest(model: Model, features: Sequence[Tensor], most: int = 5) -> list[list[Neighbour]]:
    """Of each photo, from its features (one (n, dim) per branch), the nearest taught ones, the nearest first."""
    known = {photo: name for photo, name in places(model).items() if photo in model.memory}
    if not known:
        raise FscilError(
            "the model keeps no features of its photos: it was taught with --keep-features none, or by an older "
            "version; learn it again to see the nearest ones"
        )
    photos = list(known)
    pairs = zip(features, model.memory.features(photos), strict=True)
    likeness = torch.stack([cosine(f, rows) for f, rows in pairs]).mean(0)
    values, columns = likeness.topk(min(most, len(photos)), 1)
    return [
        [Neighbour(photos[c], known[photos[c]], v) for c, v in zip(row, vs, strict=True)]
        for row, vs in zip(columns.tolist(), values.tolist(), strict=True)
    ]
