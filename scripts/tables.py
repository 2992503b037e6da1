"""Tables of the pages that scripts make: how one takes the place of an older one."""

from __future__ import annotations

from collections.abc import Sequence


def placed(page: str, table: Sequence[str], below: str = "") -> str:
    """The page with a table in the place of the first that has the same title line, below a line if one is named."""
    lines = page.split("\n")
    start = lines.index(table[0], lines.index(below) if below else 0)
    end = next(at for at in range(start, len(lines) + 1) if at == len(lines) or not lines[at].startswith("|"))
    return "\n".join([*lines[:start], *table, *lines[end:]])
