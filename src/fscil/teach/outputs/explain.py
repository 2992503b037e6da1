"""What a model looks at: Grad-CAM of the base relation, of the complementary relation and of their sum."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from fscil.nn.encoders import Encoder
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import answers
from fscil.teach.replies import Answer
from fscil.teach.seeing.photos import Source, read

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
    parts = [(TITLES.get(branch.name, branch.name), [branch]) for branch in heard]
    parts += [("their sum", heard)] if len(heard) > 1 else []
    maps = [(title, heat(branches, image, column)) for title, branches in parts]
    return _drawn(crop.numpy() / 255, answer.text(), maps, kind), answer


def heat(branches: Sequence[Branch], image: Tensor, column: int) -> np.ndarray:
    """Grad-CAM (p, p) of the relation of one class, values 0..1."""
    try:
        from pytorch_grad_cam import GradCAM
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
    except ImportError as problem:
        raise FscilError("explain needs more packages: pip install 'fscil[explain]'") from problem
    layers = [_layer(branch.encoder) for branch in {id(b.encoder): b for b in branches}.values()]
    with torch.enable_grad(), GradCAM(Relations(branches), layers, reshape_transform=_maps) as cam:
        drawn: np.ndarray = cam(image.clone().requires_grad_(True), [ClassifierOutputTarget(column)])[0]
    return drawn


def _layer(encoder: Encoder) -> nn.Module:
    """The last layer that knows where in the picture it looks."""
    stage: nn.Module = encoder.stages[-1]
    net: Any = getattr(stage, "net", None)
    if not hasattr(net, "num_prefix_tokens"):
        return stage
    block: nn.Module = net.blocks[-1]
    return getattr(block, "norm1", block)  # of what a Transformer gives at last often one token alone is used


def _maps(activations: Tensor) -> Tensor:
    """What a layer gives for square images as maps (n, channels, h, h), be it tokens or channels last."""
    if activations.ndim == 3:
        side = math.isqrt(activations.shape[1])  # tokens without a place come first
        return activations[:, -side * side :].transpose(1, 2).reshape(len(activations), -1, side, side)
    rows, columns, last = activations.shape[1:]
    return activations.permute(0, 3, 1, 2) if rows == columns != last else activations


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
