"""What a model looks at: Grad-CAM of the base relation, of the complementary relation and of their sum."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from fscil.data.framing import finish
from fscil.data.images import cut_picture
from fscil.errors import FscilError
from fscil.files import write_bytes
from fscil.nn.branches import Branch
from fscil.nn.gradcam import heat
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import answers
from fscil.teach.replies import Answer
from fscil.teach.seeing.photos import Source, read

TITLES = {"B": "base relation", "C": "complementary relation"}


def explain(model: Model, photo: Source, output: Path) -> str:
    """Draws the photo and a map of each relation that has a say, for the most probable class; says what it shows."""
    kind = output.suffix.removeprefix(".") or "png"
    if kind.lower() not in FigureCanvasBase.get_supported_filetypes():
        raise FscilError(f"{output}: pictures cannot be written as {kind!r}; take .png, .jpg, .webp, .svg or .pdf")
    picture, answer = drawing(model, photo, kind)
    write_bytes(output, picture)
    return f"{output}: where the relations to {answer.best[0][0]!r} look in the photo ({answer.text()})"


def drawing(model: Model, photo: Source, kind: str = "png") -> tuple[bytes, Answer]:
    """The photo with its maps as the bytes of a picture of some kind, and the answer that they explain."""
    if model.framing is None:
        raise FscilError("a model of ready features has no picture to explain")
    crop = torch.from_numpy(cut_picture(read(photo, model.framing.pixels), model.framing, None).copy())
    image = finish(crop[None], model.framing, None)
    answer = answers(model, model.embed(image))[0]
    column = model.classes.index(answer.best[0][0])
    heard = [branch for branch in model.branches if branch.weight]
    parts = [(_title(model, branch), [branch]) for branch in heard]
    parts += [("their sum", heard)] if len(heard) > 1 else []
    maps = [(title, heat(branches, image, column)) for title, branches in parts]
    return _drawn(crop.numpy() / 255, answer.text(), maps, kind), answer


def _title(model: Model, branch: Branch) -> str:
    """Which relation it is and, of encoders called NAME+NAME, on which of them."""
    names = model.origin.encoder.split("+")
    if len(names) < 2:
        return TITLES.get(branch.name, branch.name)
    encoders = list(dict.fromkeys(other.encoder for other in model.branches))
    return f"{TITLES[branch.name[0]]}\n{names[encoders.index(branch.encoder)]}"


def _drawn(picture: np.ndarray, title: str, maps: Sequence[tuple[str, np.ndarray]], kind: str) -> bytes:
    figure = Figure(figsize=(3 * (len(maps) + 1), 3.8), layout="constrained")
    first, *others = figure.subplots(1, len(maps) + 1)
    first.imshow(picture)
    first.set_title("photo")
    figure.suptitle(title, parse_math=False)  # across the maps: an answer can be long
    for axes, (name, drawn) in zip(others, maps, strict=True):
        axes.imshow(picture)
        axes.imshow(drawn, cmap="inferno", alpha=0.55, vmin=0, vmax=1)
        axes.set_title(name)
    for axes in (first, *others):
        axes.axis("off")
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()
