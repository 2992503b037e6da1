"""`auto` takes the encoder that names clearly more of the user's photos right, and the usual one otherwise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fscil import Classifier
from fscil.data import Protocol, glyphs
from fscil.errors import FscilError
from fscil.teach.base import choosing
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from packages import installed


def test_a_sample_is_spread_over_classes_and_photos() -> None:
    names = [f"class {c}" for c in range(100) for _ in range(30)]
    some = choosing.sample(names)
    assert len(some) == choosing.PHOTOS
    assert len({names[i] for i in some}) == choosing.CLASSES
    assert names[some[-1]] == "class 95"
    assert [i % 30 for i in some[:10]] == list(range(0, 30, 3))


@pytest.mark.parametrize(("classes", "photos"), [(3, 30), (20, 7), (1, 500)])
def test_too_few_classes_or_photos_tell_nothing(classes: int, photos: int) -> None:
    assert choosing.sample([c for c in range(classes) for _ in range(photos)]) == []


def test_small_classes_are_left_out_of_the_sample() -> None:
    names = ["few"] * 7 + [c for c in "abcd" for _ in range(8)]
    assert {names[i] for i in choosing.sample(names)} == set("abcd")


def answers(right: int, of: int) -> Tensor:
    return torch.arange(of) < right


@pytest.mark.parametrize(
    ("rival", "usual", "better"), [(60, 50, True), (54, 50, False), (50, 50, False), (40, 50, False)]
)
def test_the_rival_has_to_win_by_more_than_chance(rival: int, usual: int, better: bool) -> None:
    assert choosing.clearly_better(answers(rival, 100), answers(usual, 100)) is better


def test_photos_that_both_name_wrong_decide_nothing() -> None:
    none = torch.zeros(9, dtype=torch.bool)
    assert not choosing.clearly_better(none, none)


@pytest.mark.parametrize(("won", "taken"), [(True, backbones.LAYOUT), (False, backbones.DEFAULT)])
def test_the_encoder_that_wins_is_taken_and_named(won: bool, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("efficientnet_lite0")

    def planted(model: Model, photos: list[object], names: list[object]) -> Tensor:
        return answers(9 if (model.origin.encoder == backbones.LAYOUT) == won else 1, 10)

    monkeypatch.setattr(choosing, "rightly_named", planted)
    names = [c for c in "abcd" for _ in range(8)]
    told: list[str] = []
    model = choosing.model_for("auto", None, 64, "one", [Path("x.png")] * len(names), names, told.append)
    assert model.origin.encoder == taken
    said = [f"{backbones.LAYOUT} suits these photos better than the usual encoder: 90 % and 10 % of 10 named right"]
    assert told == (said if won else [])


def test_an_encoder_that_was_named_is_taken_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("efficientnet_lite0")
    monkeypatch.setattr(choosing, "rightly_named", None)
    names = [c for c in "abcd" for _ in range(8)]
    model = choosing.model_for(backbones.DEFAULT, None, 64, "one", [Path("x.png")] * 32, names, print)
    assert model.origin.encoder == backbones.DEFAULT


def test_auto_beside_another_encoder_is_refused() -> None:
    with pytest.raises(FscilError, match="auto chooses one encoder and cannot stand beside others; name them all"):
        choosing.model_for("auto+efficientnet_lite2", None, None, "one", [], [], print)


def test_characters_are_learned_by_their_layout() -> None:
    installed("efficientnet_lite0")
    drawn = glyphs.load(Path(), Protocol()).train
    rows = [row for label in range(6) for row in (drawn.labels == label).nonzero()[:12, 0].tolist()]
    photos = [np.ascontiguousarray(drawn.pixels[row].permute(1, 2, 0).numpy()) for row in rows]
    signs = Classifier().fit(photos, [int(drawn.labels[row]) for row in rows])
    assert signs.model_.origin.encoder == backbones.LAYOUT
    assert signs.get_params()["encoder"] == "auto"


def test_photos_that_cannot_be_read_choose_nothing(tmp_path: Path) -> None:
    installed("efficientnet_lite0")
    files = [tmp_path / name / f"{i}.jpg" for name in "abcd" for i in range(8)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("no photo")
    names = [file.parent.name for file in files]
    assert choosing.model_for("auto", None, 64, "one", files, names, print).origin.encoder == backbones.DEFAULT
    with pytest.raises(FscilError, match=r"none of the 32 photos could be read, the first .*0\.jpg is no picture"):
        Classifier(pixels=64).fit(files, names)


def test_an_encoder_nobody_asked_for_refuses_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("efficientnet_lite0")
    monkeypatch.setattr(choosing, "rightly_named", None)
    names = [c for c in "abcd" for _ in range(8)]
    model = choosing.model_for("auto", None, 32, "one", [Path("x.png")] * 32, names, print)
    assert (model.origin.encoder, model.framing.pixels) == (backbones.DEFAULT, 32)
