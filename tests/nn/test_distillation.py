"""Losses that remember: zero, and without gradient, where nothing has changed."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.nn.distillation import (
    anchoring,
    blockwise_distillation,
    distillation,
    less_forget,
    margin_ranking,
    one_vs_all,
)
from tiny import random

SEEDS = st.integers(0, 10_000)


def gradient(loss, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(x), x)
    return found


@given(SEEDS)
@settings(max_examples=20)
def test_distillation_is_zero_without_gradient_at_equality(seed: int) -> None:
    logits = random(5, 7, seed=seed)
    assert float(distillation(logits, logits, 2.0)) == pytest.approx(0, abs=1e-6)
    assert gradient(lambda x: distillation(x, logits, 2.0), logits).abs().max() < 1e-7
    assert float(distillation(random(5, 7, seed=seed + 1), logits, 2.0)) > 0


def test_distillation_differs_from_cross_entropy_by_the_entropy_of_the_teacher() -> None:
    student, teacher = random(5, 7), random(5, 7, seed=1)
    q = (teacher / 2).softmax(1)
    entropy = -(q * q.log()).sum(1).mean()
    torch.testing.assert_close(distillation(student, teacher, 2.0) + entropy, F.cross_entropy(student / 2, q))


@given(SEEDS)
@settings(max_examples=20)
def test_blocks_are_distilled_apart_and_exactly(seed: int) -> None:
    logits, before, widths = random(4, 9, seed=seed), random(4, 6, seed=seed + 1), [3, 1, 2]
    loss = blockwise_distillation(logits, before, widths, 2.0)
    shifted = logits + torch.tensor([5.0] * 3 + [0.0] * 6)  # a constant on one old block
    torch.testing.assert_close(blockwise_distillation(shifted, before, widths, 2.0), loss, rtol=1e-4, atol=1e-5)
    rows = torch.tensor([0, 4, 8, 8])
    assert not torch.isclose(F.cross_entropy(shifted, rows), F.cross_entropy(logits, rows))
    touched = gradient(lambda x: blockwise_distillation(x, before, widths, 2.0), logits).abs().sum(0) > 0
    assert touched.tolist() == [True] * 3 + [False] + [True] * 2 + [False] * 3  # one class alone has nothing to say
    still = gradient(lambda x: blockwise_distillation(x, before, widths, 2.0), torch.cat([before, logits[:, 6:]], 1))
    assert still.abs().max() < 1e-6


@given(SEEDS)
@settings(max_examples=20)
def test_one_vs_all_has_no_gradient_for_old_classes_that_answer_as_before(seed: int) -> None:
    logits, rows = random(4, 6, seed=seed), torch.tensor([0, 1, 4, 5])
    found = gradient(lambda x: one_vs_all(x, rows, logits[:, :4]), logits)
    assert found[:, :4].abs().max() < 1e-6
    assert found[:, 4:].abs().min() > 0


def test_one_vs_all_sums_over_classes() -> None:
    assert float(one_vs_all(torch.zeros(3, 5), torch.tensor([0, 1, 2]))) == pytest.approx(5 * 0.693147, rel=1e-5)
    perfect = 50 * (2 * F.one_hot(torch.tensor([1, 0]), 2).float() - 1)
    assert float(one_vs_all(perfect, torch.tensor([1, 0]))) == pytest.approx(0, abs=1e-6)


def test_less_forget_is_one_minus_the_cosine_whatever_the_lengths() -> None:
    f = random(4, 8)
    assert float(less_forget(f, f)) == pytest.approx(0, abs=1e-6)
    assert gradient(lambda x: less_forget(x, f), f).abs().max() < 1e-6
    assert float(less_forget(-f, f)) == pytest.approx(2)
    torch.testing.assert_close(less_forget(3 * f, random(4, 8, seed=1)), less_forget(f, random(4, 8, seed=1)))


def test_margin_ranking_by_hand() -> None:
    cosines = torch.tensor([[0.9, 0.0, 0.4, 0.3], [0.2, 0.9, 0.9, 0.1]])
    assert float(margin_ranking(cosines[:1], torch.tensor([0]), 2, 0.5, 2)) == pytest.approx(0, abs=1e-6)
    assert float(margin_ranking(cosines[1:], torch.tensor([1]), 2, 0.5, 1)) == pytest.approx(0.5)  # equal: m
    assert float(margin_ranking(cosines[1:], torch.tensor([1]), 2, 0.5, 2)) == pytest.approx(0.25)
    assert float(margin_ranking(cosines[1:], torch.tensor([1]), 2, 0.5, 9)) == pytest.approx(0.25)  # K of 2 classes
    assert float(margin_ranking(cosines, torch.tensor([2, 3]), 2, 0.5, 2)) == 0  # no exemplar of an old class
    assert float(margin_ranking(cosines[:, :2], torch.tensor([0, 1]), 2, 0.5, 2)) == 0  # no new class


@given(SEEDS)
@settings(max_examples=20)
def test_margin_ranking_is_zero_from_the_margin_on(seed: int) -> None:
    cosines = random(3, 5, seed=seed).clamp(-1, 1) * 0.25
    cosines[:, 0] = 0.75
    assert float(margin_ranking(cosines, torch.zeros(3, dtype=torch.int64), 2, 0.5, 2)) == 0


def test_anchoring_is_the_weighted_squared_distance_to_the_anchors() -> None:
    f = random(3, 4)
    assert float(anchoring(f, f)) == 0
    assert gradient(lambda x: anchoring(x, f), f).abs().max() == 0
    assert float(anchoring(f + 2, f)) == pytest.approx(4)
    assert float(anchoring(f + 2, f, torch.full((3, 4), 0.5))) == pytest.approx(2)
