"""`fscil.run`: the command from Python, and what it gives back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fscil
from apart import NANO, NANO_RESA, always_tiny  # noqa: F401 (a fixture)
from fscil.errors import FscilError
from fscil.running import stages
from fscil.running.outcome import Outcome


def learn(out: Path, method: str = "cosine", **changes: Any) -> Outcome:
    given = {**NANO, **(NANO_RESA if method == "kt_rcnet" else {}), "recipe": "paper", "precision": "float32"}
    return fscil.run(method, "folder", out=out, **{**given, **changes})


def test_a_run_gives_metrics_predictions_method_and_folder(tmp_path: Path) -> None:
    outcome = learn(tmp_path, "kt_rcnet", seed=3)
    assert outcome.folder == tmp_path / "folder" / "kt_rcnet-paper" / "seed3"
    assert len(outcome.predictions) == len(outcome.metrics.accuracies) == 4
    last = outcome.predictions[-1]
    assert set(last) == {"truth", "predicted", "branch.B", "branch.C"}
    assert outcome.metrics.accuracies[-1] == pytest.approx(100 * np.mean(last["truth"] == last["predicted"]))
    assert outcome.method.classes == tuple(range(12))


@pytest.mark.parametrize("method", ["kt_rcnet", "finetune"])
def test_the_method_scores_images_as_the_run_did(tmp_path: Path, method: str) -> None:
    outcome = learn(tmp_path, method)
    images = outcome.sessions.test(3)
    labels = torch.tensor(outcome.method.classes)[outcome.scores(images).argmax(1)]
    assert labels.tolist() == outcome.predictions[-1]["predicted"].tolist()
    features = outcome.features(images)
    assert [tuple(f.shape) for f in features] == [(len(images), 16)] * (2 if method == "kt_rcnet" else 1)


def test_a_second_call_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = learn(tmp_path)

    def never(*_: object) -> None:
        raise AssertionError("a finished run trains again")

    monkeypatch.setattr(stages.Loop, "descend", never)
    second = learn(tmp_path)
    images = first.sessions.test(3)
    assert torch.equal(first.scores(images), second.scores(images))


def test_settings_are_spelt_as_tables_or_as_on_the_command_line(tmp_path: Path) -> None:
    changes = {name: value for name, value in NANO.items() if not name.startswith("base.")}
    base = {"epochs": 1, "batch": 40, "optimizer": "muon", "lr": 0.05}
    nested = fscil.run("cosine", "folder", recipe="paper", out=tmp_path / "a", shots=3, base=base, **changes)
    spelt = fscil.run("cosine", "folder", recipe="paper", out=tmp_path / "b", shots=3, **{**NANO, "base.epochs": 1})
    assert nested.method.config == spelt.method.config
    assert len(nested.sessions.train_indices(1)) == 2 * 3


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (("cosin", "folder", {}), "unknown method 'cosin'"),
        (("cosine", "folders", {}), "unknown data set 'folders'"),
        (("cosine", "folder", {"wy": 5}), "unknown setting 'wy' of cosine"),
        (("cosine", "folder", {"base": {"epoch": 5}}), "unknown setting 'base.epoch' of cosine"),
        (("cosine", "folder", {"shots": "many"}), 'shots = "many" is not'),
        (("cosine", "folder", {"recipe": "smal"}), "unknown recipe 'smal'"),
        (("cosine", "folder", {"seed": -1}), "--seed is -1"),
    ],
)
def test_mistakes_are_named_as_by_the_command(tmp_path: Path, call: tuple[str, str, dict], sentence: str) -> None:
    method, dataset, changes = call
    with pytest.raises(FscilError, match=sentence):
        fscil.run(method, dataset, out=tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_another_configuration_does_not_overwrite_a_run(tmp_path: Path) -> None:
    learn(tmp_path)
    with pytest.raises(FscilError, match=r"base.epochs: 3 there, 2 here"):
        learn(tmp_path, **{"base.epochs": 2})
