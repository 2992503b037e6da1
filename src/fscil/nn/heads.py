"""Trainable classifiers on top of an encoder."""

import torch
from torch import Tensor, nn

from fscil.nn.relations import cosine, euclid


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
