"""Strength full: KT-RCNet end to end on a folder, resumable, and the run folder of a method as encoder."""

import json
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from albums import BIRDS, photos, picture
from fscil import Classifier, methods, settings
from fscil.command import cli
from fscil.errors import FscilError
from fscil.teach.base import full, learning, planning
from fscil.teach.knowledge import backbones
from fscil.teach.lessons.looking import answers, look
from fscil.teach.outputs.card import card
from fscil.teach.storage import modelfile

RECIPE = """
encoder = "tiny"
pixels = 32
views = "one"
held_out = 1
tasks = 3
way = 3
shot = 2
query = 2
base_relation = 0.0
feature_scale = 0.0
[base]
epochs = 1
batch = 24
lr = 0.05
[augment]
crop = "none"
margin = 1.0
[transfer]
epochs = 1
lr = 0.001
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model file `full.fscil` made by `fscil learn --train`, and what was said."""
    folder = tmp_path_factory.mktemp("full")
    for kind, name in enumerate(BIRDS[:4]):
        photos(folder / "photos" / name, kind, range(10))
    (folder / "photos" / "crow" / "broken.jpg").write_text("no photo")
    (folder / "tiny.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch, (folder / "said").open("w") as said, redirect_stdout(said):
        patch.chdir(folder)
        patch.setattr(sys, "argv", shlex.split("fscil learn photos --save full.fscil --train --recipe tiny.toml"))
        cli.main()
    return folder


def test_a_folder_is_trained_end_to_end(trained: Path) -> None:
    model = modelfile.load(trained / "full.fscil")
    assert model.classes == list(BIRDS[:4])
    assert model.origin.weights == "kt_rcnet trained on folder"
    assert model.origin.strength == "full"
    assert [branch.name for branch in model.branches] == ["B", "C"]
    assert not model.complementary
    said = (trained / "said").read_text()
    assert re.match(r"full: KT-RCNet is trained end to end; about \d+ min, the same command continues", said)
    assert "1 of 41 photos skipped" in said
    seen = look(model, [picture(kind, 30) for kind in range(4)])
    assert [answer.best[0][0] for answer in answers(model, seen.features)] == list(BIRDS[:4])


def test_it_is_loaded_as_a_classifier(trained: Path) -> None:
    loaded = Classifier.load(trained / "full.fscil")
    assert loaded.strength == "auto"  # no strength of a Classifier trains end to end
    assert loaded.predict([picture(0, 30)]).tolist() == [BIRDS[0]]


def test_the_card_does_not_claim_that_its_encoder_never_saw_the_hidden_classes(trained: Path) -> None:
    told = "\n".join(card(modelfile.load(trained / "full.fscil")))
    assert "imitated by photos of base classes whose means were left out: AUROC" in told
    assert "But its encoder was trained on photos of these classes, so the promise is likely too good." in told
    assert "nothing was fitted to" not in told


def test_its_run_folder_is_an_encoder(trained: Path) -> None:
    (run,) = trained.glob("full.fscil.training/folder/kt_rcnet-tiny/seed0")
    assert json.loads((run / "run.json").read_text())["class_names"] == list(BIRDS[:4])
    model = backbones.of_encoder(str(run))
    assert model.classes == []
    assert model.framing.pixels == 32
    shown = [picture(kind, i) for kind in (20, 21) for i in range(5)]
    learning.learn(model, shown, ["a"] * 5 + ["b"] * 5)
    assert model.classes == ["a", "b"]
    assert model.origin.strength == "prototypes"
    with pytest.raises(FscilError, match="already brings a trained complementary branch"):
        planning.plan_for(backbones.of_encoder(str(run)), ["a"] * 50, "transfer", 0)


def test_photos_kept_for_calibration_are_kept_from_training(trained: Path) -> None:
    parts = json.loads((trained / "full.fscil.training" / "split.json").read_text())
    sources = [f"{name}/{file.name}" for name in BIRDS[:4] for file in sorted((trained / "photos" / name).iterdir())]
    held = planning.split([source.split("/")[0] for source in sources], 0).held
    assert sorted(parts["test"]) == sorted(s for p, s in enumerate(sources) if p in held and "broken" not in s)
    assert not set(parts["test"]) & set(parts["train"])
    assert "crow/broken.jpg" not in parts["train"] + parts["test"]


def test_a_class_whose_kept_photo_cannot_be_read_is_trained_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, name in enumerate(BIRDS[:3]):
        photos(tmp_path / "photos" / name, kind, range(8))
    files = sorted((tmp_path / "photos").rglob("*.*"))
    kept = min(planning.split([file.parent.name for file in files], 0).held)
    files[kept].write_text("no photo")
    (tmp_path / "tiny.toml").write_text(RECIPE)
    assert modelfile.load(learn(tmp_path, monkeypatch)).classes == sorted(BIRDS[:3])


def learn(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    patch.chdir(folder)
    patch.setattr(sys, "argv", shlex.split("fscil learn photos --save b.fscil --train --recipe tiny.toml"))
    cli.main()
    return folder / "b.fscil"


def test_the_same_command_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, name in enumerate(BIRDS[:3]):
        photos(tmp_path / "photos" / name, kind, range(9))
    (tmp_path / "photos" / "nobody").mkdir()
    (tmp_path / "tiny.toml").write_text(RECIPE)
    whole = modelfile.load(learn(tmp_path, monkeypatch))
    (tmp_path / "b.fscil").unlink()
    (tmp_path / "b.fscil.training").rename(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("fscil.methods.kt_rcnet.Method.complementary_learning", stopped)
        with pytest.raises(SystemExit):
            learn(tmp_path, patch)
    assert not (tmp_path / "b.fscil").exists()
    again = modelfile.load(learn(tmp_path, monkeypatch))
    assert again.classes == whole.classes
    for mine, theirs in zip(again.branches, whole.branches, strict=True):
        assert torch.equal(mine.prototypes.means(), theirs.prototypes.means())


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_tasks_are_as_large_as_the_photos_allow() -> None:
    config = settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "folder", "small", {})
    small = full.fitting(config, {"crow": 4, "jay": 30})
    assert (small.way, small.shot, small.query, small.held_out) == (2, 1, 2, 1)
    assert full.fitting(config, dict.fromkeys("abcdefgh", 100)) == config
    with pytest.raises(FscilError, match="with 4 photos each, and 'jay' has 2 to train on"):
        full.fitting(config, {"crow": 4, "jay": 2})


def test_a_weight_that_is_fitted_keeps_two_photos_of_each_class() -> None:
    config = settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "folder", "small", {"complement_weight": 0})
    small = full.fitting(config, {"crow": 7, "jay": 30})
    assert (small.shot, small.query, small.held_out) == (2, 3, 2)
    with pytest.raises(FscilError, match="with 5 photos each, and 'jay' has 3 to train on"):
        full.fitting(config, {"crow": 7, "jay": 3})


def test_a_run_whose_f2_began_with_weights_can_be_taken_over(tmp_path: Path) -> None:
    config = methods.load("kt_rcnet").Config(start="weights", weights="pretrained")
    told = {"method": "kt_rcnet", "settings": settings.to_dict(config)}
    assert backbones._config(tmp_path, told) == config


def test_a_class_of_one_photo_is_named(tmp_path: Path) -> None:
    folders = {name: photos(tmp_path / name, kind, range(6 if kind else 1)) for kind, name in enumerate(BIRDS[:3])}
    with pytest.raises(FscilError, match=r"--train needs .* 'crow' has 0 to train on"):
        full.trained(tmp_path, folders, tmp_path / "b.fscil", None, 0, {})
