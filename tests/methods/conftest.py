"""Fixtures for the tests of methods."""

from collections.abc import Callable

import pytest

from fscil.data.sessions import Benchmark
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run


@pytest.fixture(scope="module")
def new_run(tiny: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Run]:
    """Runs in folders of their own that share one trained base model."""
    cache = tmp_path_factory.mktemp("cache")

    def make() -> Run:
        folder = RunFolder(tmp_path_factory.mktemp("run"))
        folder.open({"format": 1})
        return Run(folder, 0, cache, fingerprint=tiny.fingerprint())

    return make
