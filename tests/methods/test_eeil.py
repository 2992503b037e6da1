"""EEIL: which columns are distilled, a flat balanced set, and noise of the size of the authors' code."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import eeil
from fscil.methods.eeil import gradient_noise, noisy_gradients
from fscil.running.devices import Devices
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run
from tiny import learn_two
from untrained import untrained


def test_stages_distil_the_old_blocks_and_then_all_of_them_on_a_flat_set(
    tiny: Benchmark, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    method, train_stage = untrained("eeil"), eeil.Method.train_stage

    def watched(self, stage, images, before, session, tuning, run):
        seen.append((stage, before.head.widths, torch.bincount(images.labels).tolist()))
        train_stage(self, stage, images, before, session, tuning, run)

    monkeypatch.setattr(eeil.Method, "train_stage", watched)
    for session in list(tiny.sessions())[:3]:
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
    assert seen == [
        ("new", [6], [4] * 6 + [5] * 2),
        ("balanced", [6, 2], [3] * 8),
        ("new", [6, 2], [3] * 8 + [5] * 2),
        ("balanced", [6, 2, 2], [2] * 10),
    ]
    assert torch.bincount(method.memory.labels).tolist() == [2] * 10


@pytest.mark.parametrize(("epoch", "images"), [(0, 128), (3, 25)])
def test_noise_on_the_applied_gradient(epoch: int, images: int) -> None:
    """0.3 / (1 + e)^0.55, added to a sum over the batch whose mean is descended."""
    std = gradient_noise(0.3, epoch, images)
    assert std == pytest.approx(0.3 / (1 + epoch) ** 0.55 / images)
    dummy = nn.Parameter(torch.zeros(100_000))
    with noisy_gradients([dummy], std, torch.Generator().manual_seed(0)):
        (0 * dummy.sum()).backward()
    assert float(dummy.grad.var()) == pytest.approx(std**2, rel=0.02)
    assert float(dummy.grad.mean()) == pytest.approx(0, abs=4 * std / 100_000**0.5)


def weights_after_a_step(tiny: Benchmark, run: Run, **changes: object) -> Tensor:
    """The first convolution after one step on 34 images, 24 exemplars and ten new ones."""
    method = untrained("eeil", **{"balanced.epochs": 0, **changes})
    for file in run.folder.path.glob("stage-*"):
        file.unlink()
    learn_two(method, tiny, run)
    return method.encoder.stages[0][0].weight.detach()


def test_noise_on_the_mean_is_a_batch_size_larger_than_on_the_sum(tiny: Benchmark, run: Run) -> None:
    calm = weights_after_a_step(tiny, run, noise=0.0)
    on_sum, on_mean = (weights_after_a_step(tiny, run, noise_on=which) - calm for which in ("sum", "mean"))
    assert float(on_sum.abs().max()) > 0
    torch.testing.assert_close(on_mean, 34 * on_sum, rtol=1e-3, atol=1e-5)


def test_detached_rows_give_the_cross_entropy_no_way_to_the_features(tiny: Benchmark, run: Run) -> None:
    """Without distillation, which has one through them."""
    calm = {"noise": 0.0, "distill": 0.0}
    frozen, detached = (weights_after_a_step(tiny, run, **calm, **{"new.old_rows": r}) for r in ("frozen", "detached"))
    assert not torch.allclose(frozen, detached)


class OneOfTwo(Devices):
    """A device with a twin that computes the same and is never asked."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 2

    def average(self, tensors: object) -> None:
        pass

    def agree(self, value: object) -> object:
        return value

    def totals(self, *numbers: int) -> list[int]:
        return [2 * number for number in numbers]


@pytest.mark.parametrize("devices", [Devices(), OneOfTwo()], ids=["one device", "two devices"])
@pytest.mark.parametrize(("noise_on", "images"), [("sum", [34, 24]), ("mean", [1, 1])])
def test_noise_on_the_sum_is_that_of_the_whole_batch(
    devices: Devices,
    noise_on: str,
    images: list[int],
    tiny: Benchmark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(eeil, "gradient_noise", lambda size, epoch, count: seen.append(count) or 0.0)
    run = Run(RunFolder(tmp_path, writable=False), 0, tmp_path, devices)
    learn_two(untrained("eeil", noise_on=noise_on), tiny, run)
    assert seen == images


def test_a_memory_without_room_for_every_class_is_told_before_training(tiny: Benchmark) -> None:
    untrained("eeil", memory=12).check(tiny)
    with pytest.raises(FscilError, match="a memory of 11 images has no room for each of 12 classes; set --memory"):
        untrained("eeil", memory=11).check(tiny)


def test_noise_ends_with_the_block_and_comes_once_per_parameter() -> None:
    p = nn.Parameter(torch.ones(3))
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    expected = 0.5 * torch.randn(3, generator=torch.Generator().manual_seed(7))
    with noisy_gradients([frozen, p], 0.5, torch.Generator().manual_seed(7)):
        (p.sum() + (2 * p).sum()).backward()  # used twice, one gradient
    torch.testing.assert_close(p.grad, 3 + expected)
    p.grad = None
    p.sum().backward()
    assert torch.equal(p.grad, torch.ones(3))


def test_without_noise_nothing_is_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    with noisy_gradients([nn.Parameter(torch.ones(2))], gradient_noise(0.0, 0, 8), generator):
        pass
    assert torch.equal(generator.get_state(), before)
