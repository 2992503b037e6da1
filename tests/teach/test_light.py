"""Answers without torch: the same as with it, kept when a model is saved, gone when it changes."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pocket  # noqa: F401 (the encoder of the old model file)
from commands import Fscil
from fscil.command import ask
from fscil.nn.branches import Views
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.calibration import Calibration
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import correcting, looking, teaching
from fscil.teach.replies import Reply
from fscil.teach.seeing import light
from fscil.teach.storage import lightfile, modelfile

pytest.importorskip("onnxruntime", reason="needs the extra fscil[onnx]")
pytest.importorskip("onnx", reason="needs the extra fscil[onnx]")

pytestmark = pytest.mark.usefixtures("graph_cache")


@pytest.fixture
def saved(birds_file: Path, hoopoes: list[Path]) -> Path:
    """A model file to which a class was taught, so that an answer needs no torch."""
    with modelfile.editing(birds_file) as model:
        teaching.teach(model, ["hoopoe"] * 5, hoopoes[:5])
    return birds_file


def same(ours: list[Reply] | None, theirs: list[Reply]) -> None:
    assert ours is not None
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine.photo, mine.problem, mine.answer is None) == (its.photo, its.problem, its.answer is None)
        if mine.answer is not None and its.answer is not None:
            assert mine.answer.known == its.answer.known
            assert [name for name, _ in mine.answer.best] == [name for name, _ in its.answer.best]
            expected = [probability for _, probability in its.answer.best]
            assert [probability for _, probability in mine.answer.best] == pytest.approx(expected, abs=1e-4)


def test_answers_are_those_of_torch(saved: Path, album: Path, hoopoes: list[Path], tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_text("no photo")
    photos = [*sorted(album.glob("*/7.png")), hoopoes[6], tmp_path / "broken.jpg", tmp_path / "nowhere.jpg"]
    same(light.replies(saved, photos), looking.replies(modelfile.load(saved), photos))


CALIBRATIONS = (
    Calibration(3.0),
    Calibration(threshold=1.0, margin=0.5),
    Calibration(threshold=0.1, margin=0.5, tightness=0.3, classes=3, growth=0.1),
)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_every_calibration_is_judged_alike(birds: Model, album: Path, tmp_path: Path, calibration: Calibration) -> None:
    photos = sorted(album.glob("*/7.png"))
    looking.glance(birds, photos)
    assert any(branch.unit_means for branch in birds.branches)  # evidence is asked of these
    birds.calibration = calibration
    modelfile.save(birds, tmp_path / "model.fscil")
    same(light.replies(tmp_path / "model.fscil", photos), looking.replies(birds, photos))


def test_one_class_alone(album: Path, tmp_path: Path) -> None:
    model, photos = backbones.of_encoder("tiny", pixels=32), sorted((album / "owl").iterdir())
    learning.learn(model, photos, ["owl"] * len(photos), "prototypes")
    modelfile.save(model, tmp_path / "model.fscil")
    same(light.replies(tmp_path / "model.fscil", photos[:1]), looking.replies(model, photos[:1]))


def test_a_file_of_the_first_version_can_be_asked_twice(album: Path, tmp_path: Path, fscil_command: Fscil) -> None:
    old = Path(shutil.copy(Path(__file__).parents[1] / "support" / "old" / "birds.fscil", tmp_path))
    question = ("predict", old, album / "owl" / "0.png")
    first = fscil_command(*question)
    assert light.place(modelfile.load(old).revision or "").is_file()  # so that the second answer needs no torch
    assert fscil_command(*question) == first == (0, first.out, "")


def test_the_command_does_not_import_torch(saved: Path, album: Path) -> None:
    script = (
        "import sys; sys.argv[0] = 'fscil'; from fscil.command.cli import main; main(); "
        "assert not {'torch', 'timm', 'matplotlib'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", script, "predict", str(saved), str(album / "owl" / "0.png"), "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["class"] == "owl"


def test_what_was_kept_of_a_former_model_is_gone(saved: Path, graph_cache: Path) -> None:
    before = list(graph_cache.glob("*.safetensors"))
    assert len(before) == 1
    with modelfile.editing(saved) as model:
        model.erase("hoopoe")
    after = list(graph_cache.glob("*.safetensors"))
    assert len(after) == 1
    assert after != before
    assert light.replies(saved, []) == []


def test_torch_answers_where_anything_is_missing(
    saved: Path, album: Path, graph_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = [album / "owl" / "0.png"]
    assert light.replies(saved, photos) is not None
    assert light.replies(saved, photos * (light.MOST + 1)) is None
    assert light.replies(saved.with_name("nowhere"), photos) is None
    monkeypatch.setenv("FSCIL_RUNTIME", "torch")
    assert light.replies(saved, photos) is None
    monkeypatch.setenv("FSCIL_RUNTIME", "auto")
    for file in graph_cache.glob("*.onnx"):
        file.unlink()
    assert light.replies(saved, photos) is None


def test_a_question_that_torch_answers_prepares_the_next(
    birds_file: Path, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = [album / "owl" / "0.png"]
    assert light.replies(birds_file, photos) is None
    ask.predict(birds_file, *photos)
    assert light.replies(birds_file, photos) is not None


def test_nothing_is_kept_that_would_answer_otherwise(
    birds: Model, album: Path, graph_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking.glance(birds, [album / "owl" / "0.png"])
    form = lightfile.fused_form(birds.branches)
    monkeypatch.setattr(
        lightfile,
        "fused_form",
        lambda branches: dataclasses.replace(form, bias=form.bias + 0.01 * torch.arange(len(form.bias))),
    )
    modelfile.save(birds, tmp_path / "model.fscil")
    assert list(graph_cache.glob("*.safetensors")) == []


def test_what_is_drawn_at_random_stays_as_it_was(saved: Path, graph_cache: Path) -> None:
    for file in graph_cache.iterdir():
        file.unlink()
    model = modelfile.load(saved)
    before = torch.get_rng_state()
    model.embed(torch.zeros(1, 3, 32, 32))
    lightfile.keep(model)
    assert list(graph_cache.glob("*.safetensors"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("views", ["flip", "negative"])
@pytest.mark.parametrize("encoder", ["tiny", "tiny+tiny"])
def test_mirror_images_and_negatives_are_looked_at_too(album: Path, tmp_path: Path, encoder: str, views: Views) -> None:
    """With two encoders it is the model of `fscil learn --best`."""
    model = backbones.of_encoder(encoder, pixels=32, views=views)
    shown, asked = sorted(album.glob("*/[0-3].png")), sorted(album.glob("*/[67].png"))
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    modelfile.save(model, tmp_path / "model.fscil")
    same(light.replies(tmp_path / "model.fscil", asked), looking.replies(model, asked))


def test_views_without_a_light_way_are_left_to_torch(
    birds: Model, graph_cache: Path, album: Path, tmp_path: Path
) -> None:
    looking.glance(birds, [album / "owl" / "0.png"])
    birds.branches[0].views = "flip+shift"
    modelfile.save(birds, tmp_path / "model.fscil")
    assert not list(graph_cache.glob("*.safetensors"))


def test_photos_of_none_of_these_are_told(saved: Path, album: Path, hoopoes: list[Path]) -> None:
    shown = [*sorted(album.glob("*/7.png")), *hoopoes[5:]]
    with modelfile.editing(saved) as model:
        correcting.teach_none(model, [hoopoes[5], album / "owl" / "7.png"])
    ours, theirs = light.replies(saved, shown), looking.replies(modelfile.load(saved), shown)
    same(ours, theirs)
    rejected = [reply.answer.rejected for reply in theirs if reply.answer]
    assert [reply.answer.rejected for reply in ours or [] if reply.answer] == rejected
    assert set(rejected) == {True, False}


def test_every_part_of_a_model_was_thought_of() -> None:
    """A new field that has a say in an answer has to be kept by `lightfile`, or to keep it from being used."""
    without_a_say = {"journal", "photos", "base", "revision", "memory", "album"}
    known = {"branches", "framing", "origin", "calibration", "names", "negatives"}
    assert {field.name for field in dataclasses.fields(Model)} == without_a_say | known


def test_another_version_finds_what_is_to_be_forgotten_but_does_not_use_it(
    saved: Path, album: Path, graph_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list(graph_cache.glob("*.safetensors"))) == 1
    monkeypatch.setattr(light, "PROGRAM", "fscil 99")
    assert light.replies(saved, [album / "owl" / "0.png"]) is None
    with modelfile.editing(saved) as model:
        model.erase("hoopoe")
    assert len(list(graph_cache.glob("*.safetensors"))) == 1
    assert light.replies(saved, [album / "owl" / "0.png"]) is not None


def test_a_model_that_is_replaced_leaves_nothing(saved: Path, graph_cache: Path) -> None:
    model = modelfile.load(saved)
    model.revision = None  # as one that was learned anew
    model.forget("hoopoe")
    modelfile.replace(model, saved)
    assert list(graph_cache.glob("*.safetensors")) == [light.place(str(model.revision))]


def test_an_answer_of_before_an_erasure_brings_nothing_back(saved: Path, graph_cache: Path) -> None:
    old = modelfile.load(saved)
    with modelfile.editing(saved) as model:
        model.erase("hoopoe")
    modelfile.keep_shortcut(old, saved)
    assert list(graph_cache.glob("*.safetensors")) == [light.place(str(model.revision))]


def test_an_interrupt_after_the_change_does_not_take_it_back(
    saved: Path, graph_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(model: Model, revision: str) -> None:
        light.place(revision).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(lightfile, "_keep", interrupted)
    with modelfile.editing(saved) as model:
        model.undo()
    assert "hoopoe" not in modelfile.load(saved).classes
    assert list(graph_cache.glob("*.safetensors")) == []
