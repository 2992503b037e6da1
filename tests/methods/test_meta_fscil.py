"""MetaFSCIL: fast weights and their gradients by hand, sequences, gates, and the real inner loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import meta_fscil
from fscil.methods._meta_fscil import Drawn, Gated, Shape, adapt, draw, modulated, ungated, with_gradient
from fscil.methods.meta_fscil import plain
from fscil.nn.encoders import Encoder
from fscil.nn.relations import cosine, mean_of_labels
from fscil.running.descent import Descent
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from fscil.settings import resolve
from tiny import random, tiny_encoder
from untrained import untrained


def sequence(seed: int = 0) -> Drawn:
    support = [random(3, 4, 3, 16, 16, seed=seed), random(1, 2, 3, 16, 16, seed=seed + 1)]
    return Drawn(support, random(4, 3, 3, 16, 16, seed=seed + 2))


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base()


@pytest.mark.parametrize("second_order", [False, True])
def test_one_step_on_a_parabola(second_order: bool) -> None:
    """L(t) = h t^2 / 2, so that t' = t - lr h t, and dL(t')/dt = (1 - lr h) h t' in second order, h t' in first."""
    t, h, lr = torch.tensor(2.0, requires_grad=True), 3.0, 0.1
    fast = adapt(lambda p: h * p["t"] ** 2 / 2, {"t": t}, plain(1, lr), second_order)["t"]
    assert fast.item() == pytest.approx(2 - lr * h * 2)
    (slope,) = torch.autograd.grad(h * fast**2 / 2, t)
    assert slope.item() == pytest.approx(h * fast.item() * (1 - lr * h if second_order else 1))
    assert t.item() == 2


def test_fast_weights_follow_the_schedule() -> None:
    halved = Descent(epochs=2, lr=0.1, momentum=0.0, weight_decay=0.0, step_epochs=1, gamma=0.5)
    fast = adapt(lambda p: p["t"], {"t": torch.tensor(1.0, requires_grad=True)}, halved)["t"]
    assert fast.item() == pytest.approx(1 - 0.1 - 0.05)


def test_a_loss_is_made_that_has_given_value_and_gradients() -> None:
    p = [nn.Parameter(random(2, 3)), nn.Parameter(random(4))]
    g = [random(2, 3, seed=1), random(4, seed=2)]
    loss = with_gradient(1.5, p, g)
    loss.backward()
    assert loss.item() == 1.5
    assert all(torch.equal(one.grad, other) for one, other in zip(p, g, strict=True))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_sequences_are_disjoint_and_rows_are_counted_up(sessions: list[tuple[int, int]], query: int, seed: int) -> None:
    shape = Shape(*map(tuple, zip(*sessions, strict=True)), query)
    pool = {label: torch.arange(8) + 100 * label for label in (3, 5, 6, 11, 12, 17, 20, 30, 40)}
    drawn = draw(pool, shape, torch.Generator().manual_seed(seed))
    assert [tuple(part.shape) for part in drawn.support] == sessions
    assert drawn.query.shape == (sum(n for n, _ in sessions), query)
    assert len(set(drawn.flat.tolist())) == len(drawn.flat)  # no image is support and query, nor twice either
    of_row = torch.cat([part[:, 0] for part in drawn.support]) // 100
    assert len(set(of_row.tolist())) == len(of_row)
    assert torch.equal(drawn.query // 100, of_row[:, None].expand(-1, query))
    assert all(torch.equal(part // 100, (part // 100)[:, :1].expand_as(part)) for part in drawn.support)


def test_images_come_back_where_their_positions_were() -> None:
    drawn = draw(
        {label: torch.arange(9) + 10 * label for label in range(4)}, Shape((2, 1), (3, 2), 2), torch.Generator()
    )
    shown = drawn.shown(drawn.flat[:, None].expand(-1, 5))
    assert [tuple(part.shape) for part in shown.support] == [(2, 3, 5), (1, 2, 5)]
    assert torch.equal(shown.query[..., 0], drawn.query)
    assert torch.equal(shown.support[1][..., 4], drawn.support[1])


def test_untrained_gates_are_open_and_trained_ones_are_not() -> None:
    plain_encoder, x = tiny_encoder().eval(), random(2, 3, 16, 16)
    gated = modulated(plain_encoder).eval()
    assert torch.equal(gated(x), plain_encoder(x))
    gated.stages[1].gate.bias.data.fill_(1.0)
    factor = 2 * torch.sigmoid(torch.tensor(1.0))
    torch.testing.assert_close(gated(x), factor * plain_encoder(x))
    assert len(ungated(gated)) == len(list(plain_encoder.parameters()))


def test_gates_are_guided_by_weights_without_a_gradient_to_them() -> None:
    gated = modulated(tiny_encoder()).eval()
    for stage in gated.stages:
        nn.init.normal_(stage.gate.weight, generator=torch.Generator().manual_seed(0))
    stage, x = gated.stages[1], random(2, 3, 16, 16)
    kernel, guide = stage.stage[0].weight, nn.Parameter(torch.ones(16))
    short, long = gated(x), functional_call(gated, {"stages.1.gate.guide": guide}, (x,))
    assert not torch.allclose(short, long, atol=1e-4)
    *slopes, to_kernel = torch.autograd.grad(long.sum(), [guide, stage.gate.weight, kernel])
    assert all(slope.abs().sum() > 0 for slope in slopes)
    stage._maker = []  # the guide alone: a constant as long as the weights are now
    fixed = kernel.detach().flatten(1).norm(dim=1)
    same = functional_call(gated, {"stages.1.gate.guide": fixed}, (x,))
    torch.testing.assert_close(same, long)
    torch.testing.assert_close(torch.autograd.grad(same.sum(), kernel)[0], to_kernel)


def test_the_inner_loop_moves_neither_slow_weights_nor_gates() -> None:
    method, S = untrained("meta_fscil"), sequence().support[0]
    before = {name: p.clone() for name, p in method.encoder.state_dict().items()}
    fast = method.adapted(
        S.flatten(0, 1), torch.arange(3).repeat_interleave(4), torch.zeros(0, 16), ungated(method.encoder)
    )
    assert all(torch.equal(p, before[name]) for name, p in method.encoder.state_dict().items())
    assert fast.keys() == {*ungated(method.encoder), "rows"}
    assert all(p.grad is None for p in method.encoder.parameters())
    assert not torch.equal(fast["stages.1.stage.0.weight"], method.encoder.stages[1].stage[0].weight)


def test_without_steps_it_is_the_prototype_baseline() -> None:
    method = untrained("meta_fscil", **{"inner.epochs": 0, "warm_up.epochs": 0})
    shown, f = sequence(), method.encoder
    means = torch.cat(
        [
            mean_of_labels(f(S.flatten(0, 1)), torch.arange(len(S)).repeat_interleave(S.shape[1]))[1]
            for S in shown.support
        ]
    )
    expected = []
    for seen in (3, 4):
        logits = method.config.scale * cosine(f(shown.query[:seen].flatten(0, 1)), means[:seen])
        expected.append(nn.functional.cross_entropy(logits, torch.arange(seen).repeat_interleave(3)))
    assert float(method.outer_loss(shown)) == pytest.approx(float(sum(expected) / 2), rel=1e-4)


def test_the_outer_gradient_is_that_of_the_fast_weights() -> None:
    """In first order; the gates, which the inner loop leaves alone, get theirs from the same loss."""
    drawn = Drawn(sequence().support[:1], sequence().query[:3])
    first, second = (untrained("meta_fscil", second_order=order, **{"inner.lr": 0.1}) for order in (False, True))
    for method in (first, second):
        method.outer_loss(drawn).backward()
    S, y = drawn.support[0].flatten(0, 1), torch.arange(3).repeat_interleave(4)
    fast = first.adapted(S, y, torch.zeros(0, 16), ungated(first.encoder))
    leaves = {name: p.detach().requires_grad_() for name, p in fast.items()}
    gates = {name: p for name, p in first.encoder.named_parameters() if name not in fast}
    loss = first.fast_loss(drawn.query.flatten(0, 1), torch.arange(3).repeat_interleave(3), leaves)
    wanted = [*leaves.values(), *gates.values()]
    slopes = dict(zip([*leaves, *gates], torch.autograd.grad(loss, wanted, materialize_grads=True), strict=True))
    for name, p in first.encoder.named_parameters():
        torch.testing.assert_close(p.grad, slopes[name], rtol=1e-3, atol=1e-5)
    assert all(p.grad.abs().sum() > 0 for name, p in gates.items() if name.endswith("gate.bias"))
    kernels = [method.encoder.stages[1].stage[0].weight.grad for method in (first, second)]
    assert not torch.allclose(*kernels, rtol=1e-2)


def test_learns_what_it_should_and_costs_what_it_said(base: Session, tiny: Benchmark, run: Run) -> None:
    method = untrained("meta_fscil")
    method.check(tiny)
    with run.learning(0):
        method.learn_base(base, run)
    meta = next(stage for stage in run.stages if stage.name == "meta-learning")
    assert meta.macs == stage_macs(next(s for s in method.plan(base) if s.stage == "meta-learning"), method.encoder)
    assert method.classes == base.classes
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with run.learning(1):
        method.learn_new(list(tiny.sessions())[1], run)
    after = method.state_dict()
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert moved == {
        *(f"net.encoder.{name}" for name in ungated(method.encoder)),
        "net.head.blocks.0",
        "net.head.labels",
    }
    assert method.classes == tuple(range(8))


def test_real_sessions_take_the_steps_of_the_inner_loop(base: Session, tiny: Benchmark, run: Run) -> None:
    """The same images as a pseudo-session and as a real session give the same weights."""
    method, session = untrained("meta_fscil"), list(tiny.sessions())[1]
    W = nn.functional.normalize(random(6, 16), dim=1)
    method.head.grow(base.classes, W)
    x = next(session.train.batches([torch.arange(10)], method.test_framing(session)))
    y = session.train.labels  # 6 and 7 are also their rows
    fast = method.adapted(x, y, W, ungated(method.encoder))
    with run.learning(1):
        method.learn_new(session, run)
    torch.testing.assert_close(method.head.weight, fast.pop("rows"), rtol=1e-4, atol=1e-5)
    for name, p in ungated(method.encoder).items():
        torch.testing.assert_close(p, fast[name], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_done_is_told_before_training(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="7 classes cannot be drawn from 6 base classes"):
        untrained("meta_fscil", way=2).check(tiny)
    with pytest.raises(FscilError, match=r"28 \+ 3 images of each class.* a base class of 30; lower --pseudo-shots"):
        untrained("meta_fscil", pseudo_shots=28).check(tiny)
    with pytest.raises(FscilError, match="inner is plain gradient descent"):
        untrained("meta_fscil", **{"inner.momentum": 0.9})
    one_piece = Encoder(nn.Sequential(tiny_encoder().stages), 16, 16)
    method = meta_fscil.Method(untrained("meta_fscil").config, one_piece)
    with pytest.raises(FscilError, match="is one piece; set --bgm off"):
        method.check(tiny)


@pytest.mark.parametrize("recipe", ["official", "paper", "small"])
def test_sequences_fit_into_the_30_images_of_a_class_of_cub200(recipe: str) -> None:
    c = resolve(meta_fscil.Config, "meta_fscil", "cub200", recipe)
    assert c.pseudo_shots + c.query <= 30 - c.held_out


class Tokens(nn.Module):
    """Images (n, 3, 16, 16) -> 16 tokens (n, 16, 16), as in a Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.patches(x).flatten(2).mT


class Mean(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(1)


def test_gates_on_tokens_are_refused_before_training(tiny: Benchmark) -> None:
    encoder = Encoder(nn.Sequential(Tokens()), 16, 16, Mean())
    with pytest.raises(FscilError, match="is one piece; set --bgm off"):
        meta_fscil.Method(untrained("meta_fscil").config, encoder).check(tiny)


def test_without_gates_it_learns_and_scores(base: Session, tiny: Benchmark, run: Run) -> None:
    method, new = untrained("meta_fscil", bgm="off"), list(tiny.sessions())[1]
    method.check(tiny)
    assert not any(isinstance(module, Gated) for module in method.modules())
    for session in (base, new):
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
    x = next(new.train.batches([torch.arange(4)], method.test_framing(new)))
    with torch.no_grad():
        scores = method.scores(x)
    assert scores.shape == (4, 8)
    assert bool(scores.isfinite().all())
