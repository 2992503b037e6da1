"""F2M: noise on weights with exact gradients, flat base sessions, sessions that stay in the cube."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import f2m
from fscil.methods.shared.base import Net
from fscil.nn import encoders
from fscil.nn.heads import LinearHead
from fscil.nn.noise import LEVELS, SHAPES, Box, call_with_noise, last_kernels, level_shares, weight_noise
from fscil.running.planning import stage_macs
from fscil.running.stages import Loop
from fscil.running.training import Run
from fscil.settings import resolve
from tiny import tiny_encoder
from untrained import untrained


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def sessions(tiny: Benchmark) -> list[Session]:
    return list(tiny.sessions())


# ---- noise --------------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(st.sampled_from(SHAPES), st.sampled_from(SHAPES))
def test_shares_of_the_levels_are_those_of_the_beta_distribution(a: float, b: float) -> None:
    shares = level_shares(a, b)
    torch.testing.assert_close(shares, level_shares(b, a).flip(0), rtol=0, atol=1e-6)
    drawn = torch._sample_dirichlet(torch.tensor([a, b]).expand(4000, 2), generator=rng())[:, 0]
    counted = torch.histc(drawn, len(LEVELS), 0, 1) / len(drawn)
    torch.testing.assert_close(shares, counted, rtol=0, atol=0.04)


def test_noise_has_five_levels_within_the_bound_and_no_mean() -> None:
    generator, b = rng(), 0.02
    drawn = torch.stack([weight_noise((30, 10), b, generator) for _ in range(500)])
    assert (drawn.unique() / b).tolist() == pytest.approx(LEVELS, abs=1e-6)
    assert abs(float(drawn.mean())) < 0.05 * b
    skewed = torch.stack([weight_noise((30, 10), b, generator, skewed=True) for _ in range(500)])
    assert float(skewed.mean()) > 0.1 * b  # the slip of the released code
    assert not (skewed / b + 0.25).abs().lt(1e-6).any()


def small_net() -> nn.Sequential:
    torch.manual_seed(1)
    first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3)
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.Tanh(), second, nn.Flatten()).double()


def test_the_gradient_under_noise_is_that_of_the_noisy_weights() -> None:
    net, x = small_net(), torch.randn(5, 3, 4, 4, generator=rng(), dtype=torch.float64)
    noise = {"3.weight": torch.randn(2, 4, 3, 3, generator=rng(1))}

    def loss() -> Tensor:
        return call_with_noise(net, noise, x).square().sum()

    before = [buffer.clone() for buffer in net.buffers()]
    loss().backward()
    assert all(map(torch.equal, net.buffers(), before))
    for name, at in (("0.weight", (1, 2, 0, 1)), ("3.weight", (1, 3, 2, 2))):
        weight, sides = net.get_parameter(name), []
        for step in (1e-5, -2e-5):
            weight.data[at] += step
            sides.append(float(loss().detach()))
        weight.data[at] += 1e-5
        assert float(weight.grad[at]) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5)
    with torch.no_grad():
        noisy = call_with_noise(net, noise, x)
        net[3].weight += noise["3.weight"]
        torch.testing.assert_close(noisy, net(x))


def test_the_last_kernels_are_no_shortcuts() -> None:
    encoder = encoders.build("resnet20", 16)
    names = last_kernels(encoder, 6)
    assert [encoder.get_parameter(name).shape[-1] for name in names] == [3] * 6
    assert names[-1] == "stages.3.2.body.3.weight"
    assert len(last_kernels(encoder, 99)) == 19
    assert last_kernels(encoder, 0) == []


def test_the_box_keeps_weights_near_its_centre() -> None:
    net = small_net()
    box = Box(net, ["3.weight"], 0.2)
    start, other = net[3].weight.detach().clone(), net[0].weight.detach().clone()
    with torch.no_grad():
        net[3].weight += torch.linspace(-1, 1, 72).reshape(2, 4, 3, 3)
        net[0].weight += 1
    box.project(net)
    moved = net[3].weight.detach() - start
    assert float(moved.abs().max()) == pytest.approx(0.1)
    assert float(moved.abs().min()) < 0.05  # who is inside stays
    assert torch.equal(net[0].weight, other + 1)
    box.centre(net)
    box.project(net)
    torch.testing.assert_close(net[3].weight.detach() - start, moved)


# ---- base session -------------------------------------------------------------------------------------------------


def test_without_noise_the_base_session_is_plain_cross_entropy(sessions: list[Session], silent: Run) -> None:
    flat, plain = untrained("f2m", bound=0.0, draws=2, spread=2.0), untrained("f2m", noise_from=1.0)
    for method in (flat, plain):
        with silent.learning(0):
            method.learn_base(sessions[0], silent)
    for name, value in plain.encoder.state_dict().items():
        torch.testing.assert_close(flat.encoder.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


class Step:
    """As much of an epoch as the loss needs."""

    next = 0

    def rng(self, *purpose: object) -> torch.Generator:
        return rng(int(purpose[-1]))


@pytest.mark.parametrize("gradient", [True, False])
def test_the_distance_of_class_means_has_a_gradient(sessions: list[Session], gradient: bool) -> None:
    slopes, values = [], []
    for weight in (0.0, 1000.0):
        method = untrained("f2m", prototype_weight=weight, prototype_gradient=gradient)
        net = Net(method.encoder, LinearHead(64, 6, rng())).train()
        x = next(sessions[0].train.batches([torch.arange(0, 180, 6)], method.test_framing(sessions[0])))
        loss = method.loss(net, x, torch.arange(0, 180, 6) // 30, Step())
        loss.backward()
        values.append(float(loss.detach()))
        slopes.append(net.encoder.get_parameter(method.box.names[-1]).grad)
    assert values[1] > values[0]
    assert torch.allclose(*slopes) == (not gradient)


def test_classes_share_batches_and_costs_are_as_planned(sessions: list[Session], tiny: Benchmark, silent: Run) -> None:
    method = untrained("f2m", per_class=10, **{"base.batch": 40, "base.epochs": 2, "noise_from": 0.5})
    method.check(tiny)
    seen = []
    loss = method.loss
    method.loss = lambda net, x, rows, epoch: seen.append(rows) or loss(net, x, rows, epoch)
    with silent.learning(0) as cost:
        method.learn_base(sessions[0], silent)
    assert len(seen) == 5  # of ten steps, those of the second epoch
    assert all(rows.bincount().sort(descending=True).values[:4].tolist() == [10] * 4 for rows in seen)
    assert cost.macs == sum(stage_macs(stage, method.encoder) for stage in method.plan(sessions[0]))


def test_flat_means_that_noise_does_less_harm(sessions: list[Session], silent: Run) -> None:
    base, harm = sessions[0], []
    for noise_from in (0.0, 1.0):
        own = {"base.epochs": 12, "base.batch": 30, "bound": 0.3, "layers": 2, "noise_from": noise_from}
        method = untrained("f2m", tiny_encoder(), **own)
        net = Net(method.encoder, LinearHead(16, 6, rng()))
        with silent.learning(0):
            method.train_base(net, base, silent)
        x, generator = next(base.train.batches([torch.arange(180)], method.test_framing(base))), rng(5)
        shapes = {name: net.encoder.get_parameter(name).shape for name in method.box.names}
        draws = [{name: weight_noise(shape, 0.3, generator) for name, shape in shapes.items()} for _ in range(30)]
        with torch.no_grad():
            clean = F.cross_entropy(net.eval()(x), base.train.labels)
            noisy = [F.cross_entropy(net.head(call_with_noise(net.encoder, n, x)), base.train.labels) for n in draws]
        harm.append(float(torch.stack(noisy).mean() - clean))
    assert harm[0] < 0.8 * harm[1]


# ---- later sessions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.0, 0.02])
def test_a_session_stays_in_the_cube(sessions: list[Session], silent: Run, bound: float) -> None:
    method = untrained("f2m", bound=bound, **{"base.epochs": 0, "new.lr": 5.0, "new.epochs": 2})
    with silent.learning(0):
        method.learn_base(sessions[0], silent)
    start = {name: value.clone() for name, value in method.encoder.state_dict().items()}
    base = method.branches[0].prototypes.means().clone()
    for t in (1, 2):
        with silent.learning(t):
            method.learn_new(sessions[t], silent)
    tuned = method.box.names
    moved = {name: float((value - start[name]).abs().max()) for name, value in method.encoder.state_dict().items()}
    assert all(moved[name] == 0 for name in moved if name not in tuned)  # running statistics too
    assert all(moved[name] <= bound / 2 + 1e-7 for name in tuned)
    assert max(moved[name] for name in tuned) == pytest.approx(bound / 2, abs=1e-7)  # the steps were large enough
    assert torch.equal(method.branches[0].prototypes.means()[:6], base)
    assert len(method.memory) == 20
    framing = method.test_framing(sessions[1])
    with torch.no_grad():
        f = method.branches[0].embed(next(method.memory.images.batches([torch.arange(20)], framing)))
    mean = f[method.memory.labels == 6].mean(0)  # learned in session 1, made anew in session 2
    torch.testing.assert_close(method.branches[0].prototypes.means()[6], mean, rtol=1e-4, atol=1e-5)


def test_rounded_gradients_are_multiples() -> None:
    gradient = torch.tensor([0.0012, 0.0013, -0.004])
    torch.testing.assert_close(f2m.rounding(0.0025)(gradient), torch.tensor([0.0, 0.0025, -0.005]))


@pytest.mark.parametrize(
    ("draws", "spread", "sentence"),
    [(0, 0.0, "the setting draws is 0, but must lie between 1"), (1, 2.0, "draws is 1; set --draws 2 or --spread 0")],
)
def test_too_few_draws_are_refused_before_training(draws: int, spread: float, sentence: str) -> None:
    with pytest.raises(FscilError, match=sentence) as refused:
        untrained("f2m", draws=draws, spread=spread)
    assert "\n" not in str(refused.value)


def test_says_before_training_what_it_cannot_do(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="has 19"):
        untrained("f2m", layers=20).check(tiny)
    with pytest.raises(FscilError, match="10 images each of 9 classes, but tiny has 6 base classes of at least 30"):
        untrained("f2m", per_class=10).check(tiny)


def test_the_classifier_may_have_rows_and_a_rate_of_its_own(
    sessions: list[Session], silent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGD, one step without momentum's memory: a rate of ten moves the classifier ten times as far."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "after", stop)
    moved = []
    for head_rate in (1.0, 10.0):
        method = untrained("f2m", row_std=0.25, head_rate=head_rate, noise_from=1.0)
        head = LinearHead(method.encoder.dim, 6, silent.rng("head"), 0.0, method.config.row_std)
        assert 0.2 < float(head.weight.std()) < 0.3
        before = head.weight.detach().clone()
        net = Net(method.encoder, head)
        with pytest.raises(KeyboardInterrupt):
            method.train_base(net, sessions[0], silent)
        moved.append((head.weight.detach() - before).norm())
    assert float(moved[1] / moved[0]) == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("recipe", ["paper", "official", "small", "large", "compare"])
def test_on_cub200_the_classifier_learns_ten_times_as_fast(recipe: str) -> None:
    assert resolve(f2m.Config, "f2m", "cub200", recipe).head_rate == 10
