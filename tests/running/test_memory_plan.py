"""The memory of a run before it begins: what training keeps, and what images that are only encoded need."""

from pathlib import Path

import pytest
import torch

from apart import always_tiny as always_tiny  # a fixture
from apart import tiny_experiment
from first_of_two import first_of_two
from fscil import methods, settings
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods.shared.method import PlannedStage
from fscil.nn import encoders
from fscil.running import experiment
from fscil.running.devices import Devices
from fscil.running.experiment import build, execute, plan
from fscil.running.planning import check_memory, cost, layer_bytes, memory_needed, pass_bytes
from fscil.running.training import Run
from pretend import DEVICE, pretended
from quick import LEARNS, OWN

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TRAIN, TEST = 360 * 3 * 16 * 16, 120 * 3 * 16 * 16  # bytes of the tiny images
LAYER = 16 * 32 * 32 * 4  # bytes of an image in the widest layers of ResNet-20
IMAGE = 3 * 32 * 32 * 4


def test_images_that_are_only_encoded_need_a_portion_of_the_largest_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, stage = encoders.build("resnet20", 32), PlannedStage("prototypes", 32, 1, 500, 0, 30_000)
    kept, passing = layers = layer_bytes(encoder, 32)
    assert passing == 2 * LAYER  # what goes in and what comes out
    assert kept > 10 * passing
    assert pass_bytes(stage, layers) == 500 * (2 * IMAGE + passing)
    monkeypatch.setattr(encoders, "PIXELS", 10 * 32 * 32)
    assert pass_bytes(stage, layers) == 500 * 2 * IMAGE + 10 * passing
    assert pass_bytes(stage, layers, devices=2) == pass_bytes(stage, layers)  # each encodes all of them


def test_a_step_with_a_teacher_needs_what_is_kept_and_a_portion_beside_it() -> None:
    encoder = encoders.build("resnet20", 32)
    kept, passing = layers = layer_bytes(encoder, 32)
    alone, taught = (pass_bytes(PlannedStage("base", 32, 10, 50, 500, told), layers) for told in (0, 500))
    assert alone == 50 * (2 * IMAGE + kept)
    assert taught == alone + 50 * passing


def test_a_run_with_small_steps_needs_the_memory_of_its_prototypes(tmp_path: Path) -> None:
    """150 images are encoded at once, whatever the steps of training are."""
    tiny, smaller = (plan(tiny_experiment(tmp_path, "cosine", changes={"base.batch": n})) for n in (4, 2))
    assert tiny["memory_bytes"] == smaller["memory_bytes"] > 16 * tiny["parameters"] + 150 * 2 * 3 * 16 * 16 * 4


def test_of_several_devices_each_keeps_the_support_and_its_share() -> None:
    kept, _ = layers = layer_bytes(encoders.build("resnet20", 32), 32)
    task = PlannedStage("RESA", 32, 1, 301, 301, 0, support=100)
    for devices, images in ((1, 301), (2, 100 + 101), (3, 100 + 67)):
        assert pass_bytes(task, layers, devices) == 301 * 2 * IMAGE + images * kept  # each reads all of them


@pytest.mark.parametrize(
    ("name", "stage", "changes"), [("kt_rcnet", "RESA", {}), ("cec", "PIL", {"query": 4}), ("sppr", "RES", {})]
)
def test_what_each_device_keeps_is_what_it_trains_on(
    name: str, stage: str, changes: dict[str, object], tiny: Benchmark, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {**LEARNS, **OWN[name], "base.epochs": 1, "transfer.epochs": 1, **changes}
    method = methods.load(name)
    config = settings.resolve(method.Config, name, "tiny", "small", wanted)
    learner, base = method.Method(config, encoders.build("tiny", 16)), tiny.base(config.held_out)
    (planned,) = (row for row in learner.plan(base) if row.stage.split()[0] == stage)
    run.devices = first_of_two(monkeypatch, CPU)
    with run.learning(0):
        learner.learn_base(base, run)
    (made,) = (cost for cost in run.stages if cost.name == stage)
    assert planned.support > 0
    assert made.images == planned.steps * (planned.support + (planned.batch - planned.support) / 2)


def test_processes_on_a_cpu_share_its_memory_and_each_gpu_has_its_own(
    tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build(tiny_experiment(tmp_path, changes={"query": 20}), "float32", CPU)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (0, 0))  # no room for images
    apart, together = (memory_needed(method, tiny, device, 2) for device in (GPU, CPU))
    assert together == 2 * apart
    assert apart < memory_needed(method, tiny, CPU) == memory_needed(method, tiny, GPU) < together


@pytest.mark.parametrize(
    ("free", "taken"),
    [
        (2**40, TRAIN + TEST),
        (2 * TRAIN, TRAIN + TEST),
        (2 * TRAIN - 1, TEST),
        (2 * TEST, TEST),
        (2 * TEST - 1, 0),
    ],
)
def test_a_gpu_needs_memory_for_the_images_that_it_will_hold(
    free: int, taken: int, tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build(tiny_experiment(tmp_path, "cosine"), "float32", CPU)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free, 2**40))
    assert tiny.taken(GPU) == taken
    assert tiny.taken(CPU) == 0
    assert memory_needed(method, tiny, GPU) == memory_needed(method, tiny, CPU) + taken
    told = cost(method, tiny, GPU)
    assert (told["memory_bytes"], told["memory_available_bytes"]) == (memory_needed(method, tiny, GPU), free)


@pytest.mark.parametrize("room", [0, 2 * TEST, 2**40])
def test_what_a_device_holds_is_what_was_told(room: int, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, room)
    with pretended():
        moved = tiny.on(DEVICE)
        stores = [images.pixels for images in (moved.base().train, moved.test(0))]
        held = [store.device == DEVICE for store in stores]
    assert tiny.taken(DEVICE) == held[0] * TRAIN + held[1] * TEST


def give(patch: pytest.MonkeyPatch, room: float) -> None:
    """So many bytes of a pretended device are free."""
    for module in ("data.images", "data.sessions", "running.planning"):
        patch.setattr(f"fscil.{module}.free_memory", lambda device: room)


def test_what_a_gpu_keeps_of_the_run_before_is_free_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: calls.append("emptied"))
    monkeypatch.setattr(experiment.planning, "check_memory", lambda *given: calls.append("checked"))
    for seed in (0, 1):
        execute(tiny_experiment(tmp_path, "cosine", {"base.epochs": 1}, seed=seed))
    assert calls == 2 * ["emptied", "checked"]


def test_a_run_whose_images_leave_the_nets_no_room_is_refused(
    tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_experiment(tmp_path, "cosine")
    method = build(spec, "float32", CPU)
    needed = memory_needed(method, tiny, CPU) + TRAIN + TEST
    give(monkeypatch, needed)
    check_memory(method, tiny, DEVICE)
    give(monkeypatch, needed - 1)
    monkeypatch.setattr(experiment, "launch", lambda count: Devices(device=DEVICE))
    with pretended(), pytest.raises(FscilError, match="GiB of memory"):
        execute(spec)
    assert not spec.folder.exists()
