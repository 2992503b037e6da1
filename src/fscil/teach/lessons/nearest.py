"""The taught photos nearest to a photo: which of them an answer comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fscil.errors import FscilError
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.corrections import places
from fscil.teach.names import Name

TINY = 1e-12  # length below which a feature has no direction, as in torch's normalize


@dataclass(frozen=True)
class Neighbour:
    """A taught photo, its class (NONE: of none of these), and its cosine with the photo that was asked about."""

    photo: bytes
    name: Name
    likeness: float


class Taught:
    """The photos a model was taught from, ready to be compared; good for as long as the model is not changed."""

    def __init__(self, model: Model):
        self.places = places(model)
        rows = {row: photo for row, photo in enumerate(model.memory) if photo in self.places}
        self._photos = list(rows.values())
        tables, all_of_them = model.memory.tables, len(rows) == len(model.memory)
        self._tables = [table if all_of_them else table[list(rows)] for table in tables]
        # Lengths, and not features of length 1: those would take as much memory again.
        self._lengths = [torch.linalg.vector_norm(table, dim=1).clamp_min(TINY) for table in self._tables]

    def __len__(self) -> int:
        """How many of them can be compared."""
        return len(self._photos)

    def nearest(self, features: Sequence[Tensor], most: int) -> list[list[Neighbour]]:
        """Of each photo, from its features (one (n, dim) per branch), the nearest ones, the nearest first."""
        parts = zip(features, self._tables, self._lengths, strict=True)
        likeness = torch.stack([F.normalize(f.float(), dim=-1) @ rows.T / long for f, rows, long in parts]).mean(0)
        values, columns = likeness.topk(min(most, len(self)), 1)
        return [
            [Neighbour(self._photos[c], self.places[self._photos[c]], v) for c, v in zip(row, vs, strict=True)]
            for row, vs in zip(columns.tolist(), values.tolist(), strict=True)
        ]


def nearest(model: Model, features: Sequence[Tensor], most: int = 5) -> list[list[Neighbour]]:
    """Of each photo, from its features (one (n, dim) per branch), the nearest taught ones, the nearest first."""
    taught = Taught(model)
    if not len(taught):
        raise FscilError(
            "the model keeps no features of its photos: it was taught with --keep-features none, or by an older "
            "version; learn it again to see the nearest ones"
        )
    return taught.nearest(features, most)
