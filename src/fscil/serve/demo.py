"""A model to try the studio with: pictures of things, drawn from symbols of the fonts that matplotlib ships."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.random import RandomState
from PIL import Image, ImageFilter

from fscil.data.glyphs import clean_shapes
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.storage import modelfile

KNOWN = {
    "snowman": "☃", "scissors": "✂", "aeroplane": "✈", "anchor": "⚓", "telephone": "☎", "horse": "♞",
    "pencil": "✎", "sun": "☀", "star": "★", "clover": "☘", "letter": "✉", "cup": "☕",
}  # fmt: skip
NEW = {"umbrella": "☂", "moon": "☾", "scales": "⚖", "flag": "⚑"}
PIXELS = 192
LEARNED, TAUGHT, TESTED = 8, 6, 4  # pictures of a thing
FOLDER, FILE = Path("studio"), "things.fscil"


def make_demo(folder: Path, encoder: str = backbones.DEFAULT) -> Path:
    """The model file in a folder, beside pictures to teach and to test with; one that exists is kept as it is."""
    file = folder / FILE
    if file.exists():
        return file
    pictures = {name: draw(symbol, LEARNED + TESTED) for name, symbol in KNOWN.items()}
    more = {name: draw(symbol, TAUGHT + TESTED) for name, symbol in NEW.items()}
    for name, drawn in more.items():
        _store(folder / "teach" / name, drawn[:TAUGHT])
    for name, drawn in (pictures | more).items():
        _store(folder / "test" / name, drawn[-TESTED:])
    model = backbones.of_encoder(encoder)
    model.album.switch(True)
    names = [name for name in KNOWN for _ in range(LEARNED)]
    learning.learn(model, [one for drawn in pictures.values() for one in drawn[:LEARNED]], names, "prototypes")
    modelfile.save(model, file)
    return file


def draw(symbol: str, count: int) -> list[Image.Image]:
    """Pictures of a symbol: other faces, sizes, places, angles and colours, the same on every machine."""
    random, shapes = RandomState(ord(symbol)), clean_shapes(symbol)
    return [_picture(shapes[random.randint(len(shapes))], random) for _ in range(count)]


def _picture(shape: Image.Image, random: RandomState) -> Image.Image:
    light, dark = (0.93, 0.32) if random.rand() < 0.75 else (0.25, 0.9)
    hue = random.rand()
    ground = _shaded(_colour(hue, light, 0.35), random)
    side = int(PIXELS * random.uniform(0.6, 0.85))
    mask = shape.resize((side, side), Image.Resampling.BICUBIC).rotate(random.uniform(-20, 20), expand=True)
    x, y = (random.randint(-6, 7) + (PIXELS - size) // 2 for size in mask.size)
    ground.paste(_shaded(_colour(hue + random.uniform(0.2, 0.8), dark, 0.55), random).resize(mask.size), (x, y), mask)
    return ground.filter(ImageFilter.GaussianBlur(random.uniform(0, 1)))


def _colour(hue: float, lightness: float, saturation: float) -> np.ndarray:
    return 255 * np.array(colorsys.hls_to_rgb(hue % 1, lightness, saturation))


def _shaded(colour: np.ndarray, random: RandomState) -> Image.Image:
    """A square of a colour, lit from one side."""
    light = random.uniform(0.88, 1.08, (2, 2, 1))
    return Image.fromarray((colour * light).clip(0, 255).astype(np.uint8)).resize((PIXELS, PIXELS))


def _store(folder: Path, pictures: Sequence[Image.Image]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures, 1):
        picture.save(folder / f"{folder.name} {number}.png")
