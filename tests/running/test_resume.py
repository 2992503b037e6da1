"""A run that is killed at any moment goes on by the same command and ends with the numbers of an undisturbed one."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from apart import FINISHED, STEPS, Fate, differing, results, run_apart, start, tiny_experiment
from apart import always_tiny as always_tiny  # a fixture
from fscil.running.experiment import execute
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run

KILLED = f"signal {signal.SIGKILL}"
BASE_STEPS, RESA_STEPS = 12, 8  # of the tiny experiment


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return results(execute(tiny_experiment(tmp_path_factory.mktemp("undisturbed"))))


SYNCS = 2  # of each file: its content, then its folder
WRITTEN = 1 + BASE_STEPS + 1 + RESA_STEPS  # files before those of the base session: run.json, checkpoints, shared base
MOMENTS = {
    "base training, middle of an epoch": (STEPS, 6),
    "RESA, middle of the second epoch": (STEPS, BASE_STEPS + 6),
    "RESA, last step": (STEPS, BASE_STEPS + RESA_STEPS),
    "weight computing between two epochs of RESA": ("fscil.methods.kt_rcnet:Method.weight_computing", 3),
    "writing run.json": ("os:fsync", 1),
    "writing a checkpoint": ("os:fsync", SYNCS * 4 + 1),
    "writing the shared base": ("os:fsync", SYNCS * (1 + BASE_STEPS) + 1),
    "writing the state of the base session": ("os:fsync", SYNCS * WRITTEN + 1),
    "writing the record of the base session": ("os:fsync", SYNCS * (WRITTEN + 2) + 1),
    "syncing the folder of the record": ("os:fsync", SYNCS * (WRITTEN + 3)),
    "removing what a session no longer needs": ("pathlib:Path.unlink", 1),
    "removing what the last session no longer needs": ("pathlib:Path.unlink", 4),
    "testing": ("fscil.running.protocol:Tester.predict", 2),
    "a new session": ("fscil.methods.kt_rcnet:Method.learn_new", 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_same_command_continues_after_kill_9(tmp_path, undisturbed, moment):
    experiment = tiny_experiment(tmp_path)
    assert run_apart(experiment, Fate(*MOMENTS[moment])) == KILLED
    assert run_apart(experiment) == FINISHED
    assert differing(undisturbed, results(experiment.folder)) == []
    assert not list(experiment.folder.glob("*.partial"))


STAGES = {
    "base of f2": {"start": "own", "distil": 0.5, "base.turned": 0.5, "base.average": 0.8},
    "conventional": {"complement": "conventional"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_that_only_some_settings_have_go_on_too(tmp_path, stage):
    calm, disturbed = (tiny_experiment(tmp_path / name, changes=STAGES[stage]) for name in ("calm", "disturbed"))
    assert run_apart(disturbed, Fate(STEPS, BASE_STEPS + 6)) == KILLED  # middle of the second epoch
    assert (disturbed.folder / f"stage-00-{stage}.safetensors").exists()
    assert run_apart(disturbed) == FINISHED
    assert differing(results(execute(calm)), results(disturbed.folder)) == []


def test_kills_from_outside_at_random_moments(tmp_path, undisturbed):
    experiment, chance = tiny_experiment(tmp_path), random.Random(0)
    for _ in range(4):
        process, _connection = start(experiment)
        time.sleep(chance.uniform(0.1, 1.0))
        process.kill()
        process.join()
    assert run_apart(experiment) == FINISHED
    assert differing(undisturbed, results(experiment.folder)) == []


def test_a_finished_run_is_left_as_it_is(tmp_path):
    experiment = tiny_experiment(tmp_path)
    folder = execute(experiment)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir() if file.name != ".lock"}
    told = []
    execute(experiment, lambda session: told.append(session.index))
    assert told == [0, 1, 2, 3]
    assert before == {file: file.stat().st_mtime_ns for file in folder.iterdir() if file.name != ".lock"}


@pytest.mark.parametrize(("optimizer", "schedule"), [("sgd", "step"), ("muon", "cosine"), ("adamw", "linear")])
def test_every_optimiser_goes_on_in_the_middle_of_an_epoch(tmp_path, optimizer, schedule):
    changes = {"optimizer": optimizer, "schedule": schedule, "lr": 0.01, "warmup": 0.1}
    changes = {f"{stage}.{name}": value for stage in ("base", "transfer") for name, value in changes.items()}
    calm, disturbed = (tiny_experiment(tmp_path / name, changes=changes) for name in ("calm", "disturbed"))
    for step in (6, 10):  # the second process goes on after five steps and comes as far as the second step of RESA
        assert run_apart(disturbed, Fate(STEPS, step)) == KILLED
    assert run_apart(disturbed) == FINISHED
    assert differing(results(execute(calm)), results(disturbed.folder)) == []


def test_a_checkpoint_is_written_when_its_time_has_come_and_not_before(tmp_path):
    rare = tiny_experiment(tmp_path, checkpoint_seconds=1000.0)
    assert run_apart(rare, Fate(STEPS, BASE_STEPS - 1)) == KILLED
    assert not list(rare.folder.glob("stage-*"))
    often = tiny_experiment(tmp_path)
    assert run_apart(often, Fate(STEPS, BASE_STEPS - 1)) == KILLED
    assert [file.name for file in often.folder.glob("stage-*")] == ["stage-00-base.safetensors"]


def test_checkpoints_come_at_least_every_five_minutes_by_default():
    assert Run(RunFolder(Path("unused")), 0, Path("unused")).checkpoint_seconds <= 300


def test_ctrl_c_keeps_the_running_step(tmp_path, undisturbed):
    experiment = tiny_experiment(tmp_path, checkpoint_seconds=1000.0)
    assert run_apart(experiment, Fate(STEPS, 6, signal.SIGINT)) == "stopped"
    assert (experiment.folder / "stage-00-base.safetensors").exists()
    assert run_apart(experiment, Fate(STEPS, BASE_STEPS - 6 + 1, signal.SIGINT)) == "stopped"  # first step of RESA
    assert run_apart(experiment) == FINISHED
    assert differing(undisturbed, results(experiment.folder)) == []


def test_ctrl_c_in_the_last_step_of_a_stage_finishes_the_stage(tmp_path, undisturbed):
    experiment = tiny_experiment(tmp_path)
    assert run_apart(experiment, Fate(STEPS, BASE_STEPS, signal.SIGINT)) == "stopped"
    assert run_apart(experiment) == FINISHED
    assert differing(undisturbed, results(experiment.folder)) == []


def test_ctrl_c_outside_of_training_stops_at_once(tmp_path, undisturbed):
    experiment = tiny_experiment(tmp_path)
    assert run_apart(experiment, Fate("fscil.running.protocol:Tester.predict", 2, signal.SIGINT)) == "stopped"
    assert (experiment.folder / "session-00.json").exists()
    assert not (experiment.folder / "session-01.json").exists()
    assert run_apart(experiment) == FINISHED
    assert differing(undisturbed, results(experiment.folder)) == []


def test_sessions_are_repeated_from_the_last_state_that_is_still_there(tmp_path, undisturbed):
    experiment = tiny_experiment(tmp_path)
    folder = execute(experiment)
    (folder / "state-03.safetensors").unlink()
    execute(experiment)
    assert differing(undisturbed, results(folder)) == []


def test_random_layers_do_not_care_about_interruptions(tmp_path):
    changes = {"encoder": "dropping"}
    calm, disturbed = (tiny_experiment(tmp_path / name, "cosine", changes) for name in ("calm", "disturbed"))
    assert run_apart(disturbed, Fate(STEPS, 6)) == KILLED
    assert run_apart(disturbed) == FINISHED
    before = torch.get_rng_state()
    assert differing(results(execute(calm)), results(disturbed.folder)) == []
    assert torch.equal(torch.get_rng_state(), before)  # torch's own generator is left as it was


def hold_the_folder_and_die(path: Path, end: Connection) -> None:
    folder = RunFolder(path)
    folder.open({"format": 1})
    if os.fork() == 0:  # like the worker of a loader, which outlives its parent for a while
        end.poll(60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_of_a_killed_run_do_not_keep_the_folder(tmp_path):
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold_the_folder_and_die, args=(tmp_path, theirs))
    process.start()
    process.join()
    folder = RunFolder(tmp_path)
    folder.open({"format": 1})
    folder.close()
    ours.send("end")


def tiny_folder(root: Path) -> None:
    """Twelve classes of ten pictures each."""
    chance = np.random.RandomState(0)
    for label in range(12):
        colour = chance.randint(0, 200, (1, 1, 3))
        (root / f"class {label:02d}").mkdir(parents=True)
        for number in range(10):
            pixels = (colour + chance.randint(0, 50, (16, 16, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class {label:02d}" / f"{number}.png")


@pytest.mark.slow
def test_the_command_itself_continues(tmp_path):
    """The real command on real files, with worker processes, killed from outside when its base session is done."""
    tiny_folder(tmp_path / "photos")
    command = [sys.executable, "-m", "fscil", "run", "cosine", "folder", "--root", str(tmp_path / "photos")]
    command += ["--recipe", "paper", "--encoder", "resnet20", "--pixels", "16", "--base.epochs", "1"]
    command += ["--precision", "float32", "--ways", "1"]
    calm, disturbed = (tmp_path / name / "folder" / "cosine-paper" / "seed0" for name in ("calm", "disturbed"))
    subprocess.run([*command, "--out", str(tmp_path / "calm")], check=True, capture_output=True)
    process = subprocess.Popen([*command, "--out", str(tmp_path / "disturbed")], stdout=subprocess.DEVNULL)
    while process.poll() is None and not (disturbed / "session-00.json").exists():
        time.sleep(0.01)
    process.kill()
    process.wait()
    subprocess.run([*command, "--out", str(tmp_path / "disturbed")], check=True, capture_output=True)
    assert differing(results(calm), results(disturbed)) == []
