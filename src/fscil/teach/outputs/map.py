"""A map of the classes: those that look alike lie close together, as far as two dimensions can show it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fscil.teach.knowledge.model import Model


@dataclass(frozen=True)
class Map:
    """Places of the classes, x and y between -1 and 1, and the share of their squared distances that it shows."""

    places: tuple[tuple[float, float], ...]
    share: float


def class_map(model: Model) -> Map:
    """The first two principal components of the class means of all branches, each mean of length 1."""
    means = torch.cat([F.normalize(branch.prototypes.means(), dim=1) for branch in model.branches], 1).double()
    if len(means) < 2:
        return Map(((0.0, 0.0),) * len(means), 1.0)
    axes, sizes, _ = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    places = F.pad(axes * sizes, (0, 2))[:, :2]
    largest = places.abs().argmax(0)
    places = places * places.gather(0, largest[None]).sign()  # else a photo more may mirror it
    spread = float(sizes.square().sum())
    share = float(sizes[:2].square().sum()) / spread if spread else 1.0
    places = places / places.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return Map(tuple((x, y) for x, y in places.tolist()), share)
