"""Names that would drive a terminal or break a file are refused; what a foreign file holds is escaped when printed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from albums import photos, picture
from commands import Fscil
from fscil import Classifier, FscilError
from fscil.command import answers, cli, show
from fscil.files import write_json
from fscil.teach import names
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge import model as model_module
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import corrections
from fscil.teach.lessons.looking import Answer, Reply, look
from fscil.teach.seeing.folders import class_folders
from fscil.teach.storage import modelfile
from fscil.text import printable

BAD = {
    "an escape sequence": "jay\x1b[2J",
    "a bell": "jay\a",
    "a line break": "jay\nwren",
    "a C1 control": "jay\x9b31m",
    "half a character": "jay\udc80",
    "a line separator": "jay\u2028wren",
    "an order of its own": "jay\u202ewren",
    "nothing": " ",
    "a novel": "j" * 101,
    "the name of no class": "none of these",
    "the name of no class, and a space": " none of these",
    "a space behind it": "jay ",
    "an accent of its own": "Ko\u0308nig",
    "a step in a path": ".",
    "a step back in a path": "..",
}


DRIVING = "owl\x1b[2J\nkite\x9b31m 1.00"


def model_of(*called: str) -> Model:
    model = backbones.of_features(2)
    model.begin(list(called), model.embed(torch.eye(2)[: len(called)]), [bytes([i]) * 16 for i in range(len(called))])
    return model


WAYS: dict[str, Callable[[Model, str], object]] = {
    "teach": lambda model, name: model.teach([name], model.embed(torch.ones(1, 2))),
    "rename": lambda model, name: model.rename("owl", name),
    "correct": lambda model, name: corrections.correct(model, name, [bytes(16)]),
    "learn": lambda model, name: model_of(name),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", BAD)
def test_bad_names_are_refused_and_change_nothing(kind: str, way: str) -> None:
    model = model_of("owl", "kite")
    with pytest.raises(FscilError) as problem:
        WAYS[way](model, BAD[kind])
    assert printable(str(problem.value)) == str(problem.value)
    assert model.classes == ["owl", "kite"]
    assert len(model.journal.steps) == 1


@pytest.mark.parametrize("name", ["jay", "Kīlauea ʻākepa", "鳥", "👩‍🌾", "a" * 100, 7, 2.5])
def test_good_names_are_accepted(name: str | int | float) -> None:
    names.check_name(name)


def test_a_folder_of_a_bad_name_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    photos(tmp_path / "jay\x1b[2J", 0, range(1))
    with pytest.raises(FscilError, match="cannot be printed"):
        class_folders(tmp_path)
    with pytest.raises(FscilError, match="cannot be printed"):
        Classifier("tiny", pixels=32).fit([picture(0, i) for i in range(4)], ["a", "a", "b", "b\x1b[2J"])


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A model file of another program whose classes have names that drive a terminal."""
    model = model_of("owl", "kite")
    model.names = {0: "owl\x1b[2J\nkite 1.00", 1: "kite\udc80\x9b31m"}
    modelfile.save(model, tmp_path / "foreign.fscil")
    return tmp_path / "foreign.fscil"


@pytest.mark.parametrize("verb", [("classes",), ("card",), ("photos",), ("forget", "nothing")])
def test_a_foreign_file_cannot_drive_the_terminal(
    foreign: Path, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fscil", verb[0], str(foreign), *verb[1:]])
    try:
        cli.main()
    except SystemExit as stop:
        assert stop.code == 2  # noqa: PT017 (only one of the verbs ends so)
    said = "".join(capsys.readouterr())
    assert said
    assert not set(said) & set("\x1b\x9b\udc80")


@pytest.fixture
def foreign_photos(birds_file: Path, hoopoes: list[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model file of another program that knows photos; two names and a line of its journal drive a terminal."""
    model = modelfile.load(birds_file)
    model.names |= {0: DRIVING, 1: "kite\udc80\x9b31m"}
    monkeypatch.setattr(model_module, "check_names", lambda names: None)
    seen = look(model, hoopoes[:5])
    model.teach([f"hoopoe{DRIVING}"] * 5, seen.features, seen.digests)
    modelfile.save(model, birds_file)
    return birds_file


ASKING: dict[str, tuple[str, ...]] = {
    "undo": (),
    "evaluate": ("test", "--html", "page.html"),
    "evaluate --json": ("test", "--json"),
    "evaluate --csv": ("test", "--csv"),
    "predict": ("test",),
    "nearest": ("test/owl/7.png",),
    "explain": ("test/owl/7.png", "-o", "why.png"),
    "export": ("--onnx", "exported"),
}


@pytest.mark.parametrize("verb", ASKING)
def test_no_command_hands_names_of_a_foreign_file_to_the_terminal(
    verb: str, foreign_photos: Path, album: Path, fscil_command: Fscil
) -> None:
    for extra in {"explain": ("matplotlib",), "export": ("onnx", "onnxscript")}.get(verb, ()):
        pytest.importorskip(extra)
    Path("test").symlink_to(album)
    command = verb.split()[0]
    code, said, complaints = fscil_command(command, foreign_photos, *ASKING[verb])
    assert code == 0, complaints
    assert "Traceback" not in said + complaints
    assert not set(said + complaints) & set("\x1b\x9b\udc80")
    if verb == "evaluate":
        assert not set(Path("page.html").read_text("utf-8")) & set("\x1b\x9b")
    if verb == "export":
        assert DRIVING in json.loads(Path("exported/classes.json").read_text("utf-8"))["classes"]


def test_answers_about_foreign_classes_are_escaped_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    name = "owl\x1b[2J\nkite\x9b31m"
    replies = [Reply(Path("a\x1b.jpg"), Answer(True, ((name, 0.9),)))]
    for form in (answers.say, answers.print_csv, answers.print_json):
        form(replies)
        said = capsys.readouterr().out
        assert not set(said) & set("\x1b\x9b")
    assert json.loads(said)["class"] == name
    show.complain(name)
    assert "\x1b" not in capsys.readouterr().err


def test_half_a_character_is_valid_json(tmp_path: Path) -> None:
    write_json(tmp_path / "classes.json", {"classes": ["kite\udc80"]})
    assert json.loads((tmp_path / "classes.json").read_text("utf-8")) == {"classes": ["kite\udc80"]}


def test_accents_are_the_same_however_they_are_spelt() -> None:
    assert names.class_name("Ko\u0308nig ") == "K\u00f6nig"
