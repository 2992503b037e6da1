"""What a model looks at: Grad-CAM of the base relation, of the complementary relation and of their sum."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from torch import Tensor, nn

from fscil.data.framing import finish
from fscil.data.images import cut_picture
from fscil.errors import FscilError
from fscil.files import write_bytes
from fscil.nn.branches import Branch
from fscil.teach.looking import answers
from fscil.teach.model import Model
from fscil.teach.photos import Source, read

TITLES = {"B": "base relation", "C": "complementary relation"}


class Relations(nn.Module):
    """Images (n, 3, p, p) -> the sum of the relations of some branches (n, classes)."""

    def __init__(self, branches: Sequence[Branch]):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, images: Tensor) -> Tensor:
        relations: Tensor = sum(branch(images) for branch in self.branches)
        return relations


def explain(model: Model, photo: Source, output: Path) -> str:
    """Draws the photo and the three maps for the most probable class; says what the picture shows."""
    if model.framing is None:
        raise FscilError("a model of ready features has no picture to explain")
    kind = output.suffix.removeprefix(".") or "png"
    if kind.lower() not in FigureCanvasBase.get_supported_filetypes():
        raise FscilError(f"{output}: pictures cannot be written as {kind!r}; take .png, .jpg, .webp, .svg or .pdf")
    crop = torch.from_numpy(cut_picture(read(photo, model.framing.pixels), model.framing, None).copy())
    image = finish(crop[None], model.framing, None)
    answer = answers(model, model.embed(image))[0]
    column = model.classes.index(answer.best[0][0])
    parts = [(TITLES.get(branch.name, branch.name), [branch]) for branch in model.branches]
    maps = [(title, heat(branches, image, column)) for title, branches in [*parts, ("their sum", list(model.branches))]]
    _draw(crop.numpy() / 255, answer.text(), maps, output, kind)
    return f"{output}: where the relations to {answer.best[0][0]!r} look in the photo ({answer.text()})"


def heat(branches: Sequence[Branch], image: Tensor, column: int) -> np.ndarray:
    """Grad-CAM (p, p) of the relation of one class, values 0..1."""
    try:
        from pytorch_grad_cam import GradCAM
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
    except ImportError as problem:
        raise FscilError("explain needs more packages: pip install 'fscil[explain]'") from problem
    layers = [branch.encoder.stages[-1] for branch in {id(b.encoder): b for b in branches}.values()]
    with torch.enable_grad():
        with torch.no_grad():
            if branches[0].encoder.stages(image).ndim != 4:
                raise FscilError("explain needs a convolutional encoder; this one works on tokens")
        with GradCAM(Relations(branches), layers) as cam:
            drawn: np.ndarray = cam(image.clone().requires_grad_(True), [ClassifierOutputTarget(column)])[0]
    return drawn


def _draw(picture: np.ndarray, title: str, maps: Sequence[tuple[str, np.ndarray]], output: Path, kind: str) -> None:

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
    write_bytes(output, content.getvalue())
