"""Glyphs: 100 characters of many scripts, drawn from the fonts that matplotlib ships, so that nothing is downloaded.

Every picture (32 pixels, RGB) is one character in one of up to 16 faces, turned by at most 12 degrees, sheared, stretched,
shifted, coloured, and blurred, on a textured ground with distracting strokes and noise. A character's pictures depend on
nothing but the character, so the same software draws the same bytes on every run.
"""

import hashlib
import os
import tempfile
import zipfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from unicodedata import name as unicode_name

import numpy as np
import torch
from numpy.random import RandomState
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from fscil.data import Protocol
from fscil.data.images import Ingredients, TensorImages
from fscil.progress import Bar

# Mixed over the scripts: 60 base characters, then eight sessions of five. They were picked greedily from about 1,600
# characters such that no two resemble each other, and none resembles itself, in any two faces, upright or turned by 90, 180
# or 270 degrees, shifted by a pixel, tilted by 10 degrees (correlation of the normalised shapes below 0.84; d and p have 1.0,
# E and F 0.94, P and R 0.87). tests/test_glyphs.py measures it.
CHARACTERS = (
    "Ҥ⇖⊆Τњຕקʫчרխw↴4ՊϡႾR♘ث"
    "⚔√₤≚ξՖң↯℧ΑՀ♅♂ъλνЫ⊩ҘႢ"
    "уღՁӄ≤Ճз2₹Թ✓ჀضgЛ7ՌىႥ⇠"
    "Ge♔מຯ"
    "kבຊЮخ"
    "¢&җהQ"
    "☾ჭغფκ"
    "щ✍ʤςҲ"
    "➶לΣრ₽"
    "Ψ₺Ⴇ⌫ອ"
    "μF⌥Էز"
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
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

SHAPE = 96  # side of the square that holds a clean character
FINE = 2 * PIXELS  # pictures are drawn at twice their size
LUMINANCE = np.array([0.299, 0.587, 0.114])


def load(root: Path, protocol: Protocol) -> Ingredients:
    """The glyphs, from the cache or drawn now; `root` and `protocol` change nothing."""
    pixels = torch.from_numpy(_all_pictures()).permute(0, 1, 4, 2, 3)
    labels = torch.arange(len(CHARACTERS))
    return Ingredients(
        train=TensorImages(pixels[:, :TRAIN].flatten(0, 1), labels.repeat_interleave(TRAIN)),
        test=TensorImages(pixels[:, TRAIN:].flatten(0, 1), labels.repeat_interleave(TEST)),
        class_names=tuple(f"{c} {unicode_name(c).lower().replace(' letter', '')}" for c in CHARACTERS),
        pixels=PIXELS,
        mean=MEAN,
        std=STD,
        flips=False,
        base_classes=BASE_CLASSES,
        ways=WAYS,
    )


def _all_pictures() -> np.ndarray:
    """Every picture: uint8 (characters, TRAIN + TEST, 32, 32, 3)."""
    file = _cache_file()
    try:
        with np.load(file) as cached:
            return cached["pictures"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # not there, or damaged
        pictures = _draw_all()
    try:
        _store(file, pictures)
    except OSError:  # no writable cache: drawn again next time
        pass
    return pictures


def _cache_file() -> Path:
    """Its name changes with this module and with the libraries that draw."""
    made_by = Path(__file__).read_bytes(), version("pillow").encode(), version("matplotlib").encode(), version("numpy").encode()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return folder / "fscil" / f"glyphs-{hashlib.sha256(b' '.join(made_by)).hexdigest()[:16]}.npz"


def _store(file: Path, pictures: np.ndarray) -> None:
    """Writes the cache in one step: processes that start together never read half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".partial", delete=False) as partial:
        try:
            np.savez(partial, pictures=pictures)
            partial.close()
            os.replace(partial.name, file)
        except OSError:
            os.unlink(partial.name)
            raise


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
    """The undistorted character in each face that has it: white on black, its longer side is 3/4 of the square's."""
    shapes = []
    for face in FACES:
        font, has = _face(face)
        if has(ord(character)):
            left, top, right, bottom = font.getbbox(character)
            drawn = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
            ImageDraw.Draw(drawn).text((1 - left, 1 - top), character, fill=255, font=font)
            drawn = drawn.crop(drawn.getbbox())
            scale = 0.75 * SHAPE / max(drawn.size)
            width, height = (max(1, round(side * scale)) for side in drawn.size)
            shape = Image.new("L", (SHAPE, SHAPE))
            shape.paste(drawn.resize((width, height)), ((SHAPE - width) // 2, (SHAPE - height) // 2))
            shapes.append(shape)
    return shapes


@cache
def _face(name: str):
    """A face, and the function that tells whether (not 0) it has a code point."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    font = ImageFont.truetype(path, SHAPE, layout_engine=ImageFont.Layout.BASIC)  # the other engine is not everywhere
    return font, FT2Font(path).get_char_index


def _picture(shape: Image.Image, random: RandomState) -> np.ndarray:
    """One picture, uint8 (32, 32, 3)."""
    ground, ink = _colours(random)
    picture = _textured(ground, random)
    _strokes(picture, random.randint(5), random)
    picture.paste(_textured(ink, random), mask=_distorted(shape, random))
    _strokes(picture, random.randint(2), random)
    picture = picture.reduce(FINE // PIXELS).filter(ImageFilter.GaussianBlur(random.uniform(0, 0.9)))
    noise = random.normal(0, random.uniform(0, 18), (PIXELS, PIXELS, 3))
    return (np.asarray(picture) + noise).round().clip(0, 255).astype(np.uint8)


def _colours(random: RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Two colours (2, 3) of the ground and two of the ink; each of one differs in luminance from each of the other."""
    while True:
        ground, ink = (random.uniform(0, 255, 3) + random.uniform(-50, 50, (2, 3)) for _ in range(2))
        ground, ink = ground.clip(0, 255), ink.clip(0, 255)
        if np.abs((ground @ LUMINANCE)[:, None] - ink @ LUMINANCE).min() > 45:
            return ground, ink


def _textured(colours: np.ndarray, random: RandomState) -> Image.Image:
    """A square that blends two colours: flat, graded, striped, blotched or grained, as the number of cells has it."""
    cells = random.choice([1, 2, 3, 5, 8, 16], 2)
    share = random.rand(*cells, 1)
    blend = colours[0] + share * (colours[1] - colours[0])
    return Image.fromarray(blend.astype(np.uint8)).resize((FINE, FINE), Image.Resampling.BILINEAR)


def _distorted(shape: Image.Image, random: RandomState) -> Image.Image:
    """The character at its place in the picture, as a mask of the fine size."""
    angle, shear, stretch = np.radians(random.uniform(-12, 12)), random.uniform(-0.2, 0.2), random.uniform(0.8, 1.25)
    size = random.uniform(0.45, 0.8)  # of the longer side, in the picture
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    slant = np.array([[stretch**0.5, shear], [0, stretch**-0.5]])
    backward = np.linalg.inv(turn @ slant * (size * FINE / (0.75 * SHAPE)))
    centre = FINE / 2 + random.uniform(-0.5, 0.5, 2) * (1 - size) * FINE
    offset = SHAPE / 2 - backward @ centre
    coefficients = (*backward[0], offset[0], *backward[1], offset[1])
    return shape.transform((FINE, FINE), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


def _strokes(picture: Image.Image, count: int, random: RandomState) -> None:
    """Draws distracting lines and arcs."""
    pen = ImageDraw.Draw(picture)
    for _ in range(count):
        (left, top), (right, bottom) = np.sort(random.uniform(-0.3, 1.3, (2, 2)) * FINE, axis=0)
        colour, width = tuple(random.randint(0, 256, 3).tolist()), random.randint(1, 6)
        if random.rand() < 0.5:
            start, sweep = random.uniform(0, 360), random.uniform(40, 200)
            pen.arc((left, top, right, bottom), start, start + sweep, colour, width)
        else:
            rising = random.rand() < 0.5
            pen.line((left, bottom, right, top) if rising else (left, top, right, bottom), colour, width)
