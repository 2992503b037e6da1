"""Features that runs share, and encoders that a run takes over from another one."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from apart import always_tiny, differing, results, tiny_benchmark, tiny_experiment  # noqa: F401 (a fixture)
from fscil.data import Protocol
from fscil.errors import FscilError
from fscil.nn.encoders import Encoder
from fscil.running.experiment import RunSpec, execute
from fscil.running.inherited import check_inherited

MAP = {"trains": "map", "complement": "resa", "views": "flip", "complement_weight": 0.0}


def repeated(spec: RunSpec) -> Path:
    """The run anew, in the place of one that shares its cache."""
    shutil.rmtree(spec.folder)
    return execute(spec)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images in each encoder pass from now on."""
    passes: list[int] = []
    plain = Encoder.forward

    def counting(encoder: Encoder, images: Any) -> Any:
        passes.append(len(images))
        return plain(encoder, images)

    monkeypatch.setattr(Encoder, "forward", counting)
    return passes


def same_numbers(one: Path, other: Path) -> bool:
    """Whether predictions, states and counted compute are equal; they belong to different runs."""
    return differing(results(one), results(other)) == []


@pytest.mark.parametrize("synthesis", ["rotate", "mixup"])
def test_kept_features_change_no_number(tmp_path: Path, synthesis: str) -> None:
    changes = {**MAP, "synthesis": synthesis}
    plain = execute(tiny_experiment(tmp_path / "plain", changes=changes))
    first = execute(tiny_experiment(tmp_path / "kept", changes=changes, keeps_features=True))
    assert same_numbers(plain, first)
    assert same_numbers(plain, repeated(tiny_experiment(tmp_path / "kept", changes=changes, keeps_features=True)))


def test_another_read_out_of_the_same_encoder_encodes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(tiny_experiment(tmp_path, changes=MAP, keeps_features=True))
    passes = counted(monkeypatch)
    repeated(tiny_experiment(tmp_path, changes={**MAP, "local_weight": 2.0}, keeps_features=True))
    assert sum(passes) <= 1  # one image tells how much memory an encoder takes
    repeated(tiny_experiment(tmp_path, changes={**MAP, "local_weight": 2.0}))
    assert sum(passes) > 100


def test_arms_that_train_encoders_share_what_f1_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a tied f2, which sees the same, encodes nothing; numbers and compute are those of a run alone."""
    arms = {"tied": {"complement": "tied"}, "means": {"complement": "means", "conventional.batches": "tasks"}}
    read_out = {"views": "flip", "complement_weight": 0.0, "refit_scale": True}
    alone = {
        name: execute(tiny_experiment(tmp_path / "alone", changes={**read_out, **arm}, variant=name))
        for name, arm in arms.items()
    }
    for name, arm in arms.items():
        shared = tiny_experiment(tmp_path, changes={**read_out, **arm}, variant=name, keeps_base_features=True)
        assert differing(results(execute(shared)), results(alone[name])) == []
    looks = 2 * (1 + 1 + 4 + 3)  # two views of base images, held-out images, tests and shots, through f1
    assert len(list((tmp_path / "cache").glob("features-*"))) == looks
    passes = counted(monkeypatch)
    again = {**read_out, **arms["tied"]}
    execute(tiny_experiment(tmp_path, changes=again, variant="again", keeps_base_features=True))
    assert sum(passes) <= 1  # one image tells how much memory an encoder takes


def folder_of(out: Path) -> Path:
    return tiny_experiment(out, "cosine").folder


def inheriting(out: Path, changes: dict[str, Any], **rest: Any) -> RunSpec:
    """KT-RCNet whose f1 is the encoder of the cosine run, not trained further."""
    taken = {"weights": str(folder_of(out)), "base.epochs": 0, "trains": "map", **changes}
    return tiny_experiment(out, changes=taken, **rest)


def test_the_encoder_of_another_run_is_taken_over_as_it_is(tmp_path: Path) -> None:
    base = execute(tiny_experiment(tmp_path, "cosine"))
    folder = execute(inheriting(tmp_path, {}))
    one, other = (load_file(path / "state-00.safetensors") for path in (base, folder))
    encoder = {name for name in one if name.startswith("branches.0.encoder.")}
    assert encoder
    assert all((one[name] == other[name]).all() for name in encoder)


@pytest.mark.parametrize(
    ("changes", "rest", "difference"),
    [({"held_out": 4}, {}, "held_out: 5 there, 4 here"), ({}, {"protocol": Protocol(tune=True)}, "tune: False there")],
)
def test_an_encoder_that_saw_what_is_kept_aside_is_refused(
    tmp_path: Path, changes: dict[str, Any], rest: dict[str, Any], difference: str
) -> None:
    execute(tiny_experiment(tmp_path, "cosine"))
    with pytest.raises(FscilError, match=f"learned from other images \\({difference}.*same"):
        execute(inheriting(tmp_path, changes, **rest))


def test_an_encoder_that_knows_a_new_class_is_refused(tmp_path: Path) -> None:
    folder = execute(tiny_experiment(tmp_path, "cosine"))
    told = json.loads((folder / "run.json").read_text())
    told["dataset"] = tiny_benchmark(Protocol()).name
    told["first_seen"] = dict.fromkeys(told["first_seen"], 0)  # as before further classes came first
    (folder / "run.json").write_text(json.dumps(told))
    with pytest.raises(FscilError, match=r"learned 'pattern 10' in its base session, which is a new class here"):
        execute(inheriting(tmp_path, {}))


def test_folders_of_other_photos_are_other_data_sets(tmp_path: Path) -> None:
    facts = {"dataset": "folder", "root": "cats", "protocol": {"split": "cats.json"}, "settings": {"held_out": 5}}
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, **facts}))
    config = SimpleNamespace(weights=str(tmp_path), held_out=5)
    check_inherited("folder", "dogs", config, Protocol(split="dogs.json"))
    with pytest.raises(FscilError, match="learned from other images"):
        check_inherited("folder", "cats", config, Protocol(split="dogs.json"))


def test_the_weights_of_f2_may_not_have_seen_it_either(tmp_path: Path) -> None:
    execute(tiny_experiment(tmp_path, "cosine"))
    second = {"start": "weights", "start_weights": str(folder_of(tmp_path)), "held_out": 4}
    with pytest.raises(FscilError, match=r"learned from other images \(held_out: 5 there, 4 here"):
        execute(tiny_experiment(tmp_path, changes=second))


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path).mkdir(parents=True)
    with pytest.raises(FscilError, match=r"there is no weights file .*state-00.safetensors"):
        execute(inheriting(tmp_path, {}))
