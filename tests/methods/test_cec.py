"""CEC: the attention treats classes as a set, and pseudo-incremental learning trains what it should."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data.episodes import Task, episodes
from fscil.data.images import Framing
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import cec
from fscil.nn.attention import SetAttention
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from tiny import random
from untrained import untrained


@pytest.fixture(scope="module")
def method() -> cec.Method:
    return untrained("cec")


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base()


class Start:
    """The first step of an epoch."""

    start = 0

    def rng(self, *purpose: object) -> torch.Generator:
        return torch.Generator().manual_seed(len(str(purpose)))


def task_of(method: cec.Method, base: Session) -> Task:
    return next(episodes(base.train, method.train_framing(base), method.sampling, 1, Start()))


@settings(max_examples=10)
@given(classes=st.integers(1, 9), queries=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_order_of_classes_does_not_matter(method: cec.Method, classes: int, queries: int, seed: int) -> None:
    f, W = random(queries, 16, seed=seed), random(classes, 16, seed=seed + 1)
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    one, other = method.relations(f, W[order]), method.relations(f, W)[:, order]
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_query_does_not_see_other_queries(method: cec.Method) -> None:
    f, W = random(5, 16), random(4, 16, seed=1)
    together = method.relations(f, W)
    apart = torch.cat([method.relations(one, W) for one in f.split(1)])
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-6)


def test_but_it_is_seen_by_the_prototypes(method: cec.Method) -> None:
    W = random(4, 16, seed=1)
    sets = [torch.cat([W, 5 * random(1, 16, seed=seed)]) for seed in (2, 3)]
    one, two = (method.attention(tokens, tokens)[:4] for tokens in sets)
    assert not torch.allclose(one, two, atol=1e-2)


def test_without_attention_it_is_the_correlation(method: cec.Method) -> None:
    f, W = random(3, 16), random(4, 16, seed=1)
    expected = torch.corrcoef(torch.cat([f, W]))[:3, 3:]
    torch.testing.assert_close(untrained("cec", start=0.0).relations(f, W), expected, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(method.relations(f, W), expected, atol=1e-2)


def test_attention_over_a_set_by_hand() -> None:
    attention, x = SetAttention(3).eval(), random(4, 3)
    q, k, v = (x @ layer.weight.T for layer in (attention.query, attention.key, attention.value))
    expected = x + (q @ k.T / 3**0.5).softmax(1) @ v @ attention.output.weight.T + attention.output.bias
    torch.testing.assert_close(attention(x, x), expected)
    torch.testing.assert_close(attention(x.expand(2, 4, 3), x.expand(2, 4, 3))[1], expected)


def test_an_episode_is_classified_among_real_and_rotated_classes(base: Session) -> None:
    method = untrained("cec")
    task = task_of(method, base)
    seen = []
    method.relations = lambda f, W: seen.append((f, W)) or torch.zeros(len(f), len(W))
    assert float(method.loss(task)) == pytest.approx(torch.tensor(6.0).log())
    queries, prototypes = seen[0]
    assert queries.shape == (12, 16)
    shown = method.encode(task.support.flatten(0, 1)).unflatten(0, (6, 2))
    torch.testing.assert_close(prototypes, shown.mean(1), rtol=1e-4, atol=1e-5)
    first_twin = method.encode(task.twins[0, 2:])  # row 3, behind the three real classes
    torch.testing.assert_close(queries[6:8], first_twin, rtol=1e-4, atol=1e-5)


def test_the_encoder_has_a_rate_of_its_own(base: Session) -> None:
    gradients = []
    for rate in (1.0, 10.0):
        method = untrained("cec", encoder_rate=rate)
        loss = method.loss(task_of(method, base))
        loss.backward()
        attention, convolution = method.attention.value.weight.grad, next(method.encoder.parameters()).grad
        gradients.append((loss.detach(), attention, convolution))
    (loss, attention, convolution), (same_loss, same_attention, tenfold) = gradients
    torch.testing.assert_close(loss, same_loss)
    torch.testing.assert_close(attention, same_attention)
    torch.testing.assert_close(10 * convolution, tenfold, rtol=1e-3, atol=1e-6)


def test_learns_what_it_should_and_costs_what_it_said(base: Session, tiny: Benchmark, run: Run) -> None:
    method = untrained("cec", shrinkage=0.5)
    method.check(tiny)
    start = deepcopy(method)
    with run.learning(0) as cost:
        method.learn_base(base, run)
    assert cost.macs == sum(stage_macs(stage, method.encoder) for stage in method.plan(base))
    trained = next(stage for stage in run.stages if stage.name == "base")
    assert trained.steps == 6
    assert not torch.equal(method.attention.query.weight, start.attention.query.weight)
    states = {key: value.clone() for key, value in method.state_dict().items() if "prototypes" not in key}
    session = list(tiny.sessions())[1]
    method.learn_new(session, run)
    assert method.classes == tuple(range(8))
    assert [key for key, value in states.items() if not torch.equal(value, method.state_dict()[key])] == []
    x = next(session.train.batches([torch.arange(10)], method.test_framing(session)))
    mean = method.embed(x[session.train.labels == 6])[0].mean(0)
    torch.testing.assert_close(method.branches[0].prototypes.means()[6], mean, rtol=1e-4, atol=1e-5)


def test_pseudo_incremental_learning_moves_encoder_and_attention_but_no_statistics(base: Session, run: Run) -> None:
    method = untrained("cec")
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with run.learning(0):
        method.pseudo_incremental_learning(base, run)
    moved = {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {key for key, _ in method.named_parameters()}


def test_episodes_without_augmentation_show_the_test_view(base: Session) -> None:
    method = untrained("cec")
    plain: Framing = method.plain_framing(base)
    chunk = [torch.arange(3)]
    one = next(base.train.batches(chunk, plain, lambda i: torch.Generator()))
    assert torch.equal(one, next(base.train.batches(chunk, method.test_framing(base))))


def test_too_few_classes_for_an_episode_are_told_before_training(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="7 classes cannot be drawn from 6 base classes"):
        untrained("cec", way=7).check(tiny)
