"""Whitening: directions in which images of one class differ count less when classes are compared.

S, the covariance within classes, is shrunk towards a multiple of the identity. How far follows from the data in closed
form, as Ledoit and Wolf have it, with one change: what is drawn are classes, not images. A direction in which the
classes disagree says little about a class that comes later, however many images each of them has. One class, or one
image of each, tells nothing: the shrinkage is 1 and the whitening leaves features as they are.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fscil.nn.relations import mean_of_labels


class Whitening(NamedTuple):
    """(f - centre) @ matrix, fitted with a share of the identity."""

    centre: Tensor  # (d,)
    matrix: Tensor  # (d, d), symmetric
    shrinkage: float


class Spread(NamedTuple):
    """How images of one class differ: covariance within classes (d, d), mean variance, mean of the class means (d,)."""

    S: Tensor
    level: float
    centre: Tensor
    shrinkage: float  # what the data ask for


def spread(features: Tensor, labels: Tensor) -> Spread:
    """The spread of features (n, d) within their classes, in float64."""
    rows = torch.unique(labels, return_inverse=True)[1]
    _, means = mean_of_labels(features, labels)
    rest = features.double() - means.double()[rows]
    S = rest.T @ rest / len(rest)
    level = float(S.trace()) / len(S)
    return Spread(S, level, means.double().mean(0), _shrinkage(rest, rows, S, level))


def _shrinkage(rest: Tensor, rows: Tensor, S: Tensor, level: float) -> float:
    """b^2 / d^2: the error of S as a mean over classes, against its distance from the identity."""
    classes = int(rows.max()) + 1
    if classes < 2 or level == 0:
        return 1.0
    distance = float(S.square().sum()) - len(S) * level**2
    error = sum(_strangeness(rest[rows == row], S, len(rest)) for row in range(classes)) * classes / (classes - 1)
    return min(1.0, error / distance) if distance > 0 else 1.0


def _strangeness(own: Tensor, S: Tensor, images: int) -> float:
    """||w (S_c - S)||^2 for the images of one class (m, d), of which S is made with the weight w = m / n."""
    m = len(own)
    squared = float((own @ own.T).square().sum()) / m**2 - 2 * float(((own @ S) * own).sum()) / m
    return (m / images) ** 2 * (squared + float(S.square().sum()))


def whitening(of: Spread, shrinkage: float) -> Whitening:
    """S^-1/2 of the shrunk covariance; the mean variance stays, and with shrinkage 1 everything else, too."""
    one = torch.eye(len(of.S), dtype=of.S.dtype)
    if of.level == 0 or shrinkage >= 1:
        return Whitening(torch.zeros_like(of.centre).float(), one.float(), 1.0)
    variances, directions = torch.linalg.eigh((1 - shrinkage) * of.S + shrinkage * of.level * one)
    matrix = directions @ torch.diag((of.level / variances).sqrt()) @ directions.T
    return Whitening(((1 - shrinkage) * of.centre).float(), matrix.float(), shrinkage)
