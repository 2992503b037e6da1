"""Cells as tasks of a real Ray on this machine: one whose worker is killed is finished all the same."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from apart import differing, on_tiny_images, results, tiny_experiment
from commands import Fscil
from fscil.errors import FscilError
from fscil.experiments import cluster
from fscil.experiments.cluster import connected, most_cores, on_ray
from fscil.running.experiment import RunSpec, execute


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Ray writes a token, which a second Ray of one process has to find again."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.ray
def test_a_killed_worker_loses_nothing_and_a_failed_cell_stops_none(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="pip install 'fscil[ray]'")
    marker = tmp_path / "killed"
    support = Path(__file__).parent.parent / "support"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FSCIL_TINY_EVERYWHERE", "1")
    monkeypatch.setenv("HOME", str(home))
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
def test_more_cores_than_there_are_do_not_make_a_cell_wait_for_ever(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="pip install 'fscil[ray]'")
    monkeypatch.setenv("HOME", str(home))
    run = tiny_experiment(tmp_path, "cosine", root=tmp_path / "no photos")
    assert ["no photos" in end.error for end in on_ray([run], "local", 999)] == [True]


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


def pretended(cores: int, asked: list[dict[str, int]]) -> SimpleNamespace:
    """A Ray with one machine, whose tasks run at once and from another folder."""

    def remote(**wanted: int) -> Callable[..., object]:
        asked.append(wanted)
        return lambda function: SimpleNamespace(remote=lambda *given: function(*given))

    return SimpleNamespace(
        cluster_resources=dict,
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": float(cores)}}],
        remote=remote,
        wait=lambda waiting, num_returns: (waiting[:1], waiting[1:]),
        get=lambda done: done,
        shutdown=lambda: None,
        exceptions=SimpleNamespace(RayError=RuntimeError),
    )


def test_a_cell_asks_for_no_more_cores_than_a_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "execute", lambda run: None)
    run = tiny_experiment(tmp_path, "cosine")
    for cores in (2, 64):
        monkeypatch.setattr(cluster, "connected", lambda address, cores=cores: pretended(cores, asked))
        assert [end.error for end in on_ray([run], "local", 8)] == [""]
    assert [wanted["num_cpus"] for wanted in asked] == [2, 8]
    monkeypatch.setattr(cluster, "connected", lambda address: pretended(0, asked))
    with pytest.raises(FscilError, match="no machine of the Ray cluster at head:6379 offers a core"):
        list(on_ray([run], "head:6379", 8))


def test_the_largest_machine_is_one_that_can_take_a_cell() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 16.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
        {"Alive": True, "Resources": {"GPU": 1.0}},
    ]
    assert (most_cores(nodes, 0), most_cores(nodes, 1), most_cores([], 0)) == (16, 4, 0)


def test_files_that_settings_name_are_found_from_another_folder_and_keep_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "net.safetensors").touch()
    seen: list[bool] = []

    def begun(run: RunSpec) -> None:
        seen.append(Path(run.config.weights).exists())
        assert run.config.weights == "net.safetensors"  # else the cell would be another for who looks at its folder

    monkeypatch.setattr(cluster, "execute", begun)
    monkeypatch.chdir(there)
    run = tiny_experiment(tmp_path, "cosine", {"weights": "net.safetensors"})
    assert cluster.work(run, 1, here) == ""
    assert cluster.work(run, 1, tmp_path / "nowhere") == ""  # stays where it is
    assert seen == [True, True]
