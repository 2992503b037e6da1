"""Photos sorted into folders: under safe names, nothing overwritten, and the same command twice changes nothing."""

from pathlib import Path

import pytest

from fscil.errors import FscilError
from fscil.teach.lessons.looking import Answer, Reply
from fscil.teach.outputs.sorting import LONGEST, NOT_SURE, folder_names, sort_into


def reply(photo: Path, name: str, content: bytes = b"one", known: bool = True) -> Reply:
    photo.parent.mkdir(parents=True, exist_ok=True)
    photo.write_bytes(content)
    return Reply(photo, Answer(known, ((name, 0.9),)))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_each_class_has_its_folder_and_nothing_is_overwritten(tmp_path: Path) -> None:
    told = [
        reply(tmp_path / "a" / "0.png", "jay", b"first"),
        reply(tmp_path / "b" / "0.png", "jay", b"second"),
        reply(tmp_path / "c" / "0.png", "jay", b"third"),
        reply(tmp_path / "d" / "1.png", "jay", known=False),
        Reply(tmp_path / "broken.png", None, "is empty"),
    ]
    out = tmp_path / "out"
    (out / "jay").mkdir(parents=True)
    (out / "jay" / "0.png").write_bytes(b"somebody's own photo")
    done = sort_into(out, told, ["jay"], link=False)
    assert done.text(out) == f"{out}: 4 photos sorted (jay 3, not sure 1)"
    sorted_photos = {
        "jay/0.png": b"somebody's own photo",
        "jay/0 (2).png": b"first",
        "jay/0 (3).png": b"second",
        "jay/0 (4).png": b"third",
        "not sure/1.png": b"one",
    }
    assert tree(out) == sorted_photos
    again = sort_into(out, told, ["jay"], link=False)
    assert again.text(out) == f"{out}: 0 photos sorted (none); 4 were there already"
    assert tree(out) == sorted_photos


def test_links_lead_to_the_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = [reply(Path("a/0.png"), "jay"), reply(Path("b/0.png"), "jay", b"other")]
    (tmp_path / "out" / "jay").mkdir(parents=True)
    (tmp_path / "out" / "jay" / "0.png").symlink_to("nowhere")
    sort_into(Path("out"), told, ["jay"], link=True)
    links = sorted((tmp_path / "out" / "jay").iterdir())
    assert [link.name for link in links] == ["0 (2).png", "0 (3).png", "0.png"]
    assert [link.readlink() for link in links[:2]] == [tmp_path / "a" / "0.png", tmp_path / "b" / "0.png"]
    assert sort_into(Path("out"), told, ["jay"], link=True).already == 2


NAMES = {
    "a/b": "a_b",
    "../../etc": "_.._.._etc",
    "..": "_",
    ".hidden": "_.hidden",
    "": "_",
    " jay. ": "jay",
    'what? "this": <a|b>*\\': "what_ _this__ _a_b___",
    "line\nbreak\x1b[31m": "line_break_[31m",
    "CON": "_CON",
    "nul.txt": "_nul.txt",
    "lone \udc80": "lone _",
    "Éclair ö 鳥": "Éclair ö 鳥",
    "x" * 300: "x" * LONGEST,
    "鳥" * 100: "鳥" * (LONGEST // 3),
    "é" + "鳥" * 100: "é" + "鳥" * ((LONGEST - 2) // 3),
    NOT_SURE: f"{NOT_SURE} (2)",
}


@pytest.mark.parametrize("name", NAMES)
def test_class_names_become_safe_folder_names(name: str) -> None:
    assert folder_names([name]) == {name: NAMES[name]}


def test_two_classes_never_share_a_folder() -> None:
    names = folder_names(["a/b", "a_b", "A_B", "a\\b", 7, "7 "])
    assert names == {"a/b": "a_b", "a_b": "a_b (2)", "A_B": "A_B (3)", "a\\b": "a_b (4)", 7: "7", "7 ": "7 (2)"}


def test_long_names_of_other_scripts_are_cut_between_characters(tmp_path: Path) -> None:
    """A file system allows 255 bytes: 85 of these characters, and fewer with " (2)" behind them."""
    classes, stem = ["鳥" * 100, "鳥" * 99], "鳥" * 83
    told = [reply(tmp_path / str(i) / f"{stem}.png", classes[i // 2], b"%d" % i) for i in range(4)]
    assert sort_into(tmp_path / "out", told, classes, link=False).already == 0
    assert sorted(tree(tmp_path / "out").values()) == [b"0", b"1", b"2", b"3"]
    names = [part for place in tree(tmp_path / "out") for part in Path(place).parts]
    assert f"{stem}.png" in names
    assert set("".join(names)) == set("鳥 (2).png")
    assert sort_into(tmp_path / "out", told, classes, link=False).already == 4


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "jay").write_text("a file")
    with pytest.raises(FscilError, match=r"0.png could not be sorted into .*jay \(File exists\); choose another"):
        sort_into(tmp_path / "out", [reply(tmp_path / "0.png", "jay")], ["jay"], link=False)


def test_half_a_copy_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(old: object, new: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fscil.teach.outputs.sorting.shutil.copyfileobj", full)
    with pytest.raises(FscilError, match=r"the disk is full.*make room and run the same command again"):
        sort_into(tmp_path / "out", [reply(tmp_path / "0.png", "jay")], ["jay"], link=False)
    assert tree(tmp_path / "out") == {}
