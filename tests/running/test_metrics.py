"""Every metric equals a number computed by hand, and keeps the properties its definition promises."""

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil import metrics
from fscil.errors import FscilError

# Two base classes (0, 1), class 2 in session 1, class 3 in session 2; two test images per class, four of class 0.
FIRST_SEEN = {0: 0, 1: 0, 2: 1, 3: 2}
TESTS = [
    (np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 1])),  # 5 of 6
    (np.array([0, 0, 0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 0, 2, 2])),  # base 4 of 6, new 2 of 2
    (np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 0, 2, 1, 1, 1, 2, 0, 3, 2])),  # base 4 of 6, new 2 of 4
]


def test_one_session_by_hand():
    after = metrics.session_metrics(*TESTS[2], FIRST_SEEN)
    assert (after.images, after.base_images, after.classes) == (10, 6, 4)
    assert after.accuracy == pytest.approx(60)
    assert after.base == pytest.approx(200 / 3)
    assert after.new == pytest.approx(50)
    assert after.harmonic == pytest.approx(2 * (200 / 3) * 50 / (200 / 3 + 50))
    assert after.per_class == pytest.approx((50 + 100 + 50 + 50) / 4)
    assert after.new_as_base == pytest.approx(25)


def test_a_run_by_hand():
    run = metrics.run_metrics(TESTS, FIRST_SEEN)
    accuracies = [500 / 6, 75, 60]
    assert run.accuracies == pytest.approx(accuracies)
    assert run.average == pytest.approx(sum(accuracies) / 3)
    assert run.performance_drop == pytest.approx(500 / 6 - 60)
    np.testing.assert_allclose(run.matrix, [[500 / 6, 400 / 6, 400 / 6], [nan, 100, 50], [nan, nan, 50]])
    assert run.forgetting == pytest.approx(((500 / 6 - 400 / 6) + (100 - 50)) / 2)
    assert run.average_harmonic == pytest.approx((80 + run.sessions[2].harmonic) / 2)
    never = [500 / 6, 500 / 6 * 6 / 8, 500 / 6 * 6 / 10]
    assert metrics.never_learning(500 / 6, [1, 6 / 8, 6 / 10]) == pytest.approx(never)
    assert run.gain == pytest.approx(run.average - sum(never) / 3)
    assert metrics.difference(run.accuracies, [90, 80, 65]) == pytest.approx(-5)


def test_what_does_not_exist_is_nan():
    first = metrics.session_metrics(*TESTS[0], FIRST_SEEN)
    assert isnan(first.new)
    assert isnan(first.harmonic)
    assert isnan(first.new_as_base)
    only_base = metrics.run_metrics(TESTS[:1], FIRST_SEEN)
    assert isnan(only_base.forgetting)
    assert isnan(only_base.average_harmonic)
    assert only_base.gain == 0
    nothing = metrics.run_metrics([], FIRST_SEEN)
    assert all(isnan(value) for value in (nothing.average, nothing.gain, nothing.performance_drop, nothing.forgetting))
    assert isnan(metrics.per_class_mean(np.array([], int), np.array([], int)))


def test_harmonic_mean_of_nothing_right_is_zero():
    assert metrics.harmonic_mean(0, 0) == 0
    assert metrics.harmonic_mean(80, 0) == 0


def test_confusion_counts_in_the_order_given():
    truth, predicted = np.array([7, 7, 3, 5]), np.array([7, 3, 3, 7])
    assert metrics.confusion(truth, predicted, [3, 7, 5]).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 0]]


def test_labels_of_no_session_are_refused():
    with pytest.raises(FscilError, match="label 9 "):
        metrics.base_accuracy(np.array([0, 9]), np.array([0, 0]), FIRST_SEEN)


def test_spread_is_the_sample_standard_deviation():
    assert metrics.spread([61, 63, 65]) == pytest.approx((63, 2))
    one = metrics.spread([61])
    assert one.mean == 61
    assert isnan(one.std)


few = settings(max_examples=40)


@st.composite
def runs(draw):
    """Tests of a run of up to four sessions with two classes each; session t's images begin with those of t - 1."""
    sessions = draw(st.integers(1, 4))
    first_seen = {label: label // 2 for label in range(2 * sessions)}
    truth = [label for label in first_seen for _ in range(draw(st.integers(1, 3)))]
    tests = []
    for session in range(sessions):
        seen = np.array([label for label in truth if first_seen[label] <= session])
        answers = st.integers(0, 2 * session + 1)
        tests.append((seen, np.array(draw(st.lists(answers, min_size=len(seen), max_size=len(seen))))))
    return tests, first_seen


@few
@given(runs())
def test_accuracy_is_the_mean_of_its_parts_weighted_by_images(run):
    tests, first_seen = run
    matrix = metrics.session_matrix(tests, first_seen)
    for index, (truth, predicted) in enumerate(tests):
        after = metrics.session_metrics(truth, predicted, first_seen)
        images = np.bincount(metrics.session_of(truth, first_seen))
        assert after.accuracy == pytest.approx(np.average(matrix[: index + 1, index], weights=images))
        if index:
            new_images = after.images - after.base_images
            weighted = after.base * after.base_images + after.new * new_images
            assert after.accuracy == pytest.approx(weighted / after.images)
            assert min(after.base, after.new) - 1e-9 <= after.harmonic <= (after.base + after.new) / 2 + 1e-9
            assert 0 <= after.new_as_base <= 100 - after.new + 1e-9


@few
@given(runs(), st.randoms(use_true_random=False))
def test_order_of_images_and_names_of_labels_do_not_matter(run, random):
    tests, first_seen = run
    truth, predicted = tests[-1]
    order = random.sample(range(len(truth)), len(truth))
    names = dict(zip(first_seen, random.sample(range(100), len(first_seen)), strict=True))
    rename = np.vectorize(names.get)
    renamed = {names[label]: session for label, session in first_seen.items()}
    there = metrics.session_metrics(rename(truth[order]), rename(predicted[order]), renamed)
    here = metrics.session_metrics(truth, predicted, first_seen)
    assert list(vars(there).values()) == pytest.approx(list(vars(here).values()), nan_ok=True)


@few
@given(runs())
def test_confusion_keeps_every_image(run):
    tests, first_seen = run
    truth, predicted = tests[-1]
    counts = metrics.confusion(truth, predicted, list(first_seen))
    assert counts.sum(axis=1).tolist() == np.bincount(truth, minlength=len(first_seen)).tolist()
    assert 100 * np.trace(counts) / counts.sum() == pytest.approx(metrics.accuracy(truth, predicted))


@few
@given(runs())
def test_a_model_that_never_learns_gains_nothing(run):
    tests, first_seen = run
    base_answers = tests[0][1]
    lazy = [
        (truth, np.concatenate([base_answers, np.zeros(len(truth) - len(base_answers), int)])) for truth, _ in tests
    ]
    after = metrics.run_metrics(lazy, first_seen)
    assert after.gain == pytest.approx(0, abs=1e-9)
    assert len(tests) == 1 or after.sessions[-1].new_as_base == 100


@few
@given(runs())
def test_perfect_answers_give_full_accuracy_and_no_forgetting(run):
    tests, first_seen = run
    after = metrics.run_metrics([(truth, truth) for truth, _ in tests], first_seen)
    assert after.average == 100
    assert after.performance_drop == 0
    assert len(tests) == 1 or (after.forgetting == 0 and after.average_harmonic == 100)
