"""3x3 convolutions by Winograd's algorithm F(4x4, 3x3): a quarter of the multiplications, for wide layers on a CPU.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016). An image is cut into 6x6 tiles that
overlap by two. Tiles and kernels are transformed, multiplied value by value, summed over channels, and transformed back
to 4x4 tiles of the result. All of it is matrix products, so torch's own are enough, forwards and backwards.

The numbers are those of an ordinary convolution but for rounding (relative errors of some 1e-6).
"""

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fscil.nn.allocation import keep_freed_memory

STEP, TILE = 4, 6  # a tile of 6x6 values gives 4x4 results
FEW = 128 * 128  # inputs times outputs below which the transforms take longer than they save

# B^T, G and A^T of the paper's section 4.3 as one matrix each for both directions of an image.
_B = torch.tensor(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    dtype=torch.float32,
)
_G = torch.tensor([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
_A = torch.tensor(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=torch.float32
)
OF_TILES, OF_KERNELS, OF_RESULTS = (torch.kron(m, m) for m in (_B, _G, _A))  # (36, 36), (36, 9), (16, 36)


class _Convolution(torch.autograd.Function):
    """images (n, c, h, w) and kernels (k, c, 3, 3) -> (n, k, h, w), padded by one."""

    @staticmethod
    def forward(context: Any, images: Tensor, kernels: Tensor) -> Tensor:
        tiles = _tiles(images)
        transformed = _transform(OF_TILES, tiles.flatten(2, 4).flatten(0, 1))  # (36, tiles, c)
        U = _transform(OF_KERNELS, kernels.permute(2, 3, 1, 0).flatten(0, 1))  # (36, c, k)
        results = _transform(OF_RESULTS, torch.bmm(transformed, U))  # (16, tiles, k)
        context.save_for_backward(transformed, U)
        context.shape, context.grid = images.shape, tiles.shape[2:5]
        return _assembled(results.unflatten(1, tiles.shape[2:5]).unflatten(0, (STEP, STEP)), images.shape[-2:])

    @staticmethod
    @once_differentiable  # what is kept does not know that it came from images and kernels
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The transposed steps in reverse order."""
        transformed, U = context.saved_tensors
        _, rows, columns = context.grid
        height, width = context.shape[-2:]
        whole = F.pad(gradient.permute(0, 2, 3, 1), (0, 0, 0, STEP * columns - width, 0, STEP * rows - height))
        results = whole.unflatten(2, (columns, STEP)).unflatten(1, (rows, STEP)).permute(2, 4, 0, 1, 3, 5)
        products = _transform(OF_RESULTS.T, results.flatten(2, 4).flatten(0, 1))  # (36, tiles, k)
        kernels = _transform(OF_KERNELS.T, torch.bmm(transformed.transpose(1, 2), products))  # (9, c, k)
        tiles = _transform(OF_TILES.T, torch.bmm(products, U.transpose(1, 2)))  # (36, tiles, c)
        overlapping = tiles.unflatten(1, context.grid).unflatten(0, (TILE, TILE))
        images = _assembled(_added(overlapping), (height + 1, width + 1))[:, :, 1:, 1:]
        return images, kernels.unflatten(0, (3, 3)).permute(3, 2, 0, 1)


def _transform(matrix: Tensor, values: Tensor) -> Tensor:
    """(a, b) applied to the first dimension of values (b, tiles, channels)."""
    transformed: Tensor = (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])
    return transformed


def _tiles(images: Tensor) -> Tensor:
    """Overlapping tiles (6, 6, n, rows, columns, c) of images (n, c, h, w) with a border of zeros."""
    n, channels, height, width = images.shape
    rows, columns = -(-height // STEP), -(-width // STEP)
    border = (0, 0, 1, STEP * columns + 1 - width, 1, STEP * rows + 1 - height)
    padded = F.pad(images.permute(0, 2, 3, 1), border).contiguous()
    image, row, column, _ = padded.stride()
    steps = (row, column, image, STEP * row, STEP * column, 1)
    return padded.as_strided((TILE, TILE, n, rows, columns, channels), steps).contiguous()


def _added(tiles: Tensor) -> Tensor:
    """Overlapping tiles (6, 6, n, r, c, channels) summed into ones (4, 4, n, r + 1, c + 1, channels) that do not."""
    _, _, n, rows, columns, channels = tiles.shape
    down = tiles.new_zeros(STEP, TILE, n, rows + 1, columns, channels)
    down[:, :, :, :rows] = tiles[:STEP]
    down[: TILE - STEP, :, :, 1:] += tiles[STEP:]
    across = tiles.new_zeros(STEP, STEP, n, rows + 1, columns + 1, channels)
    across[:, :, :, :, :columns] = down[:, :STEP]
    across[:, : TILE - STEP, :, :, 1:] += down[:, STEP:]
    return across


def _assembled(tiles: Tensor, size: tuple[int, ...]) -> Tensor:
    """Images (n, channels, *size) of tiles (4, 4, n, rows, columns, channels), cut to their size, channels last."""
    images = tiles.permute(2, 3, 0, 4, 1, 5).flatten(3, 4).flatten(1, 2)
    return images[:, : size[0], : size[1]].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


class WinogradConvolution(nn.Conv2d):
    """A convolution that takes the short way where it can: in float32 on a CPU. Elsewhere it is an ordinary one."""

    def forward(self, images: Tensor) -> Tensor:
        here = (
            images.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
        )
        if not here or images.dtype != torch.float32:
            return super().forward(images)
        result: Tensor = _Convolution.apply(images, self.weight)
        return result

    def kept_values(self, images: Tensor) -> int:
        """Numbers that the backward pass keeps of images (n, c, h, w): their transformed tiles."""
        n, channels, height, width = images.shape
        return n * channels * TILE**2 * -(-height // STEP) * -(-width // STEP)


def use_winograd(network: nn.Module) -> None:
    """From now on the wide 3x3 convolutions of a network take the short way; names and weights stay as they are."""
    for layer in network.modules():
        if is_plain_3x3(layer) and layer.in_channels * layer.out_channels >= FEW:
            layer.__class__ = WinogradConvolution
    keep_freed_memory()


def is_plain_3x3(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a layer is torch's own convolution of 3x3 values, padded by one zero, with nothing else to it."""
    if type(layer) is not nn.Conv2d or layer.padding_mode != "zeros" or layer.bias is not None:
        return False
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups)
    return shape == ((3, 3), (1, 1), (1, 1), (1, 1), 1)
