"""Probabilities and "not sure": fitted numbers do what they promise on the photos they were fitted on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.teach import calibration
from fscil.teach.calibration import (
    MOST,
    Calibration,
    Rehearsal,
    auroc,
    balance,
    fit,
    place_in_class,
    rehearsals,
    thinned,
)


def noisy(photos: int, classes: int, noise: float, seed: int = 0) -> Rehearsal:
    """Two relations of which the first is right and noisy, the second mostly noise."""
    rng = torch.Generator().manual_seed(seed)
    truth = torch.arange(photos) % classes
    right = torch.nn.functional.one_hot(truth, classes).float()
    return Rehearsal(
        [right + noise * torch.randn(photos, classes, generator=rng), torch.randn(photos, classes, generator=rng)],
        truth,
    )


numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


@settings(deadline=None)
@given(numbers, numbers)
def test_auroc_is_the_share_of_pairs_in_the_right_order(known: list[int], unknown: list[int]) -> None:
    pairs = [(k > u) + 0.5 * (k == u) for k in known for u in unknown]
    found = auroc(torch.tensor(known, dtype=torch.float32), torch.tensor(unknown, dtype=torch.float32))
    assert found == pytest.approx(sum(pairs) / len(pairs))


def test_probabilities_are_right_as_often_as_they_say() -> None:
    made = [noisy(4000, 5, 0.6)]
    c = fit(made, [1.0, 0.0], 0.05)
    p = torch.softmax(c.temperature * made[0].scores([1.0, 0.0]), 1)
    right = (p.argmax(1) == made[0].truth).float().mean()
    assert float(p.amax(1).mean()) == pytest.approx(float(right), abs=0.03)
    assert c.accuracy == pytest.approx(float(right))


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_threshold_accepts_as_many_hidden_photos_as_allowed(rate: float) -> None:
    made = [noisy(2000, 8, 0.5)]
    c = fit(made, [1.0, 0.0], rate)
    scores = made[0].scores([1.0, 0.0])
    hidden = scores.scatter(1, made[0].truth[:, None], -torch.inf)
    assert float(c.known(hidden).float().mean()) == pytest.approx(rate, abs=0.005)
    assert c.accepted == pytest.approx(float(c.known(scores).float().mean()))
    assert c.auroc == pytest.approx(auroc(c.fit_of(scores), c.fit_of(hidden)))


def test_perfect_separation_does_not_make_certainty() -> None:
    few = fit([noisy(20, 4, 0.0)], [1.0, 0.0], 0.05)
    p = torch.softmax(few.temperature * noisy(20, 4, 0.0).scores([1.0, 0.0]), 1).amax()
    assert 0.9 < float(p) < 0.99


def test_balance_silences_a_relation_that_is_noise() -> None:
    assert balance([noisy(500, 5, 0.3)], [1.0, 1.0])[1] == float(calibration.WEIGHTS[0])
    swapped = noisy(500, 5, 0.3)
    swapped = Rehearsal(swapped.relations[::-1], swapped.truth)
    assert balance([swapped], [1.0, 1.0])[1] == float(calibration.WEIGHTS[-1])


def test_too_few_photos_leave_everything_known() -> None:
    c = fit([noisy(3, 3, 0.1)], [1.0, 0.0], 0.05)
    assert c == Calibration(false_acceptance=0.05)
    assert bool(c.known(torch.full((4, 3), -9.0)).all())
    assert balance([noisy(3, 3, 0.1)], [1.0, 0.7]) == [1.0, 0.7]


def test_one_class_has_no_second_best() -> None:
    assert Calibration(margin=2.0).fit_of(torch.tensor([[0.3], [0.1]])).tolist() == pytest.approx([0.3, 0.1])
    assert Calibration(margin=2.0).fit_of(torch.tensor([[0.3, 0.1]])).tolist() == pytest.approx([0.7])


def test_a_rehearsal_knows_half_of_the_classes_from_five_photos() -> None:
    rows = torch.arange(4).repeat_interleave(8)
    features = torch.arange(32.0)[:, None].repeat(1, 2)  # the n-th photo of a class is larger than those before
    held, held_rows = features[::8] + 100, torch.arange(4)
    first, second = rehearsals(["euclid"], [features], rows, [held], held_rows)
    few, all_of_them = torch.tensor([2.0, 10.0, 18.0, 26.0]), torch.tensor([3.5, 11.5, 19.5, 27.5])
    for made, half in ((first, 0), (second, 1)):
        prototypes = torch.where(torch.arange(4) % 2 == half, few, all_of_them)
        torch.testing.assert_close(made.relations[0], -(held[:, :1] - prototypes[None]).square())


def test_two_classes_suffice_to_calibrate() -> None:
    c = fit([noisy(400, 2, 0.2)], [1.0, 0.0], 0.05)
    scores = noisy(400, 2, 0.2, seed=1).scores([1.0, 0.0])
    assert c.threshold is not None
    assert np.isfinite(c.threshold)
    assert float(c.known(scores).float().mean()) > 0.8
    hidden = scores.scatter(1, scores.argmin(1, keepdim=True), -torch.inf)
    assert bool(c.fit_of(hidden).isfinite().all())


@given(st.lists(st.integers(0, 5), max_size=30))
def test_places_count_what_came_before(classes: list[int]) -> None:
    rows = torch.tensor(classes, dtype=torch.int64)
    assert place_in_class(rows).tolist() == [classes[:i].count(label) for i, label in enumerate(classes)]


@pytest.mark.parametrize("photos", [3, 1000, 5000])
def test_many_classes_are_calibrated_on_fewer_photos(photos: int) -> None:
    held = torch.arange(2 * photos) % 2 == 0
    shown = thinned(held, 2000)
    assert not (shown & ~held).any()
    assert int(shown.sum()) * 2000 <= MOST
    assert int(shown.sum()) * 2000 > MOST / 2 or bool((shown == held).all())
    places = shown.nonzero()[:, 0]
    assert len(set((places[1:] - places[:-1]).tolist())) == 1  # evenly spread
