"""The pieces of SPPR: the relation network, and the random choice of pseudo-new classes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.running.stages import Epoch


class RelationNetwork(nn.Module):
    """A score of every pair of a feature (n, d) and a prototype (..., c, d), both of unit length -> (..., n, c)."""

    def __init__(self, dim: int, hidden: int, dropout: float):
        super().__init__()
        self.feature = nn.Linear(dim, hidden)  # these two are one layer on the concatenated pair, whose
        self.prototype = nn.Linear(dim, hidden, bias=False)  # products are not repeated for each pair
        layers = [nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden)]
        layers += [nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 1)]
        self.rest = nn.Sequential(*layers)

    def forward(self, features: Tensor, prototypes: Tensor) -> Tensor:
        f, p = self.feature(F.normalize(features, dim=-1)), self.prototype(F.normalize(prototypes, dim=-1))
        pairs = f.unsqueeze(1) + p.unsqueeze(-3)
        scores: Tensor = self.rest(pairs.flatten(0, -2))
        return scores.view(pairs.shape[:-1])


@dataclass(frozen=True)
class Support:
    """The steps of an epoch, with random numbers of their own for the support."""

    epoch: Epoch

    @property
    def start(self) -> int:
        return self.epoch.start

    def rng(self, *purpose: object) -> torch.Generator:
        return self.epoch.rng("support", *purpose)


def subsets(count: int, size: int, way: int, rng: torch.Generator) -> list[Tensor]:
    """`count` times `way` different numbers below `size`."""
    return [torch.randperm(size, generator=rng)[:way] for _ in range(count)]


def replaced(P: Tensor, rows: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """P (c, d) with means in some of its rows, and the other rows alone; P gets no gradient in the replaced ones."""
    kept = torch.ones(len(P), dtype=torch.bool, device=P.device).index_fill(0, rows, False)
    return P.index_copy(0, rows, means), P[kept]
