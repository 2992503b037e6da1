"""`fscil experiment`: cells are run once, failures stop nothing, and the folder compares what is finished."""

import csv
import json
import re
import signal
from pathlib import Path

import pytest

from apart import (
    STEPS,
    Fate,
    always_tiny,  # noqa: F401 (fixture)
)
from commands import Fscil
from drivers import exit_of
from fscil.errors import FscilError
from fscil.experiments import budget
from fscil.running.experiment import RunSpec

SETTINGS = """
[settings]
encoder = "tiny"
pixels = 16
views = "one"
held_out = 0
base.epochs = 1
base.batch = 30
base.pixels = []
augment.crop = "pad"
augment.padding = 1
"""
BONUSES = f"""
title = "Bonus of new classes"
dataset = "glyphs"
method = "cosine"
recipe = "paper"
seeds = 2
{SETTINGS}
[arms.none]
new_bonus = 0.0
[arms.some]
new_bonus = 0.3
"""


def experiment(fscil_command: Fscil, text: str, *tokens: object, name: str = "mine"):
    Path(f"{name}.toml").write_text(text)
    return fscil_command("experiment", f"{name}.toml", "--precision", "float32", *tokens)


def lines(out: Path) -> list[dict[str, str]]:
    with (out / "differences.csv").open() as file:
        return list(csv.DictReader(file))


def runs_in(out: Path) -> dict[str, int]:
    """When each session of each cell was written, to see what was repeated."""
    return {str(file): file.stat().st_mtime_ns for file in out.rglob("session-*.json")}


def test_a_finished_experiment_is_kept_and_more_seeds_are_added(fscil_command: Fscil) -> None:
    out = Path("runs/mine-glyphs")
    first = experiment(fscil_command, BONUSES)
    assert first.code == 0, first.err
    assert "4 cells, 0 of them finished before" in first.out
    before = runs_in(out)
    again = experiment(fscil_command, BONUSES, "--seeds", 3)
    assert "6 cells, 4 of them finished before" in again.out
    assert {file: runs_in(out)[file] for file in before} == before
    none, some = lines(out)
    assert (none["name"], none["n"], none["reference"]) == ("none", "3", "")
    assert (some["name"], some["n"], some["reference"], some["pairs"]) == ("some", "3", "none", "3")
    gap = float(some["Avg mean"]) - float(none["Avg mean"])
    assert float(some["Avg difference"]) == pytest.approx(gap, abs=2e-4)
    assert float(some["Avg low"]) <= gap <= float(some["Avg high"])
    assert "| some | none | 3 |" in (out / "differences.md").read_text()
    assert len(list((out / "cache").glob("base-*.safetensors"))) == 3  # both arms share the base of a seed


def test_a_failed_cell_is_listed_and_stops_nothing(fscil_command: Fscil) -> None:
    text = BONUSES.replace("new_bonus = 0.0", "views = 'flip'\nheld_out = 30")  # a tiny class has 30 images
    outcome = experiment(fscil_command, text, "--seeds", 1)
    assert outcome.code == 2
    assert "1 of 2: cosine-paper-none, seed 0 failed: " in outcome.out
    assert "too few to keep 30 of them from training" in outcome.out
    assert "1 of 2 cells failed, such as cosine-paper-none, seed 0 (" in outcome.err
    assert [line["name"] for line in lines(Path("runs/mine-glyphs"))] == ["some"]


def test_a_killed_experiment_keeps_finished_cells_and_the_same_command_does_the_rest(
    fscil_command: Fscil, tmp_path: Path
) -> None:
    """A seed takes six steps, and its second arm takes over the base of its first: step nine is in the third cell."""
    out = Path("runs/mine-glyphs")
    tokens = ["experiment", "mine.toml", "--precision", "float32"]
    Path("mine.toml").write_text(BONUSES)
    assert exit_of(tmp_path, tokens, Fate(STEPS, 9)) == -signal.SIGKILL
    before = runs_in(out)
    assert len(before) == 4 * 2
    assert not (out / "report.html").exists()
    again = fscil_command(*tokens)
    assert again.code == 0, again.err
    assert "4 cells, 2 of them finished before" in again.out
    assert {file: runs_in(out)[file] for file in before} == before
    assert len(runs_in(out)) == 4 * 4
    assert [(line["name"], line["n"]) for line in lines(out)] == [("none", "2"), ("some", "2")]


def test_parts_fill_one_folder(fscil_command: Fscil) -> None:
    assert "1 cells" in experiment(fscil_command, BONUSES, "--seeds", 1, "--part", "2/2", "--out", "shared").out
    assert [line["name"] for line in lines(Path("shared"))] == ["some"]
    experiment(fscil_command, BONUSES, "--seeds", 1, "--part", "1/2", "--out", "shared")
    assert [line["name"] for line in lines(Path("shared"))] == ["none", "some"]


def test_the_folder_of_another_experiment_is_refused_and_left_as_it_is(fscil_command: Fscil) -> None:
    experiment(fscil_command, BONUSES, "--seeds", 1, "--out", "there")
    before = runs_in(Path("there"))
    others = {
        "another name": ("other", BONUSES),
        "other settings": ("mine", BONUSES.replace("base.epochs = 1", "base.epochs = 2")),
        "another data set": ("mine", BONUSES.replace('"glyphs"', '"cifar100"')),
    }
    for name, text in others.values():
        outcome = experiment(fscil_command, text, "--out", "there", name=name)
        assert outcome.code == 2
        assert "there holds another experiment (" in outcome.err
        assert "choose another --out" in outcome.err
    assert runs_in(Path("there")) == before


def test_cells_of_another_precision_are_refused_and_none_is_run(fscil_command: Fscil) -> None:
    experiment(fscil_command, BONUSES, "--seeds", 1)
    before = runs_in(Path("runs/mine-glyphs"))
    outcome = fscil_command("experiment", "mine.toml", "--precision", "bfloat16", "--seeds", 2)
    assert outcome.code == 2
    assert "mine-glyphs began in float32, and cells are compared in one precision" in outcome.err
    assert "take --precision float32, or choose another --out" in outcome.err
    assert runs_in(Path("runs/mine-glyphs")) == before
    assert fscil_command("experiment", "mine.toml", "--seeds", 1).code == 0  # auto: the one with which it began


def test_cells_of_other_images_are_refused_and_left_as_they_are(
    fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert experiment(fscil_command, BONUSES, "--seeds", 1).code == 0
    before = runs_in(Path("runs/mine-glyphs"))
    with monkeypatch.context() as patch:
        patch.setattr("fscil.data.sessions.Benchmark.fingerprint", lambda _: "of other images")
        outcome = experiment(fscil_command, BONUSES, "--root", "elsewhere")
        assert outcome.code == 2
        assert "was measured on other images than elsewhere holds now: choose another --out" in outcome.err
    with monkeypatch.context() as patch:
        patch.setattr("fscil.running.experiment.benchmark", gone)
        assert experiment(fscil_command, BONUSES, "--seeds", 1).code == 0  # what is finished can be told without data
    assert runs_in(Path("runs/mine-glyphs")) == before


def gone(*_: object) -> None:
    raise FscilError("the data are gone")


def test_an_arm_that_was_changed_is_refused_as_a_cell_and_not_reported(fscil_command: Fscil) -> None:
    experiment(fscil_command, BONUSES, "--seeds", 1)
    outcome = experiment(fscil_command, BONUSES.replace("0.3", "0.4"), "--seeds", 1)
    assert "cosine-paper-some, seed 0 failed" in outcome.out
    assert "holds a run with other settings (settings.new_bonus: 0.3 there, 0.4 here)" in outcome.out
    assert [line["name"] for line in lines(Path("runs/mine-glyphs"))] == ["none"]


def test_a_branch_that_a_method_does_not_have_is_named(fscil_command: Fscil) -> None:
    text = BONUSES + '[arms.half]\nof = "none"\nbranch = "C"\n'
    outcome = experiment(fscil_command, text, "--seeds", 1)
    assert "arm 'half' reads branch 'C', but cosine has these branches: none" in outcome.err


def test_the_plan_counts_a_shared_base_once_and_runs_nothing(fscil_command: Fscil) -> None:
    outcome = experiment(fscil_command, BONUSES, "--plan")
    assert outcome.code == 0, outcome.err
    cells = [line for line in outcome.out.splitlines() if line.startswith("cosine-paper")]
    assert [("shared" in line, "to do" in line) for line in cells] == [(False, True), (True, True)] * 2
    assert "in all  4 cells, " in outcome.out
    assert not Path("runs").exists()


TWO_METHODS = f"""
dataset = "glyphs"
recipe = "paper"
{SETTINGS}
[arms.cosine]
method = "cosine"
[arms."two nets"]
method = "cosine"
nets = 2
[arms.joint]
method = "joint"
new.epochs = 1
[arms.finetune]
method = "finetune"
"""


def test_a_base_that_methods_share_counts_once(fscil_command: Fscil) -> None:
    outcome = experiment(fscil_command, TWO_METHODS, "--plan")
    assert outcome.code == 0, outcome.err
    cells = {line.split(",")[0]: line for line in outcome.out.splitlines() if ", seed 0" in line}
    shared = {name: line.count("shared") for name, line in cells.items()}
    assert shared == {"cosine-paper": 0, "cosine-paper-two_nets": 0, "joint-paper": 1, "finetune-paper": 0}
    assert "All sessions; what cells share counts once" in outcome.out


def test_without_a_name_the_experiments_are_listed(fscil_command: Fscil) -> None:
    outcome = fscil_command("experiment")
    assert outcome.code == 0
    assert "Table 5" in outcome.out


def test_a_budget_leaves_out_what_does_not_fit_and_says_so(fscil_command: Fscil) -> None:
    planned = experiment(fscil_command, BONUSES, "--plan").out
    everything = float(re.search(r"in all .* ([0-9.]+) PMAC", planned)[1])
    outcome = experiment(fscil_command, BONUSES, "--budget", 0)
    assert outcome.out.count("left out, beyond the budget of 0 PMAC: ") == 4
    assert experiment(fscil_command, BONUSES, "--budget", everything + 1).out.count("left out") == 0


def test_a_budget_does_not_pay_for_what_other_cells_have_left(
    fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert experiment(fscil_command, BONUSES, "--seeds", 1, "--only", "arm=none").code == 0
    paid: list[list[str]] = []
    plain = budget.Planner.costs

    def costs(planner: budget.Planner, runs: list[RunSpec], finished: list[RunSpec] = ()) -> list[budget.Cost]:
        paid.append([run.variant for run in finished])
        return plain(planner, runs, finished)

    monkeypatch.setattr(budget.Planner, "costs", costs)
    for question in (["--plan"], ["--budget", 0]):
        experiment(fscil_command, BONUSES, "--seeds", 1, "--only", "arm=some", *question)
        assert paid[-1] == ["none"]


def test_seeds_can_be_chosen(fscil_command: Fscil) -> None:
    planned = experiment(fscil_command, BONUSES, "--seeds", 2, "--only", "seed=1", "--plan").out
    assert planned.count("seed 1") == 2
    assert "seed 0" not in planned
    assert "seed is never '2' here" in experiment(fscil_command, BONUSES, "--seeds", 2, "--only", "seed=2").err


def test_settings_of_the_command_reach_every_cell_and_belong_to_the_folder(fscil_command: Fscil) -> None:
    outcome = experiment(fscil_command, BONUSES, "--seeds", 1, "--set", "held_out=3", "--only", "arm=some")
    assert outcome.code == 0, outcome.err
    facts = json.loads(Path("runs/mine-glyphs/glyphs/cosine-paper-some/seed0/run.json").read_text())
    assert facts["settings"]["held_out"] == 3
    assert not Path("runs/mine-glyphs/glyphs/cosine-paper-none").exists()
    assert "settings.held_out: 3 there" in experiment(fscil_command, BONUSES, "--seeds", 1).err
