"""The losses of C-FSCIL: sharpened similarities, and prototypes that repel each other or are brought to a target."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.nn.relations import cosine

SHARPNESS = 10.0  # slope of the softabs
NUDGING = 4.0  # alpha: how strongly similar prototypes repel each other


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine (n, c) of vectors (n, dim) and (c, dim) after tanh."""
    return cosine(a.tanh(), b.tanh())


def softabs(s: Tensor) -> Tensor:
    """A smooth |s| that is nearly 0 around 0 and nearly 1 at -1 and 1."""
    return torch.sigmoid(SHARPNESS * (s - 0.5)) + torch.sigmoid(SHARPNESS * (-s - 0.5))


def sharpened(similarities: Tensor, unused: int = 0) -> Tensor:
    """Similarities (n, c) as weights: softabs over its sum, also over `unused` classes to which nothing is similar."""
    e = softabs(similarities)
    return e / (e.sum(1, keepdim=True) + unused * softabs(torch.zeros(())))


def repulsion(p: Tensor) -> Tensor:
    """Mean over all pairs of exp(a s) + exp(-a s) - 2: zero for orthogonal prototypes p (c, dim)."""
    i, j = torch.triu_indices(len(p), len(p), 1, device=p.device)
    s = NUDGING * similarity(p, p)[i, j]
    return (s.exp() + (-s).exp() - 2).mean()


def alignment(p: Tensor, target: Tensor) -> Tensor:
    """Mean cosine of corresponding rows (c, dim), after tanh."""
    return F.cosine_similarity(p.tanh(), target.tanh()).mean()
