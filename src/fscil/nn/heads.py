"""Trainable classifiers on top of an encoder."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.nn.relations import cosine, euclid

ROW_STD = 0.001  # of the rows with which F2M and SoftNet start their classifier


class CosineHead(nn.Module):
    """Weights W (classes, dim); logits = s * cos(f, W), the classifier of Eq. 1."""

    def __init__(self, dim: int, classes: int, scale: float, generator: torch.Generator):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(classes, dim, generator=generator) / dim**0.5)

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * cosine(features, self.weight)


class EuclidHead(nn.Module):
    """Weights W (classes, dim) that start as the class means; logits = s * -||f - W||^2 / d."""

    def __init__(self, means: Tensor, scale: float):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(means.clone())

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * euclid(features, self.weight)


class GrowingHead(nn.Module):
    """One block of weights (classes, dim) per session; rows are found by label, never by position.

    Blocks are parameters of their own, so that those of earlier sessions can stand still while the newest is trained.
    """

    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ParameterList()
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels in row order."""
        return tuple(self.labels.tolist())

    @property
    def widths(self) -> list[int]:
        """Number of classes of each block."""
        return [len(block) for block in self.blocks]

    @property
    def weight(self) -> Tensor:
        """All rows (classes, dim)."""
        return torch.cat(list(self.blocks))

    def relate(self, features: Tensor, weight: Tensor) -> Tensor:
        """Logits (n, rows) of features (n, dim) for rows (rows, dim)."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Tensor:
        return self.relate(features, self.weight)

    def through_newest(self, features: Tensor) -> Tensor:
        """The same logits (n, classes), but gradients reach features and weights through the newest block alone."""
        *old, newest = self.blocks
        fixed = [self.relate(features.detach(), block.detach()) for block in old]
        return torch.cat([*fixed, self.relate(features, newest)], 1)

    def grow(self, classes: tuple[int, ...], weight: Tensor) -> None:
        """Appends a block (classes, dim) for classes that are new."""
        known = sorted(set(classes) & set(self.classes))
        if known:
            raise FscilError(f"class {known[0]} already has a row in the classifier; a session brings new classes only")
        self.blocks.append(nn.Parameter(weight.detach().to(self.labels.device, copy=True)))
        self.labels = torch.cat([self.labels, torch.tensor(classes, dtype=torch.int64).to(self.labels.device)])

    def rows(self, labels: Tensor) -> Tensor:
        """Rows of labels (n,) -> (n,)."""
        labels = labels.to(self.labels.device)
        found = labels[:, None] == self.labels
        unknown = labels[~found.any(1)]
        if len(unknown):
            raise FscilError(f"class {int(unknown[0])} has no row in the classifier of {len(self.labels)} classes")
        return found.int().argmax(1)

    def train_rows(self, old: bool) -> None:
        """The newest block is trained; those before it only where `old` says so."""
        for block in self.blocks:
            block.requires_grad_(old)
        self.blocks[-1].requires_grad_(True)

    def _load_from_state_dict(self, state: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        """Takes any number of blocks; parameters whose size fits are filled in place, so that optimisers keep them."""
        stored = [key for key in state if key.startswith(f"{prefix}blocks.")]
        blocks = [state[f"{prefix}blocks.{i}"] for i in range(len(stored))]
        if [block.shape for block in blocks] != [block.shape for block in self.blocks]:
            self.blocks = nn.ParameterList([torch.empty_like(block, device=self.labels.device) for block in blocks])
        if f"{prefix}labels" in state:
            self.labels = torch.empty_like(state[f"{prefix}labels"], device=self.labels.device)
        super()._load_from_state_dict(state, prefix, *rest)


def brought_to(length: float, features: Tensor) -> Tensor:
    """Features (n, dim) of this length; 0: as they are."""
    return length * F.normalize(features, dim=1) if length else features


class GrowingLinear(GrowingHead):
    """Logits W f without bias; features are brought to a `length` first, or (0) taken as they are."""

    def __init__(self, length: float = 0.0):
        super().__init__()
        self.length = length

    def relate(self, features: Tensor, weight: Tensor) -> Tensor:
        return brought_to(self.length, features) @ weight.T


class GrowingCosine(GrowingHead):
    """Logits s * cos(f, W), with one scale for all rows, learned or not."""

    scale: Tensor

    def __init__(self, scale: float, learned: bool = False):
        super().__init__()
        if learned:
            self.scale = nn.Parameter(torch.tensor(scale))
        else:
            self.register_buffer("scale", torch.tensor(scale))

    def relate(self, features: Tensor, weight: Tensor) -> Tensor:
        return self.scale * cosine(features, weight)


def random_rows(count: int, dim: int, std: float, generator: torch.Generator) -> Tensor:
    """Gaussian weights (count, dim) to start a block from."""
    return std * torch.randn(count, dim, generator=generator)


def imprinted_rows(labels: Tensor, features: Tensor, classes: tuple[int, ...], old: Tensor) -> Tensor:
    """Rows (classes, dim): directions of mean unit features (n, dim) of labels (n,), as long as the mean `old` row."""
    unit, labels = F.normalize(features, dim=1), labels.to(features.device)
    means = torch.stack([unit[labels == label].mean(0) for label in classes])
    length: Tensor = old.norm(dim=1).mean()
    return F.normalize(means, dim=1) * length


class LinearHead(nn.Module):
    """Logits W f + b, rows from N(0, std); features are brought to a `length` first, or (0) taken as they are."""

    def __init__(self, dim: int, classes: int, generator: torch.Generator, length: float = 0.0, std: float = ROW_STD):
        super().__init__()
        self.length = length
        self.weight = nn.Parameter(random_rows(classes, dim, std, generator))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(brought_to(self.length, features), self.weight, self.bias)
