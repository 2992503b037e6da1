"""Photos sorted into one folder per class, as copies or links; nothing that is there is ever overwritten."""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fscil.errors import FscilError
from fscil.files import FULL
from fscil.teach.names import Name
from fscil.teach.replies import Reply
from fscil.text import count

NOT_SURE = "not sure"
LONGEST = 240  # bytes of a folder's name: file systems allow 255, and a number may follow
ALLOWED = 255  # bytes of any name
UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff/\\<>:"|?*]')
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # no names for folders on Windows


@dataclass(frozen=True)
class Sorted:
    """How many photos came into each folder, and how many lay there already."""

    places: Counter[str]
    already: int

    def text(self, into: Path) -> str:
        parts = ", ".join(f"{name} {number}" for name, number in sorted(self.places.items()))
        lay = f"; {self.already} were there already" if self.already else ""
        return f"{into}: {count(sum(self.places.values()), 'photo')} sorted ({parts or 'none'}){lay}"


def sort_into(folder: Path, replies: Iterable[Reply], classes: Sequence[Name], link: bool) -> Sorted:
    """Copies, or links, every photo that was answered into the folder of its class, or into `not sure`."""
    names, places, already = folder_names(classes), Counter[str](), 0
    for reply in replies:
        if reply.answer is not None:
            name = names[reply.answer.best[0][0]] if reply.answer.known else NOT_SURE
            new = _placed(reply.photo, folder / name, link)
            places[name] += new
            already += not new
    return Sorted(+places, already)


def folder_names(classes: Sequence[Name]) -> dict[Name, str]:
    """A safe folder name for each class; two classes never share one, also where capitals do not count."""
    taken, names = {NOT_SURE}, {}
    for name in classes:
        safe = _safe(str(name))
        chosen = next(text for text in _numbered(safe, "") if text.casefold() not in taken)
        taken.add(chosen.casefold())
        names[name] = chosen
    return names


def _safe(name: str) -> str:
    """A name that every file system takes, and that leads nowhere else."""
    text = _cut(UNSAFE.sub("_", name), LONGEST).strip().rstrip(". ")
    return f"_{text}" if not text or text[0] == "." or RESERVED.fullmatch(text) else text


def _numbered(stem: str, suffix: str) -> Iterator[str]:
    """a.jpg, a (2).jpg, a (3).jpg, ..."""
    yield stem + suffix
    for number in itertools.count(2):
        end = f" ({number}){suffix}"
        yield _cut(stem, ALLOWED - len(os.fsencode(end))) + end


def _cut(text: str, most: int) -> str:
    """The beginning of a text that takes at most so many bytes in a file system; no character is cut in two."""
    text = text[: max(0, most)]
    while text and len(os.fsencode(text)) > most:
        text = text[:-1]
    return text


def _placed(photo: Path, folder: Path, link: bool) -> bool:
    """Puts a photo into a folder under the first free name; False: the same photo lies there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = (folder / name for name in _numbered(photo.stem, photo.suffix))
        place = next(place for place in names if not os.path.lexists(place) or _same(photo, place))
        if os.path.lexists(place):
            return False
        (_link if link else _copy)(photo, place)
    except OSError as problem:
        reason = "the disk is full" if problem.errno in FULL else problem.strerror
        advice = "make room and run the same command again" if problem.errno in FULL else "choose another --sort-into"
        raise FscilError(f"{photo} could not be sorted into {folder} ({reason}); {advice}") from problem
    return True


def _same(photo: Path, place: Path) -> bool:
    return place.is_file() and filecmp.cmp(photo, place, shallow=False)


def _link(photo: Path, place: Path) -> None:
    place.symlink_to(Path(os.path.abspath(photo)))  # noqa: PTH100 (a link stays one)


def _copy(photo: Path, place: Path) -> None:
    with photo.open("rb") as old, place.open("xb") as new:
        try:
            shutil.copyfileobj(old, new)
        except BaseException:
            place.unlink()
            raise
    with suppress(OSError):  # file systems that keep no dates
        shutil.copystat(photo, place)
