"""Every metric as a pure function of (truth, predicted, first_seen), in percent; docs/metrics.md gives the formulas.

`truth` and `predicted` are (n,) integer labels of the test images after one session, over all classes seen by then;
`first_seen` maps a label to the session that brought it. Base = session 0, new = every later session. What does not
exist (new classes in session 0, an empty set of images) is nan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fscil.errors import FscilError

Labels = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
FirstSeen = Mapping[int, int]
NORMAL_95 = 1.959963984540054  # 97.5 % of a normal distribution lie below


def accuracy(truth: Labels, predicted: Labels) -> float:
    """Share of the images whose predicted label is the true one."""
    return percent(truth == predicted)


def interval(right: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share of right answers, when each of `images` is one draw; nan without images."""
    if not images:
        return nan, nan
    share, z2 = right / images, NORMAL_95**2
    middle = share + z2 / (2 * images)
    reach = NORMAL_95 * sqrt(share * (1 - share) / images + z2 / (4 * images**2))
    low, high = ((middle + side * reach) / (1 + z2 / images) for side in (-1, 1))
    return 100 * max(low, 0.0), 100 * min(high, 1.0)


def base_accuracy(truth: Labels, predicted: Labels, first_seen: FirstSeen) -> float:
    """Accuracy on the images of the base classes, with all classes seen as possible answers."""
    base = session_of(truth, first_seen) == 0
    return accuracy(truth[base], predicted[base])


def new_accuracy(truth: Labels, predicted: Labels, first_seen: FirstSeen) -> float:
    """Accuracy on the images of all classes since session 1, with all classes seen as possible answers."""
    new = session_of(truth, first_seen) > 0
    return accuracy(truth[new], predicted[new])


def harmonic_mean(base: float, new: float) -> float:
    """Harmonic mean of base and new accuracy; 0 when both are 0."""
    if isnan(base) or isnan(new):
        return nan
    return 2 * base * new / (base + new) if base + new > 0 else 0.0


def per_class_mean(truth: Labels, predicted: Labels) -> float:
    """Mean over the classes of the accuracy of each class: every class counts the same."""
    classes, position = np.unique(truth, return_inverse=True)
    if not classes.size:
        return nan
    right = np.bincount(position, weights=truth == predicted)
    return float(100 * np.mean(right / np.bincount(position)))


def new_taken_for_base(truth: Labels, predicted: Labels, first_seen: FirstSeen) -> float:
    """Share of the images of new classes that are called a base class."""
    new = session_of(truth, first_seen) > 0
    return percent(session_of(predicted[new], first_seen) == 0)


def accuracy_by_session(truth: Labels, predicted: Labels, first_seen: FirstSeen) -> Floats:
    """Accuracy of the classes of each session 0..t, (t + 1,), with all classes seen as possible answers."""
    brought = session_of(truth, first_seen)
    last = int(brought.max(initial=-1))
    return np.array([accuracy(truth[brought == i], predicted[brought == i]) for i in range(last + 1)])


def session_matrix(tests: Sequence[tuple[Labels, Labels]], first_seen: FirstSeen) -> Floats:
    """(sessions, sessions): entry [i, j] is the accuracy of the classes of session i after session j; nan for i > j."""
    matrix = np.full((len(tests), len(tests)), nan)
    for j, (truth, predicted) in enumerate(tests):
        column = accuracy_by_session(truth, predicted, first_seen)
        matrix[: column.size, j] = column
    return matrix


def confusion(truth: Labels, predicted: Labels, order: Sequence[int]) -> npt.NDArray[np.int64]:
    """(classes, classes) counts: row = true class, column = predicted class, both in the given order."""
    place = {label: position for position, label in enumerate(order)}
    counts = np.zeros((len(order), len(order)), dtype=np.int64)
    np.add.at(counts, ([place[int(label)] for label in truth], [place[int(label)] for label in predicted]), 1)
    return counts


def average(accuracies: Sequence[float]) -> float:
    """Avg: mean over the sessions."""
    return float(np.mean(accuracies)) if len(accuracies) else nan


def difference(accuracies: Sequence[float], joint: Sequence[float]) -> float:
    """Diff: last accuracy minus the last accuracy of the Joint-CNN."""
    return accuracies[-1] - joint[-1]


def performance_drop(accuracies: Sequence[float]) -> float:
    """PD: first accuracy minus last accuracy."""
    return accuracies[0] - accuracies[-1] if len(accuracies) else nan


def forgetting(matrix: Floats) -> float:
    """Mean over the earlier sessions of (best accuracy of their classes before the last session - that after it)."""
    last = len(matrix) - 1
    if last < 1:
        return nan
    return float(np.mean(np.nanmax(matrix[:last, :last], axis=1) - matrix[:last, last]))


def never_learning(base: float, base_shares: Sequence[float]) -> list[float]:
    """Accuracies of a model that keeps the base accuracy of session 0 and gets every image of a new class wrong."""
    return [base * share for share in base_shares]


def gain(accuracies: Sequence[float], base_shares: Sequence[float]) -> float:
    """Avg minus the Avg of the model that never learns a new class; `base_shares` are shares of the test images."""
    return average(accuracies) - average(never_learning(accuracies[0], base_shares)) if len(accuracies) else nan


def percent(right: npt.NDArray[np.bool_]) -> float:
    """100 times the share of True; nan when there is nothing to count."""
    return float(100 * right.mean()) if right.size else nan


def session_of(labels: Labels, first_seen: FirstSeen) -> npt.NDArray[np.int64]:
    """The session that brought each label, (n,)."""
    known, position = np.unique(labels, return_inverse=True)
    strangers = [int(label) for label in known if int(label) not in first_seen]
    if strangers:
        raise FscilError(
            f"label {strangers[0]} is in the predictions but no session brought it: the files are not of one run"
        )
    return np.array([first_seen[int(label)] for label in known], dtype=np.int64)[position]


@dataclass(frozen=True)
class SessionMetrics:
    """What one test over all classes seen says."""

    images: int  # test images
    base_images: int  # those of base classes
    classes: int  # classes seen
    accuracy: float
    base: float
    new: float
    harmonic: float
    per_class: float
    new_as_base: float


@dataclass(frozen=True)
class RunMetrics:
    """What the tests of all sessions of one run say."""

    sessions: tuple[SessionMetrics, ...]
    matrix: tuple[tuple[float, ...], ...]

    @property
    def accuracies(self) -> list[float]:
        return [session.accuracy for session in self.sessions]

    @property
    def average(self) -> float:
        return average(self.accuracies)

    @property
    def average_harmonic(self) -> float:
        return average([session.harmonic for session in self.sessions[1:]])

    @property
    def performance_drop(self) -> float:
        return performance_drop(self.accuracies)

    @property
    def forgetting(self) -> float:
        return forgetting(np.array(self.matrix))

    @property
    def gain(self) -> float:
        return gain(self.accuracies, [session.base_images / session.images for session in self.sessions])


def session_metrics(truth: Labels, predicted: Labels, first_seen: FirstSeen) -> SessionMetrics:
    """All metrics of one session's test."""
    base, new = base_accuracy(truth, predicted, first_seen), new_accuracy(truth, predicted, first_seen)
    return SessionMetrics(
        images=len(truth),
        base_images=int((session_of(truth, first_seen) == 0).sum()),
        classes=len(np.unique(truth)),
        accuracy=accuracy(truth, predicted),
        base=base,
        new=new,
        harmonic=harmonic_mean(base, new),
        per_class=per_class_mean(truth, predicted),
        new_as_base=new_taken_for_base(truth, predicted, first_seen),
    )


def run_metrics(tests: Sequence[tuple[Labels, Labels]], first_seen: FirstSeen) -> RunMetrics:
    """All metrics of a run; `tests` holds (truth, predicted) of the sessions 0, 1, ... in order."""
    return RunMetrics(
        sessions=tuple(session_metrics(truth, predicted, first_seen) for truth, predicted in tests),
        matrix=tuple(tuple(row) for row in session_matrix(tests, first_seen).tolist()),
    )


class Spread(NamedTuple):
    """Mean and sample standard deviation (n - 1 in the denominator; nan for n = 1) over n seeds."""

    mean: float
    std: float


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation over seeds."""
    n = len(values)
    return Spread(float(np.mean(values)) if n else nan, float(np.std(values, ddof=1)) if n > 1 else nan)


class Interval(NamedTuple):
    """A mean and its 95 % interval; nan for the ends where n = 1."""

    mean: float
    low: float
    high: float


def paired_difference(values: Sequence[float], reference: Sequence[float]) -> Interval:
    """Mean of the differences of pairs, such as runs of the same seed, with Student's 95 % interval."""
    from scipy.stats import t

    mean, std = spread([value - other for value, other in zip(values, reference, strict=True)])
    n = len(values)
    reach = float(t.ppf(0.975, n - 1)) * std / sqrt(n) if n > 1 else nan
    return Interval(mean, mean - reach, mean + reach)
