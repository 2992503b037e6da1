"""Encoders with tokens work from learning to explaining."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from albums import BIRDS
from fscil.nn import gradcam
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import looking, teaching
from fscil.teach.outputs import explain, export
from fscil.teach.storage import modelfile

KINDS = ("test_vit", "test_vit2", "test_vit3", "test_convnext")  # class token, mean of tokens, attention; none


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, album: Path, tmp_path: Path) -> Model:
    """A small network with random weights that knows the album."""
    torch.manual_seed(0)
    save_file(timm.create_model(request.param).state_dict(), tmp_path / "random.safetensors")
    model = backbones.of_encoder(f"timm:{request.param}", str(tmp_path / "random.safetensors"), pixels=64)
    shown = [photo for name in BIRDS for photo in sorted((album / name).iterdir())[:4]]
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    return model


def test_learn_teach_ask_and_load(model: Model, album: Path, hoopoes: list[Path], tmp_path: Path) -> None:
    teaching.teach(model, ["hoopoe"] * 5, hoopoes[:5])
    seen = looking.glance(model, [album / "owl" / "9.png", hoopoes[6]])
    modelfile.save(model, tmp_path / "model.fscil")
    loaded = modelfile.load(tmp_path / "model.fscil")
    assert loaded.framing == model.framing
    assert loaded.framing.resampling == "bicubic"
    again = looking.glance(loaded, [album / "owl" / "9.png", hoopoes[6]])
    torch.testing.assert_close(loaded.scores(again.features), model.scores(seen.features))
    assert looking.answers(loaded, again.features)[0].best[0][0] == "owl"  # the weights are random: no more is sure
    assert "hoopoe" in loaded.classes


@pytest.mark.parametrize("model", ["test_vit"], indirect=True)
def test_export(model: Model, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="export needs the extra fscil[onnx]")
    pytest.importorskip("onnxscript", reason="export needs the extra fscil[onnx]")
    export.to_onnx(model, tmp_path / "out")
    images = np.random.RandomState(0).rand(3, 3, 64, 64).astype(np.float32)
    scores = ort.InferenceSession(str(tmp_path / "out" / "model.onnx")).run(["scores"], {"image": images})[0]
    expected = model.scores(model.embed((torch.from_numpy(images) - 0.5) / 0.5))
    np.testing.assert_allclose(scores, expected.numpy(), atol=1e-4)


def test_explain(model: Model, album: Path, tmp_path: Path) -> None:
    pytest.importorskip("pytorch_grad_cam", reason="explain needs the extra fscil[explain]")
    explain.explain(model, album / "owl" / "0.png", tmp_path / "why.png")
    assert (tmp_path / "why.png").is_file()
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    heat = explain.heat(list(model.branches), image, 3)
    assert heat.shape == (64, 64)
    assert heat.max() > 0.5  # not a layer without gradients


def test_places_stay_where_they_are() -> None:
    tokens = torch.arange(17.0)[None, :, None].expand(2, 17, 5)
    maps = gradcam._maps(tokens)
    assert maps.shape == (2, 5, 4, 4)
    assert maps[0, 0].tolist() == (torch.arange(16.0) + 1).view(4, 4).tolist()
    last = torch.rand(2, 4, 4, 7)
    assert torch.equal(gradcam._maps(last), last.permute(0, 3, 1, 2))
    assert torch.equal(gradcam._maps(last.permute(0, 3, 1, 2)), last.permute(0, 3, 1, 2))
