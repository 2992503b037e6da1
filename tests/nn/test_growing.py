"""Heads that grow, images that are kept, and what both leave as it was."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data.images import Framing, TensorImages
from fscil.errors import FscilError
from fscil.nn.heads import GrowingCosine, GrowingHead, GrowingLinear, imprinted_rows
from fscil.nn.memory import ExemplarMemory, drawn, first_of_each, herded, herding, stored
from tiny import random, tiny_ingredients


def grown(head: GrowingHead) -> GrowingHead:
    """Three blocks: classes 7, 3 | 9 | 1, 0."""
    for seed, classes in enumerate(((7, 3), (9,), (1, 0))):
        head.grow(classes, random(len(classes), 4, seed=seed))
    return head


HEADS = [GrowingLinear, lambda: GrowingLinear(length=2.0), lambda: GrowingCosine(8.0, learned=True)]


@pytest.mark.parametrize("make", HEADS)
def test_rows_are_found_by_label(make) -> None:
    head = grown(make())
    assert head.classes == (7, 3, 9, 1, 0)
    assert head.widths == [2, 1, 2]
    assert head.rows(torch.tensor([0, 7, 9])).tolist() == [4, 0, 2]
    with pytest.raises(FscilError, match="class 5 has no row"):
        head.rows(torch.tensor([7, 5]))
    with pytest.raises(FscilError, match="class 9 already has a row"):
        head.grow((2, 9), random(2, 4))


@pytest.mark.parametrize("make", HEADS)
def test_a_head_of_another_size_takes_the_state_and_keeps_its_parameters_where_the_size_fits(make) -> None:
    head, empty, same = grown(make()), make(), grown(make())
    for block in head.blocks:
        block.data.add_(1)
    kept = list(same.blocks)
    for other in (empty, same):
        other.load_state_dict(head.state_dict())
        assert other.classes == head.classes
        assert torch.equal(other(random(3, 4, seed=9)), head(random(3, 4, seed=9)))
    assert all(a is b for a, b in zip(kept, same.blocks, strict=True))  # an optimiser still holds them


@pytest.mark.parametrize("make", HEADS)
def test_gradients_through_the_newest_block_alone(make) -> None:
    head, f = grown(make()), random(6, 4, seed=5).requires_grad_()
    rows = torch.tensor([3, 4, 3, 4, 3, 4])
    logits = head.through_newest(f)
    torch.testing.assert_close(logits, head(f))
    F.cross_entropy(logits, rows).backward()
    assert [block.grad is None for block in head.blocks] == [True, True, False]
    assert f.grad.abs().sum() > 0


def test_the_feature_gradient_is_what_the_new_rows_ask_for() -> None:
    head, f = grown(GrowingLinear()), random(1, 4, seed=5).requires_grad_()
    F.cross_entropy(head.through_newest(f), torch.tensor([3])).backward()
    p = head(f).softmax(1)[0, 3:] - torch.tensor([1.0, 0.0])
    torch.testing.assert_close(f.grad[0], (head.blocks[-1].T @ p).detach())


def test_the_newest_rows_are_trained_and_old_ones_only_if_asked() -> None:
    head = grown(GrowingLinear())
    for old in (False, True):
        head.train_rows(old)
        assert [block.requires_grad for block in head.blocks] == [old, old, True]


@given(st.floats(0.01, 100))
@settings(max_examples=20)
def test_cosine_logits_do_not_depend_on_the_length_of_features(factor: float) -> None:
    head, f = grown(GrowingCosine(8.0)), random(5, 4, seed=3)
    torch.testing.assert_close(head(factor * f), head(f), rtol=1e-4, atol=1e-4)


def test_imprinted_rows_point_to_the_mean_of_unit_features_and_are_as_long_as_the_old_ones() -> None:
    f, labels, old = random(6, 4), torch.tensor([5, 2, 5, 2, 5, 2]), 3 * random(7, 4, seed=1)
    rows = imprinted_rows(labels, f, (2, 5), old)
    for row, label in zip(rows, (2, 5), strict=True):
        mean = F.normalize(f[labels == label], dim=1).mean(0)
        assert float(F.cosine_similarity(row, mean, dim=0)) == pytest.approx(1, abs=1e-6)
        assert float(row.norm()) == pytest.approx(float(old.norm(dim=1).mean()), rel=1e-5)


def test_stored_images_are_the_native_pixels_at_native_size() -> None:
    images = tiny_ingredients().train.select(torch.tensor([5, 0, 31]))
    kept = stored(images, Framing(16, (0.5,) * 3, (0.3,) * 3, margin=1.0))
    assert torch.equal(kept.pixels, images.pixels)
    assert kept.labels.tolist() == [0, 0, 1]


def test_the_test_view_of_stored_images_is_that_of_the_originals() -> None:
    images, framing = (
        tiny_ingredients().train.select(torch.arange(4)),
        Framing(14, (0.5,) * 3, (0.3,) * 3, margin=8 / 7),
    )
    kept = stored(images, framing)
    assert kept.pixels.shape == (4, 3, 16, 16)
    one, two = (next(some.batches([torch.arange(4)], framing)) for some in (images, kept))
    torch.testing.assert_close(one, two)


def test_a_memory_limits_each_class_and_survives_storage() -> None:
    train, memory, copy = tiny_ingredients().train, ExemplarMemory(), ExemplarMemory()
    memory.add(train.select(torch.arange(50)))
    memory.add(train.select(torch.arange(60, 63)))
    memory.limit(4)
    assert memory.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    assert torch.equal(memory.pixels[4:8], train.pixels[30:34])
    copy.load_state_dict(memory.state_dict())
    assert torch.equal(copy.images.pixels, memory.pixels)
    joined = copy.images.joined(train.select(torch.tensor([0])))
    assert len(joined) == 12
    assert torch.equal(joined.pixels[-1], train.pixels[0])


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(0, 5))
def test_the_first_images_of_each_class_are_kept_in_order(labels: list[int], count: int) -> None:
    kept = first_of_each(torch.tensor(labels, dtype=torch.int64), count).tolist()
    assert kept == [i for i, label in enumerate(labels) if labels[:i].count(label) < count]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 1000))
@settings(max_examples=30)
def test_herding_takes_the_image_nearest_to_the_mean_first_and_quotas_are_prefixes(n: int, dim: int, seed: int) -> None:
    f = random(n, dim, seed=seed)
    order = herding(f, n)
    assert sorted(order.tolist()) == list(range(n))  # all images reproduce the mean exactly
    for count in range(1, n):
        assert herding(f, count).tolist() == order[:count].tolist()  # a smaller quota is a prefix of a larger one
    distance = (f - f.mean(0)).norm(dim=1)
    assert float(distance[order[0]]) == pytest.approx(float(distance.min()), abs=1e-5)


def test_choices_are_made_class_by_class() -> None:
    labels = torch.tensor([4, 1, 4, 1, 4, 9])
    for chosen in (herded(labels, random(6, 3), 2), drawn(labels, 2, torch.Generator().manual_seed(0))):
        assert labels[chosen].tolist() == [4, 4, 1, 1, 9]
        assert len(set(chosen.tolist())) == 5


def test_joined_images_of_one_store_share_its_pixels() -> None:
    train = tiny_ingredients().train
    both = train.select(torch.tensor([3])).joined(train.select(torch.tensor([40, 3])))
    assert both._pixels is train._pixels
    assert both.labels.tolist() == [0, 1, 0]
    other = TensorImages(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.tensor([8]))
    assert both.joined(other).pixels[-1].sum() == 0
