"""What a benchmark of photos sees: features that encoders make of photos and of other views, looked at once."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fscil.data.images import Images, TensorImages
from fscil.files import write_bytes
from fscil.nn.branches import TEST_VIEWS, Branch, Views
from fscil.nn.encoders import Encoder
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import glance
from fscil.teach.seeing.photos import Source

Look = Callable[[list[Source], str], Tensor]


@dataclass(frozen=True)
class Photos:
    """Features (n, dim) of photos as the encoder makes them, and their classes (n,)."""

    features: Tensor
    classes: Tensor

    def of(self, classes: Sequence[int]) -> "Photos":
        """Those of some classes, class after class."""
        rows = torch.cat([(self.classes == label).nonzero()[:, 0] for label in classes])
        return Photos(self.features[rows], self.classes[rows])


def sources(images: Images, classes: Sequence[int], each: int = 10**6) -> tuple[list[Source], list[int]]:
    """The first photos of some classes, as files or as arrays, with their classes."""
    rows = [row for label in classes for row in (images.labels == label).nonzero()[:each, 0].tolist()]
    some = images.select(rows)
    if isinstance(some, TensorImages):
        return [pixels.permute(1, 2, 0).numpy() for pixels in some.pixels], some.labels.tolist()
    return list(some.paths), some.labels.tolist()


class Part(backbones.Features):
    """The encoder that gives some columns of the features (n, dims) of several encoders side by side."""

    def __init__(self, columns: slice):
        super().__init__(columns.stop - columns.start)
        self.columns = columns

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features[:, self.columns])


class Second(Branch):
    """Sees nothing but the second view: mirror images, or negatives."""

    def looks(self, images: Tensor, encoder: Encoder | None = None) -> list[Tensor]:
        return [(encoder or self.encoder)(TEST_VIEWS[self.views][1].of(images))]


def encoded(encoder: str, seen: Views, pixels: int | None = None) -> Look:
    """What looks at photos: features (1 or 2, n, dims) of each view, as long as the encoder made them.

    Those of several encoders, NAME+NAME, stand side by side (dims is the sum of theirs).
    """
    model = backbones.of_encoder(encoder, pixels=pixels)
    nets = [branch.encoder for branch in model.branches[::2]]
    views: list[tuple[type[Branch], Views]] = [(Branch, "one"), (Second, seen)][: len(TEST_VIEWS[seen])]
    branches = [kind("B", net, "cosine", name, unit=True, directed=True) for kind, name in views for net in nets]
    looker = Model(branches, model.framing, model.origin)

    def look(photos: list[Source], title: str) -> Tensor:
        features = glance(looker, photos, title).features
        return torch.stack([torch.cat(features[i : i + len(nets)], 1) for i in range(0, len(features), len(nets))])

    return look


def kept(file: Path | None, look: Look, encoder: str, views: Views) -> Look:
    """The same, from a file as far as it holds what this encoder saw in these views under a title."""

    def looked(photos: list[Source], title: str) -> Tensor:
        if file is None:
            return look(photos, title)
        found = dict(np.load(file)) if file.is_file() else {}
        key = f"{encoder}, {views}, {title}"
        if key not in found:
            found[key] = look(photos, title).numpy()
            write_arrays(file, **found)
        return torch.from_numpy(found[key])

    return looked


def write_arrays(file: Path, *unnamed: np.ndarray, **named: object) -> None:
    """As numpy's `savez`, in one step and under the very name of the file: numpy would add .npz where it is missing."""
    content = io.BytesIO()
    np.savez(content, *unnamed, **named)
    write_bytes(file, content.getbuffer())


def averaged(look: Look, dims: Sequence[int], views: Views) -> Look:
    """What looks at photos as a model does: the features (n, sum of dims) that its branches make of some views."""

    def looked(photos: list[Source], title: str) -> Tensor:
        seen = look(photos, title)[: len(TEST_VIEWS[views])]
        branch = Branch("B", backbones.Features(1), "cosine", views, unit=True, directed=True)
        return torch.cat([branch.average(side) for side in seen.split(list(dims), 2)], 1)

    return looked


def shown(images: Images, classes: Sequence[int], look: Look, title: str, each: int = 10**6) -> Photos:
    """What is seen of the first photos of some classes."""
    photos, labels = sources(images, classes, each)
    return Photos(look(photos, title), torch.tensor(labels))
