"""The order of the lines is tested, each against the next, before it is stated."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fscil.experiments import ranking
from fscil.experiments.ranking import Neighbours, neighbours, sentences
from fscil.metrics import Interval

GOOD, BAD = ("a", (60.0, 61.0, 62.0)), ("b", (50.0, 51.2, 52.0))


def line(arm: str, averages: tuple[float, ...], point: dict[str, Any]) -> list[Any]:
    """Readings of an arm, one a seed, with folders that hold their averages."""
    arms = SimpleNamespace(name=arm, branch="")
    return [
        SimpleNamespace(
            arm=arms, point=point, repetition={"seed": seed}, run=SimpleNamespace(folder=Path(f"{arm}/{value}"))
        )
        for seed, value in enumerate(averages)
    ]


def ranked(monkeypatch: pytest.MonkeyPatch, *lines: tuple[str, tuple[float, ...]], points: int = 1) -> list[Neighbours]:
    readings = [r for p in range(points) for name, values in lines for r in line(name, values, {"p": p} if p else {})]
    records = {reading.run.folder: None for reading in readings}
    monkeypatch.setattr("fscil.experiments.differences.mark", lambda record: "")
    monkeypatch.setattr(
        "fscil.experiments.differences.curve_of",
        lambda reading, record: SimpleNamespace(average=float(reading.run.folder.name)),
    )
    for module in ("differences", "ranking"):
        monkeypatch.setattr(f"fscil.experiments.{module}.METRICS", {"Avg": lambda curve: curve.average})
    return neighbours(SimpleNamespace(arms=[name for name, _ in lines]), readings, records)


def test_each_line_is_compared_with_the_next_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ranked(monkeypatch, BAD, ("c", (49.0, 52.0, 51.5)), GOOD)
    assert (first.above, first.below, first.pairs) == ("a", "b", 3)
    assert first.gaps["Avg"].mean == pytest.approx((10 + 9.8 + 10) / 3)
    assert (second.above, second.below) == ("b", "c")
    assert (first.order, second.order) == (("a", "b"), None)
    assert sentences([first, second]) == [
        "By Avg can be told apart: a is above b.",
        "Cannot be told apart: b and c.",
    ]


def test_with_one_seed_nothing_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ranked(monkeypatch, ("a", (90.0,)), ("b", (10.0,)))
    assert found[0].order is None
    assert sentences(found) == ["n = 1: nothing can be told apart, so the order is not stated. More seeds would tell."]
    assert "| a | b | 1 | +80.00 |" in ranking.markdown(found)


def test_only_repetitions_that_both_have_make_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    (pair,) = ranked(monkeypatch, GOOD, ("b", (50.0, 51.0)))
    assert pair.pairs == 2
    assert sentences([Neighbours("a", "b", 0, {})])[0].startswith("n = 1")


def test_a_line_that_is_above_by_a_repetition_of_its_own_is_below_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    (pair,) = ranked(monkeypatch, ("a", (50.0, 51.0, 52.0, 99.0)), ("b", (51.0, 52.1, 53.0)))
    assert (pair.above, pair.below, pair.pairs) == ("a", "b", 3)
    assert pair.gaps["Avg"].high < 0
    assert sentences([pair]) == ["By Avg can be told apart: b is above a."]


def test_arms_are_ranked_at_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(pair.above, pair.below) for pair in ranked(monkeypatch, BAD, GOOD, points=2)] == [
        ("a", "b"),
        ("a, p 1", "b, p 1"),
    ]


def test_where_no_neighbours_can_be_told_apart_one_sentence_says_so() -> None:
    alike = Neighbours("a", "b", 3, {"Avg": Interval(0.1, -0.2, 0.4)})
    assert sentences([alike]) == ["By Avg no two neighbours can be told apart."]


def test_one_line_alone_has_no_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranking.markdown(ranked(monkeypatch, GOOD)) == ""
