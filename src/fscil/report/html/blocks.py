"""The pieces of the page: cards, tables, tiles, legends and the facts behind each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from fscil.report.columns import SUMMARY, Cell, Column, compute
from fscil.report.html import confusions
from fscil.report.html.charts import Trace
from fscil.report.rows import Row
from fscil.report.runs import TOTAL, Record
from fscil.report.tables import Line, Table, cells
from fscil.settings.fields import dotted

FEW_COLUMNS = 7  # a table with no more columns is not stretched over the page
TILES = {
    "Avg": "average over the sessions",
    "new": "new classes, last session",
    "HM": "harmonic mean, last session",
    "gain": "gain over never learning a new class",
}


def card(title: str, *content: str) -> str:
    return f'<section class="card"><h3>{escape(title)}</h3>{"".join(content)}</section>\n'


def folded(summary: str, *content: str, unfolded: bool = False) -> str:
    return f"<details{' open' if unfolded else ''}><summary>{summary}</summary>{''.join(content)}</details>"


def html_table(table: Table, named: frozenset[str] = frozenset()) -> str:
    """A table of the report; published lines stand below a line of their own, those in `named` stand out."""
    head = "".join(map(html_head, table.columns))
    lines = [html_line(line, table, line.name in named) for line in table.lines]
    published = [index for index, line in enumerate(table.lines) if line.kind == "published"]
    if 0 < len(published) < len(lines):
        lines.insert(published[0], f'<tr class="group"><th>published</th><td colspan="{len(table.columns)}"></td></tr>')
    width = "wide" if len(table.columns) > FEW_COLUMNS else "narrow"
    head = f"<thead><tr><th></th>{head}</tr></thead>"
    return f'<div class="scroll"><table class="rows {width}">{head}<tbody>{"".join(lines)}</tbody></table></div>'


def html_head(column: Column) -> str:
    return f'<th{words(column)} title="{escape(column.meaning)}">{escape(column.name)}</th>'


def html_line(line: Line, table: Table, named: bool) -> str:
    kind = "published named" if named and line.kind == "published" else line.kind
    name = line.name if line.kind == "published" else line.label
    values = "".join(html_cell(column, line.cells.get(column.name)) for column in table.columns)
    return f'<tr class="{kind}"><th>{escape(name)}</th>{values}</tr>'


def html_cell(column: Column, cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    kind = ' class="Avg"' if column.name == "Avg" else words(column)
    return f"<td{kind}>{escape(cell.text)}{f'<small>±{cell.std}</small>' if cell.std else ''}</td>"


def words(column: Column) -> str:
    return ' class="words"' if column.words else ""


def tiles(row: Row) -> str:
    """The numbers of one complete row, large."""
    shown = [tile(cell, TILES[name]) for name, cell in cells(row, TOTAL, SUMMARY).items() if name in TILES]
    minutes = row.mean(lambda run: run.seconds / 60)
    cost = tile(Cell(compute(row.mean(lambda run: run.macs))), f"PMAC of training, {minutes:.2f} minutes")
    return f'<div class="tiles">{"".join(shown)}{cost}</div>\n'


def tile(cell: Cell, text: str) -> str:
    std = f" <small>±{cell.std}</small>" if cell.std else ""
    return f'<div class="tile"><b>{cell.text}{std}</b><span>{escape(text)}</span></div>'


def legend(traces: Sequence[Trace]) -> str:
    sample = '<svg viewBox="0 0 26 8"><g class="trace {style}"><polyline points="0,4 26,4"/></g></svg>'
    entries = "".join(
        f'<li class="{trace.style}">{sample.format(style=trace.style)}<span>{escape(trace.name)}</span></li>'
        for trace in traces
    )
    return f'<ul class="legend">{entries}</ul>'


def confusion_block(row: Row, unfolded: bool) -> str:
    """Confusion picture, worst pairs, confusion by session and accuracy by session; empty without a session."""
    if not row.finished:
        return ""
    names = ["base", *map(str, range(1, row.finished))]
    matrix = np.mean([run.curves[TOTAL].matrix for run in row.runs], axis=0)
    tables = confusions.heat_table(matrix, "accuracy of the classes of a session (rows) after each session", names)
    confusion = confusions.row_confusion(row)
    if confusion is not None:
        caption = "answers by session for the images of a session (rows), percent of the row"
        by_session = confusions.heat_table(confusions.by_session(confusion), caption, names)
        title = "<h4>true class (rows) and answer (columns), grouped by session: right in blue, wrong in orange</h4>"
        left = title + confusions.picture(confusion) + pairs_table(confusions.worst_pairs(confusion))
        tables = f'<div class="pair"><div>{left}</div><div>{by_session}{tables}</div></div>'
    after = f' <span class="soft">after session {row.finished - 1}, seed {seeds(row.runs)}{alone(row)}</span>'
    return folded(escape(row.name) + after, tables, unfolded=unfolded)


def alone(row: Row) -> str:
    """Which seeds the answers are of, where results files, which hold none, stand for the others."""
    told = [run for run in row.runs if run.confusion is not None]
    return f"; answers of seed {seeds(told)} alone" if 0 < len(told) < len(row.runs) else ""


def pairs_table(pairs: Sequence[tuple[str, str, float]]) -> str:
    head = "<thead><tr><th>class</th><th>taken for</th><th>images</th></tr></thead>"
    lines = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td><td>{share:.2f} %</td></tr>" for a, b, share in pairs)
    table = f'<div class="scroll"><table class="pairs">{head}<tbody>{lines}</tbody></table></div>'
    return "<h4>most frequent mistakes</h4>" + table


def seeds(runs: Iterable[Record]) -> str:
    return escape(", ".join(str(run.facts["seed"]) for run in runs))


def facts_block(row: Row) -> str:
    """Settings, versions and costs of every run behind a row."""
    parts = [facts_table(name, row.facts.get(name) or {}) for name in ("settings", "protocol")]
    parts += [part for run in row.runs for part in (run_facts(run), stages_table(run))]
    content = "".join(f"<div>{part}</div>" for part in parts if part)
    summary = f'{escape(row.name)} <span class="soft">seed {seeds(row.runs)}</span>'
    return folded(summary, f'<div class="columns">{content}</div>')


def run_facts(run: Record) -> str:
    keys = ("command", "started", "git", "precision", "machine", "versions", "continued_with", "benchmark_fingerprint")
    return facts_table(f"run of seed {run.facts['seed']}", {key: run.facts[key] for key in keys if run.facts.get(key)})


def facts_table(title: str, facts: dict[str, Any]) -> str:
    """Dotted names and values; empty when there are none."""
    if not facts:
        return ""
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td><code>{escape(fact_text(value))}</code></td></tr>"
        for name, value in dotted(facts).items()
    )
    return f'<h4>{escape(title)}</h4><table class="facts"><tbody>{lines}</tbody></table>'


def fact_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def stages_table(run: Record) -> str:
    """What each stage of learning cost; empty when no stage was recorded."""
    stages = [(record.get("session"), stage) for record in run.learning for stage in record.get("stages") or ()]
    if not stages:
        return ""
    lines = "".join(
        f"<tr><td>{escape(str(session))}</td><th>{escape(str(stage.get('name')))}</th>"
        f"<td>{stage.get('seconds') or 0:.2f}</td><td>{compute(stage.get('macs') or 0)}</td>"
        f"<td>{escape(str(stage.get('steps') or 0))}</td></tr>"
        for session, stage in stages
    )
    head = "<thead><tr><th>session</th><th>stage</th><th>seconds</th><th>PMAC</th><th>steps</th></tr></thead>"
    title = f"<h4>stages of seed {escape(str(run.facts['seed']))}</h4>"
    return f'{title}<div class="scroll"><table class="stages">{head}<tbody>{lines}</tbody></table></div>'
