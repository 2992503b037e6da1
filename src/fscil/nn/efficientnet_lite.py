"""EfficientNet-Lite 0, 1 and 2 (Tan and Le, 2019; the variant without squeeze-and-excitation, with ReLU6).

Written out because a taught class must not wait for the import of a model zoo; the tests hold it against timm's.
Parameters are defined in the order of the published files, which are loaded in that order.
"""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from fscil.errors import FscilError

DIM = 1280
LAYOUT_PIXELS = 33  # of the smallest image whose maps have quarters
LAYOUT_STAGES = 7  # the stem and six stages: behind them maps of 192 channels (Lite 2: 208), 7x7 of 224 pixels
MULTIPLIERS = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2))  # width and depth of Lite 0, 1, 2
# Expansion, channels, blocks, kernel, stride of each stage of Lite 0.
STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


class SameConvolution(nn.Conv2d):
    """A convolution padded so that its output has ceil(size / stride) pixels, the odd pixel below and to the right."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        missing = [max((math.ceil(size / stride) - 1) * stride + kernel - size, 0) for size in x.shape[:1:-1]]
        if any(total % 2 for total in missing):
            x = F.pad(x, [side for total in missing for side in (total // 2, total - total // 2)])
            return super().forward(x)
        width, height = (total // 2 for total in missing)  # the same on both sides: no copy of the image is needed
        return F.conv2d(x, self.weight, self.bias, self.stride, (height, width), self.dilation, self.groups)


class Block(nn.Module):
    """Expand, convolve each channel, project; added to its input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int):
        super().__init__()
        wide = inputs * expansion
        expand = [*_convolution(inputs, wide, 1), nn.ReLU6(inplace=True)] if expansion > 1 else []
        each = [*_convolution(wide, wide, kernel, stride, groups=wide), nn.ReLU6(inplace=True)]
        self.body = nn.Sequential(*expand, *each, *_convolution(wide, outputs, 1))
        self.shortcut = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.shortcut else y


def stages(number: int) -> nn.Sequential:
    """The untrained stages of EfficientNet-Lite `number`: images -> feature maps of 1280 channels."""
    width, depth = MULTIPLIERS[number]
    made = [nn.Sequential(*_convolution(3, 32, 3, 2), nn.ReLU6(inplace=True))]
    inputs = 32
    for position, (expansion, channels, blocks, kernel, stride) in enumerate(STAGES):
        outputs = _by_eight(channels * width)
        if position not in (0, len(STAGES) - 1):
            blocks = math.ceil(blocks * depth)
        first, *later = [(inputs, stride)] + [(outputs, 1)] * (blocks - 1)
        made.append(nn.Sequential(*(Block(i, outputs, expansion, kernel, s) for i, s in (first, *later))))
        inputs = outputs
    made.append(nn.Sequential(*_convolution(inputs, DIM, 1), nn.ReLU6(inplace=True)))
    return nn.Sequential(*made)


def layout_dim(number: int) -> int:
    """Features of the layout of EfficientNet-Lite `number`: the channels behind its stages, in four quarters."""
    (_, channels, *_), (width, _) = STAGES[LAYOUT_STAGES - 2], MULTIPLIERS[number]
    return 4 * _by_eight(channels * width)


def quarters(pixels: int) -> nn.Sequential:
    """The means of the quarters of the layout's maps, of images of this size; an odd middle row counts twice."""
    side = -(-pixels // 32)
    return nn.Sequential(nn.AvgPool2d(-(-side // 2), side // 2), nn.Flatten())


def load_in_order(net: nn.Module, tensors: Sequence[Tensor]) -> None:
    """Gives a network weights that follow each other as its own do; a classifier behind them is left out."""
    state = net.state_dict()
    if len(tensors) < len(state):
        raise FscilError(f"the weights do not fit: the file gives {len(tensors)} tensors, {len(state)} are needed")
    for (name, own), given in zip(state.items(), tensors, strict=False):
        if own.shape != given.shape:
            raise FscilError(
                f"the weights do not fit: {name} is {tuple(own.shape)}, the file gives {tuple(given.shape)}"
            )
        own.copy_(given)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = SameConvolution(inputs, outputs, kernel, stride, groups=groups, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs, eps=1e-3)]


def _by_eight(channels: float) -> int:
    """The nearest multiple of eight that is not more than a tenth smaller."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
