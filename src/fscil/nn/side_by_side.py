"""3x3 convolutions of small images on a CPU in bfloat16: images stand side by side, a column of zeros between them.

The matrix units of CPUs take a row of an image at a time, and rows of 3 or 7 values leave them mostly idle, above all
in the gradient of the kernels. Eight images of 7 values as one of 64 keep them busy. The column of zeros is the padding
of both neighbours, so the numbers are those of an ordinary convolution but for rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.nn.winograd import is_plain_3x3

SMALL = 10  # values in a row above which nothing is gained
ROW = 80  # most values in a row of images side by side


def side_by_side(images: Tensor, count: int) -> Tensor:
    """(n, c, h, w) -> (ceil(n / count), c, h, count (w + 1)), with a column of zeros behind each image."""
    missing = -len(images) % count
    padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, 0, 1, 0, 0, 0, missing))
    rows: Tensor = padded.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)
    return rows.permute(0, 3, 1, 2)


def apart(rows: Tensor, images: int, count: int) -> Tensor:
    """What `side_by_side` made of a number of images (n, c, h, w), back, channels last."""
    parted: Tensor = rows.permute(0, 2, 3, 1).unflatten(2, (count, -1))[:, :, :, :-1]
    separate = parted.transpose(1, 2).flatten(0, 1)[:images].permute(0, 3, 1, 2)
    return separate.contiguous(memory_format=torch.channels_last)


class SideBySideConvolution(nn.Conv2d):
    """A convolution that takes small images side by side, in bfloat16 on a CPU. Elsewhere it is an ordinary one."""

    def forward(self, images: Tensor) -> Tensor:
        here = images.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
        if not here or images.dim() != 4 or images.shape[-1] > SMALL or len(images) < 2:
            return super().forward(images)
        count = _count(len(images), images.shape[-1])
        rows = side_by_side(images.to(torch.get_autocast_dtype("cpu")), count)
        return apart(super().forward(rows), len(images), count)


def _count(images: int, width: int) -> int:
    """How many of so many images stand side by side, so that every row has nearly as many."""
    rows = -(-images // (ROW // (width + 1)))
    return -(-images // rows)


def use_side_by_side(network: nn.Module) -> None:
    """From now on the plain 3x3 convolutions of a network take that way; names and weights stay as they are."""
    for layer in network.modules():
        if is_plain_3x3(layer):
            layer.__class__ = SideBySideConvolution
