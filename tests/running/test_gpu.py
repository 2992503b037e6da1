"""The steps of training on a GPU that is not there: everything is on it, and the host never waits for it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from fakes import GPU, FakeGpu, HostWaits, fake_gpu
from fscil import methods, settings
from fscil.data.sessions import Benchmark, Session
from fscil.methods import _kt_rcnet_arms as arms
from fscil.methods.shared.base import Net, train_classifier
from fscil.nn.heads import CosineHead
from fscil.running.devices import Devices
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Loop
from fscil.running.training import Run
from quick import LEARNS
from tiny import TINY_RESA, tiny_encoder

ARMS = {
    "resa": {"global_weight": 1.5, "base_relation": 1.0},
    "resa, learned W1": {"W1": "learned"},
    "resa, local alone": {"global_weight": 0.0},
    "resa, global alone": {"local_weight": 0.0},
    "resa, pseudo-sessions": {"pseudo_sessions": 2, "local_smoothing": 0.1},
    "resa, last stage": {"trains": "last_stage", "batch_norm": "frozen"},
    "resa, unit features": {"unit_features": True, "start": "own"},
    "mixup": {"synthesis": "mixup"},
    "cutmix": {"synthesis": "cutmix", "mix": "intra"},
    "no twins": {"synthesis": "none"},
    "conventional": {"complement": "conventional", "conventional.relation": 1.0},
    "conventional, tasks": {"complement": "conventional", "conventional.batches": "tasks"},
    "conventional, random rows": {"complement": "conventional", "conventional.rows": "random"},
    "means": {"complement": "means"},
    "rotation": {"complement": "rotation"},
    "map": {"trains": "map"},
    "map, mixup": {"trains": "map", "synthesis": "mixup"},
    "map, conventional": {"trains": "map", "complement": "conventional"},
    "map, means": {"trains": "map", "complement": "means"},
    "map, rotation": {"trains": "map", "complement": "rotation"},
}
AUGMENT = {
    "pad": {"augment.crop": "pad", "augment.cutout": 4},
    "boxes": {"augment.crop": "resized", "augment.brightness": 0.2, "augment.margin": 1.2},
    "none": {"augment.crop": "none", "augment.flip": False},
    "smaller images": {"base.pixels": (12, 16), "augment.crop": "none"},
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """A fake GPU with room for all images; a step ends with its loss."""
    monkeypatch.setattr("fscil.data.images.free_memory", lambda device: float("inf"))
    with fake_gpu() as there:

        def descend(loop: Loop, loss: Tensor, done: int) -> None:
            assert loss.device == GPU
            assert loss.requires_grad
            there.losses.append(loss)
            there.strict = loop.name == "base" or (done + 1) % loop.steps > 0  # between epochs arms may wait

        monkeypatch.setattr(Loop, "descend", descend)
        yield there


def settled(changes: dict[str, object]) -> Any:
    return settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "tiny", "small", changes)


def on_gpu(changes: dict[str, object], tiny: Benchmark, silent: Run) -> tuple[Any, Session, Run]:
    """An untrained KT-RCNet, the base session and a run, all on the fake GPU."""
    config = settled({**LEARNS, **TINY_RESA, "feature_scale": 1.0, **changes})
    method = methods.load("kt_rcnet").Method(config, tiny_encoder().to(memory_format=torch.channels_last)).to(GPU)
    run = Run(RunFolder(silent.cache, writable=False), 0, silent.cache, Devices(device=GPU))
    return method, tiny.on(GPU).base(config.held_out), run


@pytest.mark.parametrize("augment", AUGMENT)
def test_a_step_of_the_base_session_never_waits(augment, tiny, silent, gpu):
    method, base, run = on_gpu(AUGMENT[augment], tiny, silent)
    net = Net(method.f1, CosineHead(16, len(base.classes), 16.0, run.rng("head")))
    gpu.strict = True
    train_classifier(method, "base", net, base, method.config.base, run)
    assert len(gpu.losses) == 5 * 5  # five epochs of 150 images in batches of 30
    assert gpu.operations > 1000


@pytest.mark.parametrize("arm", ARMS)
def test_a_step_of_complementary_learning_never_waits(arm, tiny, silent, gpu, monkeypatch):
    method, base, run = on_gpu(ARMS[arm], tiny, silent)
    for branch in method.branches:
        method.weight_computing(branch, base, run)
    for student in (arms.Encoded, arms.Mapped):
        monkeypatch.setattr(student, "begin", strictly(student.begin, gpu))
    arms.complement(method, base, run)
    passes = method.config.complement == "conventional" and arm != "conventional, tasks" and "map" not in arm
    assert len(gpu.losses) == 2 * (5 if passes else 4)  # two epochs of all images or of four tasks
    assert gpu.operations > 100


def strictly(begin: Callable[[Any], None], gpu: FakeGpu) -> Callable[[Any], None]:
    """What comes before the steps of an epoch, after which every wait raises."""

    def begun(student: Any) -> None:
        begin(student)
        gpu.strict = True

    return begun


def test_reading_a_value_and_mixing_devices_raise(gpu):
    there, here = torch.zeros(3, device=GPU), torch.zeros(3)
    gpu.strict = True
    for wait in (there.sum().item, lambda: bool(there.any()), there.nonzero, there.cpu, lambda: here.to(GPU)):
        with pytest.raises((HostWaits, DataDependentOutputException, DynamicOutputShapeException)):
            wait()
    for mixture in (lambda: there + here, lambda: there[torch.tensor([0])], lambda: torch.cat([there, here])):
        with pytest.raises(HostWaits, match="mixes"):
            mixture()
    gpu.strict = False
    with pytest.raises(RuntimeError, match="device"):
        there + here
