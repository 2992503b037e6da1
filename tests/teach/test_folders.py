"""Photos in folders: each is found once, whatever the links, and one that may not be opened is not taken for empty."""

import tempfile
from pathlib import Path

import pytest

import albums as album
from albums import picture
from fscil import FscilError
from fscil.teach.seeing.folders import class_folders, photos_in
from rights import without_privileges


def test_folders_are_searched_once_whatever_the_links(tmp_path: Path) -> None:
    deep = tmp_path / "wren" / "garden"
    deep.mkdir(parents=True)
    for path in (tmp_path / "wren" / "a.JPG", deep / "b.png", deep / ".hidden.png", deep / "notes.txt"):
        path.touch()
    (deep / "round").symlink_to(tmp_path / "wren")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".cache").mkdir()
    found = class_folders(tmp_path)
    assert {name: [path.name for path in paths] for name, paths in found.items()} == {
        "empty": [],
        "wren": ["a.JPG", "b.png"],
    }


def test_a_folder_without_photos_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match="holds no photos in class folders"):
        class_folders(tmp_path)
    with pytest.raises(FscilError, match="cannot be opened as a folder"):
        class_folders(tmp_path / "nowhere")


def test_a_class_folder_that_may_not_be_opened_is_not_taken_for_an_empty_one() -> None:
    with tempfile.TemporaryDirectory() as root:
        for folder in (Path(root), Path(root, "owl"), Path(root, "jay")):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
            picture(0, 0).save(folder / "0.png")
        Path(root, "jay").chmod(0)
        with without_privileges(), pytest.raises(FscilError, match=r"jay cannot be opened .*Permission denied"):
            class_folders(root)
        Path(root, "jay").chmod(0o755)


def test_links_that_lead_upwards_bring_no_photos_of_other_classes(tmp_path: Path) -> None:
    for name in ("crow", "wren"):
        album.photos(tmp_path / "photos" / name, 0, range(2))
    (tmp_path / "photos" / "crow" / "up").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "all").symlink_to(tmp_path / "photos")
    found = class_folders(tmp_path / "photos")
    assert {name: len(files) for name, files in found.items()} == {"crow": 2, "wren": 2}


def test_two_spellings_of_a_name_are_one_class(tmp_path: Path) -> None:
    for spelling, numbers in (("café", range(2)), ("cafe\u0301", range(2, 5))):
        album.photos(tmp_path / spelling, 0, numbers)
    assert {name: len(files) for name, files in class_folders(tmp_path).items()} == {"café": 5}


@pytest.mark.parametrize("folder", [".", "garden/..", "garden", "../wren"])
def test_a_folder_is_found_however_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    album.photos(tmp_path / "wren" / "garden", 0, range(2))
    monkeypatch.chdir(tmp_path / "wren")
    assert [path.name for path in photos_in(Path(folder))] == ["0.png", "1.png"]
    monkeypatch.chdir(tmp_path / "wren" / "garden")
    assert [path.name for path in photos_in(Path(".."))] == ["0.png", "1.png"]
