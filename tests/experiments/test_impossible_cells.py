"""A cell that cannot be run is listed with its reason, and stops none of the others."""

import re
from pathlib import Path

import pytest

from apart import always_tiny  # noqa: F401 (fixture)
from commands import Fscil
from fscil.errors import FscilError
from fscil.experiments import budget, schedule, specs
from fscil.experiments.cells import cells, only
from fscil.running.experiment import RunSpec
from small_experiments import BRIEF, OF_METHOD, small, spread_out

TINY = {**BRIEF, **OF_METHOD["kt_rcnet"], "held_out": 5}
MIXED = """
dataset = "glyphs"
method = "cosine"
recipe = "paper"
[settings]
encoder = "tiny"
pixels = 16
views = "one"
base.epochs = 1
base.batch = 30
augment.crop = "pad"
augment.padding = 1
[arms.impossible]
held_out = 30
[arms.possible]
held_out = 0
[arms.another]
held_out = 3
"""
REASON = "too few to keep 30 of them from training"  # a tiny class has 30 images


def asked(fscil_command: Fscil, *tokens: object, text: str = MIXED):
    Path("mine.toml").write_text(text)
    return fscil_command("experiment", "mine.toml", "--precision", "float32", *tokens)


@pytest.mark.parametrize("where", [{"recipe": "paper"}, {"recipe": "compare"}, {"dataset": "folder"}])
def test_the_trial_without_whitening_has_all_cells(where: dict[str, str], tmp_path: Path) -> None:
    readings = spread_out(specs.load("trial"), tmp_path, **{"dataset": "cifar100", **where})
    unwhitened = {r.point["read_out"] for r in readings if r.run.config.whiten_first and r.run.config.shrinkage == 1}
    assert unwhitened == {"whitened_first"}


def test_without_whitening_only_what_is_whitened_first_fails(tmp_path: Path) -> None:
    experiment = small(specs.load("trial"))
    readings = spread_out(experiment, tmp_path, dataset="glyphs", changes={**TINY, "shrinkage": 1.0})
    runs = cells(only(readings, ["arm=tied", "length=short"]))
    ends = {end.run.variant: end.error for end in schedule.in_turn(runs, lambda run: lambda session: None)}
    planned = {cost.run.variant: cost.error for cost in budget.costs(runs)}
    assert ends == planned
    assert [name for name, error in ends.items() if error] == ["tied_read_outwhitened_first_lengthshort"]
    assert "whiten_first whitens by --shrinkage, which is 1 (none)" in "".join(ends.values())


def test_a_plan_lists_a_cell_that_cannot_be_run_with_its_reason(fscil_command: Fscil) -> None:
    outcome = asked(fscil_command, "--plan")
    assert outcome.code == 0, outcome.err
    assert [line.split(",")[0] for line in outcome.out.splitlines() if "to do " in line and "seed" in line] == [
        "cosine-paper-possible",
        "cosine-paper-another",
    ]
    assert re.search(rf"cannot be run: cosine-paper-impossible, seed 0 \(.*{REASON}", outcome.out)
    assert "in all  2 cells, " in outcome.out


def test_a_budget_leaves_out_what_cannot_be_run_and_runs_the_rest(fscil_command: Fscil) -> None:
    outcome = asked(fscil_command, "--budget", 1)
    assert outcome.code == 0, outcome.err
    assert re.search(rf"left out, cannot be run: cosine-paper-impossible, seed 0 \(.*{REASON}", outcome.out)
    assert "2 cells, 0 of them finished before" in outcome.out
    again = asked(fscil_command, "--plan")  # nothing else is left to do
    assert again.code == 0, again.err
    assert "to do   0 cells" in again.out
    assert "2 cells, 2 of them finished before" in asked(fscil_command, "--budget", 1).out


def test_a_failure_within_a_budget_tells_what_was_left_out(
    fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(run: RunSpec, tell: object) -> None:
        raise FscilError("no memory")

    monkeypatch.setattr(schedule, "execute", execute)
    wishes = ("--only", "arm=possible,another")
    everything = asked(fscil_command, *wishes).err
    assert "2 of 2 cells failed, such as cosine-paper-possible, seed 0 (no memory); " in everything
    assert "; the others are finished; run the same command again to try only those that failed" in everything
    monkeypatch.setattr(budget, "fitting", lambda costs, macs: [costs[0].run])
    outcome = asked(fscil_command, *wishes, "--seeds", 2, "--budget", 1)
    assert "1 of 1 cells failed, such as cosine-paper-possible, seed 0 (no memory); " in outcome.err
    assert "; the others are finished; 3 more were left out; run the same command again to go on" in outcome.err


def test_where_no_cell_can_be_run_the_reason_is_told_once(fscil_command: Fscil) -> None:
    for question in (["--plan"], ["--budget", 1]):
        outcome = asked(fscil_command, *question, "--only", "arm=impossible", "--seeds", 2)
        assert outcome.code == 2
        assert outcome.err.count(REASON) == 1
        assert not Path("runs").exists()


def test_a_second_net_is_left_out_of_a_trial_that_trains_no_base(tmp_path: Path) -> None:
    def arms(wishes: list[str], **changes: object) -> set[str]:
        return {r.arm.name for r in only(spread_out(specs.load("trial"), tmp_path, changes=changes), wishes)}

    given = {"weights": "net.safetensors", "base.epochs": 0}
    assert "own" in arms([])
    assert arms([]) - arms([], **given) == {"own"}
    assert arms(["arm=own"], **given) == {"own"}
