"""`auto` takes the encoder that names clearly more of the user's photos right, and the usual one otherwise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from albums import picture
from fscil import Classifier
from fscil.data import Protocol, glyphs
from fscil.errors import FscilError
from fscil.teach.base import choosing, learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen, look
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

    def planted(model: Model, seen: Seen, names: list[object]) -> Tensor:
        return answers(9 if (model.origin.encoder == backbones.LAYOUT) == won else 1, 10)

    monkeypatch.setattr(choosing, "rightly_named", planted)
    names = [c for c in "abcd" for _ in range(8)]
    told: list[str] = []
    model = choosing.model_for("auto", None, 64, "one", [Path("x.png")] * len(names), names, told.append).model
    assert model.origin.encoder == taken
    assert model.branches[0].views == ("negative" if won else "one")
    asked = choosing.model_for("auto", None, 64, "flip", [Path("x.png")] * len(names), names).model
    assert asked.branches[0].views == "flip"
    said = [f"{backbones.LAYOUT} suits these photos better than the usual encoder: 90 % and 10 % of 10 named right"]
    assert told == (said if won else [])


@pytest.mark.parametrize(
    ("won", "taken", "views"), [(True, backbones.TWO_LAYOUTS, "negative"), (False, backbones.TWO, "flip")]
)
def test_the_best_are_two_encoders_or_two_layouts(
    won: bool, taken: str, views: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror image of a photo shows the same thing, that of a sign another sign."""
    installed("efficientnet_lite0")
    installed("efficientnet_lite2")
    monkeypatch.setattr(choosing, "rightly_named", lambda model, *_: torch.arange(10) < 1)
    monkeypatch.setattr(choosing, "clearly_better", lambda rival, usual: won)
    names = [c for c in "abcd" for _ in range(8)]
    model = choosing.model_for("best", None, 64, "one", [Path("x.png")] * len(names), names).model
    assert (model.origin.encoder, model.branches[0].views) == (taken, views)
    with pytest.raises(FscilError, match="best takes two encoders with their own weights; omit --weights"):
        choosing.model_for("best", "weights.pt", None, "one", [], [])
    with pytest.raises(FscilError, match="best chooses the views of a photo as well; omit --views, or name an encoder"):
        choosing.model_for("best", None, None, "negative", [], [])


def test_an_encoder_that_was_named_is_taken_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("efficientnet_lite0")
    monkeypatch.setattr(choosing, "rightly_named", None)
    names = [c for c in "abcd" for _ in range(8)]
    model = choosing.model_for(backbones.DEFAULT, None, 64, "one", [Path("x.png")] * 32, names, print).model
    assert model.origin.encoder == backbones.DEFAULT


@pytest.mark.parametrize("choice", ["auto", "best"])
def test_a_choice_beside_another_encoder_is_refused(choice: str) -> None:
    with pytest.raises(FscilError, match=f"{choice} chooses by itself and cannot stand beside others; name all"):
        choosing.model_for(f"{choice}+efficientnet_lite2", None, None, "one", [], [], print)


def test_characters_are_learned_by_their_layout() -> None:
    installed("efficientnet_lite0")
    drawn = glyphs.load(Path(), Protocol()).train
    rows = [row for label in range(6) for row in (drawn.labels == label).nonzero()[:12, 0].tolist()]
    photos = [np.ascontiguousarray(drawn.pixels[row].permute(1, 2, 0).numpy()) for row in rows]
    signs = Classifier().fit(photos, [int(drawn.labels[row]) for row in rows])
    assert signs.model_.origin.encoder == backbones.LAYOUT
    assert {branch.views for branch in signs.model_.branches} == {"negative"}
    assert signs.get_params()["encoder"] == "auto"


def test_photos_of_the_trial_are_not_encoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The features of the model that was chosen are taken over: those that looking at all photos anew would give."""
    installed("efficientnet_lite0")
    monkeypatch.setattr(choosing, "PHOTOS", 20)
    photos = [picture(kind, number) for kind in range(4) for number in range(8)]
    names = [kind for kind in "abcd" for _ in range(8)]
    model, known = choosing.model_for("auto", None, 64, "one", photos, names)
    assert len(known) == 20
    anew = look(model, photos)
    encoded: list[int] = []
    embed = Model.embed

    def counted(self: Model, images: Tensor) -> list[Tensor]:
        encoded.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(Model, "embed", counted)
    seen = look(model, photos, known=known)
    assert sum(encoded) == 12
    for got, wanted in zip(seen.features, anew.features, strict=True):
        torch.testing.assert_close(got, wanted)
    encoded.clear()
    learning.learn(model, photos, names, "prototypes", known=known)
    assert sum(encoded) < 12 + 12  # what is left, and a few to see how fast it goes
    assert model.classes == list("abcd")


def test_photos_that_cannot_be_read_choose_nothing(tmp_path: Path) -> None:
    installed("efficientnet_lite0")
    files = [tmp_path / name / f"{i}.jpg" for name in "abcd" for i in range(8)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("no photo")
    names = [file.parent.name for file in files]
    assert choosing.model_for("auto", None, 64, "one", files, names, print).model.origin.encoder == backbones.DEFAULT
    with pytest.raises(FscilError, match=r"none of the 32 photos could be read, the first .*0\.jpg is no picture"):
        Classifier(pixels=64).fit(files, names)


def test_an_encoder_nobody_asked_for_refuses_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("efficientnet_lite0")
    monkeypatch.setattr(choosing, "rightly_named", None)
    names = [c for c in "abcd" for _ in range(8)]
    model = choosing.model_for("auto", None, 32, "one", [Path("x.png")] * 32, names, print).model
    assert (model.origin.encoder, model.framing.pixels) == (backbones.DEFAULT, 32)
