"""How an image becomes the input of a network: random draws, the window that is cut out, and the finish.

Every random number comes from `draw`, in the main process. What follows is a pure function of the draw, so images in
memory and images in files are augmented alike, whatever the number of worker processes.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.tensors import sent

ATTEMPTS = 10  # tries for a box inside the image before the centre is taken, as in torchvision
ASPECTS = (3 / 4, 4 / 3)  # width / height of the boxes of crop "resized"


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How training images are varied."""

    crop: Literal["resized", "pad", "none"] = "resized"  # resized: a random box | pad: reflect-pad and crop | none
    padding: int = 4  # pixels of the reflect padding of crop "pad" (at the framing's size)
    min_area: float = 0.08  # smallest share of the image kept by crop "resized" (aspect 3/4..4/3)
    flip: bool = True  # mirror left and right with probability 1/2
    brightness: float = 0.0  # brightness factor drawn from [1 - b, 1 + b]
    cutout: int = 0  # side of the square set to the mean (0: off)
    margin: float = 8 / 7  # all but random boxes: the centre, of an image whose short side is margin * pixels

    def __post_init__(self) -> None:
        if self.crop not in ("resized", "pad", "none"):
            raise FscilError(f"augment.crop is {self.crop!r}, but must be one of resized, pad, none")
        limits = {
            "padding": (0, 999),
            "min_area": (1e-6, 1),
            "brightness": (0, 1),
            "cutout": (0, 999),
            "margin": (1, 99),
        }
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise FscilError(f"augment.{name} is {getattr(self, name)}, but must lie between {low} and {high}")


@dataclass(frozen=True)
class Framing:
    """The size, normalisation and augmentation with which images are read; without `augment` it is that of testing."""

    pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augment | None = None
    margin: float = 8 / 7
    resampling: Literal["bilinear", "bicubic"] = "bilinear"  # of images in files

    def __post_init__(self) -> None:
        if self.resampling not in ("bilinear", "bicubic"):
            raise FscilError(f"the resampling of a framing is {self.resampling!r}, but must be bilinear or bicubic")
        if self.margin < 1:
            raise FscilError(f"the margin of a framing is {self.margin}, but must be at least 1")
        padding = self.augment.padding if self.augment and self.augment.crop == "pad" else 0
        if padding >= self.pixels:
            raise FscilError(
                f"augment.padding is {padding}, but must be less than the {self.pixels} pixels of the image"
            )

    @property
    def short_side(self) -> float:
        """Of an image whose centre is taken, in units of the centre."""
        return self.augment.margin if self.augment else self.margin


class Draw(NamedTuple):
    """Uniform random numbers in [0, 1), one row per image."""

    area: Tensor  # (n, ATTEMPTS)
    aspect: Tensor  # (n, ATTEMPTS)
    place: Tensor  # (n, 2): top, left
    flip: Tensor  # (n,)
    brightness: Tensor  # (n,)
    cutout: Tensor  # (n, 2): centre row, centre column

    def on(self, device: torch.device) -> "Draw":
        """The same numbers on a device, which they reach while it computes."""
        if device == self.flip.device:
            return self
        parts = (numbers.reshape(len(self.flip), -1) for numbers in self)
        return _split(sent(torch.cat(list(parts), 1), device))  # one transfer, not six


def draw(count: int, rng: torch.Generator) -> Draw:
    """The random numbers of `count` images: as many whatever the settings, so that one setting cannot shift another."""
    return _split(torch.rand(count, 2 * ATTEMPTS + 6, generator=rng))


def _split(uniform: Tensor) -> Draw:
    area, aspect, place, flip, brightness, cutout = uniform.split([ATTEMPTS, ATTEMPTS, 2, 1, 1, 2], dim=1)
    return Draw(area, aspect, place, flip[:, 0], brightness[:, 0], cutout)


class Window(NamedTuple):
    """Along one axis: the part of the source (n,) that becomes the output, and the limits of mixing pixels."""

    start: Tensor
    length: Tensor
    low: Tensor
    high: Tensor


def keeps_pixels(framing: Framing, height: int, width: int) -> bool:
    """Whether images of this size are only rearranged; random boxes count as resized, whatever they are."""
    if framing.augment is not None and framing.augment.crop == "resized":
        return False
    return height == width == framing.pixels == min(height, width) / framing.short_side


def windows(heights: Tensor, widths: Tensor, framing: Framing, chance: Draw | None) -> tuple[Window, Window]:
    """What is cut out of images of these sizes, (n,) or (1,) if all are alike: vertical and horizontal window."""
    if chance is not None and framing.augment is not None and framing.augment.crop == "resized":
        return _random_boxes(heights, widths, framing.augment.min_area, chance)
    length = torch.minimum(heights, widths).double() / framing.short_side
    nothing = torch.zeros_like(heights)
    vertical, horizontal = (Window((side - length) / 2, length, nothing, side) for side in (heights, widths))
    return vertical, horizontal


def _random_boxes(heights: Tensor, widths: Tensor, min_area: float, chance: Draw) -> tuple[Window, Window]:
    """Boxes of random area, aspect and place: the first attempt that fits, else the largest central box allowed."""
    h, w = heights.double()[:, None], widths.double()[:, None]
    area = h * w * (min_area + (1 - min_area) * chance.area.double())
    low, high = (math.log(aspect) for aspect in ASPECTS)
    aspect = torch.exp(low + (high - low) * chance.aspect.double())
    tall, wide = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (tall >= 1) & (tall <= h) & (wide >= 1) & (wide <= w)
    first = fits.int().argmax(dim=1, keepdim=True)  # the first True
    found = fits.any(dim=1)
    central_tall = torch.minimum(h, (w / ASPECTS[0]).round())[:, 0]
    central_wide = torch.minimum(w, (h * ASPECTS[1]).round())[:, 0]
    tall = torch.where(found, tall.gather(1, first)[:, 0], central_tall)
    wide = torch.where(found, wide.gather(1, first)[:, 0], central_wide)

    def placed(side: Tensor, length: Tensor, place: Tensor) -> Window:
        room = side - length
        start = torch.where(found, torch.minimum((place.double() * (room + 1)).floor(), room), (room / 2).floor())
        return Window(start, length, start, start + length)

    return placed(h[:, 0], tall, chance.place[:, 0]), placed(w[:, 0], wide, chance.place[:, 1])


def rearrangement(framing: Framing, chance: Draw) -> tuple[Tensor, Tensor]:
    """Shift with reflected borders (crop "pad") and mirroring: the row and column (n, p) each pixel is taken from."""
    augment, p = framing.augment, framing.pixels
    assert augment is not None  # without it nothing is drawn
    positions = torch.arange(p, device=chance.flip.device)
    mirrored = (chance.flip < 0.5) if augment.flip else torch.zeros_like(chance.flip, dtype=torch.bool)
    columns = torch.where(mirrored[:, None], p - 1 - positions, positions)
    rows = positions.expand(len(mirrored), p)
    if augment.crop != "pad":
        return rows, columns
    shift = (chance.place * (2 * augment.padding + 1)).long().clamp(max=2 * augment.padding) - augment.padding
    return _reflected(rows + shift[:, :1], p), _reflected(columns + shift[:, 1:], p)


def _reflected(positions: Tensor, p: int) -> Tensor:
    """Positions beyond the border, mirrored back at the border pixels."""
    return (p - 1 - (p - 1 - positions.abs()).abs()).abs()


def interpolation(window: Window, source: int, p: int) -> Tensor:
    """Matrices (n, p, source) that resize windows to p pixels: a triangle, widened when shrinking, as in Pillow."""
    scale = (window.length / p)[:, None]
    centres = window.start[:, None] + (torch.arange(p, device=scale.device) + 0.5) * scale
    pixels = torch.arange(source, device=scale.device)
    weights = 1 - (pixels + 0.5 - centres[..., None]).abs() / scale.clamp(min=1)[..., None]
    inside = (pixels >= window.low[:, None]) & (pixels < window.high[:, None])
    weights = weights.clamp(min=0) * inside[:, None]
    return (weights / weights.sum(dim=2, keepdim=True)).float()


def finish(crops: Tensor, framing: Framing, chance: Draw | None) -> Tensor:
    """Crops (n, p, p, 3) with values 0..255 after brightness, normalisation and cut-out: float32 (n, 3, p, p)."""
    images = crops.float()
    augment = framing.augment
    if augment and chance and augment.brightness > 0:
        factor = 1 + augment.brightness * (2 * chance.brightness - 1)
        images = (images * factor[:, None, None, None]).clamp_(max=255)
    mean, std = (torch.tensor(numbers).repeat(framing.pixels) * 255 for numbers in (framing.mean, framing.std))
    shift, factor = (sent(row, images.device) for row in (-mean / std, 1 / std))
    images = torch.addcmul(shift, images.flatten(2), factor).view_as(images)  # rows, not triples: 4x faster
    if augment and chance and augment.cutout > 0:
        images *= _outside_square(framing.pixels, augment.cutout, chance.cutout)
    return images.permute(0, 3, 1, 2)


def _outside_square(p: int, side: int, centre: Tensor) -> Tensor:
    """(n, p, p, 1) float: 0 inside a square around a random pixel (it may overlap the border), 1 elsewhere."""
    start, pixels = (centre * p).long() - side // 2, torch.arange(p, device=centre.device)
    rows, columns = ((pixels >= s[:, None]) & (pixels < s[:, None] + side) for s in start.T)
    outside: Tensor = ~(rows[:, :, None] & columns[:, None, :])
    return outside.float()[..., None]
