"""Probabilities and "not sure": fitted numbers do what they promise on the photos they were fitted on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.errors import FscilError
from fscil.nn.branches import Branch
from fscil.teach.base.fitting import Wish
from fscil.teach.base.learning import learn_table
from fscil.teach.knowledge import calibration
from fscil.teach.knowledge.backbones import Features
from fscil.teach.knowledge.calibration import Calibration, Prior, Taught, _threshold, auroc, balance, counted_as, fit
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.knowledge.rehearsal import MOST, Fold, Rehearsal, fold_of, folds, place_in_class, rehearse

PRIOR = Prior.of(1)


def noisy(photos: int, classes: int, noise: float, seed: int = 0) -> Rehearsal:
    """Two relations of which the first is right and noisy, the second mostly noise; every other photo is unknown."""
    rng = torch.Generator().manual_seed(seed)
    truth = torch.arange(2 * photos) // 2 % classes
    truth[1::2] = -1
    right = (truth[:, None] == torch.arange(classes)).float()
    first, second = (torch.randn(2 * photos, classes, generator=rng) for _ in range(2))
    return Rehearsal([right + noise * first, second], None, truth)


def known(made: Rehearsal) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores by the first relation of the photos of known classes, and their columns."""
    return made.scores([1.0, 0.0])[made.known], made.truth[made.known]


numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


@settings(deadline=None)
@given(numbers, numbers)
def test_auroc_is_the_share_of_pairs_in_the_right_order(known: list[int], unknown: list[int]) -> None:
    pairs = [(k > u) + 0.5 * (k == u) for k in known for u in unknown]
    found = auroc(torch.tensor(known, dtype=torch.float32), torch.tensor(unknown, dtype=torch.float32))
    assert found == pytest.approx(sum(pairs) / len(pairs))


def test_probabilities_are_right_as_often_as_they_say() -> None:
    made = noisy(4000, 5, 0.6)
    c = fit([made], [1.0, 0.0], 0.05, 5)
    scores, truth = known(made)
    p = torch.softmax(c.temperature * scores, 1)
    right = (p.argmax(1) == truth).float().mean()
    assert float(p.amax(1).mean()) == pytest.approx(float(right), abs=0.03)
    assert c.accuracy == pytest.approx(float(right))


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_threshold_of_many_classes_accepts_as_many_unknown_photos_as_allowed(rate: float) -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(3, 1, 4000), rng.normal(-2, 0.3, 4000)
    threshold = _threshold(known, unknown, 100_000, PRIOR, rate)
    assert float((unknown >= threshold).mean()) == pytest.approx(rate, abs=0.015)


def test_what_a_threshold_costs_is_what_it_does_to_the_rehearsals() -> None:
    made = noisy(2000, 8, 0.3)
    c = fit([made], [1.0, 0.0], 0.05, 8)
    unknown = made.scores([1.0, 0.0])[~made.known]
    assert c.accepted == pytest.approx(float(c.known(known(made)[0]).float().mean()), abs=0.005)
    assert c.auroc == pytest.approx(auroc(c.fit_of(known(made)[0]), c.fit_of(unknown)))
    assert c.accepted > 0.5 > float(c.known(unknown).float().mean())


def test_few_classes_are_believed_less() -> None:
    """What hidden classes say counts the more the more of them there are; before, what sets have in common counts."""
    known, unknown = np.linspace(-1.0, 1.0, 101), np.linspace(-4.0, 1.0, 101)
    usual = known.mean() + (1.645 * PRIOR.narrower - PRIOR.below) * known.std()
    seen = np.median(unknown) + 1.645 * unknown.std()
    thresholds = [_threshold(known, unknown, classes, PRIOR, 0.05) for classes in (0, 10, 100, 10_000)]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] == pytest.approx(usual, abs=1e-3)
    assert thresholds[-1] == pytest.approx(seen, abs=0.02)


def test_many_classes_of_one_set_do_not_say_everything() -> None:
    """Nobody knows whether what is unknown will be a relative of a known class: more of the same set does not tell."""
    worth = [calibration.counted_as(classes) for classes in (1, 10, 100, 10_000)]
    assert worth == sorted(worth)
    assert worth[0] == pytest.approx(1, abs=0.1)
    assert worth[-1] < calibration.ALIKE
    made = noisy(2000, 8, 0.3)
    many, few = fit([made], [1.0, 0.0], 0.05, 1000), fit([made], [1.0, 0.0], 0.05, 10)
    assert (many.counted, few.counted) == (calibration.counted_as(1000), calibration.counted_as(10))
    fits = np.array(many.known_fits), np.array(many.unknown_fits)
    assert many.threshold == _threshold(*fits, many.counted, PRIOR, 0.05)
    assert many.threshold != pytest.approx(_threshold(*fits, 1000, PRIOR, 0.05), abs=1e-3)


def test_files_of_before_count_every_hidden_class_when_the_threshold_is_moved() -> None:
    c = fit([noisy(2000, 8, 0.3)], [1.0, 0.0], 0.05, 1000)
    old = replace(c, counted=Calibration().counted)
    fits = np.array(c.known_fits), np.array(c.unknown_fits)
    assert old.at(0.1).threshold == _threshold(*fits, 1000, PRIOR, 0.1)
    assert c.at(0.1).threshold == _threshold(*fits, c.counted, PRIOR, 0.1)


def test_with_more_encoders_less_is_refused() -> None:
    """Together they tell unknown photos from known ones better, which few hidden classes cannot show."""
    made = noisy(2000, 8, 0.3)
    one, two = (fit([made], [1.0, 0.0], 0.05, 8, encoders) for encoders in (1, 2))
    assert (one.accepted or 0) < (two.accepted or 0)


def test_models_whose_encoders_were_not_noted_keep_their_rule() -> None:
    c = fit([noisy(2000, 8, 0.3)], [1.0, 0.0], 0.05, 8)
    old = replace(c, encoders=Calibration().encoders)
    known, unknown = np.array(c.known_fits), np.array(c.unknown_fits)
    shown = [(unknown, 8), (unknown + 0.5, 10)]
    both = np.concatenate([np.quantile(fits, np.linspace(0, 1, calibration.EACH * n)) for fits, n in shown])
    for model, times in ((c, calibration.MORE), (old, 1)):
        prior, worth = Prior.of(model.encoders), counted_as(8)
        assert model.at(0.05).threshold == _threshold(known, unknown, worth, prior, 0.05)
        again = _threshold(known, both, worth + times * counted_as(10), prior, 0.05)
        assert model.at(0.05, Taught(10, unknown + 0.5, known, 0.0)).threshold == again
    assert old.at(0.05).threshold != c.at(0.05).threshold


def test_no_photo_has_to_fit_better_than_every_one_of_a_hidden_class() -> None:
    """Where known and unknown photos are far apart, five photos of a new class are enough to know it."""
    known, unknown = np.linspace(0.9, 1.0, 50), np.linspace(0.0, 0.6, 50)
    assert _threshold(known, unknown, 2, PRIOR, 0.05) == 0.6


def test_two_hidden_classes_that_are_alike_do_not_set_the_threshold() -> None:
    """Photos of a tenth of the hidden classes fit like known ones; the next class need not."""
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1, 0.5, 300), rng.normal(0, 0.4, 300)
    alike = np.where(np.arange(300) < 30, unknown + 1, unknown)
    before, after = (_threshold(known, fits, 10, PRIOR, 0.05) for fits in (unknown, alike))
    by_quantile = np.quantile(alike, 0.95) - np.quantile(unknown, 0.95)
    assert 0 < after - before < by_quantile / 2


def test_the_threshold_can_be_moved_later() -> None:
    made = noisy(2000, 8, 0.5)
    moved, fresh = fit([made], [1.0, 0.0], 0.05, 8).at(0.2), fit([made], [1.0, 0.0], 0.2, 8)
    assert moved == fresh
    assert moved.accepted > fit([made], [1.0, 0.0], 0.05, 8).accepted
    with pytest.raises(FscilError, match=r"would cost: an earlier version made it; learn it again$"):
        Calibration(threshold=0.3, photos=20).at(0.1)
    with pytest.raises(FscilError, match=r"held out; learn it again from more photos of at least two classes$"):
        Calibration().at(0.1)  # the same photos would not be enough the next time either
    with pytest.raises(FscilError, match=r"is 1.5, but must lie between 0 and 1"):
        moved.at(1.5)


def test_the_promise_holds_when_classes_are_added() -> None:
    """Unknown photos fit the best of many classes better than the best of few."""
    rng = torch.Generator().manual_seed(3)
    evidence = torch.randn(4000, 256, generator=rng)
    truth = torch.where(torch.arange(4000) % 2 == 0, -1, torch.arange(4000) % 16)
    few = fit([Rehearsal([evidence[:, :16]], evidence[:, :16], truth)], [1.0], 0.05, 16)
    fresh = torch.randn(4000, 256, generator=rng)
    first = float(few.known(fresh[:, :16]).float().mean())
    for classes in (64, 256):
        assert float(few.known(fresh[:, :classes]).float().mean()) == pytest.approx(first, abs=0.06)
    unmoved = Calibration(margin=few.margin, threshold=few.threshold)
    assert float(unmoved.known(fresh).float().mean()) > first + 0.3


def test_perfect_separation_does_not_make_certainty() -> None:
    made = noisy(20, 4, 0.0)
    few = fit([made], [1.0, 0.0], 0.05, 4)
    p = torch.softmax(few.temperature * known(made)[0], 1).amax()
    assert 0.9 < float(p) < 0.99


def test_balance_silences_a_relation_that_is_noise() -> None:
    assert balance([noisy(500, 5, 0.3)], [1.0, 1.0])[1] == calibration.WEIGHTS[0]
    swapped = noisy(500, 5, 0.3)
    swapped = Rehearsal(swapped.relations[::-1], None, swapped.truth)
    assert balance([swapped], [1.0, 1.0])[1] == calibration.WEIGHTS[-1]


def test_too_few_photos_leave_everything_known() -> None:
    c = fit([noisy(3, 3, 0.1)], [1.0, 0.0], 0.05, 3)
    assert c == Calibration(false_acceptance=0.05)
    assert bool(c.known(torch.full((4, 3), -9.0)).all())
    assert balance([noisy(3, 3, 0.1)], [1.0, 0.7]) == [1.0, 0.7]


def test_one_class_has_no_second_best() -> None:
    assert Calibration(margin=2.0).fit_of(torch.tensor([[0.3], [0.1]])).tolist() == pytest.approx([0.3, 0.1])
    assert Calibration(margin=2.0).fit_of(torch.tensor([[0.3, 0.1]])).tolist() == pytest.approx([0.7])


def test_a_rehearsal_knows_half_of_the_classes_from_five_photos() -> None:
    rows = torch.arange(4).repeat_interleave(8)
    features = torch.arange(32.0)[:, None].repeat(1, 2)  # the n-th photo of a class is larger than those before
    asked = torch.arange(32) % 8 == 7
    first, second = rehearse([Branch("C", Features(2), "euclid")], [features], rows, Fold(~asked, asked))
    few, all_of_them = torch.tensor([2.0, 10.0, 18.0, 26.0]), torch.tensor([3.0, 11.0, 19.0, 27.0])
    for made, half in ((first, 0), (second, 1)):
        prototypes = torch.where(torch.arange(4) % 2 == half, few, all_of_them)
        torch.testing.assert_close(made.relations[0], -(features[asked, :1] - prototypes[None]).square())
        assert made.truth.tolist() == [0, 1, 2, 3]


def test_classes_that_play_the_unknown_are_hidden_from_what_is_fitted() -> None:
    rows = torch.arange(12).repeat_interleave(6)
    hidden: list[int] = []
    for fold in folds(rows):
        away = set(range(12)) - set(rows[fold.fitted].tolist())
        hidden += away
        assert away
        assert not (fold.fitted & fold.asked).any()
        made = rehearse([Branch("C", Features(2), "euclid")], [torch.rand(72, 2)], rows, fold)[0]
        assert set(rows[fold.asked][~made.known].tolist()) == away
    assert sorted(hidden) == list(range(12))


def test_one_class_cannot_be_rehearsed() -> None:
    assert folds(torch.zeros(9, dtype=torch.int64)) == []


def test_photos_that_an_encoder_was_trained_on_are_not_asked_about() -> None:
    rows, held = torch.arange(4).repeat_interleave(5), torch.arange(20) % 5 == 0
    for fold in folds(rows, held):
        assert torch.equal(fold.asked, held)
        assert not (fold.fitted & held).any()


@given(st.lists(st.integers(0, 5), max_size=30))
def test_places_count_what_came_before(classes: list[int]) -> None:
    rows = torch.tensor(classes, dtype=torch.int64)
    assert place_in_class(rows).tolist() == [classes[:i].count(label) for i, label in enumerate(classes)]


@pytest.mark.parametrize("classes", [3, 600])
def test_many_classes_are_calibrated_on_fewer_photos(classes: int) -> None:
    rows = torch.arange(classes).repeat_interleave(10)
    whole = (rows % 3 == 0) | (place_in_class(rows) % 5 == 0)
    shown = fold_of(rows, 3, 0).asked
    assert not (shown & ~whole).any()
    assert int(shown.sum()) * 6 * classes <= MOST
    assert bool((shown == whole).all()) == (classes == 3)


def test_not_sure_is_asked_for_as_it_was_rehearsed() -> None:
    """Also on encoders of a run, whose class means may be of length 1."""
    branch = Branch("B", Features(16), "cosine", "one")
    branch.unit_means = True
    model = Model([branch], None, Origin("features", "none", "none"))
    rng = torch.Generator().manual_seed(0)
    centres, rows = torch.randn(40, 16, generator=rng), torch.arange(40).repeat_interleave(20)
    shown = centres[rows] + 0.7 * torch.randn(800, 16, generator=rng)
    base = rows < 20
    learn_table(model, shown[base], rows[base].tolist(), Wish(strength="prototypes", seed=5))
    assert float(model.known(model.embed(shown[~base])).float().mean()) < 0.1
    assert model.origin.seed == 5
