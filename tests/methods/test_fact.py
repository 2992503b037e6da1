"""FACT: room for new classes, mixtures in the middle of the network, the way through virtual prototypes."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil import methods
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods._fact import Reserved, random_ties
from fscil.methods.shared.base import Net, train_classifier
from fscil.nn import encoders
from fscil.nn.compute import Meter, counting
from fscil.nn.heads import CosineHead
from fscil.running.planning import stage_macs
from fscil.running.training import Run
from fscil.settings import resolve
from untrained import untrained


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base()


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 9))
def test_every_virtual_class_is_tied_to_three_base_classes(base: int, virtual: int, tied: int, seed: int) -> None:
    ties = random_ties(base, virtual, tied, rng(seed))
    assert ties.shape == (base, virtual)
    assert ties.sum(0).tolist() == [min(tied, base)] * virtual
    assert bool(random_ties(base, virtual, 0, rng(seed)).all())


def test_rows_start_orthonormal_and_the_fixed_ones_are_a_copy() -> None:
    head = Reserved(16, 5, 12, 16.0, 3, rng())
    torch.testing.assert_close(head.weight @ head.weight.T, torch.eye(12), rtol=0, atol=1e-5)
    assert torch.equal(head.virtual, head.weight[5:])
    before = head.virtual.clone()
    optimiser = torch.optim.SGD(head.parameters(), 0.5)
    for _ in range(3):
        optimiser.zero_grad()
        f = torch.randn(8, 16, generator=rng(1))
        (head.reserve(f, torch.arange(8) % 5) + head.forecast(f)).backward()
        optimiser.step()
    assert torch.equal(head.virtual, before)
    assert not torch.equal(head.weight[5:], before)


@settings(max_examples=20)
@given(st.integers(0, 999))
def test_the_true_class_is_hidden_and_the_target_is_virtual_and_tied(seed: int) -> None:
    head = Reserved(4, 5, 12, 16.0, 2, rng(seed))
    rows = torch.randint(5, (20,), generator=rng(seed))
    logits, target = head.hidden(torch.randn(20, 4, generator=rng(seed)), rows)
    assert (logits.softmax(1)[torch.arange(20), rows] == 0).all()
    assert (target >= 5).all()
    tied = head.ties[rows]
    assert (tied[torch.arange(20), target - 5] | ~tied.any(1)).all()
    assert bool(head.reserve(torch.randn(20, 4, generator=rng(seed)), rows).isfinite())


def test_a_mixture_belongs_to_a_virtual_class_and_then_to_a_base_class() -> None:
    head = Reserved(2, 2, 4, 1.0, 3, rng())
    head.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    mixture = torch.tensor([[0.6, 0.8]])  # cosines .6, -.6, .8, -.8
    logits = torch.tensor([[0.6, -0.6, 0.8, -0.8]])
    first = F.cross_entropy(logits, torch.tensor([2]))
    second = F.cross_entropy(logits[:, [0, 1, 3]], torch.tensor([0]))
    torch.testing.assert_close(head.forecast(mixture), first + second)


def test_mixing_with_the_whole_share_changes_nothing_and_costs_the_later_stages() -> None:
    encoder, x, meter = encoders.build("resnet20", 16).eval(), torch.randn(4, 3, 16, 16, generator=rng()), Meter()
    partner = torch.tensor([1, 0, 3, 2])
    with counting(meter), torch.no_grad():
        f, same = encoder.mixed(x, 3, lambda h: 1.0 * h + 0.0 * h[partner])
        _, half = encoder.mixed(x, 2, lambda h: 0.5 * h + 0.5 * h[partner])
    torch.testing.assert_close(f, encoder(x))
    torch.testing.assert_close(same, f)
    torch.testing.assert_close(half[0], half[1])
    assert not torch.allclose(half, f)
    whole = encoder.macs(16)
    assert meter.macs == 4 * (4 * whole - encoder.macs(16, 2) - encoder.macs(16, 3))
    assert 0 < encoder.macs(16, 2) < encoder.macs(16, 3) < whole


def test_without_reserve_it_is_the_plain_cosine_classifier(base: Session, run: Run) -> None:
    method, twin = untrained("fact", reserve=0.0), untrained("fact", reserve=0.0)
    with run.learning(0):
        method.learn_base(base, run)
    head = CosineHead(64, 6, 16.0, rng())
    head.weight.data = Reserved(64, 6, 12, 16.0, 3, run.rng("head")).weight.data[:6].clone()
    net = Net(twin.encoder, head)
    plain = Run(dataclasses.replace(run).folder, 0, run.cache)
    plain.folder.stage(0, "base").unlink()
    with plain.learning(0):
        train_classifier(twin, "base", net, base, twin.config.base, plain)
    for name, value in twin.encoder.state_dict().items():
        torch.testing.assert_close(method.encoder.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_learns_what_it_should_and_costs_what_it_said(base: Session, tiny: Benchmark, run: Run) -> None:
    method = untrained("fact", start=0.5)
    method.check(tiny)
    start = Reserved(64, 6, 12, 16.0, 3, run.rng("head")).weight[6:]
    with run.learning(0) as cost:
        method.learn_base(base, run)
    planned = sum(stage_macs(stage, method.encoder) for stage in method.plan(base))
    assert cost.macs == pytest.approx(planned, rel=1e-3)
    assert method.virtual.means().shape == (6, 64)
    assert not torch.allclose(method.virtual.means(), start)  # trained with the mixtures
    x = next(base.train.batches([torch.arange(40)], method.test_framing(base)))
    f = method.embed(x)
    with torch.no_grad():
        cosines = method.branches[0].relate(f[0])
        assert torch.equal(method.relate(f), cosines)  # session 0
        method.learn_new(list(tiny.sessions())[1], run)
        fused = method.relate(f)
        object.__setattr__(method.config, "eta", 0.0)
        plain = method.relate(f)
    assert torch.equal(plain, method.branches[0].relate(f[0]))  # eta 0: the prototypes alone
    torch.testing.assert_close(fused.sum(1), torch.ones(40))
    assert (fused.argmax(1) == plain.argmax(1)).float().mean() > 0.9  # it decides near ties only


def by_hand(f: torch.Tensor, V: torch.Tensor, W: torch.Tensor, k: int) -> torch.Tensor:
    """A_ic, one sum after the other."""
    A = torch.zeros(len(f), len(W))
    for i in range(len(f)):
        near = sorted(range(len(V)), key=lambda v: -float(F.cosine_similarity(f[i], V[v], dim=0)))[:k]
        for c in range(len(W)):
            A[i, c] = sum(F.cosine_similarity(f[i], V[v], dim=0) * F.cosine_similarity(V[v], W[c], dim=0) for v in near)
    return A


def test_the_way_through_virtual_prototypes_by_hand() -> None:
    method = untrained("fact", neighbours=2)
    f, V, W = (torch.randn(n, 64, generator=rng(n)) for n in (3, 4, 5))
    method.virtual.add(torch.arange(4), V)
    method.branches[0].prototypes.add(torch.arange(5), W)
    torch.testing.assert_close(method.by_way(f), by_hand(f, V, W, 2), rtol=1e-4, atol=1e-5)
    object.__setattr__(method.config, "axis", "dimension")
    assert not torch.allclose(method.by_way(f), by_hand(f, V, W, 2), atol=1e-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_classes": 0}, "set --total-classes 12"),
        ({"mix_after": 4}, "has 4 stages"),
        ({"encoder": "timm:test_vit", "pixels": 160}, "is one piece"),
    ],
)
def test_says_before_training_what_it_cannot_do(tiny: Benchmark, changes: dict[str, object], message: str) -> None:
    with pytest.raises(FscilError, match=message):
        untrained("fact", **changes).check(tiny)


def test_room_on_cifar100_has_the_weight_of_the_authors() -> None:
    for recipe in ("paper", "official", "small", "compare"):
        assert resolve(methods.load("fact").Config, "fact", "cifar100", recipe).reserve == 0.001
