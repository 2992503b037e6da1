"""Encoders for inference: batch norms become part of the convolutions before them, which saves passes over memory."""

from copy import deepcopy
from typing import TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Network = TypeVar("Network", bound=nn.Module)


def folded(network: Network) -> Network:
    """A copy in eval mode that computes the same, up to rounding; the network itself stays as it is."""
    copy = deepcopy(network).eval()
    for sequence in [module for module in copy.modules() if isinstance(module, nn.Sequential)]:
        for i in range(len(sequence) - 1):
            convolution, norm = sequence[i], sequence[i + 1]
            if isinstance(convolution, nn.Conv2d) and type(norm) is nn.BatchNorm2d:  # timm's also hold an activation
                sequence[i], sequence[i + 1] = fuse_conv_bn_eval(convolution, norm), nn.Identity()
    return copy
