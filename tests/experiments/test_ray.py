"""Cells as tasks of a real Ray on this machine: one whose worker is killed is finished all the same."""

import os
from pathlib import Path

import pytest

from apart import differing, on_tiny_images, results, tiny_experiment
from commands import Fscil
from fscil.errors import FscilError
from fscil.experiments.cluster import connected, on_ray
from fscil.running.experiment import execute


@pytest.mark.ray
def test_a_killed_worker_loses_nothing_and_a_failed_cell_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="pip install 'fscil[ray]'")
    marker = tmp_path / "killed"
    support = Path(__file__).parent.parent / "support"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FSCIL_TINY_EVERYWHERE", "1")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes a token there
    from tiny_children import TinyRun

    monkeypatch.setenv("FSCIL_KILLED_ONCE", str(marker))
    changes = {"one": {}, "two": {"new_bonus": 0.1}, "bad": {"held_out": 30}}  # a tiny class has 30 images
    runs = [
        TinyRun(**vars(tiny_experiment(tmp_path, "cosine", change, variant=name))) for name, change in changes.items()
    ]
    errors = {end.run.variant: end.error for end in on_ray(runs, "local", 1)}
    assert marker.exists()
    assert (errors["one"], errors["two"]) == ("", "")
    assert "too few to keep 30 of them from training" in errors["bad"]
    with on_tiny_images():
        alone = execute(tiny_experiment(tmp_path / "alone", "cosine", changes["one"]))
    assert differing(results(runs[0].folder), results(alone)) == []


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_named(fscil_command: Fscil) -> None:
    pytest.importorskip("ray", reason="pip install 'fscil[ray]'")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"):
        with pytest.raises(FscilError, match=f"there is no Ray cluster at {address} .*ray start --head"):
            connected(address)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(FscilError, match=r"pip install 'fscil\[ray\]'"):
        connected("local")
