"""Attention among the members of a set, such as the prototypes of all classes."""

import torch.nn.functional as F
from torch import Tensor, nn


class SetAttention(nn.Module):
    """One head: tokens (..., t, d) and a memory (..., m, d) -> token + output(softmax(q k^T / sqrt d) v), (..., t, d).

    There are no positions: permuted tokens give a permuted result, a permuted memory the same one.
    """

    def __init__(self, dim: int, dropout: float = 0.0, layer_norm: bool = False):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.output = nn.Linear(dim, dim)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_normal_(layer.weight)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim) if layer_norm else nn.Identity()

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        dropout = self.dropout.p if self.training else 0.0
        q, k, v = self.query(tokens), self.key(memory), self.value(memory)
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        mixture: Tensor = self.norm(tokens + self.dropout(self.output(attended)))
        return mixture
