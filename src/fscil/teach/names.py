"""Names of classes: what people type is accepted, what would drive a terminal or break a file is refused."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TypeAlias

from fscil.errors import FscilError
from fscil.text import printable

Name: TypeAlias = str | int | float | bool

NONE = "none of these"  # what photos are kept as that belong to no class
LONGEST = 100  # characters


def check_name(name: Name) -> None:
    """Refuses a name that is empty, too long, reserved, a step in a path, or that holds what cannot be printed."""
    if not isinstance(name, str):
        return
    if not name.strip():
        raise FscilError("a class needs a name")
    if len(name) > LONGEST:
        shown = printable(name[:20])
        raise FscilError(
            f"the name {shown!r}… has {len(name)} characters; {LONGEST} are the most, choose a shorter one"
        )
    if printable(name) != name:
        raise FscilError(
            f"the name '{printable(name)}' holds characters that cannot be printed (control characters, line breaks or "
            "broken text); choose another one"
        )
    if name.strip() in (".", ".."):
        raise FscilError(f"{name.strip()!r} is a step in a path and no name: browsers leave it out; choose another one")
    if class_name(name) == NONE:
        raise FscilError(f"{NONE!r} is what photos of no class are called; choose another name, or teach with --none")
    check_spelling(name)


def check_spelling(name: Name) -> None:
    """Refuses a text that is not as `class_name` has it: no command, folder or request could mean its class."""
    if isinstance(name, str) and class_name(name) != name:
        how = "unicodedata.normalize('NFC', name).strip()"
        spelt = f"give {class_name(name)!r}, which {how} makes of it"
        raise FscilError(f"the class name {name!r} is not spelt as commands and folders spell it; {spelt}")


def check_names(names: Iterable[Name]) -> None:
    """Refuses names of which one is not allowed; each may come many times."""
    for name in dict.fromkeys(names):
        check_name(name)


def class_name(text: str) -> str:
    """A class name as people type it: file systems may spell the same accents in another way."""
    return unicodedata.normalize("NFC", text).strip()
