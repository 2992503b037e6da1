"""How close a feature is to a prototype: the two relations of the paper, and class means.

Every relation is linear in a query once the prototypes are known: query(f) . keys(W)^T + bias(W) + offset(f). A sum of
relations is therefore one matrix product, which is what inference, export and large class counts use.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.tensors import sent

Relation = Literal["cosine", "euclid"]
LEAST_TIGHT = 0.02  # mean cosine of two photos of a class below which it is no class


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Phi_1, Eq. 1: cosine of every row of `a` (n, d) with every row of `b` (c, d) -> (n, c)."""
    return F.normalize(a.float(), dim=-1) @ F.normalize(b.float(), dim=-1).T


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """||a - b||^2 between every row of `a` (n, d) and of `b` (c, d) -> (n, c), in float32."""
    a, b = a.float(), b.float()
    return a.square().sum(1, keepdim=True) - 2 * a @ b.T + b.square().sum(1)


def euclid(a: Tensor, b: Tensor) -> Tensor:
    """Phi_2, below Eq. 6: -||a - b||^2 / d -> (n, c)."""
    return -squared_distance(a, b) / a.shape[1]


def losses_at_scales(scales: Tensor, features: Tensor, prototypes: Tensor, rows: Tensor, s: float) -> Tensor:
    """Cross-entropy of softmax(s Phi_2) for features (n, d) of rows (n,) of prototypes (c, d), both at each scale."""
    return torch.stack([F.cross_entropy(s * euclid(g * features, g * prototypes), rows) for g in scales])


def class_means(features: Tensor) -> Tensor:
    """Eq. 3 and 4 for an episode: (way, shot, d) -> (way, d)."""
    return features.mean(1)


@dataclass(frozen=True)
class LinearForm:
    """A relation to fixed prototypes as keys (c, d) and bias (c,)."""

    keys: Tensor
    bias: Tensor


def linear_form(relation: Relation, prototypes: Tensor) -> LinearForm:
    """The part of a relation that depends on the prototypes (c, d)."""
    W = prototypes.float()
    if relation == "cosine":
        return LinearForm(F.normalize(W, dim=1), W.new_zeros(len(W)))
    return LinearForm(2 * W / W.shape[1], -W.square().mean(1))


def evidence_form(means: Tensor, counts: Tensor, typical: float) -> LinearForm:
    """How far features of length 1 lie beyond the midpoint between the centre and a class, towards the class.

    f . m / sqrt(T) - sqrt(T) / 2: the linear discriminant per unit of length. T is the squared length of the class mean
    m (c, d) without the noise of its few photos (counts, (c,)), which is the mean cosine of two different photos of the
    class; `typical` is T of most classes and counts as much as one photo.
    """
    T = (counts * means.square().sum(1) - 1 + typical) / counts
    length = T.clamp(min=LEAST_TIGHT).sqrt()
    return LinearForm(means / length[:, None], -length / 2)


def tightness(means: Tensor, counts: Tensor) -> Tensor:
    """Mean cosine of two different photos of each class, from means (c, d) of features of length 1: (several,)."""
    several = counts > 1
    return (counts[several] * means[several].square().sum(1) - 1) / (counts[several] - 1)


def query_form(relation: Relation, features: Tensor) -> tuple[Tensor, Tensor]:
    """The part that depends on the query: (n, d) and its offset (n,), the same for every class."""
    f = features.float()
    if relation == "cosine":
        return F.normalize(f, dim=1), f.new_zeros(f.shape[0])  # len() would fix the batch size of an exported graph
    return f, -f.square().mean(1)


def relate(relation: Relation, features: Tensor, prototypes: Tensor) -> Tensor:
    """The relation as the paper writes it: (n, d), (c, d) -> (n, c)."""
    return cosine(features, prototypes) if relation == "cosine" else euclid(features, prototypes)


def mean_of_labels(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct labels (c,) in ascending order and the mean feature of each (c, d)."""
    classes, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    inverse, counts = (sent(numbers, features.device) for numbers in (inverse, counts))
    sums = features.new_zeros(len(classes), features.shape[1], dtype=torch.float64)
    sums.index_add_(0, inverse, features.double())
    return classes, (sums / counts.unsqueeze(1)).float()
