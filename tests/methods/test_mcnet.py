"""MCNet: two networks, and a triplet loss that keeps new classes apart from each other and from old prototypes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.mcnet import psht, smoothed
from fscil.methods.shared.balance import fitted_weight
from fscil.nn import encoders, winograd
from fscil.nn.encoders import Encoder
from fscil.nn.winograd import WinogradConvolution
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from tiny import tiny_encoder
from untrained import untrained


@pytest.fixture(scope="module")
def sessions(tiny: Benchmark) -> list[Session]:
    return list(tiny.sessions())


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_the_triplet_loss_by_hand() -> None:
    loss = psht(column(0.0, 1.0, 1.2), torch.tensor([3, 3, 5]), column(0.8), 0.5)
    torch.testing.assert_close(loss, torch.tensor([0.7, 1.3, 0.3]), rtol=1e-4, atol=1e-4)
    # 0: 1 - 0.8 + 0.5; 1: 1 - 0.2 + 0.5 (0.8 and 1.2 are as near); 1.2: no other image of its class, 0 - 0.2 + 0.5


@settings(max_examples=20)
@given(st.integers(0, 999), st.floats(0, 1))
def test_the_triplet_loss_is_zero_exactly_when_all_triplets_are_right(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    f, old = torch.randn(8, 3, generator=generator), torch.randn(4, 3, generator=generator)
    y = torch.randint(3, (8,), generator=generator)
    for i, value in enumerate(psht(f, y, old, margin).tolist()):
        positive = max(float((f[i] - f[j]).norm()) for j in range(8) if y[j] == y[i])
        others = [*(f[j] for j in range(8) if y[j] != y[i]), *old]
        negative = min(float((f[i] - other).norm()) for other in others)
        assert value == pytest.approx(max(0.0, positive - negative + margin), abs=1e-3)


def test_equal_images_do_not_break_the_gradient() -> None:
    f = torch.ones(3, 2, requires_grad=True)
    psht(f, torch.tensor([0, 0, 1]), torch.ones(1, 2), 0.5).mean().backward()
    assert bool(f.grad.isfinite().all())


def test_smoothing_moves_prototypes_towards_their_neighbours() -> None:
    p = column(0.0, 1.0, 10.0)
    torch.testing.assert_close(smoothed(p, 0.0, 2), p)
    torch.testing.assert_close(smoothed(p, 0.5, 1), column(0.5, 0.5, 5.5))
    torch.testing.assert_close(smoothed(p, 0.2, 9), column(1.1, 1.8, 8.1))
    torch.testing.assert_close(smoothed(p[:1], 0.5, 2), p[:1])


def test_two_equal_networks_are_one_and_their_order_does_not_matter(sessions: list[Session], silent: Run) -> None:
    method = untrained("mcnet", **{"base.epochs": 0})
    first, second = method.branches
    x = next(sessions[0].train.batches([torch.arange(60)], method.test_framing(sessions[0])))
    with silent.learning(0), torch.no_grad():
        method.learn_base(sessions[0], silent)
        swapped = method.scores(x)
        method.branches = torch.nn.ModuleList([second, first])
        torch.testing.assert_close(method.scores(x), swapped)
        second.load_state_dict(first.state_dict())
        torch.testing.assert_close(method.scores(x), 2 * first(x))


def test_the_networks_differ_and_costs_are_as_planned(sessions: list[Session], silent: Run) -> None:
    method = untrained("mcnet", second="fast", second_share=2.0)
    first, second = (branch.encoder for branch in method.branches)
    assert second.dim == 256
    with silent.learning(0) as cost:
        method.learn_base(sessions[0], silent)
    assert {stage.name: stage.steps for stage in silent.stages} == {"base": 2, "second": 4}
    planned = sum(stage_macs(stage, first) for stage in method.plan(sessions[0]))
    assert cost.macs == pytest.approx(planned, rel=1e-3)
    twin = untrained("mcnet")
    weights = [next(branch.encoder.parameters()) for branch in twin.branches]
    assert weights[0].shape == weights[1].shape
    assert not torch.equal(*weights)


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_session_moves_the_last_blocks_alone(sessions: list[Session], silent: Run, epochs: int) -> None:
    method = untrained("mcnet", **{"base.epochs": 0, "new.epochs": epochs, "new.lr": 0.1})
    with silent.learning(0):
        method.learn_base(sessions[0], silent)
    start = {name: value.clone() for name, value in method.branches.state_dict().items()}
    with silent.learning(1):
        method.learn_new(sessions[1], silent)
    for i, branch in enumerate(method.branches):
        last = {id(p) for p in branch.encoder.last_block.parameters()}
        for name, parameter in branch.encoder.named_parameters():
            moved = not torch.equal(parameter, start[f"{i}.encoder.{name}"])
            assert moved == (epochs > 0 and id(parameter) in last), name
        for name, buffer in branch.encoder.named_buffers():
            assert torch.equal(buffer, start[f"{i}.encoder.{name}"]), name
        base = branch.prototypes.means()[:6]
        torch.testing.assert_close(base, (start[f"{i}.prototypes.sums"] / 30).float())
    assert method.classes == tuple(range(8))


def test_steps_pull_new_classes_apart(sessions: list[Session], silent: Run) -> None:
    method = untrained(
        "mcnet", **{"base.epochs": 0, "new.epochs": 5, "new.lr": 0.1, "augment.crop": "none", "augment.flip": False}
    )
    with silent.learning(0):
        method.learn_base(sessions[0], silent)
    old = [method.old_prototypes(branch) for branch in method.branches]
    x = next(sessions[1].train.batches([torch.arange(10)], method.test_framing(sessions[1])))
    with torch.no_grad():
        before = method.loss(x, sessions[1].train.labels, old)
    with silent.learning(1):
        method.learn_new(sessions[1], silent)
    with torch.no_grad():
        assert method.loss(x, sessions[1].train.labels, old) < before


@pytest.mark.parametrize("whole", ["encoder", "second"])
def test_an_encoder_of_one_piece_is_refused_before_training_unless_nothing_is_tuned(
    tiny: Benchmark, monkeypatch: pytest.MonkeyPatch, whole: str
) -> None:
    one_piece = Encoder(torch.nn.Sequential(tiny_encoder().stages), 16, 16)
    monkeypatch.setitem(encoders.BUILDERS, "one_piece", lambda pixels, weights: one_piece)
    untrained("mcnet").check(tiny)
    with pytest.raises(FscilError, match=f"encoder one_piece is one piece; take another --{whole} or set --new.epochs"):
        untrained("mcnet", **{whole: "one_piece"}).check(tiny)
    untrained("mcnet", **{whole: "one_piece", "new.epochs": 0}).check(tiny)


def test_the_weight_of_the_second_network_is_fitted_on_held_out_images(tiny: Benchmark, run: Run) -> None:
    method = untrained("mcnet", second_weight=0.0, held_out=6)
    method.check(tiny)
    with run.learning(0) as cost:
        method.learn_base(tiny.base(6), run)
    assert float(method.branches[1].weight) == pytest.approx(fitted_weight(method, tiny.base(6), run))
    assert float(method.branches[1].weight) > 0
    planned = sum(
        (3 * row.trained + row.encoded) * method.encoder.macs(row.pixels) for row in method.plan(tiny.base(6))
    )
    assert planned == pytest.approx(cost.macs, rel=1e-3)
    with pytest.raises(FscilError, match="--held_out"):
        untrained("mcnet", second_weight=0.0).check(tiny)


def test_the_second_network_never_had_the_weights_of_the_first(
    sessions: list[Session], silent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "keep_freed_memory", lambda: None)  # other tests measure memory
    method = untrained("mcnet", second="fast", winograd=True)
    assert any(isinstance(part, WinogradConvolution) for part in method.branches[1].encoder.modules())
    method.config = replace(method.config, weights="net.safetensors")
    (stem,) = method.branches[1].encoder.stems
    before = stem.filters.clone()
    with silent.learning(0):
        method.learn_base(sessions[0], silent)
    assert not torch.equal(stem.filters, before)
