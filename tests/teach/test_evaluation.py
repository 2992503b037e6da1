"""What a test of a model tells: numbers with intervals, confused pairs, wrong photos, and the page of mistakes."""

import csv
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest

from albums import photos
from commands import Fscil
from fscil import metrics
from fscil.errors import FscilError
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import correcting
from fscil.teach.names import NONE
from fscil.teach.outputs.evaluation import Evaluation, evaluate
from fscil.teach.outputs.mistakes import page
from fscil.teach.seeing.folders import class_folders
from records import Outside


@pytest.mark.parametrize(("right", "images"), [(0, 7), (7, 7), (3, 4), (1, 1), (85, 100), (4100, 4800)])
def test_the_interval_is_wilsons(right: int, images: int) -> None:
    expected = binomtest(right, images).proportion_ci(method="wilson")
    assert metrics.interval(right, images) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-9)
    assert all(map(math.isnan, metrics.interval(0, 0)))


@pytest.fixture
def mislabelled(tmp_path: Path) -> Path:
    """Test photos: four crows, four owls, two of which are wrens and one a jay, and three of an unknown kind."""
    root = tmp_path / "test"
    photos(root / "crow", 0, range(20, 24))
    photos(root / "owl", 3, range(20, 21))
    for kind, number, name in [(5, 30, "w1.png"), (5, 31, "w2.png"), (1, 30, "<b>&.png")]:
        photos(tmp_path / "other", kind, range(number, number + 1))
        shutil.move(tmp_path / "other" / f"{number}.png", root / "owl" / name)
    photos(root / "stranger & co", 90, range(3))
    return root


@pytest.fixture
def result(birds: Model, mislabelled: Path) -> Evaluation:
    return evaluate(birds, class_folders(mislabelled))


def test_confused_pairs_and_wrong_photos(result: Evaluation, mislabelled: Path) -> None:
    assert result.confused == [("owl", "wren", 2), ("owl", "jay", 1)]
    assert [one.photo.name for one in result.wrong] == ["<b>&.png", "w1.png", "w2.png"]
    lines = list(result.lines())
    assert lines[0] == "8 photos of 2 classes: 62.5 % right (95 % interval 30.6 to 86.3 %)"
    assert "most confused: owl taken for wren (2), owl taken for jay (1)" in lines
    unknown = "unknown photos (3 photos of stranger & co): 3 refused as not sure, 0.0 % taken for known"
    assert f"{unknown} (95 % interval 0.0 to 56.1 %)" in lines
    assert lines[-3].startswith(f"wrong: {mislabelled / 'owl' / '<b>&.png'} (owl) was taken for jay ")


def test_unknown_photos_that_are_accepted_are_wrong(birds: Model, mislabelled: Path) -> None:
    (mislabelled / "owl").rename(mislabelled / "my own bird")
    result = evaluate(birds, class_folders(mislabelled))
    assert {one.truth for one in result.wrong} == {"my own bird"}
    assert result.refused == 3
    assert result.confused == []


def test_of_many_wrong_photos_ten_are_named(birds: Model, tmp_path: Path) -> None:
    photos(tmp_path / "test" / "crow", 5, range(12))
    lines = list(evaluate(birds, class_folders(tmp_path / "test")).lines())
    assert sum(line.startswith("wrong: ") for line in lines) == 10
    assert lines[-1] == "and 2 more wrong photos; --csv lists them all, --html FILE shows them"


def test_photos_none_of_which_can_be_read(birds: Model, tmp_path: Path) -> None:
    (tmp_path / "crow").mkdir()
    (tmp_path / "crow" / "0.png").touch()
    with pytest.raises(FscilError, match=r"none of the 1 photo could be read, the first .*0.png is empty"):
        evaluate(birds, class_folders(tmp_path))


def test_the_page_needs_nothing_but_itself_and_escapes_names(result: Evaluation, mislabelled: Path) -> None:
    html = page(result, Path("<birds>.fscil"), mislabelled)
    reader = Outside()
    reader.feed(html.replace("<br>", "<br/>").replace("<img ", "<meta "))  # tags that are never closed
    assert reader.loads == []
    assert reader.open == []
    assert html.count('src="data:image/jpeg;base64,') == 3
    assert "<b>&.png" not in html
    assert "owl/&lt;b&gt;&amp;.png" in html
    assert "&lt;birds&gt;.fscil tested on test" in html
    assert "stranger &amp; co" in html
    assert "prefers-color-scheme: dark" in html
    assert "default-src 'none'" in html
    assert str(mislabelled) not in html


def test_a_page_without_mistakes_says_so(birds: Model, tmp_path: Path) -> None:
    photos(tmp_path / "test" / "crow", 0, range(20, 22))
    html = page(evaluate(birds, class_folders(tmp_path / "test")), Path("b.fscil"), tmp_path / "test")
    assert "No photo was taken for another class." in html
    assert "Confused classes" not in html


def test_evaluation_for_programs(fscil_command: Fscil, birds_file: Path, mislabelled: Path) -> None:
    (mislabelled / "owl" / "empty.png").touch()
    code, said, complaints = fscil_command("evaluate", birds_file, "test", "--json", "--html", "sub/why.html")
    told = json.loads(said)
    assert code == 0
    assert (
        complaints
        == "fscil: 1 of 12 photos skipped: test/owl/empty.png is empty (0 bytes)\nfscil: page: sub/why.html\n"
    )
    assert told["photos"] == 11
    assert told["metrics"]["accuracy"] == 62.5
    assert told["accuracy_interval_95"] == pytest.approx([30.57, 86.32], abs=0.01)
    assert told["confused"][0] == {"truth": "owl", "said": "wren", "photos": 2}
    assert [one["photo"] for one in told["wrong"]] == ["test/owl/<b>&.png", "test/owl/w1.png", "test/owl/w2.png"]
    assert told["unknown"]["refused"] == 3
    assert told["unknown"]["taken_for_known"] == 0
    assert told["unknown"]["taken_for_known_interval_95"] == pytest.approx([0, 0.5615], abs=1e-4)  # of 1, too
    assert told["unreadable"] == [{"photo": "test/owl/empty.png", "error": "is empty (0 bytes)"}]
    assert Path("sub/why.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, said, _ = fscil_command("evaluate", birds_file, "test", "--csv")
    rows = list(csv.DictReader(io.StringIO(said)))
    *rows, unread = rows
    assert unread == dict.fromkeys(unread, "") | {
        "photo": "test/owl/empty.png",
        "truth": "owl",
        "error": "is empty (0 bytes)",
    }
    assert len(rows) == 11
    assert {row["error"] for row in rows} == {""}
    assert [row["photo"] for row in rows if row["right"] == "no"] == [one["photo"] for one in told["wrong"]]
    assert {row["truth"] for row in rows if row["class is known"] == "no"} == {"stranger & co"}
    code, said, complaints = fscil_command("evaluate", birds_file, "test", "--strict")
    assert code == 2
    assert said.startswith("8 photos of 2 classes")
    assert "1 of 12 photos could not be read, and --strict makes that an error" in complaints
    assert fscil_command("evaluate", birds_file, "test", "--json", "--csv")[0] == 2


def test_a_folder_of_unknown_classes_alone(fscil_command: Fscil, birds_file: Path, tmp_path: Path) -> None:
    photos(tmp_path / "other" / "stranger", 90, range(4))
    code, said, complaints = fscil_command("evaluate", birds_file, "other")
    assert code == 0
    refused = "unknown photos (4 photos of stranger): 4 refused as not sure, 0.0 % taken for known"
    assert said == f"{refused} (95 % interval 0.0 to 49.0 %)\n"
    assert complaints.startswith("fscil: no folder is called like a class of the model (crow, jay, kite and 3 more)")
    told = json.loads(fscil_command("evaluate", birds_file, "other", "--json")[1])
    assert told["metrics"] is None
    assert told["unknown"]["auroc"] is None
    assert told["unknown"]["refused"] == 4


def test_a_page_that_could_not_be_written_is_known_before(
    fscil_command: Fscil,
    birds_file: Path,
    mislabelled: Path,
) -> None:
    code, said, complaints = fscil_command("evaluate", birds_file, "test", "--html", "test")
    assert (code, said) == (2, "")
    assert "could not be written (Is a directory)" in complaints


def test_a_model_without_classes_has_nothing_to_be_tested_on(birds: Model, album: Path) -> None:
    for name in list(birds.classes):
        birds.forget(name)
    with pytest.raises(FscilError, match="the model knows no class yet; teach it one"):
        evaluate(birds, class_folders(album))


def test_imitated_unknown_photos_may_be_like_none_of_these(birds: Model, album: Path) -> None:
    shown = {"owl": [album / "owl" / "7.png"], "crow": [album / "crow" / "7.png"]}
    birds.calibration = replace(birds.calibration, threshold=-math.inf)
    assert evaluate(birds, shown).false_acceptance == 1
    correcting.correct(birds, NONE, shown["owl"])
    assert evaluate(birds, shown).false_acceptance == 0.5
