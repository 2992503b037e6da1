"""Pseudo-sessions for tuning: base classes only, and never a test image."""

import pytest

from fscil.data import Protocol
from fscil.data.sessions import Benchmark
from fscil.data.tuning import pseudo_sessions
from fscil.errors import FscilError
from tiny import tiny_ingredients


def test_only_training_images_of_base_classes_are_used() -> None:
    real = tiny_ingredients()
    pseudo = pseudo_sessions(real, Protocol(tune=True))
    sessions = Benchmark("tiny", pseudo, Protocol())
    assert sessions.session_classes == ((0, 1, 2, 3), (4, 5))
    assert len(pseudo.train) == 6 * 24
    assert len(pseudo.test) == 6 * 6
    used = set(pseudo.train._rows.tolist()) | set(pseudo.test._rows.tolist())
    assert pseudo.test._pixels is real.train._pixels
    assert len(used) == 6 * 30
    assert set(real.train.labels[list(used)].tolist()) == set(range(6))


def test_tuning_and_another_class_order_exclude_each_other() -> None:
    with pytest.raises(FscilError, match="--order-seed"):
        pseudo_sessions(tiny_ingredients(), Protocol(tune=True, order_seed=3))
