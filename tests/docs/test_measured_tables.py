"""Tables and sentences about photos say what the files below results/ say; those of missing files are not looked at."""

import json
import re
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def measured(name: str) -> dict[str, Any]:
    file = RESULTS / name
    if not file.exists():
        pytest.skip(f"{file.name} was not measured yet")
    result: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return result


def script(name: str) -> ModuleType:
    made: ModuleType = pytest.importorskip(name, reason="the benchmarks are not part of this checkout")
    return made


def missing(lines: list[str], text: str) -> list[str]:
    """Lines that a page does not have."""
    return sorted({line for line in lines if line} - set(text.splitlines()))


@pytest.mark.parametrize("name", ["cub200", "glyphs", "glyphs-layout", "glyphs-layouts"])
def test_the_tables_of_peers_were_measured(name: str) -> None:
    assert missing(script("peers").table(measured(f"peers/{name}.json")), page("docs/photos.md")) == []


def test_the_tables_of_lessons_were_measured() -> None:
    result = measured("lessons/cub200.json")
    assert missing(script("lessons").tables(result), page("docs/teach.md")) == []


def test_how_often_a_photo_called_unlike_is_a_wrong_one_follows_from_the_lessons() -> None:
    (five,) = (one for one in measured("lessons/cub200.json")["lessons"] if one["shots"] == 5)
    assert five["correct_lessons"] == five["lessons_with_a_wrong_photo"]  # so that counts can be set against each other
    wrong, beside, called = (
        five[name] for name in ("wrong_photo_named", "right_photo_named", "with_a_photo_called_unlike")
    )
    fifth, tenth = (100 * wrong / (wrong + beside + correct * called) for correct in (4, 9))
    told = re.sub(r"\s+", " ", page("docs/teach.md"))
    assert f"if one lesson in five has a wrong photo, {fifth:.0f} % of the photos called unlike" in told
    assert f"if one in ten has, {tenth:.0f} %" in told
    assert round(1 + (wrong - beside) / called) == 8
    assert "only if more than about one lesson in eight has a wrong photo" in told


def test_what_best_promises_of_not_sure_was_measured() -> None:
    found = {name: measured(f"unknown/{name}.json") for name in ("best-flip", "best-layouts", "draws", "layout")}

    def refused(*names: str) -> tuple[float, float, float]:
        draws = [(name, one) for name in names for one in found[name]["spread"]]
        spread = [one for name, one in draws if (name, one["set"][:6]) != ("draws", "glyphs")]  # `learn` makes none
        (hundred,) = (one for one in found[names[0]]["sets"] if one["set"] == "100 species")
        assert max(one["accepted"] for one in [*spread, hundred]) <= 8
        return min(one["refused"] for one in spread), max(one["refused"] for one in spread), hundred["refused"]

    told = re.sub(r"\s+", " ", page("docs/teach.md"))
    best, usual = refused("best-flip", "best-layouts"), refused("draws", "layout")
    assert "{:.0f} to {:.0f} % refused with seven to ten classes and {:.0f} % with 100".format(*best) in told
    assert "but refuses {:.0f} to {:.0f} % and {:.0f} %".format(*usual) in told


def test_the_tables_of_waiting_were_measured() -> None:
    result = measured("teaching/waiting.json")
    assert missing(script("waiting").tables(result), page("docs/teach.md")) == []
    ran = result["encoder"]
    share = median(a / b for a, b in zip(ran["onnx"], ran["torch"], strict=True))
    assert f"takes {share:.2f} of torch's time" in page("docs/teach.md")


@pytest.mark.parametrize("name", ["README.md", "docs/teach.md"])
def test_the_first_command_takes_what_is_printed(name: str) -> None:
    """A newcomer's: few photos, and no graph of an encoder in the cache."""
    few = next(one for one in measured("teaching/waiting.json")["learn"] if one["cache"] == "empty")
    announced, took = f"{median(few['announced']):.0f} s", f"{median(few['took']):.1f} s"
    lines = ["prototypes: 3 classes with 24 photos; about " + announced]
    lines += ["things.fscil: learned 3 classes from 24 photos in " + took]
    assert missing(lines, page(name)) == []


def final(name: str) -> dict[str, float]:
    """Accuracies of a practitioner's file at the end, and the average over its tests."""
    total = measured(f"practitioner/{name}.json")["metrics"]["sum"]
    return {part: total[part][-1] for part in ("accuracy", "base", "new")} | {"average": total["average"]}


@pytest.mark.parametrize("name", ["README.md", "docs/teach.md", "docs/photos.md"])
def test_sentences_about_birds_were_measured(name: str) -> None:
    """Ours, ours with two encoders, and logistic regression on the features of one."""
    by_peer = {row["peer"]: row["accuracy"] for row in measured("peers/cub200.json")["peers"]}
    ours, logistic = by_peer["fscil"], by_peer["logistic regression, retrained"]
    best = final("cub200-best")["accuracy"]
    assert f"{ours:.1f}" == f"{final('cub200-whitened')['accuracy']:.1f}"
    same = RESULTS / "peers" / "cub200-best.json"  # logistic regression on the features of both encoders
    both = [row["accuracy"] for row in json.loads(same.read_text("utf-8"))["peers"][-1:]] if same.exists() else []
    told = {"README.md": (ours, logistic, best, *both), "docs/teach.md": (best, ours), "docs/photos.md": (best,)}
    (paragraph,) = [p for p in re.split(r"\n\s*\n", page(name)) if "--best" in p and re.search(r"\d\d\.\d %", p)][:1]
    assert re.findall(r"\d\d\.\d(?= %)", paragraph) == [f"{value:.1f}" for value in told[name]]


def test_the_table_of_a_practitioner_was_measured() -> None:
    names = {"`--views flip`": "cub200-whitened", "`--best`": "cub200-best"}
    lines = []
    for title, name in names.items():
        at = final(name)
        lines.append(f"| {title} | {at['average']:.2f} % | {at['base']:.1f} % | {at['new']:.1f} % |")
    assert missing(lines, page("docs/teach.md")) == []


def test_a_sentence_about_the_map_was_measured() -> None:
    at = final("cub200-map")
    told = re.sub(r"\s+", " ", page("docs/photos.md"))
    assert f"{at['average']:.2f} % on average over the eleven tests" in told
    assert f"{at['base']:.1f} % of base and {at['new']:.1f} % of taught species" in told


def test_a_row_that_was_not_measured_would_be_noticed() -> None:
    result = {"peers": [{**dict.fromkeys(("accuracy", "base", "new", "harmonic", "add_seconds"), 1.0)}]}
    result["peers"][0] |= {"peer": "nobody", "keeps": "nothing"}
    assert missing(script("peers").table(result), page("docs/photos.md")) == [
        "| nobody | 1.0 | 1.0 | 1.0 | 1.0 | 1.000 s | nothing |"
    ]


def test_learning_takes_little_longer_than_looking() -> None:
    told = measured("practitioner/cub200-onnx.json")
    learn, look = told["learn_seconds"], told["looking_seconds"]
    assert learn / look <= 1.3
    words = re.sub(r"\s+", " ", page("docs/results.md"))
    assert f"{learn:.0f} s beside {look:.0f} s of looking, [{learn / look:.2f} times]" in words
