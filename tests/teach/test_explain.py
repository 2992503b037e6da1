"""explain: three Grad-CAM maps beside the photo."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from albums import BIRDS
from fscil.errors import FscilError
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.outputs import explain

pytest.importorskip("pytorch_grad_cam", reason="explain needs the extra fscil[explain]")


def test_the_picture_shows_photo_and_maps_of_what_has_a_say(
    birds: Model, complemented: Model, album: Path, tmp_path: Path
) -> None:
    said = explain.explain(birds, album / "owl" / "0.png", tmp_path / "why.png")
    assert "the relations to 'owl'" in said
    drawn = Image.open(tmp_path / "why.png")
    assert 1 < drawn.width / drawn.height < 3  # one relation has a say
    explain.explain(complemented, album / "owl" / "0.png", tmp_path / "why.png")
    drawn = Image.open(tmp_path / "why.png")
    assert drawn.width > 3 * drawn.height  # both relations and their sum
    parameters = [parameter for branch in complemented.branches for parameter in branch.parameters()]
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in parameters)


def test_a_map_follows_what_the_relation_sees(complemented: Model) -> None:
    image = torch.zeros(1, 3, 32, 32)
    image[..., 16:, 16:] = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0))
    for branches in ([complemented.branches[0]], [complemented.branches[1]], list(complemented.branches)):
        heat = explain.heat(branches, image, 2)
        assert heat.shape == (32, 32)
        assert np.isfinite(heat).all()
        assert heat.min() >= 0
        assert heat.max() <= 1.0001
        inside = heat[16:, 16:].mean()
        outside = (heat.sum() - heat[16:, 16:].sum()) / (32 * 32 - 16 * 16)
        assert inside > 5 * outside


def test_relations_on_several_encoders_are_told_apart(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the encoder; what a branch is called inside says nothing to who looks at the picture."""
    model = backbones.of_encoder("tiny+tiny", pixels=32)
    shown = [photo for name in BIRDS for photo in sorted((album / name).iterdir())[:4]]
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    model.origin = replace(model.origin, encoder="one+two")
    titles: list[str] = []
    monkeypatch.setattr(explain, "_drawn", lambda picture, title, maps, kind: titles.extend(m[0] for m in maps) or b"")
    explain.drawing(model, album / "owl" / "0.png")
    assert titles == ["base relation\none", "base relation\ntwo", "their sum"]


def test_features_have_no_picture(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match="no picture to explain"):
        explain.explain(backbones.of_features(3), Image.new("RGB", (9, 9)), tmp_path / "why.png")


def test_a_kind_of_picture_that_cannot_be_written_is_named(birds: Model, album: Path, tmp_path: Path) -> None:
    with pytest.raises(FscilError, match=r"why.xyz: pictures cannot be written as 'xyz'; take .png"):
        explain.explain(birds, album / "owl" / "0.png", tmp_path / "why.xyz")
