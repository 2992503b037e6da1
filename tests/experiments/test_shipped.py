"""Every shipped experiment expands to the cells of its table or figure, and runs on the tiny benchmark."""

import re
from dataclasses import replace
from pathlib import Path
from shutil import copy

import pytest
import torch

from apart import always_tiny  # noqa: F401 (fixture)
from fscil import methods
from fscil.data.images import TensorImages
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.experiments import budget, folder, schedule, specs
from fscil.experiments.cells import cells, only
from fscil.experiments.differences import published_row
from fscil.methods.shared.base import DECIDED_BY
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.report.published import published
from fscil.running.experiment import RunSpec, trained
from small_experiments import BRIEF, OF_METHOD, small, spread_out

# readings and cells with one seed
SIZES = {
    "ablation": (8, 4),
    "compare": (18, 18),
    "draws": (30, 30),
    "lambdas": (25, 25),
    "later_orders": (30, 30),
    "main": (4, 4),
    "orders": (10, 10),
    "shots": (12, 12),
    "strategies": (10, 10),
    "trial": (66, 66),
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
    readings = only(spread_out(specs.load(name), tmp_path), ())
    assert (len(readings), len(cells(readings))) == SIZES[name]
    assert len(only(spread_out(specs.load(name), tmp_path, seeds=2), ())) == 2 * len(readings)


@pytest.mark.parametrize("name", SIZES)
def test_published_rows_named_by_an_arm_exist(name: str) -> None:
    experiment = specs.load(name)
    tables = published(experiment.dataset)
    assert tables
    rows = (*tables.rows, *tables.study_rows)
    named = {arm.published for arm in experiment.arms if arm.published and arm.published != arm.method}
    assert named <= {row.name for row in rows}


@pytest.mark.parametrize("name", ["shots", "draws", "orders", "later_orders"])
def test_the_published_row_stands_beside_five_shots(name: str, tmp_path: Path) -> None:
    readings = only(spread_out(specs.load(name), tmp_path), ["arm=kt_rcnet"])
    beside = [r for r in readings if published_row(r)]
    assert beside == [r for r in readings if r.run.protocol.shots in (None, 5)] != []


@pytest.mark.parametrize("name", SIZES)
def test_what_it_shows_reads_as_a_part_of_the_paper(name: str) -> None:
    assert re.fullmatch(r"|(Tables?|Figure) [1-5]( to [1-5]| \([a-c]\)( and \([a-c]\))?)?", specs.load(name).shows)


@pytest.mark.parametrize("name", SIZES)
def test_an_experiment_runs_tiny(name: str, tmp_path: Path) -> None:
    """The first cell of the first two arms, or two cells of an only arm."""
    experiment = small(specs.load(name))
    owners = [arm for arm in experiment.arms if not arm.of][:2]
    fewer = tuple(arm for arm in experiment.arms if arm in owners or arm.of in {owner.name for owner in owners})
    short = {"repeats": {key: values[:1] for key, values in experiment.repeats.items()}}
    fewer_cells = replace(experiment, arms=fewer, reference="", **short)
    readings = spread_out(fewer_cells, tmp_path, dataset="glyphs")
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


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "mini_imagenet", "glyphs"])
def test_class_means_on_the_linear_base_have_the_base_of_icarl(dataset: str, tmp_path: Path) -> None:
    runs = {r.arm.name: r.run for r in spread_out(specs.load("compare"), tmp_path, dataset=dataset)}
    means, icarl = runs["class means on the linear base"].config, runs["icarl"].config
    of_the_base = (*DECIDED_BY, "feature_length")
    assert {name: getattr(means, name) for name in of_the_base} == {name: getattr(icarl, name) for name in of_the_base}
    assert (means.head, icarl.base_loss) == ("linear", "cross-entropy")


def test_more_shots_than_a_class_has_are_left_out(tmp_path: Path) -> None:
    def shots(dataset: str) -> set[object]:
        return {r.point["shots"] for r in only(spread_out(specs.load("shots"), tmp_path, dataset=dataset), ())}

    assert shots("cub200") == {1, 5, 10, 20}
    assert shots("cifar100") == {1, 5, 10, 20, 50, 100}


@pytest.mark.parametrize("name", ["draws", "later_orders"])
def test_other_shots_and_later_orders_take_over_the_base_session(name: str, tmp_path: Path) -> None:
    readings = only(spread_out(specs.load(name), tmp_path), ())
    assert {reading.arm.name for reading in readings} == {"cosine", "cosine, two nets", "kt_rcnet"}
    assert all(run.shares_base and run.keeps_features for run in cells(readings))
    given = spread_out(specs.load(name), tmp_path, changes={"weights": "net.safetensors", "base.epochs": 0})
    assert {reading.arm.name for reading in only(given, ())} == {"cosine", "kt_rcnet"}  # no second net without training


def test_a_second_net_is_left_out_where_nothing_is_trained(tmp_path: Path) -> None:
    given = spread_out(specs.load("main"), tmp_path, changes={"weights": "net.safetensors", "base.epochs": 0})
    assert "cosine, two nets" not in {reading.arm.name for reading in only(given, ())}
    assert "cosine, two nets" in {reading.arm.name for reading in only(spread_out(specs.load("main"), tmp_path), ())}


def test_the_ablation_has_a_control_with_as_many_images(tmp_path: Path) -> None:
    configs = {r.arm.name: r.run.config for r in spread_out(specs.load("ablation"), tmp_path)}
    assert configs["B+C"].conventional.batches == "passes"
    assert configs["B+C, as many images"].conventional.batches == "tasks"
    assert configs["B+C, tied"].complement == "tied"
    sizes = {name: (c.transfer.epochs, c.tasks, c.images_of_a_step) for name, c in configs.items()}
    assert sizes["B+C, as many images"] == sizes["B+C+RESA"]


def test_a_base_of_another_folder_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/experiments.md tells: its files are copied to the cache of the new folder."""
    experiment = small(specs.load("main"))

    def errors(out: Path) -> list[str]:
        readings = spread_out(experiment, out, dataset="glyphs")
        chosen = [reading.run for reading in readings if reading.arm.name == "cosine"]
        return [end.error for end in schedule.in_turn(chosen, lambda run: lambda session: None)]

    assert errors(tmp_path / "first") == [""]
    bases = list((tmp_path / "first" / "cache").glob("base*.safetensors"))
    assert len(bases) == 1
    (tmp_path / "second" / "cache").mkdir(parents=True)
    copy(bases[0], tmp_path / "second" / "cache")

    def refuse(*_: object) -> None:
        raise FscilError("a base was trained")

    monkeypatch.setattr("fscil.methods.shared.base.train_classifier", refuse)
    assert errors(tmp_path / "second") == [""]
    assert errors(tmp_path / "third") == ["a base was trained"]


def test_lengths_of_resa_are_those_of_the_trial(tmp_path: Path) -> None:
    """The same losses and steps; only how many of them there are differs."""
    readings = only(spread_out(specs.load("trial_length"), tmp_path), ["arm=RESA-R", "read_out=small"])
    lengths = [reading.run.config for reading in readings]
    trial = trial_cells(tmp_path, "cifar100")["RESA-R"].config
    for c in lengths:
        same = replace(c, tasks=trial.tasks, stop_after=0, row_images=trial.row_images)
        assert replace(same, transfer=replace(c.transfer, epochs=trial.transfer.epochs)) == trial


def trial_cells(tmp_path: Path, dataset: str, **rest: object) -> dict[str, RunSpec]:
    readings = spread_out(specs.load("trial"), tmp_path, dataset=dataset, **rest)
    return {reading.arm.name: reading.run for reading in only(readings, ["length=short", "read_out=small"])}


def test_the_arms_of_the_trial_show_a_map_the_same_number_of_images(tmp_path: Path) -> None:
    configs = [run.config for run in trial_cells(tmp_path, "cub200").values()]
    trained = {c.transfer.epochs * c.tasks * c.images_of_a_step for c in configs if c.complement != "tied"}
    assert trained == {250_000}


def planned_macs(run: RunSpec, encoder: Encoder, base: Session, without: frozenset[str] = frozenset()) -> int:
    """Multiply-adds of the stages of a cell's base session, but for some."""
    stages = methods.load(run.method).Method(run.config, encoder).plan(base)
    return sum((3 * s.trained + s.encoded) * encoder.macs(s.pixels) for s in stages if s.stage not in without)


@pytest.mark.parametrize(
    ("dataset", "encoder", "classes", "images", "pmac"),
    [("cifar100", "fast", 60, 480, 0.0967), ("cub200", "resnet18", 100, 26, 0.1003)],
)
def test_the_arms_of_the_trial_give_an_encoder_the_same_compute(
    dataset: str, encoder: str, classes: int, images: int, pmac: float, tmp_path: Path
) -> None:
    labels = torch.arange(classes).repeat_interleave(images)
    dots = TensorImages(torch.zeros(len(labels), 3, 1, 1, dtype=torch.uint8), labels)
    base = Session(index=0, classes=tuple(range(classes)), train=dots, held_out=dots, mean=(), std=(), flips=True)
    every = ",".join(arm.name for arm in specs.load("trial").arms if (arm.name, dataset) != ("own", "cub200"))
    readings = spread_out(specs.load("trial"), tmp_path, dataset=dataset, changes={"trains": "encoder"})
    runs = {r.arm.name: r.run for r in only(readings, [f"arm={every}", "length=short", "read_out=paper"])}
    net = encoders.build(encoder, runs["tied"].config.pixels)
    of_all = frozenset(s.stage for s in methods.load("kt_rcnet").Method(runs["tied"].config, net).plan(base))
    spent = {arm: planned_macs(run, net, base, of_all) / 1e15 for arm, run in runs.items()}
    assert spent.pop("tied") == 0
    assert spent.pop("rate-0") < 0.05 * pmac * (1 if dataset == "cifar100" else 4)
    assert {arm: pytest.approx(pmac, rel=0.01) for arm in spent} == spent
    assert len(spent) == (10 if dataset == "cifar100" else 9)


def test_the_trial_of_encoders_is_short_and_has_few_arms_unless_others_are_named(tmp_path: Path) -> None:
    everything = spread_out(specs.load("trial"), tmp_path, seeds=3, dataset="cifar100")
    readings = only(everything, ())
    assert {reading.arm.name for reading in readings} == {"tied", "conventional", "rotation", "own", "RESA-R", "rate-0"}
    assert {(r.point["read_out"], r.point["length"]) for r in readings} == {("paper", "short"), ("small", "short")}
    assert {run.config.trains for run in cells(readings)} == {"encoder"}
    assert len(cells(readings)) == 3 * (5 * 2 + 1)  # the diagnostic is read out once
    assert {r.arm.name for r in only(everything, ["arm=tied,PIL"])} == {"tied", "PIL"}
    assert {r.point["length"] for r in only(everything, ["arm=tied,PIL"])} == {"short"}
    assert len(only(everything, ["arm=PIL", "length=paper"])) == 3 * 2


@pytest.mark.parametrize("dataset", ["cifar100", "cub200"])
def test_the_last_stage_is_trained_as_a_whole_encoder_is(dataset: str, tmp_path: Path) -> None:
    whole, last = (
        only(spread_out(specs.load("trial"), tmp_path, dataset=dataset, changes={"trains": trains}), ())
        for trains in ("encoder", "last_stage")
    )
    assert [(r.arm.name, r.point, replace(r.run.config, trains="encoder")) for r in last] == [
        (r.arm.name, r.point, r.run.config) for r in whole
    ]


def test_at_rate_0_only_the_statistics_of_batch_norm_change(tmp_path: Path) -> None:
    changes = {**BRIEF, **OF_METHOD["kt_rcnet"], "held_out": 5, "trains": "encoder", "task_pixels": 0}
    del changes["transfer.epochs"], changes["views"]
    readings = spread_out(specs.load("trial"), tmp_path, dataset="glyphs", changes=changes)
    (cell,) = cells(only(readings, ["arm=rate-0", "read_out=paper"]))
    c = cell.config
    assert (c.transfer.lr, c.transfer.rest_lr, c.transfer.epochs, c.statistics) == (0, 0, 1, "trained")
    _, method = trained(cell)
    f1, f2 = method.f1.state_dict(), method.f2.state_dict()
    changed = {name for name, value in f2.items() if not torch.equal(value, f1[name])}
    assert changed == {name for name in f1 if "running" in name or "num_batches" in name}


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


def test_the_plan_counts_what_read_outs_and_lengths_share_once(tmp_path: Path) -> None:
    readings = spread_out(specs.load("trial_length"), tmp_path)
    runs = cells(only(readings, ["arm=RESA-R"]))
    assert [run.config.stop_after for run in runs] == [2, 2, 4, 4, 8, 8, 12, 12]
    made: dict[str, int] = {}

    def stage(name: str, macs: int, made_by: str = "") -> dict[str, object]:
        passes = {"pixels": 32, "batch": 500, "trained": 0, "encoded": macs}
        return {"stage": name, "macs": macs, "seconds": macs, "made_by": made_by, **passes}

    told = [
        budget.cost(
            run,
            {
                "stages": [
                    stage("base at 32 px", 100),
                    stage("RESA", 10 * run.config.stop_after, "RESA"),
                    stage("prototypes of B", 1 + 5 * (run.config.views != "one"), "f1"),
                    stage("prototypes of C", 1),
                ],
                "later": [],
                "bases": {"base": "of this digest"},
                "memory_bytes": 0,
            },
            made,
        )
        for run in runs
    ]
    assert [cost.takes(budget.BASE) for cost in told] == [False, *[True] * 7]
    assert [cost.macs for cost in told] == [pytest.approx(x) for x in (122, 6, 21, 1, 41, 1, 41, 1)]


def test_a_second_net_of_its_own_comes_on_top_of_a_shared_base(tmp_path: Path) -> None:
    changes = {**BRIEF, **OF_METHOD["kt_rcnet"], "held_out": 5, "trains": "encoder"}
    readings = spread_out(specs.load("trial"), tmp_path, dataset="glyphs", changes=changes)
    tied, own = budget.costs(cells(only(readings, ["arm=tied,own", "read_out=paper", "length=short"])))
    assert [part.left for part in own.parts if part.kind == budget.BASE] == [0, 0, 1, 1]  # in two sizes each
    assert own.macs_of(budget.BASE) == tied.macs_of(budget.BASE) > 0
