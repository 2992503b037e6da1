"""What the command line prints: a table of all rows, a sentence after each session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING

from fscil.report.captions import PSEUDO, overrides
from fscil.report.columns import Cell, compute
from fscil.report.rows import sections
from fscil.report.runs import TOTAL, Record
from fscil.report.tables import Line, Table, section_table

if TYPE_CHECKING:
    import rich.table

SUMMARIES = (  # the first that fits is printed; "all" stands for every session
    ("all", "Avg", "base", "new", "HM", "gain", "Diff", "PMAC", "n"),
    ("first", "last", "Avg", "base", "new", "HM", "gain", "Diff", "PMAC", "n"),
    ("first", "last", "Avg", "new", "HM", "gain", "PMAC", "n"),
    ("first", "last", "Avg", "new", "n"),
)
ABOUT = ("encoder", "pixels", "parameters (M)", "keeps", "encoder needs", "selection", "reconstructed")


def terminal_table(runs: Iterable[Record], width: int | None = None) -> rich.table.Table:
    """Our rows in as many columns as the terminal (or width) has room for."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(width=width)
    tables = [section_table(section) for section in sections(runs)]
    for names in SUMMARIES:
        drawn = draw(tables, names)
        if Measurement.get(console, console.options.update(width=10_000), drawn).maximum <= console.width:
            break
    return drawn


def draw(tables: Sequence[Table], names: Sequence[str]) -> rich.table.Table:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    present = {name for table in tables for line in own_lines(table) for name in line.cells}
    sessions = sorted(filter(str.isdigit, present), key=int) if "all" in names else ["first", "last"]
    columns = [*sessions, *(name for name in names if name in present)]
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    drawn.add_column("method", max_width=24)
    for name in columns:
        drawn.add_column(name, justify="right", no_wrap=True, style="bold" if name == "Avg" else None)
    for table in tables:
        drawn.add_section()
        drawn.add_row(Text(table.title), style="bold")
        last = max((column.name for column in table.columns if column.name.isdigit()), key=int, default="")
        ends = {"first": "0", "last": last}
        for line in own_lines(table):
            texts = [terminal_cell(line.cells.get(ends.get(name, name))) for name in columns]
            label = Text(("  " if line.branch else "") + line.label)
            drawn.add_row(label, *texts, style="dim" if line.branch else None)
    remarks = [remark for table in tables for remark in table.remarks]
    drawn.caption, drawn.caption_justify = Text("\n".join(remarks)) if remarks else None, "left"
    return drawn


def own_lines(table: Table) -> list[Line]:
    return [line for line in table.lines if line.kind != "published"]


def terminal_cell(cell: Cell | None) -> str:
    return f"{cell.text}\n±{cell.std}" if cell and cell.std else cell.text if cell else ""


def method_lines(runs: Iterable[Record]) -> list[str]:
    """One line per row of the terminal's table: with what its numbers were made, as far as its runs tell."""
    lines = [line for section in sections(runs) for line in own_lines(section_table(section)) if not line.branch]
    told = ["; ".join(f"{name} {line.cells[name].text}" for name in ABOUT if name in line.cells) for line in lines]
    return [f"{line.label}: {facts}" for line, facts in zip(lines, told, strict=True) if facts]


def session_line(index: int, learned: Sequence[str], run: Record) -> str:
    """One sentence about a session: what was learned and how well all classes seen are told apart now."""
    metrics = run.curves[TOTAL].sessions[index]
    names = ", ".join(learned) if len(learned) <= 10 else f"{learned[0]} … {learned[-1]}"
    count = f"{len(learned)} class{'' if len(learned) == 1 else 'es'}"
    right = f"{metrics.accuracy:.2f} % of the {metrics.images} {run.tested_on} of all {metrics.classes} classes"
    parts = f" (base {metrics.base:.2f}, new {metrics.new:.2f}, harmonic mean {metrics.harmonic:.2f})"
    text = f"Session {index}: learned {count} ({names}); {right} are named right"
    return text + ("" if isnan(metrics.new) else parts) + "."


def run_line(run: Record) -> str:
    """One sentence about a run: its average, what it gained over never learning, and what it cost."""
    curve, facts = run.curves[TOTAL], run.facts
    where = facts["dataset"] + (PSEUDO if run.pseudo else "")
    given = ", ".join([f"recipe {facts['recipe']}", *overrides(run), f"seed {facts['seed']}"])
    who = f"{facts['method']} on {where} ({given})"
    if not run.complete:
        return f"{who} has finished {len(run.learning)} of {facts['sessions']} sessions."
    accuracy = f"{curve.average:.2f} % on average, {curve.accuracies[-1]:.2f} % after the last session"
    gain = f"a gain of {curve.gain:.2f} over never learning a new class"
    time = f"{run.seconds / 60:.2f} minutes, {run.images_per_second:.0f} images/s in training"
    cost = f"{compute(run.macs)} PMAC, {time}, peak memory {run.peak_memory / 1e9:.2f} GB"
    return f"{who}: {accuracy}, {gain}; {cost}."
