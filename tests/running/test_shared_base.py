"""A base that several runs share is trained once, also when they start together or draw other shots."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

import fscil.running.experiment
from apart import (  # noqa: F401 (a fixture)
    FINISHED,
    STEPS,
    Fate,
    always_tiny,
    differing,
    on_tiny_images,
    results,
    start,
    tiny_experiment,
)
from fscil.data import Protocol
from fscil.running import training
from fscil.running.experiment import execute
from fscil.running.stages import Loop


def base_seconds(folder: Path) -> float:
    """Seconds of the base; a run that takes a base over takes its seconds over too, to the last digit."""
    stages = json.loads((folder / "session-00.json").read_text())["stages"]
    return next(stage["seconds"] for stage in stages if stage["name"] == "base")


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_second_of_two_runs_waits_for_the_base_and_takes_it(tmp_path: Path) -> None:
    first, second = (tiny_experiment(tmp_path, method) for method in ("cosine", "kt_rcnet"))
    one, news_of_one = start(first, Fate(STEPS, 3, signal.SIGSTOP))  # in the middle of the base
    assert one.pid
    wait_for(lambda: Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    other, news_of_other = start(second)
    try:
        wait_for(lambda: (second.folder / "run.json").exists())
        assert not news_of_other.poll(1)
    finally:
        os.kill(one.pid, signal.SIGCONT)
    assert (news_of_one.recv(), news_of_other.recv()) == (FINISHED, FINISHED)
    one.join()
    other.join()
    assert base_seconds(first.folder) == base_seconds(second.folder)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1


def test_other_shots_and_another_draw_share_the_base_but_another_order_does_not(tmp_path: Path) -> None:
    protocols = {
        "plain": Protocol(),
        "shots": Protocol(shots=2),
        "draw": Protocol(shots_seed=7),
        "later order": Protocol(later_order_seed=3),
        "order": Protocol(order_seed=1),
    }
    folders = {
        name: execute(tiny_experiment(tmp_path, "cosine", protocol=protocol, variant=name))
        for name, protocol in protocols.items()
    }
    seconds = {name: base_seconds(folder) for name, folder in folders.items()}
    assert seconds["plain"] == seconds["shots"] == seconds["draw"] == seconds["later order"] != seconds["order"]
    assert {folder.parent.name for folder in folders.values()} == {f"cosine-paper-{name}" for name in protocols}


def test_other_shots_take_over_the_whole_base_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Protocol(shots_seed=5)
    plain = execute(tiny_experiment(tmp_path / "alone", protocol=other, keeps_states=False))
    assert not list(plain.glob("state-*"))
    execute(tiny_experiment(tmp_path, variant="first", shares_base=True))
    steps: list[object] = []
    monkeypatch.setattr(Loop, "after", lambda *given: steps.append(given))
    shared = execute(tiny_experiment(tmp_path, variant="second", protocol=other, shares_base=True, keeps_states=False))
    assert steps == []
    assert differing(without_stages(shared), without_stages(plain)) == []
    monkeypatch.undo()
    with on_tiny_images():
        execute(tiny_experiment(tmp_path, changes={"way": 3}, variant="third", shares_base=True))
    assert len(list((tmp_path / "cache").glob("base session-*.safetensors"))) == 2  # other settings, another session


def without_stages(folder: Path) -> dict[str, object]:
    """Predictions and compute; a base session that is shared lists what it did between the stages as one more."""
    content = results(folder)
    return {name: {**value, "stages": []} if isinstance(value, dict) else value for name, value in content.items()}


@pytest.mark.parametrize("trains", ["encoder", "map"])
def test_another_read_out_takes_over_a_trained_f2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trains: str) -> None:
    alone = {"base_relation": 0.0, "trains": trains}  # with r1, W1 and so f2 depend on how B reads
    read_out = {**alone, "views": "flip", "shrinkage": 0.5, "new_bonus": 0.1, "complement_weight": 0.5}
    plain = execute(tiny_experiment(tmp_path / "alone", changes=read_out))
    execute(tiny_experiment(tmp_path, changes=alone, variant="first", keeps_trained=True))
    steps: list[object] = []
    monkeypatch.setattr(Loop, "after", lambda *given: steps.append(given))
    shared = execute(tiny_experiment(tmp_path, changes=read_out, variant="second", keeps_trained=True))
    assert steps == []
    assert differing(without_stages(shared), without_stages(plain)) == []
    monkeypatch.undo()
    with on_tiny_images():
        others = {
            "weight": {**alone, "local_weight": 2.0},
            "W1": {},
            "W1 of unit length": {"views": "flip"},
        }  # encoders
        for name, changes in others.items():
            execute(tiny_experiment(tmp_path, changes=changes, variant=name, keeps_trained=True))
    assert len(list((tmp_path / "cache").glob("f2-*.safetensors"))) == 4


@pytest.mark.parametrize(
    ("complement", "trains"),
    [("resa", "encoder"), ("conventional", "encoder"), ("rotation", "encoder"), ("resa", "map")],
)
def test_an_f2_that_stopped_early_is_trained_on_by_a_longer_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complement: str, trains: str
) -> None:
    """To the bit as if it had not stopped, in the schedule of the whole training."""
    arm = {"complement": complement, "trains": trains, "conventional.batches": "tasks", "transfer.optimizer": "muon"}
    course = {**arm, "transfer.epochs": 3, "transfer.schedule": "cosine"}
    alone = {
        stop: execute(tiny_experiment(tmp_path / "alone", changes={**course, "stop_after": stop}, variant=str(stop)))
        for stop in (2, 0)
    }
    steps: list[object] = []
    plain = Loop.after
    monkeypatch.setattr(Loop, "after", lambda loop, *given: (steps.append(loop.name), plain(loop, *given)))
    made = []
    for stop, same in ((1, None), (2, 2), (3, 0)):
        spec = tiny_experiment(
            tmp_path, changes={**course, "stop_after": stop}, variant=f"stop{stop}", keeps_trained=True
        )
        folder = execute(spec)
        made.append(len([name for name in steps if name != "base"]))
        steps.clear()
        assert same is None or differing(without_stages(folder), without_stages(alone[same])) == []
    assert made == [4, 4, 4]


@pytest.mark.parametrize(
    ("repaired", "trained_anew"),
    [
        ("methods/_kt_rcnet_arms.py", {"f2"}),
        ("methods/shared/resa.py", {"f2"}),
        ("methods/icarl.py", set()),
        ("nn/muon.py", {"base", "f2"}),
    ],
)
def test_what_other_code_trained_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repaired: str, trained_anew: set[str]
) -> None:
    """A repair of an arm makes f2 anew, but the base, which methods share, stays."""
    execute(tiny_experiment(tmp_path, variant="first", keeps_trained=True))
    there = set((tmp_path / "cache").glob("*.safetensors"))
    shutil.copytree(training.PACKAGE, tmp_path / "package", ignore=shutil.ignore_patterns("__pycache__", "serve"))
    monkeypatch.setattr(training, "PACKAGE", tmp_path / "package")
    training.code_digest.cache_clear()
    try:
        execute(tiny_experiment(tmp_path, variant="again", keeps_trained=True))
        assert set((tmp_path / "cache").glob("*.safetensors")) == there
        (tmp_path / "package" / repaired).write_text("# repaired")
        training.code_digest.cache_clear()
        execute(tiny_experiment(tmp_path, variant="repaired", keeps_trained=True))
    finally:
        training.code_digest.cache_clear()
    new = set((tmp_path / "cache").glob("*.safetensors")) - there
    assert {file.name.partition("-")[0] for file in new} == trained_anew


def test_a_base_session_that_another_method_code_learned_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tiny_experiment(tmp_path, "cosine", variant="first", shares_base=True))
    monkeypatch.setattr(fscil.running.experiment, "code_digest", lambda patterns: "repaired")
    execute(tiny_experiment(tmp_path, "cosine", variant="second", shares_base=True))
    files = [file.name.partition("-")[0] for file in (tmp_path / "cache").glob("*.safetensors")]
    assert sorted(files) == ["base", "base session", "base session"]
