"""Every shipped experiment expands to the cells of its table or figure, and runs on the tiny benchmark."""

from dataclasses import replace
from pathlib import Path

import pytest

from apart import always_tiny  # noqa: F401 (fixture)
from fscil.experiments import budget, folder, schedule, specs
from fscil.experiments.cells import cells, only
from fscil.report.published import published
from fscil.running.experiment import RunSpec
from small_experiments import BRIEF, OF_METHOD, small, spread_out

# readings and cells with one seed
SIZES = {
    "ablation": (5, 2),
    "compare": (18, 18),
    "draws": (20, 20),
    "lambdas": (25, 25),
    "main": (4, 4),
    "orders": (10, 10),
    "shots": (12, 12),
    "strategies": (10, 10),
    "trial": (44, 44),
    "trial_length": (16, 16),
    "way_shot": (25, 25),
}
RESULTS = {
    *("report.html", "table.md", "table.csv", "table.tex", "differences.md", "differences.csv", "differences.tex"),
    *("figure.svg", "figure.png", "differences.svg", "differences.png"),
}


def test_these_ship() -> None:
    assert specs.names() == tuple(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_an_experiment_has_the_cells_of_its_table(name: str, tmp_path: Path) -> None:
    readings = spread_out(specs.load(name), tmp_path)
    assert (len(readings), len(cells(readings))) == SIZES[name]
    assert len(spread_out(specs.load(name), tmp_path, seeds=2)) == 2 * len(readings)


@pytest.mark.parametrize("name", SIZES)
def test_published_rows_named_by_an_arm_exist(name: str) -> None:
    experiment = specs.load(name)
    tables = published(experiment.dataset)
    assert tables
    rows = (*tables.rows, *tables.study_rows)
    named = {arm.published for arm in experiment.arms if arm.published and arm.published != arm.method}
    assert named <= {row.name for row in rows}


@pytest.mark.parametrize("name", SIZES)
def test_an_experiment_runs_tiny(name: str, tmp_path: Path) -> None:
    """The first cell of the first two arms, or two cells of an only arm."""
    experiment = small(specs.load(name))
    owners = [arm for arm in experiment.arms if not arm.of][:2]
    fewer = tuple(arm for arm in experiment.arms if arm in owners or arm.of in {owner.name for owner in owners})
    short = {"repeats": {key: values[:1] for key, values in experiment.repeats.items()}}
    recipe = "small" if experiment.recipe else None  # glyphs have no other
    fewer_cells = replace(experiment, arms=fewer, reference="", **short)
    readings = spread_out(fewer_cells, tmp_path, dataset="glyphs", recipe=recipe)
    runs = cells(readings)
    chosen = [next(reading.run for reading in readings if reading.arm == arm) for arm in owners]
    some = chosen if len(owners) == 2 else runs[:2]
    assert [end.error for end in schedule.in_turn(some, lambda run: lambda session: None)] == ["", ""]
    files = folder.write_results(fewer_cells, readings, tmp_path)
    assert {file.name for file in files} == RESULTS
    assert all((tmp_path / name).stat().st_size for name in RESULTS)
    assert folder.unfinished(runs) == [run for run in runs if run not in some]
    lines = (tmp_path / "differences.csv").read_text().splitlines()
    assert len(lines) == 1 + len({(r.arm.name, str(r.point)) for r in readings if r.run in some})


def test_every_arm_of_the_trial_runs_on_a_map_and_shares_what_f1_sees(tmp_path: Path) -> None:
    experiment = specs.load("trial")
    short: dict[str, object] = {**BRIEF, **OF_METHOD["kt_rcnet"], "transfer.epochs": 1, "held_out": 5}
    del short["views"]
    readings = spread_out(experiment, tmp_path, dataset="glyphs", changes=short)
    chosen = only(readings, ["length=short", "read_out=paper"])
    assert len(chosen) == 11
    ends = list(schedule.in_turn(cells(chosen), lambda run: lambda session: None))
    assert [end.error for end in ends] == [""] * 11
    assert all(run.keeps_features and not list(run.folder.glob("state-*")) for run in cells(chosen))
    folder.write_results(experiment, readings, tmp_path)
    table = (tmp_path / "differences.md").read_text()
    assert "| RESA-R, read_out paper, length short | tied, read_out paper, length short | 1 |" in table


def trial_cells(tmp_path: Path, dataset: str, **rest: object) -> dict[str, RunSpec]:
    readings = spread_out(specs.load("trial"), tmp_path, dataset=dataset, **rest)
    return {reading.arm.name: reading.run for reading in only(readings, ["length=short", "read_out=small"])}


@pytest.mark.parametrize(
    ("dataset", "changes", "images"),
    [("cub200", {}, 250_000), ("cifar100", {}, 243_200), ("cub200", {"trains": "encoder"}, 68_800)],
)
def test_the_arms_of_the_trial_show_f2_the_same_number_of_images(
    dataset: str, changes: dict[str, object], images: int, tmp_path: Path
) -> None:
    configs = [run.config for run in trial_cells(tmp_path, dataset, changes=changes).values()]
    trained = {c.transfer.epochs * c.tasks * c.images_of_a_step for c in configs if c.complement != "tied"}
    assert trained == {images}


def test_the_command_has_the_last_word_on_what_is_trained_and_the_seed_names_a_folder(tmp_path: Path) -> None:
    changes = {"trains": "map", "weights": "runs/seed{seed}"}
    runs = trial_cells(tmp_path, "cifar100", changes=changes)
    assert {run.config.trains for run in runs.values()} == {"map"}
    assert runs["RESA-R"].config.weights == "runs/seed0"


def test_the_plan_counts_features_that_cells_share_once(tmp_path: Path) -> None:
    changes = {**BRIEF, **OF_METHOD["kt_rcnet"], "held_out": 5}
    runs = cells(spread_out(specs.load("trial"), tmp_path, dataset="glyphs", changes=changes))
    first, second, *_ = budget.costs(runs[:3])
    assert (first.takes(budget.REST), second.takes(budget.REST)) == (False, True)
    assert first.macs > second.macs == second.macs_of(budget.LATER) > 0  # the few images of new classes
    encoders = cells(spread_out(specs.load("strategies"), tmp_path, dataset="glyphs", changes=changes))
    assert not any(cost.takes(budget.REST) for cost in budget.costs(encoders[:2]))
