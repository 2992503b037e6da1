"""The verbs that correct a model, as a person types them."""

import re
from pathlib import Path

import pytest

from albums import BIRDS, photos
from commands import Fscil
from fscil.teach.storage import modelfile


@pytest.fixture
def taught(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> Path:
    assert fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])[0] == 0
    return birds_file


def photos_of(file: Path, name: str) -> tuple[bytes, ...]:
    model = modelfile.load(file)
    return model.photos[model.label(name)]


def test_teach_ends_with_what_would_be_recognised(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    _, said, _ = fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    assert re.search(r"[45] of 5 photos of 'hoopoe' would be recognised if they had not been taught; ", said)


def test_unteach_by_file_and_by_digest(fscil_command: Fscil, taught: Path, hoopoes: list[Path]) -> None:
    before = taught.read_bytes()
    code, said, _ = fscil_command("unteach", taught, "hoopoe", hoopoes[1])
    assert code == 0
    assert said.startswith("took 1 photo out of 'hoopoe'\n")
    digest = photos_of(taught, "hoopoe")[0].hex()
    assert digest[:8] in fscil_command("photos", taught, "hoopoe")[1]
    for photo in hoopoes:
        photo.unlink()  # the photos need not be at hand
    assert fscil_command("unteach", taught, "hoopoe", digest[:8])[0] == 0
    assert len(photos_of(taught, "hoopoe")) == 3
    fscil_command("undo", taught)
    _, said, _ = fscil_command("undo", taught)
    assert said.startswith("undone: took 1 photo out of 'hoopoe'")
    assert taught.read_bytes() == before


def test_the_last_photo_takes_its_class_along(fscil_command: Fscil, taught: Path, hoopoes: list[Path]) -> None:
    _, said, _ = fscil_command("unteach", taught, "hoopoe", *hoopoes[:5])
    assert "'hoopoe' has no photo left and is forgotten; fscil undo brings it back" in said
    assert modelfile.load(taught).classes == list(BIRDS)
    _, said, _ = fscil_command("unteach", taught, "jay", photos_of(taught, "jay")[0].hex(), "--erase")
    assert said.startswith("erased 1 photo from 'jay'\n")
    assert fscil_command("undo", taught)[0] == 2


def test_what_stays_of_an_erased_photo_is_said(fscil_command: Fscil, taught: Path, album: Path) -> None:
    stays = "what was fitted to all base classes together stays; learn again to remove that too"
    digest = photos_of(taught, "jay")[0].hex()
    said = fscil_command("unteach", taught, "jay", digest, "--erase").out
    assert f"\nit was of a base class: {stays}\n" in said
    said = fscil_command("unteach", taught, "jay", *[photo.hex() for photo in photos_of(taught, "jay")], "--erase").out
    assert f"\nthey were of a base class: {stays}\n" in said
    assert stays not in fscil_command("unteach", taught, "hoopoe", photos_of(taught, "hoopoe")[0].hex(), "--erase").out
    assert stays not in fscil_command("unteach", taught, "owl", album / "owl" / "0.png").out
    assert fscil_command("forget", taught, "kite", "--erase").out.endswith(f"it was a base class: {stays}\n")
    for verb in ("unteach", "forget"):
        told = re.sub(r"[\s│]+", " ", fscil_command(verb, "--help").out)  # wherever the line breaks
        assert "remove every trace but what was fitted to all base classes; this is final" in told


def test_correct_moves_a_photo_in_one_step(fscil_command: Fscil, taught: Path, hoopoes: list[Path]) -> None:
    before = taught.read_bytes()
    code, said, _ = fscil_command("correct", taught, hoopoes[0], "jay")
    assert code == 0
    assert said.startswith(f"{hoopoes[0]} counts as 'jay', no longer as 'hoopoe'; fscil undo takes it back\n")
    assert (len(photos_of(taught, "jay")), len(photos_of(taught, "hoopoe"))) == (11, 4)
    assert "counts as 'jay' already; nothing was changed" in fscil_command("correct", taught, hoopoes[0], "jay")[1]
    fscil_command("undo", taught)
    assert taught.read_bytes() == before
    _, said, _ = fscil_command("correct", taught, hoopoes[6], "Upupa")  # never taught, and a new class
    assert said.splitlines() == [
        f"{hoopoes[6]} counts as 'Upupa'; fscil undo takes it back",
        "'Upupa' is a new class",
        "'Upupa' is known from 1 photo; 5 or more make it surer",
    ]
    assert modelfile.load(taught).classes[-1] == "Upupa"


def test_none_of_these(fscil_command: Fscil, taught: Path, hoopoes: list[Path], tmp_path: Path) -> None:
    (stranger,) = photos(tmp_path / "garden", 50, range(80, 81))  # looks like a hoopoe
    assert "hoopoe " in fscil_command("predict", taught, stranger)[1]
    code, said, _ = fscil_command("teach", taught, "--none", stranger)
    assert code == 0
    assert said == f"kept 1 photo as none of these; {taught} has 1 photo of none of these\n"
    assert "not sure (like a photo of none of these; nearest: hoopoe" in fscil_command("predict", taught, stranger)[1]
    _, said, _ = fscil_command("photos", taught, "--none")
    assert said.count("none of these") == 1
    _, said, _ = fscil_command("teach", taught, "hoopoe", stranger, hoopoes[6])
    assert "taught as another class" in said
    assert "correct moves it" in said
    assert "Photos like 1 photo of none of these are 'not sure'." in fscil_command("card", taught)[1]
    _, said, _ = fscil_command("correct", taught, hoopoes[0], "--none")
    assert said.startswith(f"{hoopoes[0]} counts as none of these, no longer as 'hoopoe'; ")
    _, said, _ = fscil_command("unteach", taught, "--none", stranger)
    assert said == "took 1 photo out of none of these\n"
    assert len(modelfile.load(taught).negatives) == 1


def test_the_nearest_taught_photos(fscil_command: Fscil, taught: Path, hoopoes: list[Path]) -> None:
    code, said, _ = fscil_command("nearest", taught, hoopoes[0], "--most", 2)
    assert code == 0
    rows = re.findall(r"^([0-9a-f]{8}) +(\w+) +([01]\.\d{3}) *$", said, re.MULTILINE)
    assert [name for _, name, _ in rows] == ["hoopoe", "hoopoe"]
    assert rows[0][2] == "1.000"


def test_features_can_be_left_out_and_it_is_said(fscil_command: Fscil, album: Path, hoopoes: list[Path]) -> None:
    learn = ("learn", album, "--save", "b.fscil", "--encoder", "tiny", "--pixels", 32, "--strength", "prototypes")
    assert "without features of photos" in fscil_command(*learn, "--keep-features", "none")[1]
    assert len(modelfile.load("b.fscil").memory) == 0
    code, _, complaints = fscil_command("nearest", "b.fscil", hoopoes[0])
    assert code == 2
    assert "keeps no features of its photos" in complaints
    assert fscil_command("unteach", "b.fscil", "owl", album / "owl" / "0.png")[0] == 0
    code, _, complaints = fscil_command("unteach", "b.fscil", "owl", photos_of(Path("b.fscil"), "owl")[0].hex())
    assert code == 2
    assert "give the photo itself" in complaints
    assert "without features" not in fscil_command("teach", "b.fscil", "hoopoe", *hoopoes[:4])[1]
    fscil_command("teach", "b.fscil", "hoopoe", hoopoes[4], "--keep-features", "all")
    assert len(modelfile.load("b.fscil").memory) == 1
    needed = "unteach and correct by digest, nearest and photos MODEL CLASS need it"
    for verb in ("learn", "teach"):
        told = re.sub(r"[\s│]+", " ", fscil_command(verb, "--help")[1])  # wherever the line breaks
        assert needed in told
    assert "owl" in fscil_command("photos", "b.fscil")[1]


BAD = {
    "another class": (
        ("unteach", "{m}", "jay", "{photo}"),
        "was not taught as 'jay' but as 'hoopoe'; name that instead",
    ),
    "a new photo": (("unteach", "{m}", "hoopoe", "{other}"), "is not among the photos that were taught as 'hoopoe'"),
    "no photo": (("unteach", "{m}", "hoopoe"), "no photo is given"),
    "no photo of none": (("unteach", "{m}", "--none"), "no photo is given; name photos, or digits"),
    "neither class nor photo": (("unteach", "{m}"), "no class is given; name it before the photos"),
    "no class": (("unteach", "{m}", "hoopo", "{photo}"), "did you mean 'hoopoe'?"),
    "no digest": (("unteach", "{m}", "hoopoe", "0123456789abcdef"), "names no photo: see fscil photos MODEL"),
    "no file": (
        ("unteach", "{m}", "hoopoe", "gone.jpg"),
        "nothing was changed: gone.jpg does not exist; name other photos",
    ),
    "neither class nor none": (("correct", "{m}", "{photo}"), "give the right class, or --none"),
    "class and none": (("correct", "{m}", "{photo}", "jay", "--none"), "give the right class, or --none"),
    "photos of a class and none": (("photos", "{m}", "jay", "--none"), "give a class, or --none"),
    "a broken name": (("correct", "{m}", "{photo}", "jay\x1b[2J"), "cannot be printed"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_sentence_and_changes_nothing(
    fscil_command: Fscil, taught: Path, hoopoes: list[Path], kind: str
) -> None:
    tokens, sentence = BAD[kind]
    before = taught.read_bytes()
    given = [token.format(m=taught, photo=hoopoes[0], other=hoopoes[6]) for token in tokens]
    code, said, complaints = fscil_command(*given)
    assert (code, said, complaints.count("\n")) == (2, "", 1)
    assert sentence in complaints
    assert taught.read_bytes() == before
