"""The benchmark of what is said about lessons: what it draws, counts and writes, on a tiny data set."""

import json
import sys
from pathlib import Path

import pytest

from albums import photos

lessons = pytest.importorskip("lessons", reason="the benchmarks are not part of this checkout")

KINDS = 14  # species, of which every other one is learned
EACH = 9


@pytest.fixture(scope="module")
def cub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with the lists of CUB-200; every tenth is a test photo, and not there."""
    root = tmp_path_factory.mktemp("cub")
    named = []
    for kind in range(KINDS):
        folder = f"{kind + 1:03}.Bird"
        found = photos(root / "images" / folder, kind, range(EACH))
        named += [f"{folder}/{path.name}" for path in found] + [f"{folder}/test.png"]
    split = [name.endswith("test.png") for name in named]
    (root / "images.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(named, 1)))
    (root / "train_test_split.txt").write_text("".join(f"{i} {1 - test}\n" for i, test in enumerate(split, 1)))
    return root


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "SIZES", (3,))
    monkeypatch.setattr(lessons, "FIRST", 2)


def test_the_script_writes_what_it_counted(
    cub: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "lessons.json"
    words = [cub, out, "--species", 6, "--photos", EACH, "--lessons", 8, "--encoder", "tiny", "--pixels", 32]
    monkeypatch.setattr(sys, "argv", ["lessons.py", *map(str, words)])
    lessons.main()
    result = json.loads(out.read_text("utf-8"))
    (one,) = result["lessons"]
    assert (one["shots"], one["correct_lessons"], one["lessons_with_a_wrong_photo"]) == (3, 4, 4)
    assert one["more_photos_little"]["lessons"] + one["more_photos_help"]["lessons"] == 4
    assert one["more_photos_little"]["lessons"] == 0  # of three photos that is never said
    assert "\n".join(lessons.tables(result)) in capsys.readouterr().out
    assert str(cub.parent) not in out.read_text("utf-8")


def test_no_species_is_taken_on_which_something_was_chosen(cub: Path, small: None) -> None:
    """And no test photo, which are not there at all."""
    assert len(lessons.species(cub, 100)) == KINDS
    made = lessons.prepared(lessons.species(cub, EACH)[lessons.FIRST :], "tiny", "prototypes", 32)
    assert made.model.classes == [f"{kind:03}.Bird" for kind in range(3, KINDS + 1, 2)]
    assert [len(own) for own in made.species] == [EACH] * (KINDS // 2 - 1)


def test_a_judgement_undoes_what_it_taught(cub: Path, small: None) -> None:
    made = lessons.prepared(lessons.species(cub, EACH)[2:], "tiny", "prototypes", 32)
    before = [branch.prototypes.sums.clone() for branch in made.model.branches]
    judged = made.judge(made.species[0], None, 4)
    assert lessons.NEW not in made.model.classes
    assert all((a == b.prototypes.sums).all() for a, b in zip(before, made.model.branches, strict=True))
    assert 0 <= judged.truth <= 1
    assert 0 <= judged.after <= 1


def test_what_was_said_is_held_against_what_more_photos_change() -> None:
    def judged(wrong: bool, odd: list[int], little: bool, truth: float, after: float) -> object:
        return lessons.Judgement(wrong, odd, little, 1.0, truth, after)

    made = [
        judged(False, [], True, 0.8, 0.82),
        judged(False, [2], False, 0.2, 0.6),
        judged(True, [0, 1], False, 0.1, 0.1),
        judged(True, [], False, 0.1, 0.1),
    ]
    told = lessons.summed(5, made)
    assert (told["with_a_photo_called_unlike"], told["wrong_photo_named"], told["right_photo_named"]) == (1, 1, 1)
    assert told["more_photos_little"] == {"lessons": 1, "recognised": 80.0, "after_as_many_again": 82.0}
    assert told["more_photos_help"] == {"lessons": 1, "recognised": 20.0, "after_as_many_again": 60.0}
    lines = lessons.tables({"lessons": [told]})
    assert "| 5 | 1 of 2 | 1 of 2 | 1 of 2 | 100.0 % | 50.0 % |" in lines
    assert "| 5 | more would change little | 1 of 2 | 80.0 % | 82.0 % |" in lines
