"""Glyphs are never mirrored, not even by a test view."""

from dataclasses import replace

import pytest

from fscil.data import Protocol
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.running.experiment import check_views
from tiny import tiny_ingredients


def test_mirrored_views_are_refused_where_a_mirror_image_is_another_class() -> None:
    upright = Benchmark("upright", replace(tiny_ingredients(), flips=False), Protocol())
    check_views("one", upright)
    with pytest.raises(FscilError, match="--views one"):
        check_views("flip", upright)
    check_views("negative", upright)
    check_views("flip", Benchmark("tiny", tiny_ingredients(), Protocol()))
