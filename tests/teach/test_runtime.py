"""ONNX Runtime gives the features that torch gives; what it needs is kept in a cache that may be deleted."""

import copy
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.compute import Meter, counting
from fscil.nn.encoders import Encoder
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import looking
from fscil.teach.seeing import graphs, runtime
from fscil.teach.storage import modelfile
from packages import installed
from tiny import tiny_encoder

pytest.importorskip("onnxruntime", reason="needs the extra fscil[onnx]")
pytest.importorskip("onnx", reason="needs the extra fscil[onnx]")

pytestmark = pytest.mark.usefixtures("graph_cache")


def both(model: Model, photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Scores by ONNX Runtime and by torch."""
    scores = []
    for name in ("onnx", "torch"):
        monkeypatch.setenv("FSCIL_RUNTIME", name)
        own = copy.deepcopy(model)
        scores.append(own.scores(looking.glance(own, photos).features))
        assert all(isinstance(quick, runtime.OnnxEncoder) == (name == "onnx") for quick in own._quick.values())
    return scores


def test_scores_are_those_of_torch(birds: Model, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(birds, sorted(album.glob("*/[0-2].png")), monkeypatch)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["efficientnet_lite0", "timm:test_vit", "timm:test_vit3", "timm:test_convnext"])
def test_features_of_real_encoders_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    weights = None if name.startswith("timm:") else "pretrained"
    if weights:
        installed(name)
    encoder = encoders.build(name, 64, weights).eval()
    images = torch.randn(5, 3, 64, 64)
    quick = runtime.quick(encoder, name)
    assert isinstance(quick, runtime.OnnxEncoder)
    with torch.no_grad():
        torch.testing.assert_close(quick(images), encoder(images), rtol=0, atol=1e-4)


def test_the_graph_is_made_once_and_again_if_it_is_gone_or_damaged(
    graph_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, made = tiny_encoder(), []
    graph = runtime._graph
    monkeypatch.setattr(runtime, "_graph", lambda net, pixels: made.append(pixels) or graph(net, pixels))
    for _ in range(2):
        assert isinstance(runtime.quick(encoder, "tiny"), runtime.OnnxEncoder)
    assert len(made) == 1
    file = next(graph_cache.iterdir())
    file.unlink()
    assert isinstance(runtime.quick(encoder, "tiny"), runtime.OnnxEncoder)
    file.write_bytes(b"no graph")
    assert not isinstance(runtime.quick(encoder, "tiny"), runtime.OnnxEncoder)
    assert isinstance(runtime.quick(encoder, "tiny"), runtime.OnnxEncoder)
    assert len(made) == 3
    assert [path.name for path in graph_cache.iterdir()] == [file.name]


def test_other_weights_names_and_sizes_have_graphs_of_their_own() -> None:
    keys = [("a", "1", 32), ("b", "1", 32), ("a", "2", 32), ("a", "1", 64)]
    assert len({graphs.place(*key) for key in keys}) == len(keys)


class Wayward(nn.Module):
    """Computes in a graph something else than in torch."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) * (2.0 if torch.onnx.is_in_onnx_export() else 1.0)


def test_an_encoder_that_cannot_be_exported_is_tried_once(graph_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(nn.Sequential(nn.Conv2d(3, 3, 1)), 3, 8, Wayward())
    assert not isinstance(runtime.quick(encoder, "wayward"), runtime.OnnxEncoder)
    monkeypatch.setattr(runtime, "_graph", lambda net, pixels: pytest.fail("tried again"))
    assert not isinstance(runtime.quick(encoder, "wayward"), runtime.OnnxEncoder)
    monkeypatch.setenv("FSCIL_RUNTIME", "onnx")
    with pytest.raises(FscilError, match=r"wayward cannot run in ONNX Runtime \(it cannot be exported\)"):
        runtime.quick(encoder, "wayward")


class Unheard(nn.Module):
    """An operator that has no name in ONNX."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(x)[:, :, 0, 0]


def test_a_graph_that_cannot_be_made_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    fine, odd = tiny_encoder(), Encoder(nn.Sequential(nn.Conv2d(3, 3, 1)), 3, 8, Unheard())
    assert isinstance(runtime.quick(fine, "tiny"), runtime.OnnxEncoder)  # torch leaves its log on after this one
    assert not isinstance(runtime.quick(odd, "odd"), runtime.OnnxEncoder)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (KeyError("Conv_3"), "its graph cannot be made, or not be opened"),
        (OSError(28, "No space left on device"), "its graph cannot be kept: No space left on device"),
        (runtime.Unfit("it cannot be exported"), "it cannot be exported"),
    ],
)
def test_what_a_package_says_is_put_into_plain_words(
    problem: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(runtime, "_session", fail)
    monkeypatch.setenv("FSCIL_RUNTIME", "onnx")
    with pytest.raises(FscilError, match=re.escape(f"tiny cannot run in ONNX Runtime ({told}); pip install")):
        runtime.quick(tiny_encoder(), "tiny")


def test_without_the_package_torch_does_it_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert not isinstance(runtime.quick(tiny_encoder(), "tiny"), runtime.OnnxEncoder)
    monkeypatch.setenv("FSCIL_RUNTIME", "onnx")
    with pytest.raises(
        FscilError, match=r"\(it is not installed\); pip install 'fscil\[onnx\]', or set FSCIL_RUNTIME=torch"
    ):
        runtime.quick(tiny_encoder(), "tiny")
    monkeypatch.setenv("FSCIL_RUNTIME", "onxx")
    with pytest.raises(FscilError, match="FSCIL_RUNTIME is 'onxx', but must be one of auto, onnx, torch"):
        runtime.quick(tiny_encoder(), "tiny")


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(runtime, "_graph", lambda net, pixels: pytest.fail("nowhere to keep it"))
    assert not isinstance(runtime.quick(tiny_encoder(), "tiny"), runtime.OnnxEncoder)


def test_without_a_home_lessons_are_saved(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("no home")))
    with modelfile.editing(birds_file) as model:
        model.rename("owl", "barn owl")
    assert "barn owl" in modelfile.load(birds_file).classes


def test_a_model_in_use_can_be_copied_and_pickled(birds: Model, album: Path) -> None:
    photos = [album / "owl" / "0.png"]
    features = looking.glance(birds, photos).features
    for again in (copy.deepcopy(birds), pickle.loads(pickle.dumps(birds))):
        torch.testing.assert_close(looking.glance(again, photos).features, features)


def test_compute_is_counted() -> None:
    model = backbones.of_encoder("tiny", pixels=32)
    with counting(Meter()) as meter:
        model.embed(torch.zeros(3, 3, 32, 32))
    assert meter.macs == 3 * model.branches[0].encoder.macs(32)


def test_threads_that_wait_leave_the_cores_to_those_that_decode() -> None:
    quick = runtime.quick(tiny_encoder().eval(), "tiny")
    assert isinstance(quick, runtime.OnnxEncoder)
    options = quick._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_graphs_that_nobody_uses_are_removed(graph_cache: Path) -> None:
    import os

    graph_cache.mkdir(parents=True)
    for name, age in (("old.onnx", graphs.UNUSED + 100), ("new.onnx", 0)):
        (graph_cache / name).write_bytes(b"")
        changed = (graph_cache / name).stat().st_mtime - age
        os.utime(graph_cache / name, (changed, changed))
    graphs.remove_unused()
    assert [path.name for path in graph_cache.iterdir()] == ["new.onnx"]
