"""ONNX: one graph that needs nothing of this package, and of which teaching changes only the small part."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from albums import BIRDS
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.branches import Views
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import teaching
from fscil.teach.outputs import export
from rights import without_privileges
from tiny import tiny_encoder

ort = pytest.importorskip("onnxruntime", reason="export needs the extra fscil[onnx]")
pytest.importorskip("onnxscript", reason="export needs the extra fscil[onnx]")


def both(model: Model, folder: Path, photos: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of random images by ONNX Runtime and by PyTorch."""
    images = np.random.RandomState(photos).rand(photos, 3, 32, 32).astype(np.float32)
    scores = ort.InferenceSession(str(folder / "model.onnx")).run(["scores"], {"image": images})[0]
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (model.framing.mean, model.framing.std))
    return scores, model.scores(model.embed((torch.from_numpy(images) - mean) / std)).numpy()


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(birds: Model) -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o555)
        with without_privileges(), pytest.raises(FscilError, match=r"could not be written .*; choose another place"):
            export.to_onnx(birds, Path(parent) / "out")
        Path(parent).chmod(0o755)


def test_the_graph_equals_the_model_and_grows_with_it(birds: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    said = export.to_onnx(birds, tmp_path / "out")
    assert said.endswith("wrote model.onnx, encoder.bin and classes.json; 6 classes")
    for photos in (1, 5):
        scores, expected = both(birds, tmp_path / "out", photos)
        assert scores.shape == (photos, 6)
        np.testing.assert_allclose(scores, expected, atol=1e-4)
    weights = (tmp_path / "out" / "encoder.bin").read_bytes()
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    birds.forget("crow")
    (tmp_path / "out" / "encoder.bin").chmod(0o444)
    assert "encoder.bin stays as it was" in export.to_onnx(birds, tmp_path / "out")
    assert (tmp_path / "out" / "encoder.bin").read_bytes() == weights
    scores, expected = both(birds, tmp_path / "out", 3)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    told = json.loads((tmp_path / "out" / "classes.json").read_text())
    assert told["classes"] == [*BIRDS[1:], "hoopoe"]
    assert told["image"]["resampling"] == birds.framing.resampling
    c = birds.calibration
    assert told["known"]["threshold"] == c.threshold + c.shift(6)
    graph = (tmp_path / "out" / "model.onnx").read_bytes()
    assert str(Path(export.__file__).parent).encode() not in graph  # no paths of this machine


def test_only_what_teaching_changes_may_be_replaced(birds: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    before = export.frozen_part(birds)
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    assert export.frozen_part(birds) == before
    birds.branches[0].weight.fill_(3.0)
    assert export.frozen_part(birds) != before
    (tmp_path / "model.onnx").write_text("something else")
    assert export._with_classifier(pytest.importorskip("onnx"), tmp_path, before, export.Scores(birds)) is None


def test_features_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match="only a model that looks at photos"):
        export.to_onnx(backbones.of_features(3), tmp_path)


def test_an_encoder_that_cannot_be_exported_is_one_sentence(
    birds: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise torch.onnx.errors.OnnxExporterError("no ONNX function found for aten.linalg_matrix_exp")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    with pytest.raises(FscilError, match=r"cannot write the encoder tiny as an ONNX graph; learn with another one"):
        export.to_onnx(birds, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_of_another_model_are_not_kept(birds: Model, tmp_path: Path) -> None:
    export.to_onnx(birds, tmp_path)
    weights = (tmp_path / "encoder.bin").read_bytes()
    (tmp_path / "encoder.bin").write_bytes(bytes(len(weights)))  # as if another export had been stopped half-way
    assert "encoder.bin stays" not in export.to_onnx(birds, tmp_path)
    scores, expected = both(birds, tmp_path, 2)  # not the bytes: the exporter may arrange the same net in two ways
    np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("views", ["flip", "negative"])
def test_other_views_are_part_of_the_graph(album: Path, tmp_path: Path, views: Views) -> None:
    model = backbones.of_encoder("tiny", pixels=32, views=views)
    shown = sorted(album.glob("*/[0-5].png"))
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    export.to_onnx(model, tmp_path)
    scores, expected = both(model, tmp_path, 2)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_a_branch_that_is_not_whitened_exports_no_matrix(complemented: Model, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = complemented
    for branch in model.branches:
        branch.whitening.copy_(torch.eye(branch.encoder.dim))
    model.branches[1].whitening.add_(0.01)
    export.to_onnx(model, tmp_path)
    graph = onnx.load(tmp_path / "model.onnx").graph
    (matrix,) = [onnx.numpy_helper.to_array(t) for t in graph.initializer if list(t.dims) == [16, 16]]
    np.testing.assert_array_equal(matrix, model.branches[1].whitening.numpy())
    scores, expected = both(model, tmp_path, 2)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_batch_norms_are_folded(album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders.BUILDERS, "normed", lambda pixels, weights: tiny_encoder())
    model = backbones.of_encoder("normed", pixels=32)
    shown = sorted(album.glob("*/[0-5].png"))
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    export.to_onnx(model, tmp_path)
    graph = pytest.importorskip("onnx").load(tmp_path / "model.onnx", load_external_data=False).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("Conv") == 2
    assert "BatchNormalization" not in kinds
    scores, expected = both(model, tmp_path, 2)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
