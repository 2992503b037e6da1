"""What a page says that a command prints, compared with what it does print."""

import re

OMISSION = "…"  # in what a page shows: the rest of a line, or some lines


def masked(text: str) -> str:
    """A text without its numbers, which depend on the machine."""
    return re.sub(r"\d+(\.\d+)?", "#", text)


def is_printed(block: str, output: str) -> bool:
    """Whether the output of the commands above a block is what the block shows."""
    pattern = re.escape(masked(block.strip())).replace(OMISSION, "(.|\n)*")
    return re.fullmatch(pattern, masked(output.strip())) is not None
