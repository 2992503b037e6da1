"""The classifier of FACT, with rows for classes that nobody has seen yet."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.nn.relations import cosine


class Reserved(nn.Module):
    """Cosine classifier with a row for every class there will ever be: base classes first, then virtual ones."""

    virtual: Tensor
    ties: Tensor

    def __init__(self, dim: int, base: int, total: int, scale: float, tied: int, generator: torch.Generator):
        super().__init__()
        self.base, self.scale = base, scale
        rows = nn.init.orthogonal_(torch.empty(total, dim), generator=generator)
        self.weight = nn.Parameter(rows)
        self.register_buffer("virtual", rows[base:].clone())  # V, which is not trained
        self.register_buffer("ties", random_ties(base, total - base, tied, generator))

    def forward(self, features: Tensor) -> Tensor:
        """Logits (n, base classes)."""
        return self.scale * cosine(features, self.weight[: self.base])

    def hidden(self, features: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, all classes) of base rows and V without the true class, and the virtual class to be."""
        logits = self.scale * cosine(features, torch.cat([self.weight[: self.base], self.virtual]))
        logits = logits.scatter(1, rows[:, None], -torch.inf)
        allowed = self.ties[rows]
        allowed = allowed | ~allowed.any(1, keepdim=True)  # a class that nothing is tied to may take any
        nearest = logits[:, self.base :].masked_fill(~allowed, -torch.inf).argmax(1)
        return logits, self.base + nearest

    def reserve(self, features: Tensor, rows: Tensor) -> Tensor:
        """L2 of features (n, d) of rows (n,): next to its own class an image belongs to a virtual one."""
        return F.cross_entropy(*self.hidden(features, rows))

    def forecast(self, mixtures: Tensor) -> Tensor:
        """L3 + L4 of mixtures (n, d): each belongs to a virtual class, next to that to a base class."""
        logits = self.scale * cosine(mixtures, self.weight)
        virtual = self.base + logits[:, self.base :].argmax(1)
        second = logits.scatter(1, virtual[:, None], -torch.inf)
        return F.cross_entropy(logits, virtual) + F.cross_entropy(second, logits[:, : self.base].argmax(1))


def random_ties(base: int, virtual: int, tied: int, generator: torch.Generator) -> Tensor:
    """Which base class may take which virtual one (base, virtual): each of these has `tied` base classes, or all."""
    order = torch.rand(base, virtual, generator=generator).argsort(0).argsort(0)
    return order < (tied or base)
