"""Fixtures for the tests of teaching."""

from pathlib import Path

import pytest


@pytest.fixture
def graph_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; ONNX Runtime wherever it can be used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FSCIL_RUNTIME", "auto")
    return tmp_path / "cache" / "fscil" / "encoders"
