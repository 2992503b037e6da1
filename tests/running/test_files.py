"""Files are replaced in one step that outlasts a power cut."""

import errno
import os
import stat
from pathlib import Path

import pytest

from fscil import files
from fscil.errors import FscilError


def test_the_folder_is_synced_after_the_new_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def noted(number: int) -> None:
        place = Path(f"/proc/self/fd/{number}").readlink()
        synced.append((place.name, (tmp_path / "a").exists()))

    monkeypatch.setattr(files.os, "fsync", noted)
    files.write_bytes(tmp_path / "a", b"new")
    assert synced == [(f"a.{os.getpid()}.partial", False), (tmp_path.name, True)]


def test_a_folder_that_cannot_be_synced_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(files.os, "fsync", picky)
    files.write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_folder_whose_disk_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", broken)
    with pytest.raises(FscilError, match="Input/output error"):
        files.write_bytes(tmp_path / "a", b"new")


@pytest.mark.parametrize("place", ["folder", "file/new.fscil", "folder/deeper/still/new.fscil", "new.fscil"])
def test_where_nothing_could_be_saved_is_known_before(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    if place.endswith("new.fscil") and not place.startswith("file/"):
        files.check_writable(tmp_path / place)
    else:
        with pytest.raises(FscilError, match=r"could not be written .*; choose another place"):
            files.check_writable(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_private_file_is_private_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o600)
    modes = []
    monkeypatch.setattr(files.os, "fsync", lambda number: modes.append(stat.S_IMODE(os.fstat(number).st_mode)))
    files.write_bytes(tmp_path / "a", b"new")
    assert modes[0] == 0o600
