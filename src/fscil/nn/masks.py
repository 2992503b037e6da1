"""Sub-networks: masks on convolutions, learned together with their weights."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class SoftMask(nn.Module):
    """Makes a weight w * mask of w: 1 where |scores| belong to the share `capacity` of the largest, the major weights;
    elsewhere, at the minor weights, a number between 0 and 1, or 0.

    In training the minor numbers are drawn anew at every pass; otherwise they are those drawn in the beginning. The
    gradient of the mask goes straight through to the scores.
    """

    drawn: Tensor

    def __init__(self, weight: Tensor, capacity: float, soft: bool):
        super().__init__()
        self.capacity, self.soft = capacity, soft
        self.scores = nn.Parameter(torch.empty_like(weight))
        nn.init.kaiming_uniform_(self.scores, a=5**0.5)
        self.register_buffer("drawn", torch.rand_like(weight) if soft else torch.zeros_like(weight))

    def major(self) -> Tensor:
        """Where the weights are major."""
        sizes = self.scores.detach().abs()
        count = round(self.capacity * sizes.numel())
        if not count:
            return torch.zeros_like(sizes, dtype=torch.bool)
        return sizes >= sizes.flatten().kthvalue(sizes.numel() - count + 1).values

    def minor(self) -> Tensor:
        """The part of the fixed mask that belongs to minor weights; 0 at major ones."""
        return self.drawn.masked_fill(self.major(), 0.0)

    def mask(self) -> Tensor:
        drawn = torch.rand_like(self.drawn) if self.training and self.soft else self.drawn
        return drawn.masked_fill(self.major(), 1.0) + (self.scores - self.scores.detach())

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask()


def masked(module: nn.Module, capacity: float, soft: bool) -> None:
    """Puts a mask on every convolution."""
    for part in list(module.modules()):
        if isinstance(part, nn.Conv2d):
            parametrize.register_parametrization(part, "weight", SoftMask(part.weight.detach(), capacity, soft))


def masks(module: nn.Module) -> list[tuple[nn.Parameter, SoftMask]]:
    """The weights of all masked convolutions, as they are behind their masks, and the masks."""
    behind = [part for part in module.modules() if isinstance(part, parametrize.ParametrizationList)]
    pairs = [(part.original, mask) for part in behind for mask in part]
    return [(w, mask) for w, mask in pairs if isinstance(w, nn.Parameter) and isinstance(mask, SoftMask)]
