"""What moves and what stands still: f1, W1 and pseudo-old rows get no gradient; later sessions move no encoder."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.episodes import Sampling, Task, episodes
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import kt_rcnet
from fscil.nn.encoders import Encoder, build
from fscil.running.training import Run
from fscil.tensors import read_tensors
from tiny_kt_rcnet import TINY_RESA

CONFIG = TINY_RESA


def small_encoder() -> Encoder:
    """One smooth stage with batch norm (8-d), always the same at the start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stage = nn.Sequential(nn.Conv2d(3, 8, 4, 4, bias=False), nn.BatchNorm2d(8), nn.GELU())
    return Encoder(nn.Sequential(stage), 8, 16)


def untrained(**settings: object) -> kt_rcnet.Method:
    return kt_rcnet.Method(replace(CONFIG, **settings), small_encoder())


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base(CONFIG.held_out)


@pytest.fixture(scope="module")
def trained_base(base: Session, new_run: Callable[[], Run]) -> dict[str, Tensor]:
    """The base model as base training left it: encoder.* and head.*, straight from the cache."""
    run = new_run()
    untrained(complement="tied").learn_base(base, run)
    [file] = run.cache.glob("base-*.safetensors")
    return read_tensors(file)[0]


@pytest.fixture
def learned(
    base: Session, new_run: Callable[[], Run], trained_base: dict[str, Tensor]
) -> Callable[..., kt_rcnet.Method]:
    """KT-RCNet after the base session, on the shared base model."""

    def learn(**settings: object) -> kt_rcnet.Method:
        method = untrained(**settings)
        method.learn_base(base, new_run())
        return method

    return learn


@pytest.fixture
def at_each_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[kt_rcnet.Method], None]], None]:
    """Has something looked at before the loss of every episode is computed."""
    plain = kt_rcnet.Method.loss

    def look_with(look: Callable[[kt_rcnet.Method], None]) -> None:
        def loss(method: kt_rcnet.Method, task: Task) -> Tensor:
            look(method)
            return plain(method, task)

        monkeypatch.setattr(kt_rcnet.Method, "loss", loss)

    return look_with


class Steps:
    """The first step of an epoch, for drawing tasks without training."""

    start = 0

    def rng(self, *purpose: object) -> torch.Generator:
        return torch.Generator().manual_seed(len(str(purpose)))


def a_task(method: kt_rcnet.Method, base: Session) -> Task:
    c = method.config
    return next(episodes(base.train, method.train_framing(base), Sampling(c.way, c.shot, c.query), 1, Steps()))


def same_state(state: dict[str, Tensor], module: nn.Module) -> bool:
    """Bit by bit, buffers included."""
    here = module.state_dict()
    return state.keys() == here.keys() and all(torch.equal(state[name], here[name]) for name in state)


def class_means(encoder: Encoder, base: Session, method: kt_rcnet.Method) -> Tensor:
    """Means of all base images under the test view, in the order of the base classes."""
    x = next(base.train.batches([torch.arange(len(base.train))], method.test_framing(base)))
    with torch.no_grad():
        f = encoder.eval()(x)
    return torch.stack([f[base.train.labels == label].mean(0) for label in base.classes])


def leaves(loss: Tensor) -> set[Tensor]:
    """Every tensor that would receive a gradient from `loss`."""
    found, seen, waiting = set(), set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(node.variable)
        waiting += [following for following, _ in node.next_functions]
    return found


# ---- gradients -----------------------------------------------------------------------------------------------------


def test_only_f2_receives_gradients(learned: Callable[..., kt_rcnet.Method], base: Session) -> None:
    """Also where f1 was not frozen before: its relation is computed without gradient."""
    method = learned(complement="tied")
    method.requires_grad_(True)
    loss = method.loss(a_task(method, base))
    assert leaves(loss) == set(method.f2.parameters())
    loss.backward()
    assert all(p.grad is None for p in method.f1.parameters())
    assert all(p.grad.abs().sum() > 0 for p in method.f2.parameters())


def test_base_relation_is_a_constant(learned: Callable[..., kt_rcnet.Method], base: Session) -> None:
    method = learned(complement="tied")
    method.requires_grad_(True)
    assert not method.base_relation(a_task(method, base)).requires_grad


def test_pseudo_old_rows_are_constants(learned: Callable[..., kt_rcnet.Method]) -> None:
    """with_rows hands gradients to the rows it is given and to no other."""
    method = learned(complement="tied")
    labels, rows = torch.tensor([4, 1]), torch.ones(2, 8, requires_grad=True)
    combined = method.W2.with_rows(labels, rows)
    (combined * torch.arange(6.0)[:, None]).sum().backward()
    expected = method.W2.rows(labels)[:, None].expand(2, 8).float()
    assert leaves(combined) == {rows}
    assert torch.equal(rows.grad, expected)
    assert not method.W1.means().requires_grad


@pytest.mark.parametrize("world", [2, 3, 4])
def test_shares_of_unequal_size_have_the_gradient_of_the_whole_task(
    learned: Callable[..., kt_rcnet.Method], base: Session, world: int
) -> None:
    """With frozen batch statistics, the mean of the devices' weighted gradients is the gradient of one device."""
    method = learned(complement="tied", query=5, pseudo_sessions=2, local_smoothing=0.1)
    task, parameters = a_task(method, base), list(method.f2.requires_grad_(True).parameters())
    shares = [task.share(rank, world) for rank in range(world)]
    alone = torch.autograd.grad(method.loss(task), parameters)
    several = [torch.autograd.grad(share.weight * method.loss(share), parameters) for share in shares]
    for expected, *found in zip(alone, *several, strict=True):
        limit = 1e-5 * float(expected.abs().max())
        torch.testing.assert_close(torch.stack(found).mean(0), expected, rtol=1e-4, atol=limit)


def test_more_devices_than_queries_are_refused_before_anything_is_trained(base: Session, silent: Run) -> None:
    silent.devices.count = CONFIG.query + 1
    with pytest.raises(FscilError, match=r"3 queries .* 4 devices"):
        untrained().learn_base(base, silent)
    assert silent.stages == []


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.5, 2.0)])
def test_gradient_equals_finite_differences(
    learned: Callable[..., kt_rcnet.Method], base: Session, weights: tuple[float, float]
) -> None:
    """With W1 and W2 held fixed, the slope of the loss along a random direction of f2 is what autograd says."""
    method = learned(complement="tied", global_weight=weights[0], local_weight=weights[1])
    task, rng = a_task(method, base), torch.Generator().manual_seed(1)
    parameters = list(method.f2.requires_grad_(True).train().parameters())
    directions = [torch.randn(p.shape, generator=rng) for p in parameters]
    gradients = torch.autograd.grad(method.loss(task), parameters)
    slope = sum((g * v).sum() for g, v in zip(gradients, directions, strict=True))

    @torch.no_grad()
    def moved(step: float) -> Tensor:
        for p, v in zip(parameters, directions, strict=True):
            p += step * v
        loss = method.loss(task)
        for p, v in zip(parameters, directions, strict=True):
            p -= step * v
        return loss

    h = 1e-3
    assert ((moved(h) - moved(-h)) / (2 * h)).item() == pytest.approx(slope.item(), rel=0.02, abs=1e-3)


# ---- f1 and W1 stand still -----------------------------------------------------------------------------------------


def encoder_state(trained_base: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("encoder."): t for name, t in trained_base.items() if name.startswith("encoder.")}


@pytest.mark.parametrize("complement", ["resa", "conventional", "tied"])
def test_f1_is_bit_identical_after_complementary_learning(
    learned: Callable[..., kt_rcnet.Method], trained_base: dict[str, Tensor], complement: str
) -> None:
    assert same_state(encoder_state(trained_base), learned(complement=complement).f1)


def test_f1_and_W1_stand_still_at_every_step(
    learned: Callable[..., kt_rcnet.Method], at_each_step: Callable[..., None], trained_base: dict[str, Tensor]
) -> None:
    rows: list[Tensor] = []

    def look(method: kt_rcnet.Method) -> None:
        rows.append(method.W1.means())
        assert not method.f1.training
        assert method.f2.training
        assert not any(p.requires_grad for p in method.f1.parameters())
        assert same_state(encoder_state(trained_base), method.f1)

    at_each_step(look)
    learned()
    assert len(rows) == CONFIG.transfer.epochs * CONFIG.tasks
    assert all(torch.equal(rows[0], later) for later in rows)


def test_frozen_batch_norm_keeps_its_statistics(learned: Callable[..., kt_rcnet.Method]) -> None:
    for mode, same in (("frozen", True), ("train", False)):
        method = learned(batch_norm=mode)
        f1, f2 = (dict(encoder.named_buffers()) for encoder in (method.f1, method.f2))
        assert all(torch.equal(f1[name], f2[name]) for name in f1) is same
        assert not torch.equal(method.f1.stages[0][0].weight, method.f2.stages[0][0].weight)


# ---- W2 ------------------------------------------------------------------------------------------------------------


def test_W2_is_the_class_means_before_the_first_episode(
    learned: Callable[..., kt_rcnet.Method], at_each_step: Callable[..., None], base: Session
) -> None:
    """Scaled by the feature scale, of an f2 that still equals f1."""
    seen: list[tuple[Tensor, bool]] = []

    def look(method: kt_rcnet.Method) -> None:
        f1, f2 = method.f1.stages[0][0].weight, method.f2.stages[0][0].weight
        seen.append((method.W2.means(), torch.equal(f1, f2)))

    at_each_step(look)
    method = learned(feature_scale=3.0)
    W2, started_from_f1 = seen[0]
    assert started_from_f1
    torch.testing.assert_close(W2, 3 * class_means(method.f1, base, method), rtol=1e-5, atol=1e-5)


def test_W2_is_computed_anew_once_per_epoch(
    learned: Callable[..., kt_rcnet.Method], at_each_step: Callable[..., None], base: Session
) -> None:
    """Within an epoch it stays, at the next one it is the means of f2 as it then is, and so it is at the end."""
    seen: list[tuple[Tensor, Encoder]] = []
    at_each_step(lambda method: seen.append((method.W2.means(), deepcopy(method.f2))))
    method = learned()
    first, again, second, last = (W2 for W2, _ in seen)
    assert torch.equal(first, again)
    assert torch.equal(second, last)
    assert not torch.allclose(first, second, atol=1e-3)
    torch.testing.assert_close(second, class_means(seen[2][1], base, method), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(method.W2.means(), class_means(method.f2, base, method), rtol=1e-5, atol=1e-5)


# ---- incremental sessions ------------------------------------------------------------------------------------------


def test_learn_new_changes_no_encoder_and_no_old_prototype(
    learned: Callable[..., kt_rcnet.Method], tiny: Benchmark, new_run: Callable[[], Run]
) -> None:
    method = learned()
    f1, f2 = deepcopy(method.f1.state_dict()), deepcopy(method.f2.state_dict())
    W1, W2 = method.W1.means(), method.W2.means()
    _, session, *_ = tiny.sessions()
    method.learn_new(session, new_run())
    assert same_state(f1, method.f1)
    assert same_state(f2, method.f2)
    assert torch.equal(method.W1.means()[:6], W1)
    assert torch.equal(method.W2.means()[:6], W2)
    assert method.W1.classes == method.W2.classes == (0, 1, 2, 3, 4, 5, 6, 7)
    new = [class_means(encoder, session, method) for encoder in (method.f1, method.f2)]
    torch.testing.assert_close(method.W1.means()[6:], new[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(method.W2.means()[6:], new[1], rtol=1e-5, atol=1e-5)


# ---- settings that change what is learned --------------------------------------------------------------------------


def test_tied_conventional_and_resa_differ_as_described(learned: Callable[..., kt_rcnet.Method], base: Session) -> None:
    tied, conventional, resa = (learned(complement=c) for c in ("tied", "conventional", "resa"))
    assert same_state(tied.f1.state_dict(), tied.f2)
    weights = [method.f2.stages[0][0].weight for method in (tied, conventional, resa)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(weights[i], weights[j])
    for method in (
        tied,
        conventional,
        resa,
    ):  # a learned W2 is replaced by means; f1 and W1 are those of the base model
        torch.testing.assert_close(method.W2.means(), class_means(method.f2, base, method), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(method.W1.means(), class_means(tied.f1, base, method), rtol=1e-5, atol=1e-5)
        assert not any(p.requires_grad for p in method.parameters())


def test_f2_can_start_from_a_base_session_of_its_own(base: Session, new_run: Callable[[], Run]) -> None:
    """From other random weights, to another encoder; f1 is the same as ever."""
    config = replace(CONFIG, encoder="resnet20", base=replace(CONFIG.base, epochs=1), complement="tied")
    started = {}
    for start in ("f1", "own"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            started[start] = kt_rcnet.Method(replace(config, start=start), build("resnet20", 16))
        started[start].learn_base(base, new_run())
    assert same_state(started["f1"].f1.state_dict(), started["own"].f1)
    assert not same_state(started["own"].f1.state_dict(), started["own"].f2)
    own = started["own"]
    torch.testing.assert_close(own.W2.means(), class_means(own.f2, base, own), rtol=1e-4, atol=1e-5)


def test_learned_W1_is_used_in_resa_and_at_inference(
    learned: Callable[..., kt_rcnet.Method], at_each_step: Callable[..., None], trained_base: dict[str, Tensor]
) -> None:
    rows: list[Tensor] = []
    at_each_step(lambda method: rows.append(method.W1.means()))
    method = learned(W1="learned")
    for W1 in (*rows, method.W1.means()):
        assert torch.equal(W1, trained_base["head.weight"])
    assert method.W1.classes == method.W2.classes


def test_fitted_feature_scale_has_the_least_held_out_loss(
    learned: Callable[..., kt_rcnet.Method], base: Session
) -> None:
    method = learned(complement="tied", feature_scale=0.0)
    g = float(method.branches[1].feature_scale)
    x = next(base.held_out.batches([torch.arange(len(base.held_out))], method.test_framing(base)))
    W = class_means(method.f1, base, method)
    with torch.no_grad():
        f = method.f1(x)

    def loss(scale: float) -> float:
        distances = torch.cdist(scale * f.double(), scale * W.double()).square()
        return F.cross_entropy(-CONFIG.scale * distances / 8, base.held_out.labels).item()

    assert loss(g) < min(loss(g / 1.2), loss(g * 1.2))
    assert loss(g) <= min(loss(other) for other in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0))


def test_feature_scale_is_kept_in_the_saved_state(learned: Callable[..., kt_rcnet.Method], base: Session) -> None:
    method = learned(complement="tied", feature_scale=2.5)
    other = untrained(feature_scale=1.0)
    other.load_state_dict(method.state_dict())
    assert float(other.branches[1].feature_scale) == 2.5
    assert float(other.branches[0].feature_scale) == 1.0
    x = next(base.held_out.batches([torch.arange(4)], method.test_framing(base)))
    assert torch.equal(other.eval().scores(x), method.eval().scores(x))


def test_fitting_the_feature_scale_needs_held_out_images(tiny: Benchmark) -> None:
    untrained(feature_scale=0.0).check(tiny)
    with pytest.raises(FscilError, match="held-out"):
        untrained(feature_scale=0.0, held_out=0).check(tiny)
