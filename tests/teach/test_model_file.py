"""The model file: complete, checked, atomic, without pickle, and safe when two processes teach it at once."""

import errno
import fcntl
import json
import multiprocessing
import pickle
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from albums import BIRDS, empty_model, photos
from fscil import files
from fscil.errors import FscilError
from fscil.teach.base import learning
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import teaching
from fscil.teach.lessons.looking import look
from fscil.teach.outputs.card import card
from fscil.teach.storage import modelfile
from rights import without_privileges


def notes_of(path: Path) -> dict[str, Any]:
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["notes"])


def rewritten(path: Path, change: Any) -> Path:
    """The file with its notes and tensors changed by `change(notes, tensors)`."""
    notes, tensors = notes_of(path), load_file(path)
    change(notes, tensors)
    save_file(tensors, path, {"notes": json.dumps(notes)})
    return path


def test_a_model_comes_back_as_it_was(birds: Model, birds_file: Path, hoopoes: list[Path]) -> None:
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    birds.forget("jay")
    modelfile.save(birds, birds_file)
    loaded = modelfile.load(birds_file)
    features = look(birds, hoopoes).features
    assert torch.equal(loaded.scores(look(loaded, hoopoes).features), birds.scores(features))
    for name in ("classes", "photos", "calibration", "origin", "framing", "base", "revision"):
        assert getattr(loaded, name) == getattr(birds, name)
    assert [step.text() for step in loaded.journal.steps] == [step.text() for step in birds.journal.steps]
    loaded.undo()
    assert "jay" in loaded.classes


def test_the_metadata_tell_what_it_is(birds_file: Path) -> None:
    notes = notes_of(birds_file)
    assert notes["format"] == modelfile.FORMAT
    assert [name for _, name in notes["classes"]] == list(BIRDS)
    assert notes["origin"]["encoder"] == "tiny"
    assert notes["origin"]["licence"]
    assert len(notes["encoders"][0]["sha256"]) == 64
    assert notes["journal"][0]["kind"] == "learn"


def test_teaching_and_undoing_gives_the_same_bytes(birds_file: Path, hoopoes: list[Path]) -> None:
    before = birds_file.read_bytes()
    with modelfile.editing(birds_file) as model:
        teaching.teach(model, ["hoopoe"] * 3, hoopoes[:3])
    assert birds_file.read_bytes() != before
    with modelfile.editing(birds_file) as model:
        model.undo()
    assert birds_file.read_bytes() == before


def test_erasing_leaves_no_byte_of_the_class(birds_file: Path, hoopoes: list[Path]) -> None:
    with modelfile.editing(birds_file) as model:
        teaching.teach(model, ["hoopoe"] * 4, hoopoes[:4])
        teaching.teach(model, ["hoopoe"] * 4, hoopoes[4:])
        model.rename("hoopoe", "upupa epops")
        label = model.label("upupa epops")
        secrets = [b"hoopoe", b"upupa epops", *model.photos[label], *(p.hex().encode() for p in model.photos[label])]
        for branch in model.branches:
            row = branch.prototypes.take(label).total
            secrets += [row.numpy().tobytes(), row[:1].numpy().tobytes()]
        teaching.teach(model, ["hoopoe's friend"[-6:]], photos(birds_file.parent / "other", 60, range(1)))
    content = birds_file.read_bytes()
    assert all(secret in content for secret in secrets)
    with modelfile.editing(birds_file) as model:
        model.erase("upupa epops")
    content = birds_file.read_bytes()
    assert not [secret for secret in secrets if secret in content]
    assert modelfile.load(birds_file).classes == [*BIRDS, "friend"]
    assert list(birds_file.parent.glob("*.partial")) == []


@pytest.mark.parametrize(
    ("format_", "without", "kept"),
    [
        (3, ("counted", "encoders"), "its threshold of 'not sure' and how that moves"),
        (4, ("encoders",), "its threshold of 'not sure'"),
    ],
)
def test_a_file_of_before_keeps_its_threshold(
    birds_file: Path, format_: int, without: tuple[str, ...], kept: str
) -> None:
    model, notes = modelfile.load(birds_file), notes_of(birds_file)
    assert model.calibration.counted > 0 < model.calibration.encoders
    notes["format"] = format_
    del notes["revision"]
    for name in without:
        del notes["calibration"][name]
    notes["revision"] = modelfile._revision(notes, modelfile._kept(model))
    save_file(load_file(birds_file), birds_file, {"notes": json.dumps(notes)})
    old = modelfile.load(birds_file).calibration
    assert old == replace(model.calibration, **dict.fromkeys(without, 0))
    told = f"This model was made by an earlier version and keeps {kept}; only fscil learn brings the new ones."
    assert told in list(card(modelfile.load(birds_file)))
    assert "earlier version" not in "".join(card(model))
    modelfile.save(modelfile.load(birds_file), birds_file)
    assert modelfile.load(birds_file).calibration.at(0.2) == old.at(0.2)


def test_a_newer_file_is_refused_politely(birds_file: Path) -> None:
    rewritten(birds_file, lambda notes, tensors: notes.update(format=modelfile.FORMAT + 1, brain="larger"))
    with pytest.raises(FscilError, match="a newer version of fscil wrote it; update with pip install -U fscil"):
        modelfile.load(birds_file)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


def test_loading_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (lambda path: path.write_bytes(pickle.dumps(Trap())), lambda path: torch.save({"a": Trap()}, path)):
        write(tmp_path / "trap.fscil")
        with pytest.raises(FscilError, match="is no model file"):
            modelfile.load(tmp_path / "trap.fscil")
    assert not (tmp_path / "executed").exists()


PART = "a part of it is missing or is not what it should be"
DAMAGES = {
    "a class without prototype": (
        lambda notes, tensors: notes["classes"].append([99, "ghost"]),
        "its classes are not those of its prototypes",
    ),
    "two classes of one name": (
        lambda notes, tensors: notes["classes"][0].__setitem__(1, notes["classes"][1][1]),
        "two of its classes have the same name",
    ),
    "a name that is none": (
        lambda notes, tensors: notes["classes"][0].__setitem__(1, ["crow"]),
        "neither a text nor a number",
    ),
    "no journal": (lambda notes, tensors: notes.pop("journal"), "it has no 'journal'"),
    "another encoder": (lambda notes, tensors: notes["origin"].update(encoder="resnet20"), PART),
    "changed weights": (
        lambda notes, tensors: tensors["encoder.0.stages.0.0.weight"].view(-1)[:1].add_(1),
        "the weights of its encoder are not those",
    ),
    "not a number": (
        lambda notes, tensors: tensors["branch.B.prototypes.sums"].view(-1)[:1].fill_(torch.nan),
        "numbers that are not finite",
    ),
    "no photos counted": (lambda notes, tensors: tensors["branch.B.prototypes.counts"].zero_(), "branch B is not one"),
    "a prototype too few": (
        lambda notes, tensors: tensors.update(
            {"branch.B.prototypes.counts": tensors["branch.B.prototypes.counts"][1:].clone()}
        ),
        "its classes are not those of its prototypes",
    ),
    "another shape": (
        lambda notes, tensors: tensors.update({"branch.B.prototypes.sums": torch.zeros(6, 7, dtype=torch.float64)}),
        PART,
    ),
    "an unknown relation": (
        lambda notes, tensors: notes["branches"][0].update(relation="telepathy"),
        "branch B is not one",
    ),
    "unknown views": (lambda notes, tensors: notes["branches"][0].update(views="sideways"), "branch B is not one"),
    "an unknown setting": (lambda notes, tensors: notes["calibration"].update(magic=1), PART),
    "no encoder": (lambda notes, tensors: notes.update(encoders=[]), PART),
    "photos of nobody": (
        lambda notes, tensors: tensors["photos.labels"].fill_(77),
        "photos of classes that it does not",
    ),
    "a margin below 1": (lambda notes, tensors: notes["view"].update(margin=0.5), "margin of a framing is 0.5"),
    "no view": (lambda notes, tensors: notes.update(view=None), "how its encoder is shown photos"),
    "a changed prototype": (
        lambda notes, tensors: tensors["branch.B.prototypes.sums"].view(-1)[:1].mul_(1.5),
        "what it holds is not what was saved",
    ),
    "an unknown step": (
        lambda notes, tensors: notes["journal"][0].update(kind="dream"),
        "what it holds is not what was saved",
    ),
    "no revision": (lambda notes, tensors: notes.pop("revision"), "it has no 'revision'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_every_kind_is_named_when_a_file_is_loaded(birds_file: Path, damage: str) -> None:
    change, reason = DAMAGES[damage]
    rewritten(birds_file, change)
    with pytest.raises(FscilError, match=f"is damaged: .*{reason}.*; take an older copy of it") as problem:
        modelfile.load(birds_file)
    assert "Error" not in str(problem.value)  # Python's words


@pytest.mark.parametrize(
    ("encoder", "reason"),
    [("os.system", "unknown encoder 'os.system'"), ("timm:newest_net", "timm has no model 'newest_net'")],
)
def test_an_encoder_that_is_not_known_here_is_no_damage(birds_file: Path, encoder: str, reason: str) -> None:
    rewritten(birds_file, lambda notes, tensors: notes["origin"].update(encoder=encoder))
    with pytest.raises(FscilError, match=f"cannot be opened: {reason}.*; if it was made elsewhere, update"):
        modelfile.load(birds_file)


@given(where=st.floats(0, 1), content=st.binary(min_size=1, max_size=8), cut=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_makes_a_traceback(
    learned_file: Path, tmp_path: Path, where: float, content: bytes, cut: bool
) -> None:
    whole, at = learned_file.read_bytes(), int(where * learned_file.stat().st_size)
    file = tmp_path / "damaged.fscil"
    file.write_bytes(whole[:at] if cut else whole[:at] + content + whole[at + len(content) :])
    try:
        modelfile.load(file)
    except FscilError as problem:
        assert str(file) in str(problem)  # noqa: PT017 (an undamaged part may still load)


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match=r"none.fscil does not exist; fscil learn PHOTOS --save FILE makes one"):
        modelfile.load(tmp_path / "none.fscil")
    with pytest.raises(FscilError, match="cannot be opened"), modelfile.editing(tmp_path / "none.fscil"):
        pass


def test_an_error_while_editing_leaves_the_file_as_it_was(birds_file: Path) -> None:
    before = birds_file.read_bytes()
    with pytest.raises(FscilError), modelfile.editing(birds_file) as model:  # noqa: PT012 (the second change fails)
        model.forget("jay")
        model.forget("unicorn")
    assert birds_file.read_bytes() == before


def test_a_full_disk_leaves_the_file_as_it_was(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = birds_file.read_bytes()

    def full(_number: int) -> None:
        raise OSError(files.FULL[0], "no space")

    monkeypatch.setattr(files.os, "fsync", full)
    kept = "disk is full.*; what it held before is kept, make room"
    with pytest.raises(FscilError, match=kept), modelfile.editing(birds_file) as model:
        model.forget("jay")
    with pytest.raises(FscilError, match="is reached; make room and run the same command again"):
        modelfile.save(modelfile.load(birds_file), birds_file.with_name("new.fscil"))
    assert birds_file.read_bytes() == before
    assert list(birds_file.parent.glob("*.partial")) == []


def test_locks_are_those_that_network_folders_give(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fscil.teach.storage.locks.fcntl.flock", fcntl.lockf)  # as NFS does
    with modelfile.editing(birds_file) as model:
        model.forget("jay")
    assert "jay" not in modelfile.load(birds_file).classes


def test_a_file_that_may_not_be_changed(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refusing(path: Path, mode: str = "r", *rest: Any) -> Any:
        if mode == "r+b":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode, *rest)

    monkeypatch.setattr(Path, "open", refusing)  # the superuser may write anything
    refusal = r"may not be changed .*; allow it, or change a copy"
    with pytest.raises(FscilError, match=refusal), modelfile.editing(birds_file):
        pass


def teach_in_process(file: Path, name: str, shown: list[Path], slow: float) -> None:
    with modelfile.editing(file) as model:
        time.sleep(slow)
        teaching.teach(model, [name] * len(shown), shown)


def test_processes_that_teach_at_once_lose_nothing(birds_file: Path, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    made = [photos(tmp_path / f"new {i}", 70 + i, range(2)) for i in range(4)]
    workers = [fork.Process(target=teach_in_process, args=(birds_file, f"new {i}", made[i], 0.1)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
    assert [worker.exitcode for worker in workers] == [0] * 4
    model = modelfile.load(birds_file)
    assert set(model.classes) == {*BIRDS, "new 0", "new 1", "new 2", "new 3"}
    assert len(model.journal.steps) == 5


def test_saving_over_a_file_that_changed_is_refused(birds_file: Path) -> None:
    mine = modelfile.load(birds_file)
    with modelfile.editing(birds_file) as other:
        other.forget("jay")
    mine.forget("owl")
    with pytest.raises(FscilError, match="was changed since this one was loaded"):
        modelfile.save_over(mine, birds_file)
    assert "jay" not in modelfile.load(birds_file).classes
    again = modelfile.load(birds_file)
    again.forget("owl")
    modelfile.save_over(again, birds_file)
    again.forget("wren")
    modelfile.save_over(again, birds_file)
    assert modelfile.load(birds_file).classes == ["crow", "kite", "robin"]


def test_a_model_that_knows_nothing_can_be_saved(tmp_path: Path) -> None:
    modelfile.save(empty_model(), tmp_path / "new.fscil")
    assert modelfile.load(tmp_path / "new.fscil").classes == []


def test_a_link_stays_a_link_and_nobody_else_may_read_it(birds_file: Path, hoopoes: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "linked.fscil"
    link.symlink_to(birds_file)
    birds_file.chmod(0o600)
    with modelfile.editing(link) as model:
        teaching.teach(model, ["hoopoe"] * 3, hoopoes[:3])
    assert link.is_symlink()
    assert modelfile.load(birds_file).classes[-1] == "hoopoe"
    assert birds_file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_may_not_be_read_is_not_called_missing(birds_file: Path) -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        file = Path(shutil.copy(birds_file, parent))
        file.chmod(0)
        with (
            without_privileges(),
            pytest.raises(FscilError, match=r"birds.fscil may not be read \(Perm"),
        ):
            modelfile.load(file)


def test_what_a_killed_process_left_is_removed(birds_file: Path) -> None:
    left = birds_file.with_name(f"{birds_file.name}.12345.partial")
    others = birds_file.with_name(f"{birds_file.name}.bak.12345.partial")  # birds.fscil.bak is being written
    link = birds_file.parent / "elsewhere" / "linked.fscil"
    link.parent.mkdir()
    link.symlink_to(birds_file)
    for opened in (birds_file, link):
        for file in (left, others):
            file.write_bytes(b"half a model, with a class that may be erased later")
        with modelfile.editing(opened):
            pass
        assert (left.exists(), others.exists()) == (False, True)
    for save in (modelfile.save_over, modelfile.replace):
        left.write_bytes(b"half a model")
        save(modelfile.load(birds_file), birds_file)
        assert not left.exists()


def test_the_file_holds_nothing_of_a_branch_without_a_say(album: Path, tmp_path: Path) -> None:
    sources = sorted(album.glob("*/*.png"))
    model = empty_model()
    learning.learn(model, sources, [source.parent.name for source in sources], "prototypes")
    assert [branch.name for branch in model.branches] == ["B"]
    modelfile.save(model, tmp_path / "a.fscil")
    with safetensors.safe_open(tmp_path / "a.fscil", "pt") as file:
        kept = [name for name in file.keys() if name.startswith("features.")]  # noqa: SIM118 (not a dict)
    assert sorted(kept) == ["features.B", "features.digests"]
