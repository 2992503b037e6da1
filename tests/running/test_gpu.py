"""The steps of training on a GPU that is not there: everything is on it, and the host never waits for it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from fakes import GPU, FakeGpu, HostWaits, fake_gpu
from first_of_two import first_of_two
from fscil import methods, settings
from fscil.data import Protocol
from fscil.data.images import Augment, FileImages, Framing
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import _kt_rcnet_arms as arms
from fscil.methods._kt_rcnet_fitted import estimate_statistics
from fscil.methods._kt_rcnet_students import Encoded, Mapped
from fscil.methods.shared import base as shared_base
from fscil.methods.shared.base import Teacher, cosine_net, train_classifier
from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.distillation import one_vs_all
from fscil.running.descent import Descent
from fscil.running.devices import Devices
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Loop
from fscil.running.training import Run
from fscil.tensors import sent
from pretend import DEVICE, pretended
from quick import LEARNS
from tiny import TINY_RESA, tiny_ingredients

ARMS = {
    "resa": {"global_weight": 1.5, "base_relation": 1.0},
    "resa, learned W1": {"W1": "learned"},
    "resa, local alone": {"global_weight": 0.0},
    "resa, global alone": {"local_weight": 0.0},
    "resa, pseudo-sessions": {"pseudo_sessions": 2, "local_smoothing": 0.1},
    "resa, last stage": {"trains": "last_stage"},
    "resa, frozen statistics": {"trains": "last_stage", "batch_norm": "frozen"},
    "resa, another size": {"task_pixels": 12, "transfer.average": 0.5},
    "resa, unit features": {"unit_features": True, "start": "own"},
    "mixup": {"synthesis": "mixup"},
    "cutmix": {"synthesis": "cutmix", "mix": "intra"},
    "no twins": {"synthesis": "none"},
    "conventional": {"complement": "conventional", "conventional.relation": 1.0},
    "conventional, tasks": {"complement": "conventional", "conventional.batches": "tasks"},
    "conventional, random rows": {"complement": "conventional", "conventional.rows": "random"},
    "means": {"complement": "means"},
    "means, some images": {"complement": "means", "row_images": 3, "trains": "last_stage"},
    "rotation": {"complement": "rotation"},
    "rotation, adamw": {"complement": "rotation", "transfer.optimizer": "adamw"},
    "resa, resnet18": {"encoder": "resnet18", "trains": "last_stage"},
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
    "rotation classes": {"base.turned": 0.5},
    "mean of the last steps": {"base.average": 0.5},
    "sgd": {"base.optimizer": "sgd", "base.weight_decay": 1e-4, "base.label_smoothing": 0.1},
    "adamw": {"base.optimizer": "adamw"},
    "a wide net": {"encoder": "fast_large", "winograd": True, "base.turned": 0.5},
    "resnet18": {"encoder": "resnet18"},
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """A fake GPU with room for all images; instead of a backward pass, which it does not have, gradients appear."""
    monkeypatch.setattr("fscil.data.images.free_memory", lambda device: float("inf"))
    monkeypatch.setattr(Loop, "_read", lambda loop, loss: None)  # every few steps the host waits for the loss
    descend = Loop.descend

    def step(loop: Loop, loss: Tensor, done: int) -> None:
        def backward(loss: Tensor) -> None:
            assert loss.device == GPU
            assert loss.requires_grad
            there.losses.append(loss)
            for parameter in loop.parameters:
                parameter.grad = torch.zeros_like(parameter)

        monkeypatch.setattr(Tensor, "backward", backward)
        descend(loop, loss, done)

    monkeypatch.setattr(Loop, "descend", step)
    with fake_gpu() as there:
        yield there


def settled(changes: dict[str, object], dataset: str = "tiny", recipe: str = "small") -> Any:
    return settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", dataset, recipe, changes)


def on_gpu(
    changes: dict[str, object], tiny: Benchmark, silent: Run, precision: torch.dtype = torch.float32
) -> tuple[Any, Session, Run]:
    """An untrained KT-RCNet, the base session and a run, all on the fake GPU."""
    config = settled({**LEARNS, **TINY_RESA, "feature_scale": 1.0, "base.epochs": 2, "tasks": 2, **changes})
    return built(config, tiny, silent, precision)


def built(
    config: Any, tiny: Benchmark, silent: Run, precision: torch.dtype, name: str = "kt_rcnet"
) -> tuple[Any, Session, Run]:
    encoder = encoders.build(config.encoder, config.pixels).to(memory_format=torch.channels_last)
    set_arithmetic(encoder, precision, config.winograd)
    method = methods.load(name).Method(config, encoder).to(GPU)
    run = Run(RunFolder(silent.cache, writable=False), 0, silent.cache, Devices(device=GPU))
    return method, tiny.on(GPU).base(config.held_out), run


@pytest.mark.parametrize("augment", AUGMENT)
def test_a_step_of_the_base_session_never_waits(augment, tiny, silent, gpu):
    method, base, run = on_gpu(AUGMENT[augment], tiny, silent)
    net = cosine_net(method, method.f1, base, run.rng("head"))
    gpu.strict = True
    train_classifier(method, "base", net, base, method.config.base, run)
    assert len(gpu.losses) == 2 * 5  # two epochs of 150 images in batches of 30
    assert gpu.operations > 500


@pytest.mark.parametrize("loss", [None, one_vs_all])
def test_a_step_of_a_linear_base_session_never_waits(loss, tiny, silent, gpu, monkeypatch):
    config = settings.resolve(methods.load("icarl").Config, "icarl", "tiny", "small", {**LEARNS, "base.epochs": 2})
    method, base, run = built(config, tiny, silent, torch.float32, "icarl")
    monkeypatch.setattr(Run, "cached", lambda run, stage, key, net, make: make())  # digests need values
    monkeypatch.setattr(shared_base, "prepare", lambda *_: setattr(gpu, "strict", True))  # from the first step on
    shared_base.fit_linear_classifier(method, method.net, base, run, loss=loss)
    assert len(gpu.losses) == 2 * 6  # two epochs of 180 images in batches of 30
    assert gpu.operations > 100


def test_a_step_of_one_of_two_devices_never_waits(tiny, silent, gpu, monkeypatch):
    method, base, run = on_gpu({"base.epochs": 1}, tiny, silent)
    run = replace(run, devices=first_of_two(monkeypatch, GPU))
    net = cosine_net(method, method.f1, base, run.rng("head"))
    gpu.strict = True
    train_classifier(method, "base", net, base, method.config.base, run)
    for branch in method.branches:
        method.weight_computing(branch, base, run)
    gpu.strict = False
    monkeypatch.setattr(Encoded, "begin", strictly(Encoded.begin, gpu))
    arms.complement(method, base, run)
    assert len(gpu.losses) == 5 + 2 * 2


def test_a_step_of_a_taught_net_never_waits(tiny, silent, gpu):
    method, base, run = on_gpu({"start": "own", "distil": 0.5, "base.turned": 0.5}, tiny, silent)
    first, second = (cosine_net(method, f, base, run.rng("head")) for f in (method.f1, method.f2))
    gpu.strict = True
    train_classifier(method, "base", second, base, method.config.base, run, teacher=Teacher(first.eval(), 0.5))
    assert len(gpu.losses) == 2 * 5


@pytest.mark.parametrize("arm", ARMS)
def test_a_step_of_complementary_learning_never_waits(arm, tiny, silent, gpu, monkeypatch):
    method, base, run = on_gpu(ARMS[arm], tiny, silent)
    gpu.strict = True
    for branch in method.branches:
        method.weight_computing(branch, base, run)
    gpu.strict = False
    for student in (Encoded, Mapped):
        monkeypatch.setattr(student, "begin", strictly(student.begin, gpu))
    arms.complement(method, base, run)
    passes = method.config.complement == "conventional" and arm != "conventional, tasks" and "map" not in arm
    assert len(gpu.losses) == 2 * (5 if passes else 2)  # two epochs of all images or of two tasks
    assert gpu.operations > 100


@pytest.fixture(scope="module")
def in_files(tmp_path_factory) -> Benchmark:
    """The tiny benchmark, its images in files."""
    made = tiny_ingredients()
    folder = tmp_path_factory.mktemp("images")

    def filed(images: Any, part: str) -> FileImages:
        paths = [folder / f"{part}{i}.png" for i in range(len(images))]
        for path, pixels in zip(paths, images.pixels, strict=True):
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
        return FileImages(paths, images.labels)

    train, test = filed(made.train, "train"), filed(made.test, "test")
    return Benchmark("tiny", replace(made, train=train, test=test), Protocol())


FEW = {"base.epochs": 2, "base.batch": 75, "transfer.epochs": 2, "tasks": 2, "way": 4, "shot": 5, "query": 6}


@pytest.mark.parametrize("recipe", ["small", "paper", "official"])
def test_a_step_on_images_in_files_never_waits(recipe, in_files, silent, gpu, monkeypatch):
    """As the recipes of CUB-200 have it: other processes decode and crop, what follows is on the device."""
    config = settled({**FEW, "pixels": 32, "base.pixels": (24, 32), "held_out": 5}, "cub200", recipe)
    assert config.encoder == "resnet18"
    method, base, run = built(config, in_files, silent, torch.bfloat16)
    assert isinstance(base.train, FileImages)
    assert base.train.workers > 0
    net = cosine_net(method, method.f1, base, run.rng("head"))
    gpu.strict = True
    train_classifier(method, "base", net, base, config.base, run)
    for branch in method.branches:
        method.weight_computing(branch, base, run)
    assert len(gpu.losses) == 2 * 2  # two epochs of 150 images in batches of 75
    gpu.strict = False
    monkeypatch.setattr(Encoded, "begin", strictly(Encoded.begin, gpu))
    arms.complement(method, base, run)
    assert len(gpu.losses) == 2 * 2 + 2 * 2  # and two of two tasks
    assert gpu.operations > 1000


def strictly(begin: Callable[[Any], None], gpu: FakeGpu) -> Callable[[Any], None]:
    """What comes before the steps of the first epoch; from there on every wait raises, between epochs too."""

    def begun(student: Any) -> None:
        begin(student)
        gpu.strict = True

    return begun


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_batch_statistics_are_estimated_without_a_wait(precision, tiny, silent, gpu):
    method, base, run = on_gpu({"statistics": "upright"}, tiny, silent, precision)
    gpu.strict = True
    estimate_statistics(method.f2, base, method.test_framing(base), run)
    assert gpu.operations > 10


@pytest.mark.parametrize("room", [0.0, math.inf])
def test_a_step_in_half_precision_never_waits_wherever_the_images_are(room, tiny, silent, gpu, monkeypatch):
    monkeypatch.setattr("fscil.data.images.free_memory", lambda device: room)
    method, base, run = on_gpu({"base.epochs": 1}, tiny, silent, torch.bfloat16)
    assert base.train.pixels.device.type == ("cuda" if room else "cpu")
    net = cosine_net(method, method.f1, base, run.rng("head"))
    computed: list[torch.dtype] = []
    method.f1.stages[0][0].register_forward_hook(lambda layer, given, made: computed.append(made.dtype))
    gpu.strict = True
    train_classifier(method, "base", net, base, method.config.base, run)
    assert computed == 5 * [torch.bfloat16]
    assert [loss.dtype for loss in gpu.losses] == 5 * [torch.float32]


def test_reading_a_value_and_mixing_devices_raise(gpu):
    there, here = torch.zeros(3, device=GPU), torch.zeros(3)
    mask = there > 0
    gpu.strict = True
    for wait in (
        there.sum().item,
        lambda: bool(there.any()),
        there.nonzero,
        there.cpu,
        lambda: here.to(GPU),
        lambda: here.to(GPU, non_blocking=True),  # it is not pinned
        lambda: torch.tensor([1, 2], device=GPU),
        lambda: there[mask],
        lambda: there.index_put_((mask,), there),
        lambda: torch.rand(3, device=GPU, generator=torch.Generator()),
    ):
        with pytest.raises((HostWaits, DataDependentOutputException, DynamicOutputShapeException)):
            wait()
    assert sent(here, GPU).device == GPU
    for mixture in (lambda: there + here, lambda: there[torch.tensor([0])], lambda: torch.cat([there, here])):
        with pytest.raises(HostWaits, match="mixes"):
            mixture()
    gpu.strict = False
    with pytest.raises(RuntimeError, match="device"):
        there + here


def test_the_loss_of_a_device_is_read_every_few_steps(tiny, silent, monkeypatch):
    """On a CPU, where nobody waits, at every step."""
    reads: list[int] = []
    read = Loop._read
    monkeypatch.setattr(Loop, "_read", lambda loop, loss: (reads.append(loop.total), read(loop, loss))[1])
    for device, expected in ((torch.device("cpu"), 25), (DEVICE, 2)):
        run = Run(RunFolder(silent.cache, writable=False), 0, silent.cache, Devices(device=device))
        with pretended():
            net = torch.nn.Linear(1, 1).to(device)
            for epoch in run.epochs("line", net, net, Descent(epochs=5), 5):
                for _ in range(5):
                    epoch.step(net(torch.ones(1, 1).to(device)).square().sum())
        assert len(reads) == expected
        reads.clear()


def test_a_device_that_diverges_is_told_of_before_anything_is_written(tiny, run):
    far = Run(run.folder, 0, run.cache, Devices(device=DEVICE), checkpoint_seconds=0.0)

    def train() -> None:
        net = torch.nn.Linear(1, 1).to(DEVICE)
        for epoch in far.epochs("line", net, net, Descent(epochs=1), 30):
            for step in range(30):
                epoch.step(net(torch.full((1, 1), math.nan if step == 3 else 1.0).to(DEVICE)).sum())

    with pretended(), pytest.raises(FscilError, match="line is nan: it diverged"):
        train()
    assert not run.folder.stage(0, "line").exists()


@pytest.mark.parametrize("room", [0.0, math.inf])
@pytest.mark.parametrize("augment", [None, Augment(crop="pad", cutout=3, brightness=0.2), Augment(min_area=0.3)])
def test_images_that_fit_stay_on_the_device(room, augment, tiny, monkeypatch):
    monkeypatch.setattr("fscil.data.images.free_memory", lambda device: room)
    images, framing = tiny.base().train, Framing(16, tiny.mean, tiny.std, augment, margin=1.0)
    chunks, rng = [torch.arange(5), torch.arange(7, 9)], torch.Generator().manual_seed if augment else None
    expected = list(images.batches(chunks, framing, rng))
    with pretended():
        moved = images.on(DEVICE).select(torch.arange(9))
        assert moved.pixels.device == (DEVICE if room else torch.device("cpu"))
        for batch, plain in zip(moved.batches(chunks, framing, rng), expected, strict=True):
            assert batch.device == DEVICE
            assert torch.equal(batch.cpu(), plain)


def test_images_in_files_are_finished_on_the_device(tmp_path):
    Image.new("RGB", (20, 24), (200, 30, 60)).save(tmp_path / "red.png")
    images = FileImages([tmp_path / "red.png"], torch.zeros(1), workers=0)
    framing = Framing(16, (0.5,) * 3, (0.3,) * 3, Augment(brightness=0.5))
    plain = next(images.batches([torch.arange(1)], framing, torch.Generator().manual_seed))
    with pretended():
        moved = images.on(DEVICE).select([0])
        batch = next(moved.batches([torch.arange(1)], framing, torch.Generator().manual_seed))
        assert batch.device == DEVICE
        assert torch.equal(batch.cpu(), plain)


def test_images_in_files_are_sent_without_a_wait(tmp_path, gpu):
    Image.new("RGB", (20, 24), (200, 30, 60)).save(tmp_path / "red.png")
    images = FileImages([tmp_path / "red.png"], torch.zeros(1), workers=0).on(GPU)
    framing = Framing(16, (0.5,) * 3, (0.3,) * 3, Augment(brightness=0.5, cutout=4))
    gpu.strict = True
    batch = next(images.batches([torch.arange(1)], framing, torch.Generator().manual_seed))
    assert batch.device == GPU
    assert batch.shape == (1, 3, 16, 16)
