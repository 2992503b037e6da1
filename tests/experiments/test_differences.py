"""What intervals are made of, and the figure of one axis at several choices."""

import json
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fscil.data import Protocol
from fscil.experiments.differences import METRICS, Line, comparisons, independent, latex, paired, published_row
from fscil.experiments.figures import drawn
from fscil.metrics import Spread, paired_difference, run_metrics


def repetitions(seeds: int, draws: int) -> list[str]:
    return [json.dumps({"shots_seed": draw, "seed": seed}) for seed in range(seeds) for draw in range(draws)]


def test_runs_of_one_seed_are_no_independent_pairs() -> None:
    """Six pairs whose difference is that of their seed are two pairs."""
    keys = repetitions(seeds=2, draws=3)
    gaps = {key: 1.0 + 2 * json.loads(key)["seed"] for key in keys}
    found = paired(gaps, dict.fromkeys(keys, 0.0), keys, float)
    assert found == paired_difference([1.0, 3.0], [0.0, 0.0])
    assert found.low < 0 < found.mean == 2
    assert paired_difference([*gaps.values()], [0.0] * 6).low > 0  # as if all six were independent


def test_draws_of_one_seed_and_seeds_of_one_draw_are_pairs() -> None:
    assert independent(repetitions(seeds=1, draws=3)) == [[[key] for key in repetitions(1, 3)]]
    assert independent(repetitions(seeds=3, draws=1)) == [[[key] for key in repetitions(3, 1)]]
    assert independent(repetitions(1, 1)) == [[repetitions(1, 1)]]
    by_draw, by_seed = independent(repetitions(seeds=2, draws=3))
    assert ([len(group) for group in by_draw], [len(group) for group in by_seed]) == ([2, 2, 2], [3, 3])


@pytest.mark.parametrize(
    ("changes", "repetition", "beside"),
    [
        ({}, {"seed": 0}, True),
        ({"shots": 1}, {"seed": 0}, False),
        ({"tune": True}, {"seed": 0}, False),
        ({"shots_seed": 4}, {"seed": 0}, False),
        ({"shots_seed": 4}, {"seed": 0, "shots_seed": 4}, True),
    ],
)
def test_published_numbers_stand_beside_the_papers_sessions_alone(
    changes: dict[str, Any], repetition: dict[str, int], beside: bool
) -> None:
    run = SimpleNamespace(dataset="cifar100", protocol=Protocol(**changes))
    reading = SimpleNamespace(arm=SimpleNamespace(published="kt_rcnet"), run=run, repetition=repetition)
    row = published_row(reading)
    assert (row.avg if row else None) == (69.24 if beside else None)


@pytest.mark.parametrize(("counts", "sessions"), [((2, 2), [100, 100]), ((2, 3), [])])
def test_repetitions_may_have_different_numbers_of_sessions(counts: tuple[int, int], sessions: list[float]) -> None:
    arm, zero, readings, records = SimpleNamespace(name="a", published="", branch=""), np.array([0]), [], {}
    for ways, count in enumerate(counts):
        run = SimpleNamespace(folder=Path(str(ways)), dataset="glyphs", method="cosine", protocol=Protocol())
        readings.append(SimpleNamespace(arm=arm, point={"shots": 5}, repetition={"ways": ways, "seed": 0}, run=run))
        curve = run_metrics([(zero, zero)] * count, {0: 0})
        records[run.folder] = SimpleNamespace(curves={"sum": curve}, facts={"method": "cosine"})
    (line,) = comparisons(SimpleNamespace(arms=[arm], reference=""), readings, records)
    assert (line.n, line.spreads["Avg"].mean, line.sessions) == (2, 100, sessions)
    axes = {"shots": (5,)}
    assert "figure" in drawn(SimpleNamespace(axes=axes, places=axes, arms=[arm]), [line])


def test_one_axis_at_several_choices_is_drawn_as_curves() -> None:
    lines = [
        Line(
            name=f"{arm} {stop} {read}",
            arm=arm,
            point={"stop_after": stop, "read_out": read},
            reference="",
            n=1,
            spreads=dict.fromkeys(METRICS, Spread(50.0 + stop, nan)),
            pairs=0,
            gaps={},
            published=None,
            sessions=[70.0, 60.0 + stop],
            published_sessions=[74.0, 69.0] if (arm, stop) == ("RESA-R", 4) else (),
        )
        for arm in ("conventional", "RESA-R")
        for stop in (2, 4)
        for read in ("paper", "small")
    ]
    axes = {"stop_after": (2, 4)}
    places = {**axes, "read_out": ("paper", "small")}
    experiment = SimpleNamespace(axes=axes, places=places, arms=("conventional", "RESA-R"))
    planes = drawn(experiment, lines)["figure"].axes
    assert [plane.get_title() for plane in planes] == [
        *("Avg", "base", "new"),
        *(
            f"{arm}, read_out {read}: after each session"
            for arm in ("conventional", "RESA-R")
            for read in ("paper", "small")
        ),
    ]
    after = {line.get_label(): [*line.get_ydata()] for line in planes[3].lines}
    assert after == {"2": [70, 62], "4": [70, 64]}
    assert [line.get_label() for line in planes[-1].lines] == ["2", "4", "4, published"]
    shown = planes[0].lines
    assert [line.get_label() for line in shown] == [
        f"{arm}, read_out {read}" for arm in ("conventional", "RESA-R") for read in ("paper", "small")
    ]
    assert all([*line.get_xdata()] == [2, 4] and [*line.get_ydata()] == pytest.approx([52, 54]) for line in shown)


@pytest.mark.parametrize("name", ["topic †", "cosine"])
def test_a_dagger_in_latex_has_a_legend(name: str) -> None:
    line = Line(name, name, {}, "", 1, dict.fromkeys(METRICS, Spread(50.0, nan)), 0, {}, None)
    told = latex([line])
    assert told.startswith("% needs")
    assert ("$^\\dagger$ in part a reconstruction: what neither the paper" in told) == ("†" in name)
