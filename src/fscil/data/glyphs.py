"""Glyphs: 100 characters of many scripts, drawn from the fonts that matplotlib ships, so that nothing is downloaded.

Every picture (32 pixels, RGB) is one character in one of up to 16 faces, turned by at most 12 degrees, sheared,
stretched, shifted, coloured and blurred, on a textured ground with distracting strokes and noise. It depends on nothing
but the character and its number, so the same libraries draw the same bytes on every run.
"""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from math import cos, radians, sin
from pathlib import Path
from unicodedata import name as unicode_name

import numpy as np
import torch
from numpy.random import RandomState
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from fscil.data import Protocol
from fscil.data.images import Ingredients, TensorImages
from fscil.running.progress import Bar

# Label = place in this string; the scripts are mixed. Picked greedily from about 1,600 characters so that no two look
# alike and none looks like itself turned by 90, 180 or 270 degrees: between any two faces, under any of these turns,
# with a shift by a pixel or a tilt by 10 degrees, their normalised shapes correlate by less than 0.84 (d and p, n and
# u, 6 and 9: 1.0; E and F: 0.92; P and R: 0.87). tests/test_glyphs.py measures it.
CHARACTERS = (
    "җ⇢⊑Τщຝשʤзתֆy⇖4ՊϡჀU⚒ء"  # base
    "⚠√₲∠ψխґ↰℮ΔՀ♘♐чνςЦ⊴ѵႥ"  # base
    "ЮუՃӈ≼ՇЫ2₹Ծ✎დسcЉ6ՐفႫ⇪"  # base
    "FW♭רຮ"  # session 1
    "kפຊЪث"  # session 2
    "₤&ѣצR"  # session 3
    "☟ფغრλ"  # session 4
    "к✆ʐϗҘ"  # session 5
    "➤קΣლ₽"  # session 6
    "β₺Ⴞ⏎ມ"  # session 7
    "ξ?⌥Էخ"  # session 8
)
FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
BASE_CLASSES = 60
WAYS = 5
PIXELS = 32
TRAIN, TEST = 100, 40  # pictures per character
MEAN, STD = (0.50, 0.50, 0.50), (0.28, 0.30, 0.28)

SHAPE = 96  # side of the square that holds a clean character
FINE = 2 * PIXELS  # pictures are drawn at twice their size
CELLS = (1, 2, 3, 5, 8, 16)
LUMINANCE = np.array([0.299, 0.587, 0.114])


def load(root: Path, protocol: Protocol) -> Ingredients:
    """The glyphs, from the cache or drawn now; `root` and `protocol` change nothing."""
    pictures = _all_pictures()
    return Ingredients(
        train=_images(pictures[:, :TRAIN]),
        test=_images(pictures[:, TRAIN:]),
        class_names=tuple(f"{c} {unicode_name(c).lower().replace(' letter', '')}" for c in CHARACTERS),
        pixels=PIXELS,
        mean=MEAN,
        std=STD,
        flips=False,
        base_classes=BASE_CLASSES,
        ways=WAYS,
    )


def _images(pictures: np.ndarray) -> TensorImages:
    classes, count = pictures.shape[:2]
    pixels = torch.from_numpy(pictures.reshape(classes * count, PIXELS, PIXELS, 3)).permute(0, 3, 1, 2)
    return TensorImages(pixels, torch.arange(classes).repeat_interleave(count))


def _all_pictures() -> np.ndarray:
    """Every picture, from the cache if there is one: uint8 (characters, TRAIN + TEST, 32, 32, 3)."""
    try:
        with np.load(_cache_file()) as cached:
            pictures: np.ndarray = cached["pictures"]
            return pictures
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # none, no home, or damaged
        pictures = _draw_all()
    with suppress(OSError, RuntimeError):  # nowhere to write: drawn again next time
        _store(_cache_file(), pictures)
    return pictures


def _cache_file() -> Path:
    """The cache; its name changes with this module and with the libraries that draw."""
    made_by = [Path(__file__).read_bytes(), *(version(name).encode() for name in ("pillow", "matplotlib", "numpy"))]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return folder / "fscil" / f"glyphs-{hashlib.sha256(b' '.join(made_by)).hexdigest()[:16]}.npz"


def _store(file: Path, pictures: np.ndarray) -> None:
    """Writes the cache in one step: processes that start together never read half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=file.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, pictures=pictures)
        Path(partial).replace(file)
    finally:
        Path(partial).unlink(missing_ok=True)


def _draw_all() -> np.ndarray:
    pictures = np.empty((len(CHARACTERS), TRAIN + TEST, PIXELS, PIXELS, 3), np.uint8)
    with Bar("drawing the glyphs (once)", len(CHARACTERS)) as bar:
        for label, character in enumerate(CHARACTERS):
            pictures[label] = draw(character, TRAIN + TEST)
            bar.advance(label + 1)
    return pictures


def draw(character: str, count: int) -> np.ndarray:
    """The first `count` pictures of a character: uint8 (count, 32, 32, 3).

    >>> draw("Ж", 2).shape
    (2, 32, 32, 3)
    """
    random = RandomState(ord(character))
    shapes = clean_shapes(character)
    return np.stack([_picture(shapes[random.randint(len(shapes))], random) for _ in range(count)])


def clean_shapes(character: str) -> list[Image.Image]:
    """The undistorted character in each face that has it: white on black, the longer side 3/4 of the square's."""
    return [_clean(character, font) for font, has in map(_face, FACES) if has(ord(character))]


def _clean(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    left, top, right, bottom = map(int, font.getbbox(character))
    drawn = Image.new("L", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(drawn).text((1 - left, 1 - top), character, fill=255, font=font)
    drawn = drawn.crop(drawn.getbbox())
    scale = 0.75 * SHAPE / max(drawn.size)
    width, height = (max(1, round(side * scale)) for side in drawn.size)
    shape = Image.new("L", (SHAPE, SHAPE))
    shape.paste(drawn.resize((width, height)), ((SHAPE - width) // 2, (SHAPE - height) // 2))
    return shape


@cache
def _face(name: str) -> tuple[ImageFont.FreeTypeFont, Callable[[int], int]]:
    """A face, and the function that gives its index of a code point (0: it has none)."""
    import matplotlib as mpl
    from matplotlib.ft2font import FT2Font

    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    font = ImageFont.truetype(path, SHAPE, layout_engine=ImageFont.Layout.BASIC)  # the other engine is not everywhere
    return font, FT2Font(str(path)).get_char_index


def _picture(shape: Image.Image, random: RandomState) -> np.ndarray:
    """One picture, uint8 (32, 32, 3)."""
    ground, ink = _colours(random)
    picture = _textured(ground, random)
    _strokes(picture, random.randint(6), random)
    picture.paste(_textured(ink, random), mask=_distorted(shape, random))
    _strokes(picture, random.randint(3), random)
    picture = picture.reduce(FINE // PIXELS).filter(ImageFilter.GaussianBlur(random.uniform(0, 1.0)))
    noise = random.uniform(0, 40) * random.uniform(-1, 1, (PIXELS, PIXELS, 3))
    return (np.asarray(picture) + noise).clip(0, 255).astype(np.uint8)


def _colours(random: RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Two colours (2, 3) of the ground and two of the ink; each of one differs in luminance from each of the other."""
    while True:
        ground, ink = (random.uniform(0, 255, 3) + random.uniform(-50, 50, (2, 3)) for _ in range(2))
        ground, ink = ground.clip(0, 255), ink.clip(0, 255)
        if np.abs((ground @ LUMINANCE)[:, None] - ink @ LUMINANCE).min() > 35:
            return ground, ink


def _textured(colours: np.ndarray, random: RandomState) -> Image.Image:
    """A square that blends two colours: flat, graded, striped, blotched or grained, as the number of cells has it."""
    rows, columns = (CELLS[kind] for kind in random.randint(len(CELLS), size=2))
    share = random.rand(rows, columns, 1)
    blend = colours[0] + share * (colours[1] - colours[0])
    return Image.fromarray(blend.astype(np.uint8)).resize((FINE, FINE), Image.Resampling.BILINEAR)


def _distorted(shape: Image.Image, random: RandomState) -> Image.Image:
    """The character at its place in the picture, as a mask of the fine size."""
    size = random.uniform(0.45, 0.8)  # of the longer side, in the picture
    x, y = FINE / 2 + random.uniform(-0.5, 0.5, 2) * (1 - size) * FINE
    angle, shear, stretch = radians(random.uniform(-12, 12)), random.uniform(-0.2, 0.2), random.uniform(0.9, 1.1)
    turn = np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])
    slant = np.array([[stretch, shear], [0, 1 / stretch]])
    (xx, xy), (yx, yy) = slant @ turn * (0.75 * SHAPE / (size * FINE))  # from the picture to the shape
    coefficients = (xx, xy, SHAPE / 2 - xx * x - xy * y, yx, yy, SHAPE / 2 - yx * x - yy * y)
    return shape.transform((FINE, FINE), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


def _strokes(picture: Image.Image, count: int, random: RandomState) -> None:
    """Draws distracting lines and arcs."""
    pen = ImageDraw.Draw(picture)
    for _ in range(count):
        colour, width = tuple(random.randint(256, size=3).tolist()), random.randint(1, 6)
        x, y, x2, y2 = (random.uniform(-0.3, 1.3, 4) * FINE).tolist()
        if random.rand() < 0.5:
            pen.line((x, y, x2, y2), colour, width)
        else:
            box = (min(x, x2), min(y, y2), max(x, x2), max(y, y2))
            start = random.uniform(0, 360)
            pen.arc(box, start, start + random.uniform(40, 200), colour, width)
