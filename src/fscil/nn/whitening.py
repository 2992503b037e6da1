"""Whitening: directions in which images of one class differ count less when classes are compared.

S, the covariance within classes, is shrunk towards a multiple of the identity. How far follows from the data in closed
form, as Ledoit and Wolf have it, with two changes: what is drawn are classes, not images, because a direction in which
the classes disagree says little about a class that comes later, however many images each of them has; and the cube
root is taken of their share: it is the best for S, and means of five images gain from more. One class, or one image of
each, tells nothing: the shrinkage is 1, the centre 0, and features stay as they are.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fscil.nn.relations import mean_of_labels

LEAST = 1e-3  # shrinkage: a direction without any variance must not become endlessly long


class Whitening(NamedTuple):
    """(f - centre) @ matrix, fitted with a share of the identity."""

    centre: Tensor  # (d,)
    matrix: Tensor  # (d, d), symmetric
    shrinkage: float


class Spread(NamedTuple):
    """How images of one class differ: S = directions diag(variances) directions^T, the covariance within classes."""

    variances: Tensor  # (r,)
    directions: Tensor  # (d, r); S is zero in all others
    level: float  # mean variance of the d directions
    centre: Tensor  # (d,), mean of the class means, drawn to zero where classes or images are few
    shrinkage: float  # what was asked for, or else what the data ask for


def spread(features: Tensor, labels: Tensor, shrinkage: float = 0.0) -> Spread:
    """The spread of features (n, d) within their classes, in float64; shrinkage 0: what the data ask for."""
    rows = torch.unique(labels.to(features.device), return_inverse=True)[1]
    _, means = mean_of_labels(features, labels)
    rest = features.double() - means.double()[rows]
    variances, directions = _decomposition(rest)
    level = float(variances.sum()) / rest.shape[1]
    centre = _certainty(len(means)) * _certainty(len(rows) / len(means)) * means.double().mean(0)
    shrinkage = shrinkage or _shrinkage(rest, rows, variances, directions)
    return Spread(variances, directions, level, centre, shrinkage)


def _certainty(count: float) -> float:
    """0 for one class, or one image a class: their mean is no centre of what is to come; 0.96 for five."""
    return 1 - 1 / count**2


def _decomposition(rest: Tensor) -> tuple[Tensor, Tensor]:
    """Variances (r,) and directions (d, r) of what is left without the class means (n, d); r is at most n and d."""
    n, d = rest.shape
    if d <= n:
        variances, directions = torch.linalg.eigh(rest.T @ rest / n)
        return variances.clamp(min=0), directions
    variances, of_images = torch.linalg.eigh(rest @ rest.T / n)
    some = variances > 1e-10 * variances.amax()
    variances = variances[some]
    return variances, rest.T @ of_images[:, some] / (n * variances).sqrt()


def _shrinkage(rest: Tensor, rows: Tensor, variances: Tensor, directions: Tensor) -> float:
    """b^2 / d^2: the error of S as a mean over classes, against the distance of S from a multiple of the identity."""
    n, d = rest.shape
    counts = rows.bincount()
    total, distance = float(variances.square().sum()), float(variances.square().sum() - variances.sum() ** 2 / d)
    if len(counts) < 2 or distance <= 1e-12 * total:
        return 1.0
    shared = variances.new_zeros(len(counts)).index_add_(
        0, rows, (rest @ directions).square() @ variances
    )  # m <S_c, S>
    own = torch.stack([_square(rest[rows == row]) for row in range(len(counts))])  # m^2 ||S_c||^2
    error = (own - 2 * counts * shared + counts**2 * total).sum() / n**2  # sum of (m / n)^2 ||S_c - S||^2
    share = min(1.0, max(LEAST, float(error) / distance * len(counts) / (len(counts) - 1)))
    return math.cbrt(share)


def _square(rest: Tensor) -> Tensor:
    """||X^T X||^2 = ||X X^T||^2 of X (m, d), by the smaller of the two products."""
    m, d = rest.shape
    return (rest @ rest.T if m <= d else rest.T @ rest).square().sum()


def whitening(of: Spread, shrinkage: float) -> Whitening:
    """S^-1/2 of the shrunk covariance; the mean variance stays, and with shrinkage 1 all variances do."""
    if of.level == 0 or shrinkage >= 1:
        return Whitening(of.centre.float(), torch.eye(len(of.centre), device=of.centre.device), 1.0)
    outside = shrinkage**-0.5  # where S is zero
    inside = (of.level / ((1 - shrinkage) * of.variances + shrinkage * of.level)).sqrt()
    matrix = (of.directions * (inside - outside)) @ of.directions.T
    matrix.diagonal().add_(outside)
    return Whitening(of.centre.float(), matrix.float(), shrinkage)
