"""What the command line prints: lists, plans, and what was learned, in plain words."""

import ast
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fscil.settings import Setting

FIRST_PROCESS = os.environ.get("LOCAL_RANK", "0") == "0"
WIDTH_OF_FILES = 160  # tables written into a file or a pipe are not cut to the 80 columns of a terminal


def console() -> Console:
    """Standard output; silent in all but the first of several processes."""
    return Console(quiet=not FIRST_PROCESS, highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def say(text: object) -> None:
    """One line, never broken, so that paths can be copied."""
    console().print(text, soft_wrap=True, markup=False)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str | None = None, numbers: int = 0) -> None:
    """A table whose last `numbers` columns are aligned to the right."""
    columns = tuple(columns)
    drawn = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for position, column in enumerate(columns):
        drawn.add_column(column, justify="right" if position >= len(columns) - numbers else "left")
    for row in rows:
        drawn.add_row(*map(str, row))
    console().print(drawn, markup=False)


def summary(file: Path) -> str:
    """First line of a module's docstring, read without importing it."""
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def plan(title: str, settings: Iterable[Setting], defaults: Mapping[str, Setting], cost: Mapping[str, Any]) -> None:
    """The resolved settings (those that differ from the paper's marked) and what the run will cost."""
    settings = list(settings)
    table(
        ("setting", "value", "paper", "meaning"),
        ((s.name, _value(s.value), "" if s.value == defaults[s.name].value else _value(defaults[s.name].value), s.help) for s in settings),
        title=title,
    )
    table(
        ("stage", "pixels", "steps", "trained per step", "encoded per step", "TMAC", "time"),
        (
            (s["stage"], s["pixels"], s["steps"], s["trained"], s["encoded"], f"{s['macs'] / 1e12:.2f}", duration(s["seconds"]))
            for s in cost["stages"]
        ),
        title="base session",
        numbers=6,
    )
    say(f"parameters         {cost['parameters']:,}")
    say(f"training compute   {cost['macs'] / 1e15:.4f} PMAC")
    say(f"precision          {_precision(cost['precision'])}")
    say(f"memory             about {_gigabytes(cost['memory_bytes'])}, {_gigabytes(cost['memory_available_bytes'])} are free")
    say(f"time               about {duration(cost['seconds'])} on this machine, from one timed step per stage")


def learned(session: Any, names: list[str], metrics: Any) -> str:
    """A session in plain words."""
    pictures = len(session.train) // len(names)
    if session.index == 0:
        what = f"Session 0: learned {len(names)} classes ({' '.join(names[:8])} …) from {pictures} pictures each."
        return f"{what} It gets {metrics.accuracy:.1f} % right."
    base = metrics.classes - round(metrics.classes * 0)
    return f"{base}"


def duration(seconds: float) -> str:
    """Seconds for people: 12 s, 3 min, 2.5 h, 4.1 days."""
    for limit, unit, name, digits in ((120, 1, "s", 0), (7200, 60, "min", 0), (172800, 3600, "h", 1)):
        if seconds < limit:
            return f"{seconds / unit:.{digits}f} {name}"
    return f"{seconds / 86400:.1f} days"


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _precision(precision: Mapping[str, Any]) -> str:
    measured = precision.get("block_seconds", {})
    times = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in measured.items())
    return f"{precision['used']} ({times})" if times else str(precision["used"])
