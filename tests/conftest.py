"""Fixtures for all tests."""

import os
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # tests run side by side; more threads each would only wait for each other

os.environ.setdefault("FSCIL_RUNTIME", "torch")  # what is in the user's cache is no part of a test

import hypothesis
import pytest
import torch

from albums import album, birds, birds_file, complemented, hoopoes, learned_file  # noqa: F401 (fixtures)
from commands import fscil_command  # noqa: F401 (fixture)
from fscil.data import Protocol
from fscil.data.sessions import Benchmark
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run
from tiny import tiny_ingredients

torch.set_num_threads(1)
hypothesis.settings.register_profile("busy", deadline=None)  # a busy machine makes any example slow
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="session")
def tiny() -> Benchmark:
    """Six base classes of 30 images, then three sessions of two classes with five shots."""
    return Benchmark("tiny", tiny_ingredients(), Protocol())


@pytest.fixture
def run(tmp_path: Path, tiny: Benchmark) -> Run:
    """A run on the tiny benchmark that writes below a temporary folder."""
    folder = RunFolder(tmp_path / "run")
    folder.open({"format": 1})
    return Run(folder, 0, tmp_path / "cache", fingerprint=tiny.fingerprint())


@pytest.fixture
def silent(tmp_path: Path) -> Run:
    """A run that writes nothing."""
    return Run(RunFolder(tmp_path, writable=False), 0, tmp_path)
