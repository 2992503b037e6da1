"""RESA on cached features: the loss is KT-RCNet's, the map learns, and nothing it must not touch moves."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albums import BIRDS, QUICK, empty_model
from fscil import methods
from fscil.data.episodes import Sampling, Task
from fscil.errors import FscilError
from fscil.nn.branches import Branch
from fscil.nn.relations import euclid, mean_of_labels
from fscil.running.progress import Bar
from fscil.teach.base import fitting, planning, transfer
from fscil.teach.base.fitting import Learned, Wish
from fscil.teach.base.transfer import Cached, Settings, sample, sampling_for, task_loss
from fscil.teach.knowledge import backbones, calibration
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.knowledge.rehearsal import Fold, Rehearsal, fold_of

NOBODY = Origin("features", "none", "none")


def cached(classes: int = 6, photos: int = 12, dim: int = 5, seed: int = 0) -> Cached:
    """Clusters of features, and turned versions that are clusters of their own."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.rand(classes, 4, dim, generator=rng)
    rows = torch.arange(classes).repeat_interleave(photos)
    features = centres[rows] + 0.3 * torch.randn(len(rows), 4, dim, generator=rng)
    return Cached(features[:, 0], features[:, 1:], rows)


def means_of(data: Cached) -> Tensor:
    return mean_of_labels(data.upright, data.rows)[1]


class Linear(nn.Module):
    """An encoder of features: multiplies by a map."""

    def __init__(self, A: Tensor):
        super().__init__()
        self.A, self.dim = nn.Parameter(A.clone()), len(A)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.A


def test_the_loss_is_that_of_the_method() -> None:
    data, settings = cached(), Settings(scale=7.0, global_weight=1.5, local_weight=0.5)
    A = torch.eye(5) + 0.1 * torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    images = torch.stack([data.upright[data.rows == c][:6] for c in (4, 0, 3)])
    twins = torch.stack([data.turned[data.rows == c][:6, 1] for c in (4, 0, 3)])
    task = Task(images, twins, torch.tensor([4, 0, 3]), 2)
    KT = methods.load("kt_rcnet")
    config = KT.Config(scale=7.0, global_weight=1.5, local_weight=0.5, base_relation=0.0)
    method = KT.Method(config, Linear(A))
    method.W2.add(data.rows, method.branches[1].encode(data.upright))
    mine = task_loss(task, A, means_of(data), settings)
    torch.testing.assert_close(mine, method.loss(task))


def test_pseudo_old_rows_and_frozen_features_get_no_gradient() -> None:
    data = cached()
    means = means_of(data).requires_grad_(True)
    A = torch.eye(5, requires_grad=True)
    task = Task(torch.stack([data.upright[data.rows == c] for c in (1, 2)]), None, torch.tensor([1, 2]), 4)
    task_loss(task, A, means, Settings()).backward()
    assert means.grad is None
    assert A.grad.abs().sum() > 0


def test_training_lowers_the_loss_on_other_tasks() -> None:
    whole = cached(photos=24, dim=16)
    data, fresh = (Cached(whole.upright[k::2], whole.turned[k::2], whole.rows[k::2]) for k in (0, 1))
    settings = Settings(tasks=150, way=4, dropout=0.0)
    g = 3.0
    A = transfer.train(data, means_of(data), g, settings, torch.Generator().manual_seed(0), Bar("", 1, shown=False))
    pool = {row: (fresh.rows == row).nonzero()[:, 0] for row in range(6)}
    tasks = [sample(fresh, g, pool, Sampling(4, 4, 8), 0.0, torch.Generator().manual_seed(i)) for i in range(20)]
    before, after = (
        sum(float(task_loss(t, M, g * means_of(data), settings)) for t in tasks) for M in (torch.eye(16), A)
    )
    assert after < 0.95 * before


def test_the_same_seed_gives_the_same_map() -> None:
    data, quiet = cached(), Bar("", 1, shown=False)
    maps = [
        transfer.train(data, means_of(data), 2.0, replace(QUICK, tasks=5), torch.Generator().manual_seed(s), quiet)
        for s in (3, 3, 4)
    ]
    assert torch.equal(maps[0], maps[1])
    assert not torch.equal(maps[0], maps[2])


def test_no_steps_leave_the_identity() -> None:
    data = cached()
    A = transfer.train(data, means_of(data), 2.0, Settings(tasks=0), torch.Generator(), Bar("", 1, shown=False))
    assert torch.equal(A, torch.eye(5))


def test_twins_are_the_turned_features_of_the_same_photos() -> None:
    data = cached()
    pool = {row: (data.rows == row).nonzero()[:, 0] for row in range(6)}
    task = sample(data, 2.0, pool, Sampling(3, 2, 4), 0.0, torch.Generator().manual_seed(5))
    for c, images, twins in zip(task.classes.tolist(), task.images, task.twins, strict=True):
        at = [int((2.0 * data.upright == image).all(1).nonzero()) for image in images]
        assert set(data.rows[at].tolist()) == {c}
        assert any(torch.equal(twins, 2.0 * data.turned[at, turn]) for turn in range(3))


def test_dropout_keeps_the_mean_of_features() -> None:
    data = Cached(torch.ones(40, 200), None, torch.arange(4).repeat_interleave(10))
    pool = {row: (data.rows == row).nonzero()[:, 0] for row in range(4)}
    task = sample(data, 1.0, pool, Sampling(4, 3, 7), 0.5, torch.Generator().manual_seed(0))
    assert set(task.images.unique().tolist()) == {0.0, 2.0}
    assert float(task.images.mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("counts", "way", "shot", "query"),
    [
        ([24] * 100, 10, 5, 10),
        ([4] * 5, 5, 1, 3),
        ([8, 8, 8, 8, 8, 8, 3, 50], 7, 2, 6),
        ([4, 4, 4, 4, 4, 1, 1, 1], 5, 1, 3),
    ],
)
def test_tasks_are_as_large_as_most_classes_allow(counts: list[int], way: int, shot: int, query: int) -> None:
    assert sampling_for(counts, Settings(), True) == Sampling(way, shot, query, "rotate")


def test_the_scale_makes_held_out_features_predictable() -> None:
    data, s = cached(photos=20), 16.0
    held, rows = data.upright[1::2], data.rows[1::2]
    W = mean_of_labels(data.upright[::2], data.rows[::2])[1]
    g, loss = transfer.fitted_scale(W, held, rows, s)
    for factor in (0.5, 2.0):  # a minimum
        assert float(F.cross_entropy(s * euclid(factor * g * held, factor * g * W), rows)) > loss
    for factor in (0.01, 100.0):  # whatever the features' own scale
        assert transfer.fitted_scale(factor * W, factor * held, rows, s).g * factor == pytest.approx(g, rel=1e-3)


def test_auto_tries_a_map_where_the_photos_suffice_and_it_costs_little() -> None:
    model, told = empty_model(), []
    many = [name for name in (*BIRDS, "rook", "tern") for _ in range(6)]
    plan = planning.plan_for(model, many, "auto", 0)
    assert (plan.strength, plan.trial, plan.why) == ("prototypes", True, "8 classes with 48 photos")
    assert planning.affordable(plan, planning.Estimate(1.0, 47.0, 1.0, 4.0), 3.0, told.append) == plan
    assert not planning.affordable(plan, planning.Estimate(1.0, 47.0, 1.0, 5.0), 3.0, told.append).trial
    assert told == [
        "prototypes: 8 classes with 48 photos; about 55 s, and a trained map is tried",
        "prototypes: 8 classes with 48 photos; about 51 s; "
        "--strength transfer also tries a trained map, which takes longer",
    ]
    assert not planning.plan_for(model, many[:24], "auto", 0).trial
    plan = planning.plan_for(model, many, "transfer", 0)
    assert (plan.strength, len(plan.turned)) == ("transfer", 48)
    with pytest.raises(FscilError, match="strength transfer is not possible: fewer than six classes"):
        planning.plan_for(model, many[:24], "transfer", 0)


def test_classes_held_out_as_new_do_not_move_the_map() -> None:
    data = cached(classes=9)
    fold = fold_of(data.rows, 3, 0)
    maps = []
    for moved in (torch.zeros_like(fold.fitted), ~fold.fitted, fold.fitted):
        features = torch.where(moved[:, None], -data.upright, data.upright)
        learned = Learned([features] * 2, data.rows, turned=data.turned)
        maps.append(fitting.complement(learned, fold.fitted, Wish(strength="transfer", settings=QUICK)).matrix)
    assert torch.equal(maps[0], maps[1])
    assert not torch.equal(maps[0], maps[2])


@pytest.mark.parametrize("helps", [True, False])
def test_a_map_is_used_only_where_it_wins(helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "accuracy", lambda branches, *rest: 60.0 + (helps - 0.5) * float(branches[1].weight))
    monkeypatch.setattr(calibration, "balance", lambda made, weights: [1.0, 2.0])
    data, model = cached(classes=9), Model(backbones.pair(backbones.Features(5), "one", unit=True), None, NOBODY)
    learned = Learned([data.upright] * 2, data.rows, turned=data.turned)
    features, told = fitting.fit(model, learned, Wish(strength="transfer", settings=QUICK))
    percent = "61.0" if helps else "59.0"
    assert told.startswith(
        f"the map is {'' if helps else 'not '}used: harmonic mean 60.0 % without and {percent} % with"
    )
    assert model.origin.strength == ("transfer" if helps else "prototypes")
    assert float(model.branches[1].weight) == (2.0 if helps else 0.0)
    torch.testing.assert_close(features[1], data.upright @ model.branches[1].whitening)
    assert torch.equal(model.branches[1].whitening, torch.eye(5)) != helps


def test_the_photos_that_choose_the_weight_of_a_map_do_not_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the map would be helped to win: the best of 14 weights on some photos is better on these than on others."""
    asked: dict[int, Tensor] = {}
    chosen, judged = [], []
    rehearse, balance, accuracy = fitting.rehearse, calibration.balance, fitting.accuracy

    def rehearsed(branches: Any, features: Any, rows: Tensor, fold: Fold) -> list[Rehearsal]:
        made = rehearse(branches, features, rows, fold)
        asked.update((id(one), fold.asked) for one in made)
        return made

    def weighed(made: list[Rehearsal], weights: list[float]) -> list[float]:
        chosen.append(asked[id(made[0])])
        return balance(made, weights)

    def counted(branches: Any, features: Any, rows: Tensor, fold: Fold) -> float:
        judged.append(fold.asked)
        return accuracy(branches, features, rows, fold)

    for module, name, spy in (
        (fitting, "rehearse", rehearsed),
        (calibration, "balance", weighed),
        (fitting, "accuracy", counted),
    ):
        monkeypatch.setattr(module, name, spy)
    data, model = cached(classes=9), Model(backbones.pair(backbones.Features(5), "one", unit=True), None, NOBODY)
    told = fitting.fit(model, Learned([data.upright] * 2, data.rows), Wish(strength="transfer", settings=QUICK))[1]
    fold = fold_of(data.rows, 3, 0)
    aside = fold.asked & torch.isin(data.rows, data.rows[fold.fitted])
    without, with_map = judged
    assert torch.equal(without, with_map)
    assert not (chosen[0] & with_map & aside).any()
    assert torch.equal((chosen[0] | with_map) & aside, aside)
    assert (with_map & ~aside).sum() == 36  # the photos of three hidden classes, of which nothing was chosen
    asked = int((with_map & aside).sum()) + 3 * (12 - 5)  # the five from which a hidden class is taught are not asked
    assert f"on {asked} base photos, 3 classes held out as new" in told


def test_photos_that_a_map_was_tried_on_are_counted_without_those_it_was_taught_from() -> None:
    data, model = (
        cached(classes=6, photos=5),
        Model(backbones.pair(backbones.Features(5), "one", unit=True), None, NOBODY),
    )
    told = fitting.fit(model, Learned([data.upright] * 2, data.rows), Wish(strength="transfer", settings=QUICK))[1]
    assert told.endswith("on 4 base photos, 1 class held out as new")  # three kept aside, the fifth of the hidden class


def test_photos_that_no_longer_suffice_train_no_map() -> None:
    data = cached(classes=5, photos=8)
    learned = Learned([data.upright] * 2, data.rows)
    told = fitting.fit(backbones.of_features(5), learned, Wish(strength="transfer"))[1]
    assert told.startswith("no map is trained: without the photos held out, fewer than five")


def test_accuracy_is_that_of_old_and_new_classes() -> None:
    rows = torch.arange(6).repeat_interleave(10)
    features = torch.nn.functional.one_hot(rows, 6).float()
    branches, fold = [Branch("B", backbones.Features(6), "cosine")], fold_of(rows, 3, 0)
    assert fitting.accuracy(branches, [features], rows, fold) == 100
    features[rows == 0] = features[rows == 1]  # class 0 is hidden and then taught; it looks like class 1
    assert fitting.accuracy(branches, [features], rows, fold) == pytest.approx(2 * 75 * 100 / 175)


def test_classes_of_five_photos_are_asked_about_too() -> None:
    """All five must not be taken to teach a class that is held out: nothing would be left to try a map on."""
    rows = torch.arange(9).repeat_interleave(5)
    features = torch.nn.functional.one_hot(rows, 9).float()
    branches = [Branch("B", backbones.Features(9), "cosine")]
    assert fitting.accuracy(branches, [features], rows, fold_of(rows, 3, 0)) == 100


def test_a_map_that_cannot_be_tried_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "accuracy", lambda *given: math.nan)
    data, model = cached(classes=9), backbones.of_features(5)
    told = fitting.fit(model, Learned([data.upright] * 2, data.rows), Wish(strength="transfer", settings=QUICK))[1]
    assert told == "no map is trained: no photo is left to try it on"
    assert model.origin.strength == "prototypes"


def test_one_branch_has_nothing_to_complement() -> None:
    model = empty_model()
    model = Model(model.branches[:1], model.framing, model.origin)
    plan = planning.plan_for(model, [name for name in BIRDS for _ in range(6)], "auto", 0)
    assert (plan.strength, plan.trial) == ("prototypes", False)
    with pytest.raises(FscilError, match="the encoder brings one branch alone, and a map needs a complementary one"):
        planning.plan_for(model, [name for name in BIRDS for _ in range(6)], "transfer", 0)
