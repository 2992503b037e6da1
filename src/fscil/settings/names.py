"""Names that users misspell."""

import difflib
from collections.abc import Collection

LISTED = 20  # most names that an error message lists


def suggestion(wrong: str, known: Collection[str]) -> str:
    """The end of an error message about an unknown name: the closest known name, else all of them if they are few."""
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return f"known: {', '.join(sorted(known)[:LISTED])}{more}"
