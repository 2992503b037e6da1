"""Words for people: text from files and names made safe to print, numbers of things, the first of many."""

import unicodedata
from collections.abc import Sequence

INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}  # control characters, halves of characters, line and paragraph separators
TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}  # they show text in another order


def printable(text: str, keep: str = "") -> str:
    """The text with an escape such as \\x1b for every character that does not print, but for those in `keep`."""
    return "".join(_escaped(c) if c not in keep and _is_hidden(c) else c for c in text)


def count(number: int, thing: str, things: str = "") -> str:
    """A number of things in words: 1 photo, 5 photos, 3 classes."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def few(texts: Sequence[str], shown: int = 3) -> str:
    """The first of many texts."""
    return ", ".join(texts[:shown]) + (f" and {len(texts) - shown} more" if len(texts) > shown else "")


def _is_hidden(character: str) -> bool:
    return character in TURNING or unicodedata.category(character) in INVISIBLE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
