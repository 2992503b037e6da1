"""The encoder of the run folder and the model file in `old`, which an earlier version made."""

import torch
from torch import nn

from fscil.nn import encoders
from fscil.nn.encoders import Encoder


def pocket_net(pixels: int, weights: str | None) -> Encoder:
    """One convolution with fixed random weights (8-d); changed, it would no longer be that of the files."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = nn.Conv2d(3, 8, 8, 8)
    return Encoder(nn.Sequential(nn.Sequential(first, nn.ReLU())), 8, pixels)


encoders.BUILDERS["pocket"] = pocket_net
