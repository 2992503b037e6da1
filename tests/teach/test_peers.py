"""The benchmarks of peers and of unknown photos: what they compare, on features made up for it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from fscil.data.images import TensorImages

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"

pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="the benchmarks are not part of the source distribution")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_peer_learns_base_and_later_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peers = script("peers")
    monkeypatch.setattr(peers, "RANDOM", 60)
    rng = np.random.RandomState(0)
    centres = rng.rand(6, 20)

    def some(classes: range, photos: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.array(classes), photos)
        X = centres[labels] + 0.05 * rng.randn(len(labels), 20)
        return X / np.linalg.norm(X, axis=1, keepdims=True), labels

    data = peers.Data(some(range(4), 12), some(range(4, 6), 5), some(range(6), 10))
    result = peers.run("made up", data, "one")
    assert len(result["peers"]) == 7
    assert {row["keeps"] for row in result["peers"][:2]} == {"class means"}
    for row in result["peers"]:
        assert row["base"] > 90
        assert row["new"] > (50 if "neighbours" in row["peer"] else 80)
    again = peers.kept(tmp_path / "features.npz", lambda: data)
    assert again is data
    stored = peers.kept(tmp_path / "features.npz", lambda: pytest.fail("looked at the photos again"))
    assert np.array_equal(stored.later[0], data.later[0])


def test_unknown_classes_are_never_learned() -> None:
    unknown = script("unknown")
    pixels = torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1).expand(60, 3, 2, 2)
    images = TensorImages(pixels, torch.arange(60) % 6)
    test = unknown.test_of("some", images, images, [1, 3], [0, 5])
    assert test.classes == [1] * 10 + [3] * 10
    assert {int(photo[0, 0, 0]) % 6 for photo in test.learned} == {1, 3}
    assert {int(photo[0, 0, 0]) % 6 for photo in test.unknown} == {0, 5}
    assert len(unknown.sources(images, [2], 4)[0]) == 4
