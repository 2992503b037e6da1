"""What the command line prints: lists, plans, and what was learned, in plain words."""

import ast
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fscil.settings.fields import Setting
from fscil.text import printable

if TYPE_CHECKING:
    from fscil.data.sessions import Session
    from fscil.data.verify import Inspection
    from fscil.report.runs import Record

FIRST_PROCESS = os.environ.get("LOCAL_RANK", "0") == "0"
WIDTH_OF_FILES = 160  # tables written into a file or a pipe are not cut to the 80 columns of a terminal
MEANINGS_FIT = 120  # narrower terminals show settings without their meaning, which --help tells


class Output(Console):
    """A console that leaves it to `main` what it means when nobody reads any longer."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output; silent in all but the first of several processes."""
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    return Output(quiet=not FIRST_PROCESS, highlight=False, emoji=False, width=width)


def say(text: object) -> None:
    """One line, never broken, so that paths can be copied; what does not print is escaped."""
    block(printable(str(text)))


def block(text: str) -> None:
    """Lines as they are."""
    console().print(text, soft_wrap=True, markup=False)


def complain(sentence: str) -> None:
    """One line on standard error; what does not print is escaped."""
    print(f"fscil: {printable(sentence)}", file=sys.stderr)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str | None = None, numbers: int = 0) -> None:
    """A table whose last `numbers` columns are aligned to the right."""
    columns = tuple(columns)
    drawn = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, show_edge=False)
    for position, column in enumerate(columns):
        drawn.add_column(column, justify="right" if position >= len(columns) - numbers else "left")
    for row in rows:
        drawn.add_row(*(printable(str(cell)) for cell in row))
    console().print(drawn, markup=False)


def summary(file: Path) -> str:
    """First line of a module's docstring, read without importing it."""
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def plan(title: str, settings: Iterable[Setting], paper: Mapping[str, Setting], cost: Mapping[str, Any]) -> None:
    """The resolved settings (those that differ from the paper's marked) and what the base session will cost."""
    rows = ((s, paper[s.name].value) for s in settings)
    lines = ((s.name, value_text(s.value), "" if s.value == its else value_text(its), s.help) for s, its in rows)
    columns = ("setting", "value", "paper", "meaning")
    shown = columns if console().width >= MEANINGS_FIT else columns[:-1]
    table(shown, (line[: len(shown)] for line in lines), title=title)
    say("")
    facts = ("stage", "pixels", "steps", "trained", "encoded")
    table(
        ("base session", "pixels", "steps", "images trained", "images encoded", "TMAC", "time"),
        ((*(s[fact] for fact in facts), f"{s['macs'] / 1e12:.2f}", duration(s["seconds"])) for s in cost["stages"]),
        numbers=6,
    )
    say("")
    say(f"parameters               {cost['parameters']:,}")
    say(f"precision                {_precision(cost['precision'])}")
    say(f"compute of base session  {cost['macs'] / 1e15:.4f} PMAC")
    needed, free = (cost[key] / 2**30 for key in ("memory_bytes", "memory_available_bytes"))
    say(f"memory                   about {needed:.1f} GiB, {free:.1f} GiB are free")
    say(f"time of base session     about {duration(cost['seconds'])} on this machine, from one timed step per stage")


def plans(costs: Mapping[str, Mapping[str, Any]]) -> None:
    """One line per method: what its base session will cost; what methods share is counted for each of them."""
    base = {
        name: sum(s["macs"] for s in cost["stages"] if s["stage"].startswith("base")) for name, cost in costs.items()
    }
    rows = (
        (
            name,
            f"{cost['parameters']:,}",
            f"{base[name] / 1e15:.4f}",
            f"{(cost['macs'] - base[name]) / 1e15:.4f}",
            f"{cost['memory_bytes'] / 2**30:.1f}",
            duration(cost["seconds"]),
        )
        for name, cost in costs.items()
    )
    costs_shown = ("PMAC of base training", "PMAC of the rest of the base session", "GiB", "time of the base session")
    table(("method", "parameters", *costs_shown), rows, numbers=5)
    say("")
    say("Methods with the same base training share it, computed once. Name one method to see its settings and stages.")


def inspection(found: "Inspection") -> None:
    """The sessions of a data set and everything that is wrong with its files, each by name."""
    rows = ((r.session, len(r.classes), r.train, r.test, _few(r.classes)) for r in found.rows)
    table(("session", "classes", "training images", "test images so far", "which"), rows, title=found.name)
    for complaint in found.unreadable:
        say(f"unreadable: {complaint}")
    for group in found.duplicates:
        say(f"same content: {', '.join(group)}")
    for name in found.too_few:
        say(f"fewer training images than shots: {name}")
    for name in found.untested:
        say(f"no test image: {name}")
    if found.published is not None:
        where = f"differ in sessions {', '.join(map(str, found.differing))}"
        say(
            "The session lists are the published ones."
            if found.published
            else f"The session lists are not the published ones: they {where}."
        )


class Teller:
    """Tells what the run folder says about a session that was just finished."""

    def __init__(self, folder: Path):
        self.folder = folder

    def line(self, session: "Session") -> None:
        """One line for those who compare methods."""
        from fscil.report.terminal import session_line

        say(session_line(session.index, self._names(session), self._run(session)))

    def plain_words(self, session: "Session") -> None:
        """One line for everybody; a character is named by itself."""
        from fscil.report.runs import TOTAL

        metrics = self._run(session).curves[TOTAL].sessions[session.index]
        characters = " ".join(name.partition(" ")[0] for name in self._names(session))
        what = f"learned {characters} from {len(session.train) // len(session.classes)} pictures each"
        right = f"gets {metrics.accuracy:.1f} % right"
        if session.index == 0:
            return say(f"Session 0: {what}. It knows {metrics.classes} classes and {right}.")
        base = sum(first == 0 for first in self._facts()["first_seen"].values())
        parts = f"first {base}: {metrics.base:.1f} %, new ones: {metrics.new:.1f} %"
        return say(f"Session {session.index}: {what}. It now knows {metrics.classes} classes and {right} ({parts}).")

    def _facts(self) -> Any:
        return json.loads((self.folder / "run.json").read_text(encoding="utf-8"))

    def _names(self, session: "Session") -> list[str]:
        names = self._facts()["class_names"]
        return [names[label] for label in session.classes]

    def _run(self, session: "Session") -> "Record":
        """The run up to a session: what lies there of later ones may be incomplete and about to be made again."""
        from fscil.report.runs import read_folder

        return read_folder(self.folder, session.index)


def duration(seconds: float) -> str:
    """Seconds for people: 12 s, 3 min, 2.5 h, 4.1 days."""
    for limit, unit, name, digits in ((120, 1, "s", 0), (7200, 60, "min", 0), (172800, 3600, "h", 1)):
        if seconds < limit:
            return f"{seconds / unit:.{digits}f} {name}"
    return f"{seconds / 86400:.1f} days"


def value_text(value: object) -> str:
    """A setting's value as a person would type it."""
    if isinstance(value, tuple):
        return " ".join(map(value_text, value)) or "empty"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def _precision(precision: Mapping[str, Any]) -> str:
    measured = precision.get("block_seconds", {})
    times = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in measured.items())
    return f"{precision['used']} ({times})" if times else str(precision["used"])
