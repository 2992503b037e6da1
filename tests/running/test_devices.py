"""Several devices compute what one computes. Two CPU processes (gloo) stand for all; CUDA is untested here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import two_devices
from apart import always_tiny, differing, results, tiny_experiment  # noqa: F401 (a fixture)
from fscil.running.devices import Devices, usable_cores
from fscil.running.experiment import plan
from two_devices import batch_gradients, episode_gradients

pytestmark = [
    pytest.mark.skipif(usable_cores() < 2, reason="two processes need two cores"),
    pytest.mark.timeout(600),
]


def run_two(*arguments: object) -> subprocess.CompletedProcess:
    """two_devices.py as a command of its own."""
    script = Path(two_devices.__file__)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    for name in ("LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "PYTEST_CURRENT_TEST"):
        variables.pop(name, None)
    return subprocess.run([sys.executable, script, *map(str, arguments)], env=variables, capture_output=True, text=True)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """What two processes left: their gradients and two whole runs."""
    out = tmp_path_factory.mktemp("two")
    done = run_two(out, "gradients")
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize(("what", "gradients"), [("episode", episode_gradients), ("batch", batch_gradients)])
def test_two_processes_give_the_gradients_of_one(two, what, gradients):
    shared = [load_file(two / f"gradients-{rank}.safetensors") for rank in (0, 1)]
    for name, alone in gradients(Devices()).items():
        first, second = (found[f"{what}.{name}"] for found in shared)
        assert torch.equal(first, second)
        assert alone.abs().max() > 0
        torch.testing.assert_close(first, alone, rtol=1e-5, atol=1e-5 * float(alone.abs().max()))


@pytest.mark.parametrize("rank", [0, 1])
def test_no_process_waits_for_all_others_within_a_step(two, rank):
    """An exchange of a GPU is queued behind its step; a barrier would hold up the host."""
    barriers = json.loads((two / f"waits-{rank}.json").read_text())["barriers"]
    assert barriers
    assert set(barriers) == {"elsewhere"}


def test_a_process_waits_for_another_as_long_as_that_may_wait_for_a_base(two):
    """The first one waits for a base that another run trains, the others for the first."""
    assert [json.loads((two / f"waits-{rank}.json").read_text())["days"] for rank in (0, 1)] == [7, 7]


def test_a_whole_run_finishes_and_only_the_first_process_writes(two):
    first, second = ((two / f"written-{rank}.txt").read_text() for rank in (0, 1))
    assert second == ""
    for seed in (0, 1):
        folder = tiny_experiment(two, seed=seed).folder
        assert json.loads((folder / "run.json").read_text())["machine"]["devices"] == 2
        for session in range(4):
            assert first.count(str(folder / f"session-{session:02d}.json")) == 1
            assert (folder / f"predictions-{session:02d}.safetensors").exists()


def test_the_compute_of_all_devices_is_counted(two):
    planned = {row["stage"].split()[0]: row for row in plan(tiny_experiment(two))["stages"]}
    record = json.loads((tiny_experiment(two).folder / "session-00.json").read_text())
    counted = {stage["name"]: stage for stage in record["stages"]}
    assert counted["base"]["macs"] == planned["base"]["macs"]
    assert counted["base"]["images"] == planned["base"]["trained"]
    assert counted["RESA"]["macs"] > planned["RESA"]["macs"]  # every device encodes the whole support
    resa = planned["RESA"]
    assert counted["RESA"]["images"] == resa["steps"] * (resa["batch"] + resa["support"])


@pytest.mark.slow
def test_two_processes_go_on_after_kill_9(two, tmp_path):
    experiment = tiny_experiment(tmp_path)
    assert run_two(tmp_path, "run", 18).returncode == -9  # middle of the second epoch of RESA
    assert (experiment.folder / "stage-00-RESA.safetensors").exists()
    assert run_two(tmp_path, "run").returncode == 0
    assert differing(results(tiny_experiment(two).folder), results(experiment.folder)) == []


@pytest.mark.slow
def test_bad_input_ends_all_processes(tmp_path):
    experiment = tiny_experiment(tmp_path)
    experiment.folder.mkdir(parents=True)
    (experiment.folder / "run.json").write_text("{")
    ended = run_two(tmp_path, "run")
    assert ended.returncode == 1
    assert f"{experiment.folder / 'run.json'} cannot be read" in ended.stderr


def test_one_device_alone_exchanges_nothing():
    alone, tensor = Devices(), torch.tensor([1.0, 2.0])
    alone.average([tensor])
    assert tensor.tolist() == [1.0, 2.0]
    assert alone.totals(3, 4) == [3, 4]
    assert alone.agree("this") == "this"
