"""TOPIC: a gas that covers the features, and losses that hold the net to it."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.data.sessions import Benchmark
from fscil.methods.shared.headed import Rehearsing
from fscil.methods.topic import max_loss, min_loss
from fscil.nn.distillation import anchoring
from fscil.nn.neural_gas import NeuralGas
from fscil.running.training import Run
from untrained import untrained


def learned(method: Rehearsing, tiny: Benchmark, run: Run, sessions: int) -> Rehearsing:
    for session in list(tiny.sessions())[:sessions]:
        for file in run.folder.path.glob("stage-*"):
            file.unlink()
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
    return method


def blobs(seed: int = 0, each: int = 60) -> tuple[Tensor, Tensor]:
    """Four groups of points in the plane."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat_interleave(each)
    centres = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])
    return centres[labels] + 0.4 * torch.randn(4 * each, 2, generator=g), labels


def gas(
    features: Tensor, labels: Tensor, nodes: int = 8, seed: int = 0, rate: float = 0.02
) -> tuple[NeuralGas, Tensor]:
    made = NeuralGas(features.shape[1])
    return made, made.fit(features, labels, nodes, rate, 1.0, 200, torch.Generator().manual_seed(seed))


def test_the_gas_covers_better_what_it_was_shown() -> None:
    """On average: a node may leave a lucky start."""
    gained = []
    for seed in range(12):
        features, labels = blobs(seed)
        still, _ = gas(features, labels, seed=seed, rate=0.0)
        moved, _ = gas(features, labels, seed=seed, rate=0.1)
        gained.append(still.error(features) - moved.error(features))
    assert sum(gained) > 0


def test_the_winner_lands_on_the_sample_at_full_rate_without_reach() -> None:
    made, _ = gas(*blobs())
    before, sample = made.centroids.clone(), torch.tensor([10.0, -4.0])
    winner = int(made.winners(sample[None]))
    made.show(sample, 1.0, 1e-6, 200)
    assert torch.equal(made.centroids[winner], sample)
    others = torch.arange(len(made)) != winner
    assert torch.equal(made.centroids[others], before[others])


@given(st.integers(0, 50), st.integers(1, 40))
@settings(max_examples=15)
def test_each_node_has_the_label_of_most_of_what_it_wins(seed: int, nodes: int) -> None:
    features, labels = blobs(seed, each=12)
    made, chosen = gas(features, labels, nodes, seed)
    won = made.winners(features)
    assert len(made) == len(chosen) == nodes
    for node in range(nodes):
        counts = torch.bincount(labels[won == node], minlength=4)
        assert counts[made.labels[node]] == counts.max() > 0
        same = won == node
        same &= labels == made.labels[node]
        assert bool(same[chosen[node]])
        assert int(labels[chosen[node]]) == int(made.labels[node])
        torch.testing.assert_close(made.variances[node], features[same].var(0, correction=0))
        distance = (features - made.centroids[node]).norm(dim=1)
        assert float(distance[chosen[node]]) == pytest.approx(float(distance[same].min()), abs=1e-5)


def test_edges_join_what_lies_together_age_and_vanish() -> None:
    made, _ = gas(*blobs(), nodes=8)
    assert torch.equal(made.ages, made.ages.T)
    assert int(made.ages.diagonal().sum()) == 0
    far = torch.cdist(made.centroids, made.centroids)
    assert far[made.ages > 0].max() < far.max()
    tiny = NeuralGas(1)
    tiny.fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 1, 2]), 3, 0.0, 1.0, 2, torch.Generator())
    tiny.ages.zero_()
    middle, left, right = (int(tiny.winners(torch.tensor([[x]]))) for x in (1.0, 0.0, 5.0))
    tiny.join(torch.tensor([[1.1], [3.2]]), 2)  # between middle and left, then between right and middle
    assert [int(tiny.ages[middle, left]), int(tiny.ages[middle, right])] == [1, 1]
    tiny.join(torch.tensor([[0.9]]), 2)  # middle wins again: its other edge is one older
    assert [int(tiny.ages[middle, left]), int(tiny.ages[middle, right])] == [1, 2]
    tiny.join(torch.tensor([[0.9]]), 2)  # and now too old
    assert [int(tiny.ages[middle, left]), int(tiny.ages[middle, right])] == [1, 0]


def test_the_gas_survives_storage_and_grows() -> None:
    made, _ = gas(*blobs())
    nodes = made.insert(torch.tensor([9, 7]), torch.tensor([[8.0, 8.0], [9.0, 9.0]]))
    assert nodes.tolist() == [8, 9]
    assert made.ages.shape == (10, 10)
    torch.testing.assert_close(made.variances[8], made.variances[:8].mean(0))
    copy = NeuralGas(2)
    copy.load_state_dict(made.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(copy.state_dict().values(), made.state_dict().values(), strict=True))


def test_precisions_are_one_on_average_and_bounded() -> None:
    made, _ = gas(*blobs())
    made.variances[0] = 0  # users report inverse variances that explode
    weights = made.precisions(0.1)
    assert float(weights.mean()) == pytest.approx(1)
    assert bool((weights[0] == weights.max()).all())
    made.variances.zero_()
    assert bool(made.precisions(0.1).isfinite().all())


def test_min_loss_is_zero_iff_every_sample_sits_on_its_node() -> None:
    points, classes = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 0.0]]), torch.tensor([5, 8, 5])
    features, labels = points[[1, 0, 2]], torch.tensor([8, 5, 5])
    assert float(min_loss(features, labels, points, classes)) == 0
    moved = features + torch.tensor([[0.0, 0.3], [0.0, 0.0], [0.0, 0.0]])
    assert float(min_loss(moved, labels, points, classes)) == pytest.approx(0.03, rel=1e-4)
    assert float(min_loss(features, labels.flip(0), points, classes)) > 1  # nodes of other classes do not count


def test_max_loss_is_zero_when_neighbours_of_other_classes_are_far_enough() -> None:
    made = NeuralGas(1)
    made.insert(torch.tensor([0, 1, 2]), torch.tensor([[0.0], [0.4], [3.0]]))
    made.ages.fill_(1).fill_diagonal_(0)
    new = torch.tensor([1])
    points = made.centroids[new].clone().requires_grad_()
    assert float(max_loss(points, made, new, 0.5)) == pytest.approx(0.1)
    (gradient,) = torch.autograd.grad(max_loss(points, made, new, 0.5), points)
    assert gradient.item() < 0  # away from the neighbour
    assert float(max_loss(points, made, new, 0.4)) == 0
    made.labels[0] = 1  # the neighbour is of the same class
    assert float(max_loss(points, made, new, 0.5)) == 0
    made.labels[0] = 0
    made.ages.zero_()  # no neighbour
    assert float(max_loss(points, made, new, 0.5)) == 0


def test_one_node_and_one_image_more_for_each_new_class(tiny: Benchmark, run: Run) -> None:
    method = untrained("topic")
    for t in range(4):
        session = list(tiny.sessions())[t]
        with run.learning(t):
            (method.learn_new if t else method.learn_base)(session, run)
        assert len(method.gas) == len(method.memory) == 18 + 2 * t
        assert torch.equal(method.gas.labels, method.memory.labels)
    assert set(method.gas.labels[18:].tolist()) == set(tiny.order[6:])


def test_the_anchor_loss_is_zero_at_the_start_against_the_net_before(tiny: Benchmark, run: Run) -> None:
    method = learned(untrained("topic", anchored_to="previous"), tiny, run, 1)
    session = list(tiny.sessions())[1]
    places, weights = method.moorings(session, run)
    f = method.shown(method.encoder(method.anchors(session, run))).detach().requires_grad_()
    loss = anchoring(f, places, weights)
    assert float(loss.detach()) == 0
    assert torch.autograd.grad(loss, f)[0].abs().max() == 0


@pytest.mark.parametrize("anchored_to", ["previous", "centroid"])
def test_a_heavy_anchor_keeps_the_features_of_anchors(tiny: Benchmark, run: Run, anchored_to: str) -> None:
    moved = {}
    calm = {"new.lr": 0.02, "new.epochs": 10}
    for weight in (0.0, 10.0):
        method = learned(untrained("topic", anchored_to=anchored_to, anchor=weight, **calm), tiny, run, 1)
        session = list(tiny.sessions())[1]
        places, weights = method.moorings(session, run)
        z = method.anchors(session, run)
        with run.learning(1):
            method.learn_new(session, run)
        with torch.no_grad():
            moved[weight] = float(anchoring(method.shown(method.encoder(z)), places, weights))
    assert moved[10.0] < 0.8 * moved[0.0]


def test_without_its_losses_it_is_fine_tuning(tiny: Benchmark, run: Run) -> None:
    same = {"new.part": "last_block", "new.batch_norm": "frozen", "new.old_rows": "detached"}
    mine = learned(untrained("topic", anchor=0.0, pull=0.0, push=0.0, **same), tiny, run, 3)
    other = learned(untrained("finetune", **{"new.epochs": 3, **same}), tiny, run, 3)
    for key, value in other.state_dict().items():
        assert torch.equal(mine.state_dict()[key], value), key


def test_unit_features_everywhere(tiny: Benchmark, run: Run) -> None:
    method = learned(untrained("topic"), tiny, run, 1)
    f = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(method.shown(f), F.normalize(f, dim=1))
    torch.testing.assert_close(method.head(f), method.head(3 * f))
    assert float(method.gas.centroids.norm(dim=1).max()) <= 1 + 1e-5
