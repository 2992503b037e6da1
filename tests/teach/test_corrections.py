"""Corrections: single photos are taken back, moved or kept as none of these, exactly, and every step can be undone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fscil.errors import FscilError
from fscil.teach.knowledge.journal import NONE
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import corrections, teaching
from fscil.teach.lessons.looking import answers, look
from fscil.teach.storage import modelfile

Change = Callable[[Model], None]


def photos_of(model: Model, name: str) -> tuple[bytes, ...]:
    return model.photos[model.label(name)]


def none_of(model: Model, photo: Path) -> bytes:
    """Keeps a photo as none of these and gives its digest."""
    seen = look(model, [photo])
    corrections.keep_as_none(model, seen.digests, seen.features)
    return seen.digests[0]


CHANGES: dict[str, Change] = {
    "unteach": lambda model: corrections.unteach(model, "hoopoe", photos_of(model, "hoopoe")[1:3]),
    "unteach the last photo": lambda model: corrections.unteach(model, "hoopoe", photos_of(model, "hoopoe")),
    "correct": lambda model: corrections.correct(model, "jay", photos_of(model, "hoopoe")[:2]),
    "correct to a new class": lambda model: corrections.correct(model, "Upupa", photos_of(model, "jay")[:2]),
    "none of these": lambda model: corrections.keep_as_none(model, photos_of(model, "jay")[:1]),
    "erased from the list": lambda model: corrections.unteach(model, NONE, model.negatives),
    "one of these after all": lambda model: corrections.correct(model, "hoopoe", model.negatives),
}


@pytest.fixture
def taught_file(birds_file: Path, hoopoes: list[Path]) -> Path:
    """Knows the album, hoopoes from five photos and one photo of none of these."""
    with modelfile.editing(birds_file) as model:
        teaching.teach(model, ["hoopoe"] * 5, hoopoes[:5])
        none_of(model, hoopoes[7])
    return birds_file


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_and_its_undo_give_the_same_bytes(taught_file: Path, kind: str) -> None:
    before = taught_file.read_bytes()
    with modelfile.editing(taught_file) as model:
        CHANGES[kind](model)
    assert taught_file.read_bytes() != before
    with modelfile.editing(taught_file) as model:
        model.undo()
    assert taught_file.read_bytes() == before


def test_a_photo_taken_back_was_never_taught(learned_file: Path, hoopoes: list[Path]) -> None:
    never, back = modelfile.load(learned_file), modelfile.load(learned_file)
    seen = look(never, hoopoes[:5])
    left = [0, 1, 3, 4]
    never.teach(["hoopoe"] * 4, [f[left] for f in seen.features], [seen.digests[i] for i in left])
    back.teach(["hoopoe"] * 5, seen.features, seen.digests)
    corrections.unteach(back, "hoopoe", [seen.digests[2]])
    for one, other in zip(never.branches, back.branches, strict=True):
        expected, row = one.prototypes.take(6), other.prototypes.take(6)
        assert torch.equal(row.total, expected.total)
        assert (row.photos, row.bias) == (expected.photos, expected.bias)
    assert back.photos == never.photos


def test_a_class_without_photos_is_forgotten_and_comes_back(taught_file: Path) -> None:
    model = modelfile.load(taught_file)
    corrections.unteach(model, "hoopoe", photos_of(model, "hoopoe"))
    assert "hoopoe" not in model.classes
    assert model.undo().text() == "took 5 photos out of 'hoopoe'"
    assert model.classes[-1] == "hoopoe"


def test_a_correction_is_one_step_in_plain_words(taught_file: Path) -> None:
    model = modelfile.load(taught_file)
    counts = {name: len(photos_of(model, name)) for name in ("jay", "hoopoe")}
    corrections.correct(model, "jay", photos_of(model, "hoopoe")[:1])
    assert len(photos_of(model, "jay")) == counts["jay"] + 1
    assert len(photos_of(model, "hoopoe")) == counts["hoopoe"] - 1
    assert model.journal.steps[-1].text() == "corrected 1 photo from 'hoopoe' to 'jay'"
    corrections.keep_as_none(model, photos_of(model, "owl")[:2])
    assert model.journal.steps[-1].text() == "kept 2 photos as none of these, not as 'owl'"
    corrections.unteach(model, NONE, model.negatives[:1])
    assert model.journal.steps[-1].text() == "took 1 photo out of none of these"
    with pytest.raises(FscilError, match="was taught as 'jay' already"):
        corrections.correct(model, "jay", photos_of(model, "jay")[:1])
    with pytest.raises(FscilError, match="was not taught as 'jay'; fscil photos MODEL lists them"):
        corrections.unteach(model, "jay", photos_of(model, "owl")[:1])


def test_a_photo_of_none_of_these_is_not_sure(birds: Model, album: Path) -> None:
    jay = album / "jay" / "0.png"
    features = look(birds, [jay]).features
    assert answers(birds, features)[0].known
    corrections.keep_as_none(birds, look(birds, [jay]).digests)
    (answer,) = answers(birds, features)
    assert not answer.known
    assert answer.text().startswith("not sure (like a photo of none of these; nearest: jay ")
    birds.undo()
    assert answers(birds, features)[0].known


def test_erasing_a_photo_leaves_no_byte_of_it(taught_file: Path) -> None:
    with modelfile.editing(taught_file) as model:
        corrections.correct(model, "jay", photos_of(model, "hoopoe")[:1])
        photo, stranger = photos_of(model, "jay")[-1], model.negatives[0]
        secrets = [s for p in (photo, stranger) for s in (p, p.hex().encode())]
        secrets += [f.numpy().tobytes() for f in model.memory.features([photo, stranger])[0]]
    content = taught_file.read_bytes()
    assert all(secret in content for secret in secrets)
    with modelfile.editing(taught_file) as model:
        corrections.erase_photos(model, "jay", [photo])
        corrections.erase_photos(model, NONE, [stranger])
        with pytest.raises(FscilError, match="it erased 1 photo, which is final"):
            model.undo()
    content = taught_file.read_bytes()
    assert not [secret for secret in secrets if secret in content]


def test_erasing_a_class_leaves_no_feature_and_no_half_told_correction(taught_file: Path) -> None:
    with modelfile.editing(taught_file) as model:
        corrections.correct(model, "jay", photos_of(model, "hoopoe")[:1])
        rows = model.memory.features(photos_of(model, "hoopoe"))[0]
        model.erase("hoopoe")
    content = taught_file.read_bytes()
    assert not [row for row in rows if row.numpy().tobytes() in content]
    assert not [step.text() for step in model.journal.steps if "corrected" in step.text()]


def test_without_features_the_photo_itself_is_needed(taught_file: Path, hoopoes: list[Path]) -> None:
    with modelfile.editing(taught_file) as model:
        model.memory.keep = False
    model = modelfile.load(taught_file)
    assert list(model.memory) == list(model.negatives)
    photo = photos_of(model, "hoopoe")[0]
    with pytest.raises(FscilError, match=r"keeps no feature of photo .*; give the photo itself"):
        corrections.unteach(model, "hoopoe", [photo])
    assert model.journal.steps[-1].kind == "none"
    corrections.unteach(model, "hoopoe", [photo], look(model, hoopoes[:1]).features)
    kept = look(model, hoopoes[1:5]).features
    for branch, f in zip(model.branches, kept, strict=True):
        torch.testing.assert_close(branch.prototypes.means()[-1], f.mean(0), rtol=1e-5, atol=1e-6)


def test_features_that_differ_in_scale_alone_are_written_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from albums import empty_model

    model = empty_model()
    features = torch.randn(4, model.branches[0].encoder.dim)
    scale = model.branches[1].feature_scale.fill_(3.7) / model.branches[0].feature_scale
    model.begin(["owl", "jay"] * 2, [features, scale * features], [bytes([i]) * 16 for i in range(4)])
    modelfile.save(model, tmp_path / "a.fscil")
    written = [name for name in load_file(tmp_path / "a.fscil") if name.startswith("features.")]
    assert sorted(written) == ["features.B", "features.digests"]
    loaded = modelfile.load(tmp_path / "a.fscil")
    for one, other in zip(model.memory.tables, loaded.memory.tables, strict=True):
        assert torch.equal(one, other)


def test_a_file_of_an_older_version_loads_and_says_what_it_lacks(taught_file: Path, hoopoes: list[Path]) -> None:
    import json

    import safetensors
    from safetensors.torch import load_file, save_file

    with modelfile.editing(taught_file) as model:
        corrections.unteach(model, NONE, model.negatives)
        model.journal.steps = model.journal.steps[:2]
        model.memory.keep = False
    with safetensors.safe_open(taught_file, "pt") as file:
        notes = json.loads(file.metadata()["notes"])
    for name in ("keep_features", "negatives", "revision"):
        notes.pop(name)
    notes["format"] = 1
    notes["origin"].pop("seed")
    old = {**notes, "revision": modelfile._revision(notes, modelfile._kept(model))}
    save_file(load_file(taught_file), taught_file, {"notes": json.dumps(old)})
    with modelfile.editing(taught_file) as model:
        photo = photos_of(model, "hoopoe")[0]
        with pytest.raises(FscilError, match="by an older version; give the photo itself"):
            corrections.unteach(model, "hoopoe", [photo])
        teaching.teach(model, ["hoopoe"], hoopoes[5:6])
    assert list(modelfile.load(taught_file).memory) == list(photos_of(modelfile.load(taught_file), "hoopoe")[-1:])
