"""Grad-CAM: where in an image the relations of branches to a class look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.nn.branches import Branch, Branches
from fscil.nn.encoders import Encoder


class Relations(nn.Module):
    """Images (n, 3, p, p) -> the sum of the relations of some branches (n, classes), minus its mean over the classes.

    What an image adds to its relations to all classes, such as the square of its own length, names none of them; but
    it would decide the gradient. Each encoder sees the images once, as they are, before any other view: of each layer
    Grad-CAM takes the first pass alone, and several branches on one encoder have to share it.
    """

    def __init__(self, branches: Sequence[Branch]):
        super().__init__()
        self.branches = Branches(branches)

    def forward(self, images: Tensor) -> Tensor:
        first = {encoder: cast(Encoder, _First(encoder, images)) for encoder in {b.encoder: b for b in self.branches}}
        parts = [b.relate(b.whitened(b.pooled(images, first[b.encoder]))) for b in self.branches]
        relations = torch.stack(parts).sum(0)
        return relations - relations.mean(1, keepdim=True)


class _First(nn.Module):
    """An encoder that has seen some images already."""

    def __init__(self, encoder: Encoder, images: Tensor):
        super().__init__()
        self.encoder, self.images, self.features = encoder, images, encoder(images)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.features if images is self.images else self.encoder(images)
        return features


def heat(branches: Sequence[Branch], image: Tensor, column: int) -> np.ndarray:
    """Grad-CAM (p, p) of the relation of one class, values 0..1."""
    try:
        from pytorch_grad_cam import GradCAM
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
    except ImportError as problem:
        raise FscilError("explain needs more packages: pip install 'fscil[explain]'") from problem
    layers = [_layer(branch.encoder) for branch in {id(b.encoder): b for b in branches}.values()]
    with torch.enable_grad(), GradCAM(Relations(branches), layers, reshape_transform=_maps) as cam:
        drawn: np.ndarray = cam(image.clone().requires_grad_(True), [ClassifierOutputTarget(column)])[0]
    return drawn


def _layer(encoder: Encoder) -> nn.Module:
    """The last layer that knows where in the picture it looks."""
    stage: nn.Module = encoder.stages[-1]
    net: Any = getattr(stage, "net", None)
    if not hasattr(net, "num_prefix_tokens"):
        return stage
    block: nn.Module = net.blocks[-1]
    return getattr(block, "norm1", block)  # of what a Transformer gives at last often one token alone is used


def _maps(activations: Tensor) -> Tensor:
    """What a layer gives for square images as maps (n, channels, h, h), be it tokens or channels last."""
    if activations.ndim == 3:
        side = math.isqrt(activations.shape[1])  # tokens without a place come first
        return activations[:, -side * side :].transpose(1, 2).reshape(len(activations), -1, side, side)
    rows, columns, last = activations.shape[1:]
    return activations.permute(0, 3, 1, 2) if rows == columns != last else activations
