"""What the command line prints: a table of all rows, a sentence after each session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING

from fscil.metrics import SessionMetrics
from fscil.report.columns import Cell, compute
from fscil.report.rows import sections
from fscil.report.runs import TOTAL, Run
from fscil.report.tables import Table, section_table

if TYPE_CHECKING:
    import rich.table

CHOSEN = ("Avg", "base", "new", "HM", "gain", "Diff", "PMAC", "n")


def terminal_table(runs: Iterable[Run], width: int | None = None) -> rich.table.Table:
    """Our rows in all sessions, or in the first and the last where the terminal (or width) is too narrow for all."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(width=width)
    tables = [section_table(section) for section in sections(runs)]
    sessions = sorted({int(name) for table in tables for name in column_names(table) if name.isdigit()})
    full = draw(tables, sessions)
    if Measurement.get(console, console.options.update(width=10_000), full).maximum <= console.width:
        return full
    return draw(tables, sessions[:1] + sessions[-1:])


def draw(tables: Sequence[Table], sessions: Sequence[int]) -> rich.table.Table:
    from rich import box
    from rich.table import Table as RichTable

    present = {name for table in tables for name in column_names(table)}
    columns = [*map(str, sessions), *(name for name in CHOSEN if name in present)]
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    drawn.add_column("method", no_wrap=True)
    for name in columns:
        drawn.add_column(name, justify="right", no_wrap=True, style="bold" if name == "Avg" else None)
    for table in tables:
        drawn.add_section()
        if len(tables) > 1:
            drawn.add_row(table.title, style="bold")
        for line in table.lines:
            if line.kind != "published":
                texts = [terminal_cell(line.cells.get(name)) for name in columns]
                drawn.add_row(("  " if line.branch else "") + line.label, *texts, style="dim" if line.branch else None)
    return drawn


def column_names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def terminal_cell(cell: Cell | None) -> str:
    return f"{cell.text}\n±{cell.std}" if cell and cell.std else cell.text if cell else ""


def session_line(index: int, learned: Sequence[str], metrics: SessionMetrics) -> str:
    """One sentence about a session: what was learned and how well all classes seen are told apart now."""
    names = ", ".join(learned) if len(learned) <= 10 else f"{learned[0]} … {learned[-1]}"
    text = (
        f"Session {index}: learned {len(learned)} classes ({names}); {metrics.accuracy:.2f} % of the {metrics.images} "
    )
    text += f"test images of all {metrics.classes} classes are named right"
    if isnan(metrics.new):
        return text + "."
    return text + f" (base {metrics.base:.2f}, new {metrics.new:.2f}, harmonic mean {metrics.harmonic:.2f})."


def run_line(run: Run) -> str:
    """One sentence about a run: its average, what it gained over never learning, and what it cost."""
    curve, facts = run.curves[TOTAL], run.facts
    who = f"{facts['method']} on {facts['dataset']} (recipe {facts['recipe']}, seed {facts['seed']})"
    if not run.complete:
        return f"{who} has finished {len(run.learning)} of {facts['sessions']} sessions."
    accuracy = f"{curve.average:.2f} % on average, {curve.accuracies[-1]:.2f} % after the last session"
    gain = f"{curve.gain:.2f} more than never learning a new class"
    cost = f"{compute(run.macs)} PMAC, {run.seconds / 60:.2f} minutes, peak memory {run.peak_memory / 1e9:.2f} GB"
    return f"{who}: {accuracy}, {gain}; {cost}."
