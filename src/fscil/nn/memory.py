"""Exemplars: the images a method keeps of earlier sessions, and how they are chosen."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.images import Framing, Images, TensorImages
from fscil.errors import FscilError


def stored(images: Images, framing: Framing) -> TensorImages:
    """The images as a memory keeps them: uint8, cut to the square from which the test framing takes its centre."""
    side = round(framing.pixels * framing.margin)
    plain = Framing(side, (0.0,) * 3, (1 / 255,) * 3, margin=1.0)  # values 0..255
    chunks = torch.arange(len(images)).split(500) if len(images) else ()
    pixels = [x.round().clamp(0, 255).byte() for x in images.batches(chunks, plain)]
    nothing = torch.zeros(0, 3, side, side, dtype=torch.uint8, device=images.device)
    return TensorImages(torch.cat([nothing, *pixels]), images.labels)


class ExemplarMemory(nn.Module):
    """Images as uint8 pixels (n, 3, h, h) with their labels (n,); within each class the best come first."""

    pixels: Tensor
    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pixels", torch.zeros(0, 3, 0, 0, dtype=torch.uint8))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> TensorImages:
        return TensorImages(self.pixels, self.labels.cpu())

    def add(self, images: TensorImages) -> None:
        """Keeps these images, which have the form of `stored`, in this order."""
        both = self.images.joined(images) if len(self) else images
        self.pixels, self.labels = both.pixels.to(self.pixels.device), both.labels.to(self.labels.device)

    def limit(self, per_class: int) -> None:
        """Keeps at most the first `per_class` images of each class."""
        kept = first_of_each(self.labels.cpu(), per_class).to(self.labels.device)
        self.pixels, self.labels = self.pixels[kept], self.labels[kept]

    def _load_from_state_dict(self, state: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in ("pixels", "labels"):
            if prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name], device=self.labels.device))
        super()._load_from_state_dict(state, prefix, *rest)


def quota(memory: int, classes: int) -> int:
    """Exemplars of one class where `memory` images of all classes together are kept."""
    return memory // classes


def require_room(memory: int, classes: int) -> None:
    """Refuses a memory in which not every class has a place."""
    if memory < classes:
        raise FscilError(
            f"a memory of {memory} images has no room for each of {classes} classes; set --memory to {classes} or more"
        )


def first_of_each(labels: Tensor, count: int) -> Tensor:
    """Positions (m,) of the first `count` occurrences of every label among (n,), ascending."""
    order = labels.argsort(stable=True)
    sizes = torch.unique_consecutive(labels[order], return_counts=True)[1]
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.arange(len(labels)) - starts
    return order[rank < count].sort().values


def herding(features: Tensor, count: int) -> Tensor:
    """Positions of `count` images of one class, in the order in which they join.

    Each of them brings the mean of those chosen so far closest to the mean of all features (n, d).

    >>> herding(torch.tensor([[0.0], [1.0], [5.0]]), 2).tolist()
    [1, 2]
    """
    f = features.double()
    mean, chosen_sum, left = f.mean(0), torch.zeros_like(f[0]), torch.ones(len(f), dtype=torch.bool)
    order = []
    for size in range(1, min(count, len(f)) + 1):
        distance = (mean - (chosen_sum + f) / size).square().sum(1)
        best = int(distance.masked_fill(~left, float("inf")).argmin())
        order.append(best)
        left[best] = False
        chosen_sum = chosen_sum + f[best]
    return torch.tensor(order, dtype=torch.int64)


def herded(labels: Tensor, features: Tensor, per_class: int) -> Tensor:
    """Positions (m,) of the best `per_class` images of each class by herding of features (n, d), class after class.

    They are brought to unit length first.
    """
    features = features.cpu()
    return _chosen(labels, lambda own: own[herding(F.normalize(features[own], dim=1), per_class)])


def drawn(labels: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Positions (m,) of `per_class` random images of each class among labels (n,), class by class."""
    return _chosen(labels, lambda own: own[torch.randperm(len(own), generator=generator)][:per_class])


def _chosen(labels: Tensor, choose: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.cat([choose((labels == label).nonzero()[:, 0]) for label in dict.fromkeys(labels.tolist())])
