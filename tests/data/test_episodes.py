"""Pseudo-incremental tasks: how they are drawn, and how rotation, MixUp and CutMix make classes nobody has seen."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fscil.data import episodes as module
from fscil.data.episodes import (
    Sampling,
    SmallClass,
    Task,
    class_pool,
    cutmix,
    derangement,
    draw,
    episodes,
    rotate,
    synthesise,
)
from fscil.data.images import Augment, Framing, TensorImages
from fscil.errors import FscilError

ways = st.integers(1, 5)
seeds = st.integers(0, 2**31)
few = settings(max_examples=40)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stored(classes: int, per_class: int, pixels: int = 4) -> TensorImages:
    """Images that carry their own number: red = label, green = position within the class; labels 3, 6, 9, ..."""
    labels = 3 * (1 + torch.arange(classes)).repeat_interleave(per_class)
    colours = torch.stack([labels, torch.arange(per_class).repeat(classes), torch.zeros_like(labels)], 1)
    return TensorImages(colours.byte()[:, :, None, None].expand(-1, -1, pixels, pixels), labels)


def random_images(way: int, count: int, pixels: int, seed: int) -> Tensor:
    return torch.rand(way, count, 3, pixels, pixels, generator=generator(seed))


class Steps:
    """An epoch that begins at a step, with a generator for each purpose."""

    def __init__(self, start: int = 0):
        self.start = start

    def rng(self, *purpose: object) -> torch.Generator:
        return generator(sum(map(ord, str(purpose))))


# ---- sampling ------------------------------------------------------------------------------------------------------


@few
@given(seed=seeds, way=ways, shot=st.integers(1, 3), query=st.integers(1, 3))
def test_classes_and_images_of_a_task_are_distinct(seed: int, way: int, shot: int, query: int) -> None:
    images = stored(classes=5, per_class=6)
    sampling = Sampling(way, shot, query)
    classes, chosen = draw(class_pool(images, sampling), sampling, generator(seed))
    assert chosen.shape == (way, shot + query)
    assert len(set(classes.tolist())) == way
    assert len(set(chosen.flatten().tolist())) == chosen.numel()  # so support and query share no image
    for label, row in zip(classes, chosen, strict=True):
        assert (images.labels[row] == label).all()


def test_every_class_and_every_image_is_drawn_equally_often() -> None:
    """Chi-square of the counts; its mean is the degrees of freedom and its standard deviation sqrt(2 * them)."""
    images, sampling, times = stored(classes=8, per_class=5), Sampling(3, 1, 1), 2000
    pool, rng = class_pool(images, sampling), generator(0)
    drawn = [draw(pool, sampling, rng) for _ in range(times)]
    classes = torch.cat([labels for labels, _ in drawn])
    assert chi_square(classes // 3 - 1, cells=8) < 7 + 5 * math.sqrt(14)
    chosen = torch.stack([indices for _, indices in drawn])
    for support_or_query in chosen.unbind(2):
        assert chi_square(support_or_query.flatten(), cells=40) < 39 + 5 * math.sqrt(78)


def chi_square(found: Tensor, cells: int) -> float:
    counts = torch.bincount(found, minlength=cells).double()
    expected = len(found) / cells
    return float(((counts - expected) ** 2 / expected).sum())


def test_tasks_hold_the_images_of_their_classes() -> None:
    """Red is the label and green the image: support and query of a class are its own, and different, images."""
    framing = Framing(4, (0.0,) * 3, (1 / 255,) * 3, Augment(crop="none", flip=False, margin=1.0))
    tasks = list(episodes(stored(5, 6), framing, Sampling(3, 2, 3), 4, Steps()))
    assert len(tasks) == 4
    for task in tasks:
        assert task.S.shape == (3, 2, 3, 4, 4)
        assert task.Q.shape == (3, 3, 3, 4, 4)
        assert torch.equal(task.images[:, :, 0, 0, 0].round(), task.classes[:, None].expand(3, 5).float())
        for numbers in task.images[:, :, 1, 0, 0].round().tolist():
            assert len(set(numbers)) == 5


def test_an_epoch_that_goes_on_in_the_middle_draws_the_same_tasks() -> None:
    framing = Framing(4, (0.5,) * 3, (0.5,) * 3, Augment(crop="pad", padding=1, brightness=0.2))
    images, sampling = stored(5, 6), Sampling(3, 2, 3)
    whole, rest = (list(episodes(images, framing, sampling, 5, Steps(start))) for start in (0, 3))
    assert len(rest) == 2
    for one, other in zip(whole[3:], rest, strict=True):
        assert torch.equal(one.classes, other.classes)
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.twins, other.twins)
    assert not torch.equal(whole[0].images, whole[1].images)


def test_too_few_classes_or_images_are_refused_by_name() -> None:
    with pytest.raises(FscilError, match=r"6 classes .* 5 base classes"):
        class_pool(stored(5, 4), Sampling(6, 1, 1))
    short = stored(5, 4).select([0, 1, *range(4, 20)])
    with pytest.raises(SmallClass, match=r"class 3 has 2 training images, .* 2 \+ 1") as caught:
        class_pool(short, Sampling(5, 2, 1))
    named = caught.value.named(("coot", "dunnock", "jay", "robin", "wren"))
    assert str(named) == str(caught.value).replace("class 3", "class robin")


# ---- rotation ------------------------------------------------------------------------------------------------------


@few
@given(seed=seeds, way=ways, pixels=st.integers(1, 6))
def test_four_quarter_turns_are_the_identity(seed: int, way: int, pixels: int) -> None:
    images = random_images(way, 2, pixels, seed)
    turned = images
    for _ in range(4):
        turned = rotate(turned, [1] * way)
    assert torch.equal(turned, images)
    assert torch.equal(rotate(rotate(images, [1] * way), [1] * way), images.flip(-1, -2))
    assert torch.equal(rotate(images, [3] * way), rotate(images.flip(-1, -2), [1] * way))


@few
@given(seed=seeds, way=ways)
def test_twin_i_is_class_i_turned_by_one_angle_that_is_not_zero(seed: int, way: int) -> None:
    """Support and queries of a class share the angle; local class i + way is the twin of class i."""
    images = random_images(way, 5, 3, seed)
    twins = synthesise(images, Sampling(way, 2, 3, "rotate"), generator(seed))
    task = Task(images, twins, torch.arange(way), shot=2)
    assert task.support.shape[:2] == (2 * way, 2)
    assert task.query.shape[:2] == (2 * way, 3)
    for i in range(way):
        turns = quarter_turns(images[i], twins[i])
        assert turns != 0
        for real, local in ((task.S, task.support), (task.Q, task.query)):
            assert torch.equal(local[i], real[i])
            assert torch.equal(local[i + way], torch.rot90(real[i], turns, (-2, -1)))


def quarter_turns(images: Tensor, turned: Tensor) -> int:
    """By how many quarter turns all of `turned` differ from `images`."""
    [turns] = [k for k in range(4) if torch.equal(torch.rot90(images, k, (-2, -1)), turned)]
    return turns


def test_all_three_angles_occur_equally_often_and_class_by_class() -> None:
    images, rng = random_images(4, 1, 2, 0), generator(0)
    drawn = [synthesise(images, Sampling(4, 1, 0), rng) for _ in range(300)]
    angles = torch.tensor([[quarter_turns(x, t) for x, t in zip(images, twins, strict=True)] for twins in drawn])
    assert chi_square(angles.flatten() - 1, cells=3) < 2 + 5 * math.sqrt(4)
    assert not (angles == angles[:, :1]).all(1).all()


# ---- MixUp and CutMix ----------------------------------------------------------------------------------------------


@pytest.fixture
def mixing(monkeypatch: pytest.MonkeyPatch):
    """Fixes the share lambda that is drawn from Beta(1/2, 1/2)."""

    def fix(lam: float) -> None:
        monkeypatch.setattr(module.torch, "_sample_dirichlet", lambda *_, **__: torch.tensor([lam, 1 - lam]))

    return fix


@pytest.mark.parametrize("synthesis", ["mixup", "cutmix"])
@pytest.mark.parametrize("mix", ["inter", "intra"])
def test_all_of_lambda_gives_the_image_itself_and_nothing_of_it_the_partner(mixing, synthesis: str, mix: str) -> None:
    images, sampling = random_images(4, 3, 5, 0), Sampling(4, 1, 2, synthesis, mix)
    mixing(1.0)
    assert torch.equal(synthesise(images, sampling, generator(1)), images)
    mixing(0.0)
    partners = synthesise(images, sampling, generator(1))
    everything = [image.tobytes() for image in images.flatten(0, 1).numpy()]
    for i, j in ((i, j) for i in range(4) for j in range(3)):
        k, m = divmod(everything.index(partners[i, j].numpy().tobytes()), 3)
        assert (k != i and m == j) if mix == "inter" else (k == i and m != j)


@few
@given(seed=seeds, mix=st.sampled_from(["inter", "intra"]))
def test_mixup_is_convex_with_one_share_for_the_whole_task(seed: int, mix: str) -> None:
    images = random_images(4, 3, 3, seed)
    mixed = synthesise(images, Sampling(4, 1, 2, "mixup", mix), generator(seed))
    lam = float(torch._sample_dirichlet(torch.tensor([0.5, 0.5]), generator=(rng := generator(seed)))[0])
    partners = (module.inter_class if mix == "inter" else module.intra_class)(images, rng)
    assert 0 <= lam <= 1
    torch.testing.assert_close(mixed, lam * images + (1 - lam) * partners)
    assert (mixed >= torch.minimum(images, partners) - 1e-6).all()
    assert (mixed <= torch.maximum(images, partners) + 1e-6).all()


def test_the_share_is_drawn_from_the_arcsine_distribution() -> None:
    """Beta(1/2, 1/2): mean 1/2, variance 1/8, a third of it below 1/4."""
    one, other = torch.zeros(1, 1, 3, 1, 1), torch.ones(1, 1, 3, 1, 1)
    rng = generator(0)
    sampling = Sampling(2, 1, 0, "mixup")
    shares = torch.stack([synthesise(torch.cat([other, one]), sampling, rng)[0, 0, 0, 0, 0] for _ in range(1500)])
    assert shares.mean() == pytest.approx(1 / 2, abs=0.05)
    assert shares.var() == pytest.approx(1 / 8, abs=0.015)
    assert (shares < 1 / 4).float().mean() == pytest.approx(1 / 3, abs=0.06)


@few
@given(seed=seeds, lam=st.floats(0, 1), pixels=st.integers(1, 12))
def test_cutmix_takes_one_square_of_the_share_that_is_left(seed: int, lam: float, pixels: int) -> None:
    """Every pixel is the image's or the partner's; the partner's form one square whose side is right to a pixel."""
    images, partners = torch.zeros(2, 3, 3, pixels, pixels), torch.ones(2, 3, 3, pixels, pixels)
    mixed = cutmix(images, partners, lam, generator(seed))
    assert ((mixed == 0) | (mixed == 1)).all()
    assert (mixed == mixed[:1, :1, :1]).all()  # one place for the whole task
    square = mixed[0, 0, 0]
    side = round(math.sqrt(float(square.sum())))
    assert abs(side - pixels * math.sqrt(1 - lam)) <= 0.5 + 1e-6
    rows, columns = (square.any(axis).nonzero()[:, 0] for axis in (1, 0))
    for positions in (rows, columns):
        assert len(positions) == side
        assert side == 0 or int(positions[-1] - positions[0]) == side - 1
    assert float(square.sum()) == side**2
    assert (images == 0).all()


def test_cutmix_reaches_every_place() -> None:
    images, partners = torch.zeros(1, 1, 3, 4, 4), torch.ones(1, 1, 3, 4, 4)
    rng = generator(0)
    places = {tuple(cutmix(images, partners, 3 / 4, rng)[0, 0, 0].nonzero()[0].tolist()) for _ in range(200)}
    assert places == {(top, left) for top in range(3) for left in range(3)}


@few
@given(seed=seeds, n=st.integers(2, 9))
def test_a_derangement_moves_everything(seed: int, n: int) -> None:
    order = derangement(n, generator(seed))
    assert sorted(order.tolist()) == list(range(n))
    assert not (order == torch.arange(n)).any()


def test_the_only_permutation_of_one_thing_is_accepted() -> None:
    assert derangement(1, generator(0)).tolist() == [0]


def test_without_synthesis_there_are_no_twins() -> None:
    images = random_images(3, 4, 2, 0)
    assert synthesise(images, Sampling(3, 2, 2, "none"), generator(0)) is None
    task = Task(images, None, torch.arange(3), shot=2)
    assert torch.equal(task.support, task.S)
    assert torch.equal(task.query, task.Q)


# ---- several devices -----------------------------------------------------------------------------------------------


@few
@given(seed=seeds, world=st.integers(1, 4), more=st.integers(0, 5), twins=st.booleans())
def test_devices_share_the_queries_and_all_have_the_support(seed: int, world: int, more: int, twins: bool) -> None:
    images = random_images(2, 3 + world + more, 2, seed)
    task = Task(images, images.flip(-1) if twins else None, torch.tensor([8, 4]), shot=3)
    shares = [task.share(rank, world) for rank in range(world)]
    for rank, share in enumerate(shares):
        assert torch.equal(share.classes, task.classes)
        assert torch.equal(share.support, task.support)
        assert torch.equal(share.query, task.query[:, rank::world])
        assert share.weight == 1 or more % world
    means = torch.stack([share.weight * share.query.mean() for share in shares])
    torch.testing.assert_close(means.mean(), task.query.mean())


def test_a_device_without_a_query_is_refused() -> None:
    task = Task(random_images(2, 6, 2, 0), None, torch.arange(2), shot=1)
    with pytest.raises(FscilError, match=r"5 queries .* 6 devices; raise --query or lower --devices"):
        task.share(0, 6)
