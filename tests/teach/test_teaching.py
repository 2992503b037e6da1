"""Teaching from photos: means stay exact, duplicates count once, and what is odd about photos is said."""

from pathlib import Path

import pytest
import torch

from albums import photos, picture
from fscil.errors import FscilError
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import correcting, teaching
from fscil.teach.lessons.looking import answers, look


def test_a_new_class_is_recognised_and_the_old_ones_stay(birds: Model, hoopoes: list[Path], album: Path) -> None:
    before = [answer.best[0][0] for answer in answers(birds, look(birds, sorted(album.glob("*/0.png"))).features)]
    lesson = teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    assert lesson.taught == 5
    assert lesson.unreadable == []
    after = answers(birds, look(birds, [*sorted(album.glob("*/0.png")), *hoopoes[5:]]).features)
    assert [answer.best[0][0] for answer in after] == [*before, "hoopoe", "hoopoe", "hoopoe"]
    assert before == ["crow", "jay", "kite", "owl", "robin", "wren"]


def test_teaching_in_parts_is_teaching_at_once(learned_file: Path, hoopoes: list[Path]) -> None:
    from fscil.teach.storage import modelfile

    parts, whole = modelfile.load(learned_file), modelfile.load(learned_file)
    for photo in hoopoes:
        teaching.teach(parts, ["hoopoe"], [photo])
    teaching.teach(whole, ["hoopoe"] * len(hoopoes), hoopoes)
    for one, other in zip(parts.branches, whole.branches, strict=True):
        torch.testing.assert_close(one.prototypes.means(), other.prototypes.means(), rtol=1e-6, atol=1e-7)
        assert one.prototypes.take(6).photos == other.prototypes.take(6).photos == 8


def test_a_photo_counts_once_under_any_name(birds: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    teaching.teach(birds, ["hoopoe"] * 3, hoopoes[:3])
    (tmp_path / "copy.png").write_bytes(hoopoes[0].read_bytes())
    lesson = teaching.teach(birds, ["hoopoe"] * 3, [tmp_path / "copy.png", hoopoes[4], hoopoes[4]])
    assert lesson.taught == 1
    assert birds.branches[0].prototypes.take(birds.label("hoopoe")).photos == 4
    assert any("2 photos known already and counted once" in sentence for sentence in lesson.advice)


def test_known_photos_alone_change_nothing(birds: Model, album: Path) -> None:
    steps = len(birds.journal.steps)
    lesson = teaching.teach(birds, ["jay"] * 2, sorted((album / "jay").iterdir())[:2])
    assert lesson.taught == 0
    assert len(birds.journal.steps) == steps


def test_a_photo_of_another_class_is_contradictory(
    birds: Model, album: Path, hoopoes: list[Path], tmp_path: Path
) -> None:
    jay = album / "jay" / "3.png"
    lesson = teaching.teach(birds, ["hoopoe"] * 3, [jay, *hoopoes[:2]])
    assert lesson.taught == 2
    assert any("was taught as another class" in sentence and "'jay'" in sentence for sentence in lesson.advice)
    for refused in (lambda: teaching.teach(birds, ["hoopoe"], [jay]), lambda: correcting.teach_none(birds, [jay])):
        with pytest.raises(FscilError, match=r"another class: .*3\.png \('jay'\); correct moves it$"):
            refused()  # to give other photos is no advice for who wants this one moved
    (tmp_path / "empty.png").touch()
    with pytest.raises(FscilError, match=r"empty\.png is empty.*; correct moves it; give other photos$"):
        teaching.teach(birds, ["hoopoe"] * 2, [tmp_path / "empty.png", jay])


def test_photos_that_look_like_a_known_class_are_reported(birds: Model, tmp_path: Path) -> None:
    same = photos(tmp_path / "blue bird", 1, range(20, 25))  # the pattern of jay
    lesson = teaching.teach(birds, ["blue bird"] * 5, same)
    (sentence,) = [sentence for sentence in lesson.advice if "look like" in sentence]
    assert sentence.startswith("5 of 5 photos look like 'jay' 0.") or "look like 'jay' 1.00" in sentence


def test_photos_unlike_anything_are_not_reported(birds: Model, hoopoes: list[Path]) -> None:
    lesson = teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    assert not [sentence for sentence in lesson.advice if "look like" in sentence]


def test_few_photos_give_advice(birds: Model, hoopoes: list[Path]) -> None:
    assert (
        "'hoopoe' is known from 2 photos; 5 or more make it surer"
        in teaching.teach(birds, ["hoopoe"] * 2, hoopoes[:2]).advice
    )
    assert not [s for s in teaching.teach(birds, ["hoopoe"] * 3, hoopoes[2:5]).advice if "surer" in s]


def test_a_photo_unlike_the_others_is_named(birds: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    (stranger,) = photos(tmp_path / "stranger", 51, range(1))
    lesson = teaching.teach(birds, ["hoopoe"] * 6, [*hoopoes[:5], stranger])
    assert any(str(stranger) in sentence and "unlike the other photos" in sentence for sentence in lesson.advice)


def test_photos_of_one_colour_give_advice(birds: Model) -> None:
    from PIL import Image

    lesson = teaching.teach(birds, ["wall"] * 2, [Image.new("RGB", (40, 40), "green"), picture(80, 0)])
    assert any("photo 1: almost one colour" in sentence for sentence in lesson.advice)


def test_unreadable_photos_are_left_out_and_the_rest_is_taught(
    birds: Model, hoopoes: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "broken.jpg").write_text("no photo")
    lesson = teaching.teach(birds, ["hoopoe"] * 3, [hoopoes[0], tmp_path / "broken.jpg", hoopoes[1]])
    assert lesson.taught == 2
    assert [problem.name for problem in lesson.unreadable] == [str(tmp_path / "broken.jpg")]


def test_nothing_readable_is_an_error_and_changes_nothing(birds: Model, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_text("no photo")
    classes, steps = birds.classes, len(birds.journal.steps)
    with pytest.raises(FscilError, match=r"none of the photos could be taught: .*broken.jpg is no picture"):
        teaching.teach(birds, ["hoopoe"], [tmp_path / "broken.jpg"])
    assert birds.classes == classes
    assert len(birds.journal.steps) == steps
