"""EEIL: which columns are distilled, a flat balanced set, and noise of the size of the authors' code."""

import pytest
import torch
from torch import nn

from conftest import TINY, tiny_encoder
from fscil.data.sessions import Benchmark
from fscil.methods import eeil
from fscil.methods.eeil import gradient_noise, noisy_gradients
from fscil.settings import resolve
from fscil.training import Run


def untrained(**changes: object) -> eeil.Method:
    small = {**TINY, "base.epochs": 0, "new.epochs": 1, "balanced.epochs": 1, "memory": 24, **changes}
    return eeil.Method(resolve(eeil.Config, "eeil", "tiny", "paper", small), tiny_encoder())


def test_stages_distil_the_old_blocks_and_then_all_of_them_on_a_flat_set(
    tiny: Benchmark, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    method, train_stage = untrained(), eeil.Method.train_stage

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
