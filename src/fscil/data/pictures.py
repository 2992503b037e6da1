"""Pictures of any kind as upright RGB with 8 bits: EXIF rotation, grey, transparency, CMYK, 16 bits, arrays."""

import struct

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif"}
DEEP = 257  # 65535 / 255: from 16 bits to 8


def upright_rgb(picture: Image.Image) -> Image.Image:
    """A picture as it is meant to be seen: turned as its EXIF data say, on white where it is transparent, RGB."""
    try:
        picture = ImageOps.exif_transpose(picture)
    except (
        ValueError,
        TypeError,
        KeyError,
        SyntaxError,
        struct.error,
    ):  # broken EXIF data cost no photo
        picture.load()
    if picture.mode.startswith(("I", "F")):
        values = np.asarray(picture)
        picture = Image.fromarray(_eight_bits(_between_0_and_1(values) if values.dtype.kind == "f" else values))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def damage(problem: Exception) -> str:
    """What an error of a decoder means; those of damaged pictures raise whatever they stumble over."""
    return "is cut off" if "truncated" in str(problem) else "is no picture that can be read"


def from_array(values: np.ndarray, channels_first: bool = False) -> Image.Image:
    """Pixels (h, w), (h, w, c) or (c, h, w) as RGB; where both layouts are possible, `channels_first` decides."""
    if values.ndim == 3:
        first, last = values.shape[0] in (1, 3, 4), values.shape[2] in (1, 2, 3, 4)
        if first and (channels_first or not last):
            values = np.moveaxis(values, 0, 2)
        elif not last:
            raise ValueError(f"has the shape {values.shape}, which is no picture (height, width, channels)")
        if values.shape[2] == 1:
            values = values[:, :, 0]
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise ValueError(f"has the shape {values.shape}, which is no picture (height, width, channels)")
    return upright_rgb(Image.fromarray(np.ascontiguousarray(_eight_bits(values))))


def _between_0_and_1(values: np.ndarray) -> np.ndarray:
    """Levels of a file of floats, which does not say what is white: 1, 255, 65535 or else the highest number in it."""
    finite = np.isfinite(values)
    levels = np.where(finite, values, values[finite].min(initial=0)).astype(np.float64)
    low, high = levels.min(), levels.max()
    white = next((level for level in (1, 255, 65535) if low >= 0 and high <= level), None)
    return levels / white if white else (levels - low) / max(high - low, np.finfo(float).tiny)


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """Pixel values as uint8; floats lie between 0 and 1, whole numbers between 0 and 255 or, with 16 bits, 65535."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * np.uint8(255)
    low, high = float(values.min()), float(values.max())
    if np.issubdtype(values.dtype, np.floating):
        if not (low >= 0 and high <= 1):  # also false for nan
            raise ValueError(
                f"has pixel values from {low:g} to {high:g}; numbers with a fraction must lie between 0 and 1"
            )
        rounded: np.ndarray = np.rint(values * 255).astype(np.uint8)
        return rounded
    if not np.issubdtype(values.dtype, np.integer) or low < 0 or high > 65535:
        raise ValueError(f"has pixel values of the type {values.dtype} from {low:g} to {high:g}, which are no colours")
    deep = values.dtype in (">u2", "<u2") or high > 255
    return (values // DEEP if deep else values).astype(np.uint8)


def centre(picture: Image.Image, pixels: int, margin: float, resampling: str) -> np.ndarray:
    """The square (p, p, 3) in the middle of a picture whose short side was scaled to margin * pixels."""
    length = min(picture.size) / margin
    left, top = ((side - length) / 2 for side in picture.size)
    box = (left, top, min(left + length, picture.width), min(top + length, picture.height))
    return np.asarray(picture.resize((pixels, pixels), Image.Resampling[resampling.upper()], box=box))
