"""C-FSCIL: its functions by hand, and what each of the three modes moves."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.data.episodes import Task
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import c_fscil
from fscil.methods._c_fscil import alignment, repulsion, sharpened, similarity, softabs
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from fscil.settings import resolve
from tiny import random
from untrained import untrained


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base()


def off_diagonal(p: Tensor) -> float:
    """Mean |cosine| of different prototypes."""
    s = similarity(p, p).detach().abs()
    return float((s.sum() - s.trace()) / (len(p) * (len(p) - 1)))


@pytest.mark.parametrize(("s", "e"), [(1.0, 0.993307), (-1.0, 0.993307), (0.0, 0.013386), (0.5, 0.500045)])
def test_softabs_has_the_papers_values(s: float, e: float) -> None:
    assert float(softabs(torch.tensor(s))) == pytest.approx(e, abs=1e-6)


@pytest.mark.parametrize(("s", "value"), [(0.0, 0.0), (0.1, 0.16214), (0.5, 5.52439), (1.0, 52.61647)])
def test_repulsion_of_two_prototypes(s: float, value: float) -> None:
    """Vectors whose tanh have this cosine."""
    pair = torch.tensor([[0.5, 0.0], [0.5 * s, 0.5 * math.sqrt(1 - s * s)]])
    assert float(repulsion(pair.atanh())) == pytest.approx(value, abs=1e-3)


def test_repulsion_counts_each_pair_once() -> None:
    p = random(4, 8)
    pairs = [repulsion(p[[i, j]]) for i in range(4) for j in range(i)]
    torch.testing.assert_close(repulsion(p), torch.stack(pairs).mean())


def test_a_perfect_query_weighs_its_class_most_and_unused_classes_lower_it() -> None:
    perfect = torch.eye(60)
    assert float(sharpened(perfect)[0, 0]) == pytest.approx(0.557, abs=1e-3)
    assert float(sharpened(perfect, unused=40)[0, 0]) == pytest.approx(0.428, abs=1e-3)
    torch.testing.assert_close(sharpened(perfect).sum(1), torch.ones(60))


def test_prototypes_of_an_episode_are_means_or_sums_and_get_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(c_fscil, "similarity", lambda q, p: seen.append(p) or similarity(q, p))
    task = Task(random(3, 5, 3, 16, 16), None, torch.arange(3), 2)
    for sums in (False, True):
        method = untrained("c_fscil", sums=sums)
        support = method.encoder.eval()(task.S.flatten(0, 1))
        p = method.projection(support).unflatten(0, (3, 2))
        loss = method.loss(task)
        torch.testing.assert_close(seen[-1], p.sum(1) if sums else p.mean(1), rtol=1e-4, atol=1e-5)
        assert not seen[-1].requires_grad
        assert loss.requires_grad


@settings(max_examples=20)
@given(seed=st.integers(0, 99), scale=st.floats(0.1, 5))
def test_anti_aligned_prototypes_match_as_well(seed: int, scale: float) -> None:
    q, p = random(3, 8, seed=seed), scale * random(4, 8, seed=seed + 1)
    torch.testing.assert_close(similarity(q, -p).abs(), similarity(q, p).abs())


@pytest.fixture(scope="module")
def taught() -> dict[str, Tensor]:
    """The state of a method with activations of six classes that are similar to each other."""
    method = untrained("c_fscil")
    for label, row in enumerate(1 + 0.5 * random(6, 16)):
        method.branches[0].prototypes.set(label, row)
    return method.state_dict()


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_what_each_mode_moves(mode: int, taught: dict[str, Tensor], tiny: Benchmark, run: Run) -> None:
    method, before = untrained("c_fscil", mode=mode), untrained("c_fscil", mode=1)
    session = list(tiny.sessions())[1]
    for learner in (method, before):
        learner.load_state_dict(taught)
        with run.learning(1):
            learner.learn_new(session, run)
    old, new = before.state_dict(), method.state_dict()
    moved = {key for key in old if not torch.equal(old[key], new[key])}
    assert moved == (set() if mode == 1 else {"projection.weight", "projection.bias"})
    if mode == 2:
        target = before.prototypes().sign()
        assert alignment(method.prototypes(), target) > alignment(before.prototypes(), target)
    if mode == 3:
        assert off_diagonal(method.prototypes()) < off_diagonal(before.prototypes())


def test_signs_of_prototypes_are_less_similar_once_the_projection_reaches_them(
    taught: dict[str, Tensor], run: Run
) -> None:
    """In many dimensions, which is what the method lives on, and with all the steps this takes."""
    method = untrained("c_fscil", mode=2, dim=256, **{"align.epochs": 60, "align.lr": 1.0})
    method.branches[0].load_state_dict({k[11:]: v for k, v in taught.items() if k.startswith("branches.0.")})
    p = method.prototypes().detach()
    with run.learning(1):
        method.align(p.sign(), run)
    assert off_diagonal(method.prototypes()) < off_diagonal(p) - 0.05


def test_nudged_prototypes_repel_each_other_but_stay_close(run: Run) -> None:
    method, p = untrained("c_fscil"), 1 + 0.5 * random(6, 24)
    with run.learning(1):
        nudged = method.nudged(p, run)
    assert off_diagonal(nudged) < 0.5 * off_diagonal(p)
    assert float(alignment(nudged, p)) > 0.3


@pytest.mark.parametrize("pretrain", ["linear", "shared"])
def test_learns_what_it_should_and_costs_what_it_said(pretrain: str, base: Session, tiny: Benchmark, run: Run) -> None:
    method = untrained("c_fscil", pretrain=pretrain, base_shots=7)
    method.check(tiny)
    with run.learning(0) as cost:
        method.learn_base(base, run)
    assert cost.macs == sum(stage_macs(stage, method.encoder) for stage in method.plan(base))
    assert method.branches[0].prototypes.counts.tolist()[:6] == [7] * 6
    assert method.prototypes().shape == (6, 24)
    x = next(base.train.batches([torch.arange(4)], method.test_framing(base)))
    scores = method.scores(x)
    assert scores.shape == (4, 6)
    assert 0 <= float(scores.detach().min()) <= float(scores.detach().max()) <= 1 + 1e-6


def test_the_released_sums_stretch_base_activations_alone(base: Session, tiny: Benchmark, run: Run) -> None:
    means = []
    for sums in (False, True):
        method = untrained("c_fscil", mode=1, sums=sums)
        with run.learning(0):
            method.average_activations(base, run)
            method.learn_new(list(tiny.sessions())[1], run)
        means.append(method.branches[0].prototypes.means())
    torch.testing.assert_close(means[1][:6], 2 * means[0][:6])  # 180 images are two mini-batches
    torch.testing.assert_close(means[1][6:], means[0][6:])


def test_more_classes_than_dimensions_are_told_before_training(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="12 classes cannot be orthogonal in 11 dimensions"):
        untrained("c_fscil", dim=11).check(tiny)


@pytest.mark.parametrize("dataset", ["cifar100", "mini_imagenet"])
@pytest.mark.parametrize(("recipe", "epochs"), [("paper", 120), ("official", 119)])
def test_the_base_session_has_the_schedule_of_the_authors(recipe: str, epochs: int, dataset: str) -> None:
    base = resolve(c_fscil.Config, "c_fscil", dataset, recipe).base
    assert (base.epochs, base.batch, base.lr, base.step_epochs) == (epochs, 128, 0.01, 30)
