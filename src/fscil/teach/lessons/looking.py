"""Looking at photos with a model: read, crop, encode; and the answer to "what is this?"."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from fscil.data.framing import finish
from fscil.errors import FscilError
from fscil.running.progress import Bar
from fscil.teach.knowledge.album import small_picture
from fscil.teach.knowledge.model import Model
from fscil.teach.replies import Answer, Reply
from fscil.teach.seeing.photos import Batch, Source, Unreadable, batches, digests

PLAIN = 4.0  # standard deviation of the pixel values below which a photo shows next to nothing
GRID = 4  # every fourth pixel, both ways, is enough to see that
TURNS = (1, 2, 3)  # quarter turns of the rotated twins
Known = Mapping[bytes, list[Tensor]]  # features of a photo, one (dim,) per branch, by its digest
NOTHING: Known = MappingProxyType({})


@dataclass
class Glance:
    """What an answer needs of the readable photos among some sources."""

    positions: list[int] = field(default_factory=list)  # among the sources
    features: list[Tensor] = field(default_factory=list)  # of each branch (n, dim)
    unreadable: list[Unreadable] = field(default_factory=list)


@dataclass
class Seen(Glance):
    """What learning needs of them besides."""

    digests: list[bytes] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)  # positions of photos of almost one colour
    small: dict[bytes, bytes] = field(default_factory=dict)  # digest -> small picture, where the model keeps them
    turned: dict[int, Tensor] = field(default_factory=dict)  # position -> features (3, dim) of the photo turned around

    def known(self) -> Known:
        """The features of each photo by its digest, for the same model in the same state."""
        return {name: [part[row] for part in self.features] for row, name in enumerate(self.digests)}


def glance(model: Model, sources: Sequence[Source], title: str = "") -> Glance:
    """Reads and encodes photos."""
    seen = Glance()
    for _ in _encoded(model, sources, title, seen):
        pass
    return seen


def look(
    model: Model, sources: Sequence[Source], title: str = "", turn: Collection[int] = (), known: Known = NOTHING
) -> Seen:
    """Reads and encodes photos; those at the positions `turn` also turned by 90, 180 and 270 degrees (last branch).

    A photo whose features are known is read again, which takes little, but not encoded again.
    """
    seen = Seen()
    for batch, images in _encoded(model, sources, title, seen, known):
        names = digests(batch.crops)
        seen.digests += names
        if model.album.keep:
            seen.small |= dict(zip(names, map(small_picture, batch.crops), strict=True))
        seen.plain += [p for p, dull in zip(batch.positions, are_plain(batch.crops), strict=True) if dull]
        seen.turned |= _turned(model, images, batch.positions, turn)
    return seen


def are_plain(crops: Tensor) -> list[bool]:
    """Of each crop (n, p, p, 3) whether it is of almost one colour."""
    some = crops[:, ::GRID, ::GRID]  # looking at every pixel takes longer than anything but the encoder
    flat: list[bool] = (some.float().flatten(1, 2).std(1).amax(1) < PLAIN).tolist()
    return flat


def _encoded(
    model: Model, sources: Sequence[Source], title: str, into: Glance, known: Known = NOTHING
) -> Iterator[tuple[Batch, Tensor]]:
    """Fills a glance batch by batch; gives each batch that holds photos, and its images (n, 3, p, p)."""
    if model.framing is None:
        raise FscilError("this model was made from ready features; it cannot look at photos")
    parts = [[torch.empty(0, branch.encoder.dim)] for branch in model.branches]
    with Bar(title, len(sources), bool(title)) as bar:
        for batch in batches(sources, model.framing):
            into.unreadable += batch.unreadable
            if batch.positions:
                images = finish(batch.crops, model.framing, None)
                into.positions += batch.positions
                for part, features in zip(parts, _features(model, batch, images, known), strict=True):
                    part.append(features)
                yield batch, images
            bar.advance(len(into.positions) + len(into.unreadable))
    into.features = [torch.cat(part) for part in parts]


def _features(model: Model, batch: Batch, images: Tensor, known: Known) -> list[Tensor]:
    """Features of each branch (n, dim) of a batch; only photos that are not known are encoded."""
    if not known:
        return model.embed(images)
    names = digests(batch.crops)
    fresh = [row for row, name in enumerate(names) if name not in known]
    made = dict(zip(fresh, zip(*model.embed(images[fresh]), strict=True), strict=True)) if fresh else {}
    rows = [made[row] if row in made else known[name] for row, name in enumerate(names)]
    return [torch.stack(part) for part in zip(*rows, strict=True)]


def _turned(model: Model, images: Tensor, positions: list[int], turn: Collection[int]) -> dict[int, Tensor]:
    rows = [row for row, position in enumerate(positions) if position in turn]
    if not rows:
        return {}
    around = torch.stack([model.embed(torch.rot90(images[rows], k, (-2, -1)))[-1] for k in TURNS], 1)
    return {positions[row]: features for row, features in zip(rows, around, strict=True)}


def answers(model: Model, features: Sequence[Tensor], most: int = 3) -> list[Answer]:
    """One answer per photo, from its features of each branch (n, dim)."""
    require_classes(model)
    return answers_with(model, features, model.scores(features), model.evidence(features), most)


def require_classes(model: Model) -> None:
    """Refuses to ask a model that has no answer."""
    if not model.names:
        raise FscilError("the model knows no class yet; teach it one: fscil teach MODEL CLASS PHOTOS")


def answers_with(model: Model, features: Sequence[Tensor], scores: Tensor, evidence: Tensor, most: int) -> list[Answer]:
    """As `answers`, with scores and evidence (n, classes) that are known already."""
    probabilities, columns = model.probabilities(scores).topk(min(most, scores.shape[1]), 1)
    rejected = model.rejected_with(features, scores)
    classes, known = model.classes, (model.calibration.known(evidence) & ~rejected).tolist()
    return [
        Answer(sure, tuple((classes[c], p) for c, p in zip(row, ps, strict=True)), out)
        for sure, out, row, ps in zip(known, rejected.tolist(), columns.tolist(), probabilities.tolist(), strict=True)
    ]


def replies(model: Model, photos: Sequence[Path], title: str = "") -> list[Reply]:
    """What a model says about photos, in their order."""
    seen = glance(model, photos, title)
    answered = dict(zip(seen.positions, answers(model, seen.features), strict=True)) if seen.positions else {}
    problems = {problem.name: problem.reason for problem in seen.unreadable}
    return [Reply(p, answered.get(i), "" if i in answered else problems[str(p)]) for i, p in enumerate(photos)]
