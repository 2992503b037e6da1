"""Whatever is wrong with a run is said in one sentence that names the place and the remedy; nothing learned is lost."""

import dataclasses
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import fscil.running.experiment
from apart import FINISHED, STEPS, Fate, differing, results, run_apart, tiny_experiment
from apart import always_tiny as always_tiny  # a fixture
from fscil import methods, settings
from fscil.command.show import Teller
from fscil.data import Protocol, benchmark
from fscil.data.sessions import Benchmark
from fscil.data.tuning import pseudo_sessions
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.running import planning
from fscil.running.devices import usable_cores
from fscil.running.experiment import RunSpec, check, execute, plan
from fscil.running.runfolder import RunFolder
from rights import without_privileges
from tiny import tiny_ingredients


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Expects an FscilError of one sentence in which all these words occur."""
    with pytest.raises(FscilError) as caught:
        yield
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    for word in words:
        assert word in sentence


def killed_at(experiment: RunSpec, step: int) -> None:
    assert run_apart(experiment, Fate(STEPS, step)) == "signal 9"


def test_a_folder_of_another_configuration_names_the_setting(tmp_path):
    folder = execute(tiny_experiment(tmp_path))
    before = results(folder)
    with refused(str(folder), "base.epochs: 3 there, 4 here", "--out"):
        execute(tiny_experiment(tmp_path, changes={"base.epochs": 4}))
    assert differing(before, results(folder)) == []


def test_a_folder_whose_data_set_changed(tmp_path):
    experiment = tiny_experiment(tmp_path)
    file = execute(experiment) / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "benchmark_fingerprint": "another"}))
    with refused(str(experiment.folder), "images of the data set", "--out"):
        execute(experiment)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}'])
def test_a_broken_run_json_is_refused_with_its_folder(tmp_path, content):
    experiment = tiny_experiment(tmp_path, "cosine")
    execute(experiment)
    (experiment.folder / "run.json").write_text(content)
    with refused(str(experiment.folder), "--out"):
        execute(experiment)


def garbage(file: Path) -> None:
    file.write_bytes(b"no tensors at all")


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def of_another_program(file: Path) -> None:
    save_file({"weights": np.zeros(3)}, file)


@pytest.mark.parametrize("damage", [garbage, half, of_another_program])
def test_a_broken_checkpoint_is_named_and_can_be_deleted(tmp_path, damage: Callable[[Path], None]):
    experiment = tiny_experiment(tmp_path)
    killed_at(experiment, 5)
    checkpoint = experiment.folder / "stage-00-base.safetensors"
    damage(checkpoint)
    with refused(str(checkpoint), "delete it and run again"):
        execute(experiment)
    checkpoint.unlink()
    execute(experiment)


def test_a_broken_state_is_named_and_can_be_deleted(tmp_path):
    experiment = tiny_experiment(tmp_path)
    folder = execute(experiment)
    before = results(folder)
    half(folder / "state-03.safetensors")
    with refused(str(folder / "state-03.safetensors"), "delete it and run again"):
        execute(experiment)
    (folder / "state-03.safetensors").unlink()
    execute(experiment)
    assert differing(before, results(folder)) == []


def test_missing_predictions_are_made_again(tmp_path, capsys):
    experiment = tiny_experiment(tmp_path)
    folder = execute(experiment)
    before = results(folder)
    (folder / "predictions-01.safetensors").unlink()
    execute(experiment, Teller(folder).line)
    assert differing(before, results(folder)) == []
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [f"Session {t}" for t in range(4)]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    mine, other = tiny_experiment(tmp_path), tiny_experiment(tmp_path, seed=1)
    killed_at(mine, 5)
    killed_at(other, 5)
    checkpoint = mine.folder / "stage-00-base.safetensors"
    checkpoint.write_bytes((other.folder / checkpoint.name).read_bytes())
    with refused(str(checkpoint), "another run", "delete it"):
        execute(mine)


def test_a_broken_shared_base_is_named(tmp_path):
    execute(tiny_experiment(tmp_path, "cosine"))
    (shared,) = (tmp_path / "cache").glob("base-*.safetensors")
    half(shared)
    with refused(str(shared), "delete it and run again"):
        execute(tiny_experiment(tmp_path))
    shared.unlink()
    execute(tiny_experiment(tmp_path))


def test_a_state_that_does_not_fit_the_method(tmp_path):
    folder = RunFolder(tmp_path)
    folder.open({"format": 1})
    folder.write(tmp_path / "state-00.safetensors", {"weight": torch.zeros(2)}, {})
    with refused(str(tmp_path / "state-00.safetensors"), "does not fit", "delete it"):
        folder.restore(torch.nn.Linear(1000, 3), 0)


def test_a_full_disk_keeps_what_was_learned_before(tmp_path):
    experiment, calm = tiny_experiment(tmp_path / "full"), tiny_experiment(tmp_path / "calm")
    checkpoint = execute(calm) / "stage-00-base.safetensors"
    sizes = {file.name: file.stat().st_size for file in calm.folder.iterdir()}
    limit = 10_000
    assert sizes["run.json"] < limit < sizes["state-00.safetensors"]
    sentence = run_apart(experiment, file_limit=limit)
    assert re.search(
        r"stage-00-\w+\.safetensors could not be written.*disk is full.*run the same command again", sentence
    )
    assert "\n" not in sentence
    assert not list(experiment.folder.glob("*.partial"))
    assert run_apart(experiment) == FINISHED
    assert differing(results(calm.folder), results(experiment.folder)) == []
    assert not checkpoint.exists()


def test_a_disk_that_is_full_later_keeps_the_finished_sessions(tmp_path):
    experiment = tiny_experiment(tmp_path)
    assert run_apart(experiment, Fate("fscil.methods.kt_rcnet:Method.learn_new", 1)) == "signal 9"
    before = (experiment.folder / "state-00.safetensors").read_bytes()
    assert "state-01.safetensors could not be written" in run_apart(experiment, file_limit=1000)
    assert (experiment.folder / "state-00.safetensors").read_bytes() == before
    assert run_apart(experiment) == FINISHED


def test_too_little_memory_is_said_before_anything_is_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "memory_available", lambda device: 1000)
    experiment = tiny_experiment(tmp_path)
    with refused("GiB", "--recipe small"):
        execute(experiment)
    assert not experiment.folder.exists()


def test_a_control_group_limits_memory_but_for_its_file_cache(tmp_path):
    told, inner = tmp_path / "cgroup", tmp_path / "groups" / "user" / "job"
    inner.mkdir(parents=True)
    told.write_text("4:memory:/elsewhere\n0::/user/job\n")

    def limit(group: Path, most: str) -> None:
        stat = "anon 500\ninactive_file 30\nactive_file 4\n"
        for name, content in {"max": most, "current": "600\n", "stat": stat}.items():
            (group / f"memory.{name}").write_text(content)

    assert planning.left_in_groups(tmp_path / "groups", told) == math.inf
    limit(inner, "max\n")
    assert planning.left_in_groups(tmp_path / "groups", told) == math.inf
    limit(inner, "1000\n")
    assert planning.left_in_groups(tmp_path / "groups", told) == 1000 - 600 + 34
    limit(inner.parent, "700\n")  # the group around it
    assert planning.left_in_groups(tmp_path / "groups", told) == 700 - 600 + 34
    limit(tmp_path / "groups", "650\n")
    assert planning.left_in_groups(tmp_path / "groups", tmp_path / "absent") == 650 - 600 + 34


def test_larger_episodes_need_more_memory(tmp_path):
    small, large = (plan(tiny_experiment(tmp_path, changes={"query": query})) for query in (6, 20))
    assert large["memory_bytes"] > 1.5 * small["memory_bytes"]


@pytest.mark.parametrize("devices", [0, 1000])
def test_a_number_of_devices_that_is_not_there_is_refused(tmp_path, devices):
    with refused(f"--devices {devices}", str(usable_cores()), "CPU cores"):
        execute(tiny_experiment(tmp_path, devices=devices))
    with refused(f"--devices {devices}", str(usable_cores()), "CPU cores"):
        plan(tiny_experiment(tmp_path, devices=devices))


def test_an_unknown_precision_is_refused_with_the_choices(tmp_path):
    with refused("'float8'", "auto, float32 or bfloat16"):
        execute(tiny_experiment(tmp_path, precision="float8"))


def test_unknown_encoder_method_and_recipe(tmp_path):
    with refused("'resnet21'", "did you mean 'resnet20'?"):
        execute(tiny_experiment(tmp_path, changes={"encoder": "resnet21"}))
    with refused("'kt_rcnett'", "did you mean 'kt_rcnet'?"):
        methods.load("kt_rcnett")
    with refused("'smal'", "kt_rcnet on glyphs", "did you mean 'small'?"):
        settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "glyphs", "smal")


WHOLE = ("base.batch", "base.step_epochs", "base.epochs", "held_out", "tasks", "way", "shot", "query", "task_pixels")
REAL = ("transfer.lr", "transfer.warmup", "shrinkage", "scale", "base_relation", "local_weight", "local_smoothing")
REAL += ("feature_scale",)


@pytest.mark.parametrize("setting", WHOLE + REAL)
def test_settings_out_of_range_are_refused(tmp_path, setting):
    with refused(setting.split(".")[-1], "must lie between"):
        tiny_experiment(tmp_path, changes={setting: -1.0 if setting in REAL else -1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("setting", ["scale", "new_bonus", "complement_weight", "base.lr", "transfer.weight_decay"])
def test_settings_that_are_no_finite_number_are_refused(tmp_path, setting, value):
    with refused(setting.split(".")[-1], "must lie between"):
        tiny_experiment(tmp_path, changes={setting: value})


@pytest.mark.parametrize("changes", [{"scale": 0.0}, {"pixels": 0}, {"complement_weight": -1.0}])
def test_settings_with_which_nothing_could_be_told_apart(tmp_path, changes):
    with refused(*changes, "must lie between"):
        tiny_experiment(tmp_path, changes=changes)
    with refused("pixels", "0"):
        tiny_experiment(tmp_path, changes={"base.pixels": [16, 0]})


@pytest.mark.parametrize("changes", [{"way": 0}, {"shot": 0}, {"query": 0}, {"tasks": 0}, {"local_smoothing": 0.6}])
def test_episodes_that_cannot_be_drawn(tmp_path, changes):
    with refused(*changes, "must lie between"):
        tiny_experiment(tmp_path, changes=changes)


def test_a_class_too_small_for_an_episode_is_named(tmp_path):
    experiment = tiny_experiment(tmp_path, changes={"shot": 500})
    sessions = fscil.running.experiment.benchmark(experiment.dataset, experiment.root, experiment.protocol)
    first = sessions.class_names[sessions.session_classes[0][0]]
    with refused(f"class {first} has", "training images, but an episode takes 500", "lower --shot or --query"):
        execute(experiment)


def test_learned_rows_and_whitening_exclude_each_other(tmp_path):
    with refused("W1 learned", "--shrinkage 1"):
        tiny_experiment(tmp_path, changes={"W1": "learned", "shrinkage": 0.5})


def test_learned_rows_need_a_base_session(tmp_path):
    with refused("W1 learned takes rows that a base session trains", "--W1 means"):
        tiny_experiment(tmp_path, changes={"W1": "learned", "base.epochs": 0})


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
def test_an_unreadable_weights_file_is_named(tmp_path, name):
    garbage(tmp_path / name)
    with refused(str(tmp_path / name)):
        encoders.build("resnet18", 32, str(tmp_path / name))
    with refused(str(tmp_path / "absent"), "--weights"):
        encoders.build("resnet18", 32, str(tmp_path / "absent"))


def test_a_second_process_in_a_run_folder_is_refused(tmp_path):
    experiment = tiny_experiment(tmp_path)
    folder = RunFolder(experiment.folder)
    folder.open({"format": 1})
    sentence = run_apart(experiment)
    assert sentence.startswith(f"another process is working in {experiment.folder}")
    assert "--out" in sentence
    folder.close()
    (experiment.folder / "run.json").unlink()
    assert run_apart(experiment) == FINISHED


def test_training_that_diverges_names_its_stage_and_keeps_the_checkpoint(tmp_path):
    experiment = tiny_experiment(tmp_path, changes={"transfer.lr": 1e30})
    with refused("RESA", "diverged", "learning rate"):
        execute(experiment)
    assert (experiment.folder / "stage-00-RESA.safetensors").exists()


def test_what_cannot_work_is_said_before_anything_is_learned(tmp_path):
    for changes, words in (
        ({"query": 25}, ("has 25 training images", "5 + 25", "--shot or --query")),
        ({"way": 7}, ("episode of 7 classes", "6 base classes", "--way")),
        ({"held_out": 0}, ("feature_scale", "--held_out")),
        ({"encoder": "fast", "pixels": 32, "task_pixels": 4}, ("images of 4 pixels", "--pixels")),
        ({"encoder": "fast", "pixels": 32, "base.pixels": [4]}, ("images of 4 pixels", "--pixels")),
    ):
        experiment = tiny_experiment(tmp_path, changes=changes)
        with refused(*words):
            execute(experiment)
        assert not experiment.folder.exists()


def test_a_class_without_a_test_image_is_named_before_anything_is_learned(tmp_path, monkeypatch):
    monkeypatch.setattr("fscil.running.experiment.benchmark", benchmark)
    names = [f"{bird}/{i}.png" for bird in ("coot", "jay", "wren") for i in range(3)]
    for name in names:
        (tmp_path / "birds" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "birds" / name).touch()
    parts = {"train": [name for name in names if "2" not in name], "test": ["coot/2.png", "wren/2.png"]}
    (tmp_path / "split.json").write_text(json.dumps(parts))
    protocol = Protocol(split=str(tmp_path / "split.json"), shots=2)
    experiment = tiny_experiment(tmp_path / "runs", "cosine", root=tmp_path / "birds", protocol=protocol)
    for begin in (execute, plan, lambda one: check([one])):
        with refused("no test image of jay", "split file"):
            begin(experiment)
    assert not experiment.folder.exists()


def test_of_many_classes_without_a_test_image_five_are_named():
    made = tiny_ingredients()
    with refused("no test image of pattern 0, pattern 1, pattern 2, pattern 3, pattern 4 and 7 more:"):
        Benchmark("tiny", dataclasses.replace(made, test=made.test.select([])), Protocol()).require_tests()


@pytest.mark.parametrize("seed", [-1, 2**32, 99999999999])
@pytest.mark.parametrize("option", ["shots_seed", "order_seed", "later_order_seed"])
def test_seeds_that_no_generator_takes(option, seed):
    with refused(f"--{option.replace('_', '-')} is {seed}", "between 0 and 4294967295"):
        Protocol(**{option: seed})
    Protocol(shots_seed=0, order_seed=2**32 - 1)


@pytest.mark.parametrize("seed", [-1, 2**32, 10**20])
def test_seeds_of_a_run_that_no_generator_takes(tmp_path, seed):
    with refused(f"--seed is {seed}", "between 0 and 4294967295"):
        tiny_experiment(tmp_path, seed=seed)


@pytest.mark.parametrize("base_classes", [-3, 0, 13, 500])
def test_tuning_with_classes_that_do_not_exist(base_classes):
    with refused(f"from {base_classes} classes", "--base-classes from 1 to 12"):
        pseudo_sessions(tiny_ingredients(), Protocol(tune=True, base_classes=base_classes))


@pytest.mark.parametrize("base_classes", [1, 12])
def test_tuning_with_as_few_or_as_many_classes_as_there_are(base_classes):
    made = pseudo_sessions(tiny_ingredients(), Protocol(tune=True, base_classes=base_classes))
    sessions = Benchmark("tiny", made, Protocol())
    assert len(sessions.order) == base_classes
    assert sessions.untested() == sessions.too_few() == []


def test_a_folder_in_which_nothing_was_learned_can_be_used_with_other_settings(tmp_path):
    assert run_apart(tiny_experiment(tmp_path), Fate(STEPS, 1)) == "signal 9"
    execute(tiny_experiment(tmp_path, changes={"base.epochs": 4}))


def test_a_folder_that_cannot_be_written(tmp_path):
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o555)
        experiment = tiny_experiment(Path(parent) / "runs")
        with without_privileges(), refused(str(experiment.folder), "Permission denied", "--out"):
            execute(experiment)
        Path(parent).chmod(0o755)
    (tmp_path / "file").write_text("not a folder")
    experiment = dataclasses.replace(experiment, out=tmp_path / "file")
    with refused(str(experiment.folder), "Not a directory", "--out"):
        execute(experiment)
