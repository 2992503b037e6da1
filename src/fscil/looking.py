"""Looking at photos with a model: read, crop, encode; and the answer to "what is this?"."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fscil.data.views import finish
from fscil.errors import FscilError
from fscil.journal import Name
from fscil.model import Model
from fscil.photos import Source, Unreadable, batches, digests
from fscil.progress import Bar

PLAIN = 4.0  # standard deviation of the pixel values below which a photo shows next to nothing
TURNS = (1, 2, 3)  # quarter turns of the rotated twins


@dataclass
class Seen:
    """What was seen of the readable photos among some sources."""

    positions: list[int] = field(default_factory=list)  # among the sources
    features: list[Tensor] = field(default_factory=list)  # of each branch (n, dim)
    digests: list[bytes] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)  # positions of photos of almost one colour
    turned: dict[int, Tensor] = field(default_factory=dict)  # position -> features (3, dim) of the photo turned around
    unreadable: list[Unreadable] = field(default_factory=list)


def look(model: Model, sources: Sequence[Source], title: str = "", turn: Collection[int] = ()) -> Seen:
    """Reads and encodes photos; those at the positions `turn` also turned by 90, 180 and 270 degrees (first branch)."""
    if model.view is None:
        raise FscilError("this model was made from ready features; it cannot look at photos")
    seen, parts = Seen(), []
    with Bar(title, len(sources), bool(title)) as bar:
        for batch in batches(sources, model.view):
            seen.unreadable += batch.unreadable
            if batch.positions:
                images = finish(batch.crops, model.view, None)
                parts.append(model.embed(images))
                seen.positions += batch.positions
                seen.digests += digests(batch.crops)
                flat = batch.crops.float().flatten(1, 2).std(1).amax(1) < PLAIN
                seen.plain += [p for p, dull in zip(batch.positions, flat.tolist(), strict=True) if dull]
                seen.turned |= _turned(model, images, batch.positions, turn)
            bar.advance(len(seen.positions) + len(seen.unreadable))
    empty = [[torch.empty(0, branch.encoder.dim) for branch in model.branches]]
    seen.features = [torch.cat(of_branch) for of_branch in zip(*(parts or empty), strict=True)]
    return seen


@torch.no_grad()
def _turned(model: Model, images: Tensor, positions: list[int], turn: Collection[int]) -> dict[int, Tensor]:
    rows = [row for row, position in enumerate(positions) if position in turn]
    if not rows:
        return {}
    around = torch.stack([model.branches[0].pooled(torch.rot90(images[rows], k, (-2, -1))) for k in TURNS], 1)
    return {positions[row]: features for row, features in zip(rows, around, strict=True)}


@dataclass(frozen=True)
class Answer:
    """What a model says about one photo."""

    known: bool
    best: tuple[tuple[Name, float], ...]  # the most probable classes with their probabilities

    def text(self) -> str:
        """hoopoe 0.83, or: not sure (nearest: jay 0.31, wren 0.22)."""
        told = [f"{name} {probability:.2f}" for name, probability in self.best]
        return told[0] if self.known else f"not sure (nearest: {', '.join(told[:2])})"


def answers(model: Model, features: Sequence[Tensor], most: int = 3) -> list[Answer]:
    """One answer per photo, from its features of each branch (n, dim)."""
    if not model.names:
        raise FscilError("the model knows no class yet; teach it one: fscil teach MODEL CLASS PHOTOS")
    scores = model.scores(features)
    probabilities, columns = model.probabilities(scores).topk(min(most, scores.shape[1]), 1)
    classes, known = model.classes, model.calibration.known(scores).tolist()
    return [
        Answer(sure, tuple((classes[c], p) for c, p in zip(row, ps, strict=True)))
        for sure, row, ps in zip(known, columns.tolist(), probabilities.tolist(), strict=True)
    ]
