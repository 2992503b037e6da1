"""The stages of networks that are trained from nothing: ResNet-20, ResNet-12, and the wide `fast` and `fast_large`."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """activation(body(x) + shortcut(x)), optionally followed by a max-pool."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, activation: nn.Module, pool: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut, self.activation, self.pool = body, shortcut, activation, pool or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        activations: Tensor = self.pool(self.activation(self.body(x) + self.shortcut(x)))
        return activations


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution, nn.BatchNorm2d(outputs)


def _shortcut(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    same = inputs == outputs and stride == 1
    return nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))


def resnet20() -> nn.Sequential:
    """The 20-layer CIFAR ResNet, 16/32/64 channels (64-d)."""

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        body = [*_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs)]
        return Residual(nn.Sequential(*body), _shortcut(inputs, outputs, stride), nn.ReLU())

    stages = [nn.Sequential(*_convolution(3, 16), nn.ReLU())]
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        stages.append(nn.Sequential(block(inputs, outputs, stride), *(block(outputs, outputs, 1) for _ in range(2))))
    return nn.Sequential(*stages)


def resnet12() -> nn.Sequential:
    """ResNet-12 of the few-shot literature, 64/160/320/640 channels (640-d)."""

    def block(inputs: int, outputs: int) -> nn.Module:
        act = nn.LeakyReLU(0.1)
        body = [
            *_convolution(inputs, outputs),
            act,
            *_convolution(outputs, outputs),
            act,
            *_convolution(outputs, outputs),
        ]
        return Residual(nn.Sequential(*body), _shortcut(inputs, outputs), act, nn.MaxPool2d(2))

    widths = (3, 64, 160, 320, 640)
    return nn.Sequential(*(block(a, b) for a, b in pairwise(widths)))


class WhiteningStem(nn.Module):
    """Fixed filters that decorrelate k x k patches of the training images, each with both signs: 6 k^2 channels."""

    filters: Tensor

    def __init__(self, kernel: int, stride: int):
        super().__init__()
        self.stride, self.channels = stride, 6 * kernel * kernel
        patches = torch.eye(3 * kernel * kernel).view(-1, 3, kernel, kernel)
        self.register_buffer("filters", torch.cat([patches, -patches]))
        self.bias = nn.Parameter(torch.zeros(self.channels))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Takes the filters from the second moments of all patches of images (n, 3, p, p)."""
        kernel = self.filters.shape[-1]
        moments, count = torch.zeros(3 * kernel**2, 3 * kernel**2, dtype=torch.float64, device=images.device), 0
        for some in images.split(50):  # patches take kernel^2 times the memory of their images
            patches = nn.functional.unfold(some, kernel).transpose(1, 2).flatten(0, 1)
            moments += patches.T @ patches
            count += len(patches)
        variances, directions = torch.linalg.eigh((moments / count).float())
        white = (directions / (variances + 1e-2).sqrt()).T.reshape(-1, 3, kernel, kernel)
        self.filters.copy_(torch.cat([white, -white]))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.filters, self.bias, self.stride)


def fast(pixels: int) -> nn.Sequential:
    """A small wide net that learns much per multiply-add on a CPU: whitened 2x2 patches, nine 3x3 convolutions of
    64/256/256 channels in three blocks, the later ones of a block with a shortcut (256-d).

    Images of 64 pixels and more enter through patches of 4x4 in steps of two.
    """
    return _fast(pixels, ((64, 1), (256, 0), (256, 2)))


def fast_large(pixels: int) -> nn.Sequential:
    """`fast` at 128/384/512 channels with three convolutions in each block, the last with a shortcut (512-d)."""
    return _fast(pixels, ((128, 1), (384, 1), (512, 1)))


def _fast(pixels: int, blocks: Sequence[tuple[int, int]]) -> nn.Sequential:
    """Blocks of some channels, each with two convolutions and some more that have a shortcut."""
    stem = WhiteningStem(2, 1) if pixels < 64 else WhiteningStem(4, 2)
    stages: list[nn.Module] = [nn.Sequential(stem, nn.GELU())]
    inputs = stem.channels
    for outputs, more in blocks:
        first, norm = _identity_convolution(inputs, outputs)
        layers = [first, nn.MaxPool2d(2), norm, nn.ReLU(), *_identity_convolution(outputs, outputs), nn.ReLU()]
        for _ in range(more):
            body = nn.Sequential(*_identity_convolution(outputs, outputs), nn.ReLU())
            layers.append(Residual(body, nn.Identity(), nn.Identity()))
        stages.append(nn.Sequential(*layers))
        inputs = outputs
    return nn.Sequential(*stages)


def _identity_convolution(inputs: int, outputs: int) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A 3x3 convolution whose first channels start as the identity: the signal reaches the top from the first step."""
    convolution, norm = _convolution(inputs, outputs)
    convolution.reset_parameters()
    nn.init.dirac_(convolution.weight[:inputs].data)
    return convolution, norm
