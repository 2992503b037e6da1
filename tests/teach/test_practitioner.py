"""The practitioner's benchmark: asking once at the end gives what asking after each session would have given."""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import fscil
from albums import photos
from fscil import Classifier
from fscil.data import Protocol
from fscil.data.images import FileImages, Ingredients
from fscil.data.sessions import Benchmark

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "practitioner.py"


def album_benchmark(folder: Path) -> Benchmark:
    """Six base classes and two sessions of two classes, as files."""
    files = [
        photos(folder / str(kind), kind % 7, range(9 * kind, 9 * kind + 9)) for kind in range(10)
    ]  # some classes look alike
    train, test = (
        FileImages(
            [f for of_class in files for f in of_class[part]], torch.arange(10).repeat_interleave(size), workers=0
        )
        for part, size in ((slice(6), 6), (slice(6, 9), 3))
    )
    names = tuple(f"class {9 - kind}" for kind in range(10))  # not in sorted order
    return Benchmark("album", Ingredients(train, test, names, 40, (0.5,) * 3, (0.3,) * 3, True, 6, 2), Protocol())


@pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not part of the source distribution")
def test_one_look_tells_every_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("practitioner", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sessions, tiny = album_benchmark(tmp_path), partial(Classifier, pixels=32)
    monkeypatch.setattr(script, "Classifier", tiny)
    monkeypatch.setattr(fscil, "benchmark", lambda *_, **__: sessions)
    result = script.run(tmp_path, "tiny", "prototypes", "one", 0, False)

    model, expected, refused = tiny("tiny", strength="prototypes"), [], []
    for session in sessions.sessions():
        files, names = script.photos(session, sessions)
        model.partial_fit(files, names)
        test = sessions.test(session.index)
        truth = np.array(sessions.class_names)[test.labels.numpy()]
        expected.append(100 * float((model.predict(list(test.paths)) == truth).mean()))
        refused.append(1 - float(model.is_known(list(test.paths)).mean()))
    assert result["metrics"]["sum"]["accuracy"] == pytest.approx(expected, abs=1e-3)
    assert expected[-1] < expected[0]
    assert result["unknown"]["known_not_sure"] == pytest.approx(refused, abs=1e-3)
    assert result["calibration"]["rechecked"] == 4
    assert result["unknown"]["auroc"][0] is not None
    assert result["unknown"]["auroc"][-1] is None
