"""SoftNet and HardNet: masks that are learned, then fixed; sessions that touch minor weights alone."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import softnet
from fscil.nn import encoders
from fscil.nn.masks import SoftMask, masked, masks
from fscil.running.planning import layer_bytes, stage_macs
from fscil.running.training import Run
from untrained import untrained


@pytest.fixture(scope="module")
def sessions(tiny: Benchmark) -> list[Session]:
    return list(tiny.sessions())


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.booleans())
def test_the_share_of_major_weights_is_the_capacity(outputs: int, inputs: int, capacity: float, soft: bool) -> None:
    mask = SoftMask(torch.empty(outputs, inputs, 3, 3), capacity, soft)
    n = mask.scores.numel()
    assert abs(int(mask.major().sum()) / n - capacity) <= 1 / n
    shown = mask.mask().detach()
    assert bool((shown[mask.major()] == 1).all())
    rest = shown[~mask.major()]
    assert bool(((rest > 0) & (rest < 1)).all() if soft else (rest == 0).all())
    sizes = mask.scores.detach().abs()
    assert float(sizes.masked_fill(~mask.major(), torch.inf).min()) >= float(sizes.masked_fill(mask.major(), 0.0).max())


def test_hard_masks_are_soft_ones_without_the_minor_numbers() -> None:
    soft = SoftMask(torch.empty(4, 4, 3, 3), 0.5, True).eval()
    hard = SoftMask(torch.empty(4, 4, 3, 3), 0.5, False).eval()
    hard.scores = soft.scores
    torch.testing.assert_close(hard.mask(), soft.mask() - soft.minor())


def test_training_draws_new_minor_numbers_and_testing_none() -> None:
    mask = SoftMask(torch.empty(4, 4, 3, 3), 0.5, True)
    assert not torch.equal(mask.mask(), mask.mask())
    mask.eval()
    assert torch.equal(mask.mask(), mask.mask())


def test_the_gradient_of_the_mask_goes_straight_to_the_scores() -> None:
    mask, w, v = SoftMask(torch.empty(4, 4, 3, 3), 0.5, True), torch.randn(4, 4, 3, 3), torch.randn(4, 4, 3, 3)
    (mask(w) * v).sum().backward()
    torch.testing.assert_close(mask.scores.grad, w * v)


def test_with_all_weights_major_the_net_is_the_dense_one() -> None:
    dense = encoders.build("resnet20", 16)
    net = deepcopy(dense)
    masked(net, 1.0, True)
    x = torch.randn(4, 3, 16, 16)
    assert torch.equal(net.train()(x), dense.train()(x))
    assert net.macs(24) == dense.macs(24)
    assert layer_bytes(net, 16) == layer_bytes(dense, 16)


def learned(method: softnet.Method, sessions: list[Session], run: Run) -> dict[str, torch.Tensor]:
    """Teaches a method the base session and two more; gives its encoder's state after the base session."""
    with run.learning(0):
        method.learn_base(sessions[0], run)
    start = {name: value.clone() for name, value in method.encoder.state_dict().items()}
    for t in (1, 2):
        with run.learning(t):
            method.learn_new(sessions[t], run)
    return start


def test_sessions_change_minor_weights_of_the_last_block_alone(sessions: list[Session], silent: Run) -> None:
    method = untrained("softnet", **{"base.epochs": 0, "new.lr": 50.0, "new.epochs": 2})
    start = learned(method, sessions, silent)
    last = {id(weight) for weight, _ in masks(method.encoder.last_block)}
    assert len(last) == 2
    changed = {name for name, value in method.encoder.state_dict().items() if not torch.equal(value, start[name])}
    names = dict(method.encoder.named_parameters())
    assert {id(names[name]) for name in changed} == last  # neither scores, random numbers nor statistics
    for weight, mask in masks(method.encoder.last_block):
        before = next(start[name] for name, p in names.items() if p is weight)
        assert torch.equal(weight[mask.major()], before[mask.major()])
        assert (weight != before)[~mask.major()].float().mean() > 0.5
    assert method.classes == tuple(range(10))


def test_scores_are_learned_with_the_weights(sessions: list[Session], silent: Run) -> None:
    method = untrained("softnet")
    scores = [mask.scores.detach().clone() for _, mask in masks(method.encoder)]
    drawn = [mask.drawn.clone() for _, mask in masks(method.encoder)]
    with silent.learning(0) as cost:
        method.learn_base(sessions[0], silent)
    assert not any(torch.equal(a, mask.scores) for a, (_, mask) in zip(scores, masks(method.encoder), strict=True))
    assert all(torch.equal(a, mask.drawn) for a, (_, mask) in zip(drawn, masks(method.encoder), strict=True))
    assert len(scores) == 21  # shortcuts too
    assert cost.macs == sum(stage_macs(stage, method.encoder) for stage in method.plan(sessions[0]))


def test_hardnet_is_frozen_after_the_base_session(sessions: list[Session], silent: Run) -> None:
    method = untrained("softnet", minor="zero", **{"base.epochs": 0})
    start = learned(method, sessions, silent)
    assert all(torch.equal(value, start[name]) for name, value in method.encoder.state_dict().items())


def test_the_released_code_changes_batch_norm_only(sessions: list[Session], silent: Run) -> None:
    method = untrained("softnet", tuned="statistics", **{"base.epochs": 0, "new.epochs": 2})
    start = learned(method, sessions, silent)
    changed = {name for name, value in method.encoder.state_dict().items() if not torch.equal(value, start[name])}
    assert changed
    assert not any("parametrizations" in name for name in changed)
    assert not method.encoder.training


def test_refuses_what_would_change_major_weights() -> None:
    with pytest.raises(FscilError, match="leave major weights alone"):
        untrained("softnet", **{"new.weight_decay": 1e-4})
    with pytest.raises(FscilError, match="between 0 and 1"):
        untrained("softnet", capacity=1.5)


def test_says_before_training_that_it_needs_convolutions(tiny: Benchmark) -> None:
    method = untrained("softnet")
    method.check(tiny)
    method.encoder.stages = method.encoder.stages[:1]
    with pytest.raises(FscilError, match="has no such block"):
        method.check(tiny)


def test_the_classifier_starts_from_rows_of_the_size_asked_for(
    sessions: list[Session], silent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[float] = []
    monkeypatch.setattr(softnet, "fit_base", lambda method, net, *rest: rows.append(float(net.head.weight.std())))
    for std in (0.001, 0.25):
        untrained("softnet", row_std=std).learn_base(sessions[0], silent)
    assert rows == [pytest.approx(0.001, rel=0.2), pytest.approx(0.25, rel=0.2)]
