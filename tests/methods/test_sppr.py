"""SPPR: what random episode selection replaces, what refinement changes, and when."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import sppr
from fscil.methods._sppr import replaced, subsets
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from tiny import random
from untrained import untrained

STILL = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base()


def taught(refine: str, classes: int) -> sppr.Method:
    """A method that knows random prototypes, three of them of base classes."""
    method = untrained("sppr", refine=refine).eval()
    for label, row in enumerate(random(classes, 16)):
        method.branches[0].prototypes.set(label, row)
    method.base_classes.fill_(3)
    return method


def step(chosen: list[list[int]], method: sppr.Method) -> tuple[Tensor, Tensor]:
    """Loss of one step with five base classes, and the gradient of their prototypes."""
    P, x, S = nn.Parameter(random(5, 16)), random(6, 3, 16, 16, seed=1), random(3, 2, 3, 16, 16, seed=2)
    y, rows = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([4, 0, 2])
    loss = method.loss(P, x, y, S, rows, [torch.tensor(own) for own in chosen])
    loss.backward()
    return loss.detach(), P.grad


def test_pseudo_new_classes_leave_their_prototypes_alone() -> None:
    _, gradient = step([[0, 2]], untrained("sppr", **STILL).train())
    assert gradient[[4, 2]].abs().max() == 0  # rows of the classes 0 and 2 of the support
    assert (gradient[[0, 1, 3]].abs().sum(1) > 0).all()


def test_the_same_task_three_times_is_that_task() -> None:
    once, thrice = (step(chosen, untrained("sppr", **STILL).train())[0] for chosen in ([[0, 2]], [[0, 2]] * 3))
    torch.testing.assert_close(once, thrice)
    assert not torch.allclose(once, step([[0, 1]], untrained("sppr", **STILL).train())[0], atol=1e-6)


def test_training_compares_with_all_base_classes_in_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    plain = sppr.cross_entropy
    monkeypatch.setattr(
        sppr, "cross_entropy", lambda logits, *rest: shapes.append(logits.shape) or plain(logits, *rest)
    )
    step([[0, 2], [1]], untrained("sppr", **STILL).train())
    assert shapes == [(2 * 6, 5)]  # tasks and images, base classes


@settings(max_examples=20)
@given(size=st.integers(1, 9), data=st.data())
def test_tasks_take_different_classes_of_the_support(size: int, data: st.DataObject) -> None:
    way = data.draw(st.integers(1, size))
    chosen = subsets(3, size, way, torch.Generator().manual_seed(0))
    assert len(chosen) == 3
    assert all(len(set(own.tolist())) == way and set(own.tolist()) <= set(range(size)) for own in chosen)


def test_replaced_rows_are_no_longer_among_the_old_ones() -> None:
    P = random(4, 3)
    C, old = replaced(P, torch.tensor([2, 0]), torch.tensor([[2.0] * 3, [0.0] * 3]))
    assert torch.equal(C, torch.stack([torch.zeros(3), P[1], torch.full((3,), 2.0), P[3]]))
    assert torch.equal(old, P[[1, 3]])


def test_refinement_without_output_changes_nothing() -> None:
    method = taught("always", 5)
    for parameter in method.attention.output.parameters():
        parameter.data.zero_()
    assert torch.equal(method.prototypes(), method.branches[0].prototypes.means())


@settings(max_examples=10)
@given(seed=st.integers(0, 99))
def test_refinement_does_not_depend_on_the_order_of_classes(seed: int) -> None:
    method, C = untrained("sppr").eval(), random(6, 16, seed=seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    one, other = method.refine(C[order], C[:4]), method.refine(C, C[:4])[order]
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_which_prototypes_are_refined_and_when() -> None:
    raw = random(5, 16)
    for refine, base_session in (("all", raw[:3]), ("new", raw[:3]), ("always", None)):
        W = taught(refine, 3).prototypes()
        assert torch.equal(W, base_session) if base_session is not None else not torch.allclose(W, raw[:3], atol=1e-3)
    for refine in ("all", "always"):
        assert not torch.allclose(taught(refine, 5).prototypes(), raw, atol=1e-3)
    W = taught("new", 5).prototypes()
    assert torch.equal(W[:3], raw[:3])
    assert (W[3:] - raw[3:]).abs().max() > 1e-3


def test_unrefined_base_classes_keep_their_scores(tiny: Benchmark) -> None:
    f = [random(7, 16, seed=5)]
    with torch.no_grad():
        before, after = taught("new", 3).relate(f), taught("new", 5).relate(f)
    assert after.shape == (7, 5)
    torch.testing.assert_close(before, after[:, :3])


def test_the_relation_network_is_one_on_concatenated_pairs() -> None:
    network, f, p = untrained("sppr").relation.eval(), random(2, 16), random(3, 16, seed=1)
    unit = [nn.functional.normalize(v, dim=1) for v in (f, p)]
    pair = torch.cat([unit[0][1], unit[1][2]])
    first = pair @ torch.cat([network.feature.weight, network.prototype.weight], 1).T + network.feature.bias
    torch.testing.assert_close(network(f, p)[1, 2], network.rest(first[None])[0, 0])
    torch.testing.assert_close(network(f, torch.stack([p, p + 1]))[0], network(f, p))


@pytest.mark.parametrize("pretrain", [False, True])
def test_learns_what_it_should_and_costs_what_it_said(pretrain: bool, base: Session, tiny: Benchmark, run: Run) -> None:
    method = untrained("sppr", pretrain=pretrain)
    method.check(tiny)
    with run.learning(0) as cost:
        method.learn_base(base, run)
    assert cost.macs == sum(stage_macs(stage, method.encoder) for stage in method.plan(base))
    assert [stage.name for stage in run.stages] == (["base", "RES"] if pretrain else ["RES"])
    assert method.classes == base.classes
    assert method.branches[0].prototypes.means().norm(dim=1).min() > 0  # they started at zero
    states = {key: value.clone() for key, value in method.state_dict().items() if "prototypes" not in key}
    method.learn_new(list(tiny.sessions())[1], run)
    assert [key for key, value in states.items() if not torch.equal(value, method.state_dict()[key])] == []
    x = next(base.train.batches([torch.arange(4)], method.test_framing(base)))
    assert method.scores(x).shape == (4, 8)


def test_shots_may_be_augmented_as_in_the_released_code(tiny: Benchmark, run: Run, tmp_path: Path) -> None:
    means = []
    for framing in ("test", "train", "train"):
        method = untrained("sppr", shot_view=framing)
        method.learn_new(list(tiny.sessions())[1], run)
        means.append(method.branches[0].prototypes.means())
    assert torch.equal(means[1], means[2])
    assert not torch.allclose(means[0], means[1], atol=1e-4)


def test_too_few_classes_for_the_support_are_told_before_training(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="7 classes cannot be drawn from 6 base classes"):
        untrained("sppr", way=5).check(tiny)
