"""Photos in folders: all below one, or those of each class in a sub-folder of its own. None is opened here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fscil.data.pictures import SUFFIXES
from fscil.errors import FscilError
from fscil.teach.names import check_name, class_name
from fscil.teach.seeing.photos import HEIC

PHOTO_SUFFIXES = SUFFIXES | HEIC


def class_folders(root: str | Path) -> dict[str, list[Path]]:
    """The photos below each sub-folder of a folder, by the sub-folder's name."""
    root = Path(root)
    above = _real_with_parents(root)
    try:
        folders = sorted(path for path in root.iterdir() if path.name[0] != "." and path.is_dir())
        folders = [folder for folder in folders if os.path.realpath(folder) not in above]  # links that lead back
    except OSError as problem:
        advice = "give a folder with one sub-folder per class"
        raise FscilError(f"{root} cannot be opened as a folder ({problem.strerror}); {advice}") from problem
    found: dict[str, list[Path]] = {}
    for folder in folders:  # two spellings of one name are one class
        name = class_name(folder.name)
        check_name(name)
        found.setdefault(name, []).extend(photos_in(folder))
    if not any(found.values()):
        raise FscilError(f"{root} holds no photos in class folders; put them as {root / 'CLASS' / 'PHOTO.jpg'}")
    return found


def loose_photos(root: Path) -> list[Path]:
    """Photos that lie in a folder itself, beside the folders of its classes: they belong to none."""
    shown = sorted(path for path in root.iterdir() if path.name[0] != "." and path.is_file())
    return [path for path in shown if path.suffix.lower() in PHOTO_SUFFIXES]


def photos_in(folder: Path) -> list[Path]:
    """All photos below a folder, at any depth; links are followed, but not upwards, and no folder is entered twice."""
    above = Path(os.path.abspath(folder)).parent  # noqa: PTH100 (a link stays one); the parent of "." would be "."
    found, entered = [], _real_with_parents(above)
    for here, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(here)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        shown = (name for name in sorted(files) if name[0] != ".")
        found += [Path(here, name) for name in shown if Path(name).suffix.lower() in PHOTO_SUFFIXES]
    return found


def _refuse(problem: OSError) -> None:
    """Photos that lie where nobody may look must not be taken for photos that are not there."""
    advice = "allow it, or move it elsewhere"
    raise FscilError(f"{problem.filename} cannot be opened as a folder ({problem.strerror}); {advice}") from problem


def _real_with_parents(folder: Path) -> set[str]:
    real = Path(os.path.realpath(folder))
    return {str(real), *map(str, real.parents)}


def expanded(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, folders as the photos in them."""
    return [photo for path in paths for photo in (photos_in(path) if path.is_dir() else [path])]
