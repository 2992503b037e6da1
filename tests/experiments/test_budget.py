"""What an experiment will cost: counted as the run folders count it, and once where cells share it."""

import json
from pathlib import Path

import pytest

from apart import always_tiny  # noqa: F401 (fixture)
from fscil.experiments import budget, schedule, specs
from fscil.experiments.cells import cells, only
from fscil.running.experiment import RunSpec
from small_experiments import small, spread_out, written

READ_OUTS = """
dataset = "glyphs"
method = "kt_rcnet"
[arms.RESA]
[arms.tied]
complement = "tied"
[choices.read_out.plain]
shrinkage = 1.0
new_bonus = 0.0
[choices.read_out.bonus]
shrinkage = 1.0
new_bonus = 0.1
"""


def counted(run: RunSpec) -> float:
    """Compute of all sessions, as if the run had shared nothing."""
    return float(sum(json.loads(file.read_text())["macs"] for file in run.folder.glob("session-*.json")))


def by_stage(runs: list[RunSpec]) -> list[dict[str, budget.Part]]:
    """What is planned for each of several cells, by the names of stages."""
    planner = budget.Planner()
    names = [[stage["stage"] for _, stage, _ in budget.stages(run, planner.plan(run))] for run in runs]
    return [dict(zip(told, cost.parts, strict=True)) for told, cost in zip(names, planner.costs(runs), strict=True)]


def test_the_plan_of_a_cell_that_shares_nothing_is_what_it_computes(tmp_path: Path) -> None:
    experiment = small(specs.load("compare"))
    readings = spread_out(experiment, tmp_path, dataset="glyphs", recipe="small")
    runs = cells(only(readings, ["arm=cosine,joint,finetune,icarl,f2m"]))
    assert [end.error for end in schedule.in_turn(runs, lambda run: lambda session: None)] == [""] * 5
    alone = [budget.costs([run])[0] for run in runs]
    assert [cost.macs for cost in alone] == [counted(run) for run in runs]
    assert all(cost.macs_of(budget.LATER) > 0 for cost in alone)
    together = {cost.run.method: cost for cost in budget.costs(runs)}
    assert together["joint"].takes(budget.BASE)  # the cosine classifier of `cosine`
    assert not together["finetune"].takes(budget.BASE)  # a linear one
    assert len(list((tmp_path / "cache").glob("base-*.safetensors"))) == 2


def test_an_f2_that_two_read_outs_share_counts_once(tmp_path: Path) -> None:
    readings = spread_out(small(written(tmp_path, READ_OUTS)), tmp_path)
    first, second, tied, again = budget.costs(cells(readings))
    trained = [part.macs for part in first.parts if part.kind == budget.REST]
    kept = [not part.left for part in second.parts if part.kind == budget.REST]
    assert second.takes(budget.BASE)
    assert 0 < sum(kept) < len(kept)
    assert sum(macs for macs, taken in zip(trained, kept, strict=True) if taken) > 0.5 * sum(trained)  # RESA
    assert tied.takes(budget.BASE)
    assert first.macs_of(budget.REST) > tied.macs_of(budget.REST) == again.macs_of(budget.REST) > 0  # trains nothing


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a map takes a second."""
    monkeypatch.setattr("fscil.methods.kt_rcnet.Method.step_seconds", lambda method, base, run: 1.0)


def of_maps(text: str, out: Path) -> list[RunSpec]:
    """Cells of an experiment with KT-RCNet whose arms train maps, in two epochs of two steps."""
    experiment = small(written(out, text.replace('"kt_rcnet"', '"kt_rcnet"\n[settings]\ntrains = "map"', 1)))
    return cells(spread_out(experiment, out))


@pytest.mark.usefixtures("one_second")
def test_the_steps_of_a_map_that_read_outs_share_take_their_time_once(tmp_path: Path) -> None:
    whitened = "[choices.read_out.whitened_first]\nshrinkage = 0.5\nwhiten_first = true\n"
    runs = of_maps(READ_OUTS + whitened, tmp_path)
    first, second, other, *tied = by_stage(runs)
    assert first["RESA"] == budget.Part(budget.REST, left=1, macs=0, seconds=4)
    assert (second["RESA"].left, other["RESA"].left) == (0, 1)  # this one is trained in another space
    assert not any("RESA" in stages for stages in tied)
    plain, again, *_ = budget.costs(runs)
    assert plain.seconds >= 4
    assert again.seconds < plain.seconds - 3


@pytest.mark.usefixtures("one_second")
def test_the_steps_of_a_map_are_shared_where_the_map_is(tmp_path: Path) -> None:
    """Where nothing but features is kept, each cell trains its own."""
    text = 'dataset = "glyphs"\nmethod = "kt_rcnet"\n[arms.plain]\n[arms.bonus]\nnew_bonus = 0.1\n'
    runs = of_maps(text, tmp_path)
    assert [(run.keeps_features, run.keeps_trained) for run in runs] == [(True, False)] * 2
    plain, bonus = by_stage(runs)
    assert (bonus["features for the map"].left, bonus["RESA"].left) == (0, 1)
    assert plain["RESA"].seconds == bonus["RESA"].seconds == 4


@pytest.mark.usefixtures("one_second")
def test_of_longer_maps_the_rest_takes_time(tmp_path: Path) -> None:
    text = 'dataset = "glyphs"\nmethod = "kt_rcnet"\n[arms.RESA]\n[axes]\nstop_after = [1, 2]\n'
    first, second = by_stage(of_maps(text, tmp_path))
    assert [(part["RESA"].left, part["RESA"].seconds) for part in (first, second)] == [(1, 2), (0.5, 4)]


@pytest.mark.parametrize("axis", ["complement_weight = [0.5, 1.0]", "stop_after = [1, 2]", "way = [2, 3]"])
def test_cells_along_an_axis_behind_f2_share_it(axis: str, tmp_path: Path) -> None:
    text = f'dataset = "glyphs"\nmethod = "kt_rcnet"\n[settings]\ntransfer.epochs = 2\n[axes]\n{axis}\n'
    runs = cells(spread_out(written(tmp_path, text), tmp_path))
    assert {run.keeps_trained for run in runs} == {not axis.startswith("way")}


def test_of_a_longer_training_the_rest_counts(tmp_path: Path) -> None:
    readings = spread_out(small(specs.load("trial_length")), tmp_path, dataset="glyphs", recipe="small")
    runs = cells(only(readings, ["arm=RESA-R", "read_out=paper"]))
    assert [run.config.stop_after for run in runs] == [1, 2]
    first, second = by_stage(runs)
    assert (first["RESA"].left, second["RESA"].left) == (1, 0.5)
    assert second["RESA"].macs == 2 * first["RESA"].macs


def test_more_views_hold_those_of_fewer(tmp_path: Path) -> None:
    views = READ_OUTS.replace("new_bonus = 0.1", 'new_bonus = 0.1\nviews = "flip"').replace(
        "new_bonus = 0.0", 'new_bonus = 0.0\nviews = "one"'
    )
    runs = cells(only(spread_out(small(written(tmp_path, views)), tmp_path), ["arm=tied"]))
    assert by_stage(runs)[1]["prototypes of B"].left == 0.5
    assert by_stage(runs[::-1])[1]["prototypes of B"].left == 0


def test_second_nets_that_begin_or_learn_differently_are_not_shared(tmp_path: Path) -> None:
    text = """
    dataset = "glyphs"
    method = "kt_rcnet"
    [settings]
    start = "own"
    complement = "tied"
    [arms.plain]
    [arms.again]
    new_bonus = 0.1
    [arms.taught]
    distil = 0.5
    """
    plain, again, taught = budget.costs(cells(spread_out(small(written(tmp_path, text)), tmp_path)))
    bases = [[part.left for part in cost.parts if part.kind == budget.BASE] for cost in (plain, again, taught)]
    sizes = len(bases[0]) // 2
    assert bases == [[1] * 2 * sizes, [0] * 2 * sizes, [0] * sizes + [1] * sizes]


def test_seeds_share_nothing_but_what_given_encoders_see(tmp_path: Path) -> None:
    experiment = small(specs.load("shots"))
    readings = only(spread_out(experiment, tmp_path, seeds=2, dataset="glyphs"), ["arm=cosine", "shots=1,5"])
    few, many, other, _ = budget.costs(cells(readings))
    assert few.run.seed != other.run.seed
    assert [cost.takes(budget.REST) for cost in (few, many, other)] == [False, True, False]
    assert many.macs == pytest.approx(many.macs_of(budget.LATER))
    assert many.macs > few.macs_of(budget.LATER) > 0  # five images a class instead of one


def test_what_finished_cells_have_left_costs_nothing_more(tmp_path: Path) -> None:
    runs = cells(spread_out(small(written(tmp_path, READ_OUTS)), tmp_path))
    planner = budget.Planner()
    whole, (left,) = planner.costs(runs[:2]), planner.costs(runs[1:2], finished=runs[:1])
    assert left == whole[1]
    assert left.macs < planner.costs(runs[1:2])[0].macs


def test_a_budget_pays_for_what_is_shared_once(tmp_path: Path) -> None:
    runs = cells(spread_out(small(written(tmp_path, READ_OUTS)), tmp_path))
    costs = budget.costs(runs)
    assert budget.fitting(costs, sum(cost.macs for cost in costs)) == runs
    assert budget.fitting(costs, sum(cost.macs for cost in costs) - 1) == runs[:-1]
