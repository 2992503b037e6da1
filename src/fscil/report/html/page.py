"""The report as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from fscil.metrics import spread
from fscil.report.columns import COSTS, SUMMARY
from fscil.report.html.blocks import card, confusion_block, facts_block, folded, html_table, legend, tiles
from fscil.report.html.charts import COLOURS, Trace, line_chart
from fscil.report.html.heatmaps import sweep_block
from fscil.report.published import Published, comparable, section_title, source
from fscil.report.rows import Section, sections
from fscil.report.runs import TOTAL, Record
from fscil.report.sweeps import sweeps
from fscil.report.tables import section_table, study_table
from fscil.report.text import parts

FEW_ROWS = 3  # up to this many rows, the curves of the branches are drawn too


def page(runs: Sequence[Record], opening: str = "") -> str:
    """The whole HTML file; `opening` is HTML that stands above the sections."""
    found = sections(runs)
    title = "Few-shot class-incremental learning: " + "; ".join(dict.fromkeys(map(section_title, found)))
    images = " or ".join(dict.fromkeys(section.tested_on for section in found))
    return document(
        title,
        f'<p class="soft">Accuracies are percent of {images}; the answer is chosen among all classes seen so far. '
        "New classes are all classes since session 1.</p>\n"
        f"{opening}{''.join(map(section_block, found))}{meanings()}",
    )


def document(title: str, body: str) -> str:
    """An HTML file that needs nothing but itself."""
    style = files("fscil.report.html").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}</main>\n</body>\n</html>\n"
    )


def section_block(section: Section) -> str:
    """Everything about one data set."""
    known = comparable(section)
    best = section.rows[0]
    return "".join(
        [
            f"<h2>{escape(section_title(section))}</h2>\n",
            f'<p class="soft">{escape(introduction(section))}</p>\n',
            tiles(best) if best.complete else "",
            curves_card(section, known),
            sweeps_card(section),
            tables_cards(section, known),
            balance_card(section),
            confusion_card(section),
            study_card(known),
            card("Settings and versions", *map(facts_block, section.rows)),
        ]
    )


def introduction(section: Section) -> str:
    """What was learned, as far as all rows agree in it, and whose numbers the tiles below show."""
    curves = [row.runs[0].curves[TOTAL].sessions for row in section.rows if row.finished]
    if not curves:
        return f"{section.sessions} sessions planned, none finished yet."
    text = f"{section.sessions} sessions: {agreed(tests[0].classes for tests in curves)}base classes"
    finished = max(map(len, curves))
    if finished > 1:
        ways = agreed(tests[1].classes - tests[0].classes for tests in curves if len(tests) > 1)
        shots = agreed((row.facts.get("protocol") or {}).get("shots") for row in section.rows)
        text += f", then {ways}new classes per session" + (f" from {shots}images each" if shots else "")
    images = agreed(tests[-1].images for tests in curves if len(tests) == finished)
    text += f"; tested on {images}{section.tested_on} after session {finished - 1}."
    best = section.rows[0]
    return text + (f" The figures below are those of {best.name}, n = {len(best.runs)}." if best.complete else "")


def agreed(counts: Iterable[int | None]) -> str:
    """A number and a space where all have the same, else nothing."""
    found = set(counts)
    return f"{found.pop()} " if len(found) == 1 and None not in found else ""


def own_traces(section: Section, metric: str) -> list[Trace]:
    """One line per row that has finished a session, coloured in the order of the table."""
    traces = []
    for index, row in enumerate(row for row in section.rows if row.finished):
        name = row.name if row.complete else f"{row.name} (incomplete, seed {row.facts['seed']})"
        traces.append(Trace(name, row.curve(metric), row_style(index)))
    return traces


def row_style(index: int) -> str:
    return f"c{index % COLOURS}" + " again" * (index >= COLOURS)


def branch_traces(section: Section) -> list[Trace]:
    rows = [row for row in section.rows if row.finished]
    if len(rows) > FEW_ROWS:
        return []
    return [
        Trace(
            f"branch {branch} of {row.name}", row.curve("accuracy", branch), f"{row_style(index)} branch b{place % 2}"
        )
        for index, row in enumerate(rows)
        for place, branch in enumerate(row.branches)
    ]


def curves_card(section: Section, known: Published | None) -> str:
    ours = methods_of(section)
    published = [
        Trace(row.name, [spread([value]) for value in row.sessions], published_style(row.method in ours), label=True)
        for row in sorted(known.rows if known else (), key=lambda row: row.method in ours)
    ]
    own, branches = own_traces(section, "accuracy"), branch_traces(section)
    drawn = [*published, *branches, *own[::-1]]
    chart = line_chart("Accuracy over all classes seen, by session", drawn, section.sessions)
    note = "Grey: published rows; dotted: the published row of a method that was run here." if published else ""
    return card(
        "Accuracy over all classes seen, after each session",
        f'<div class="chart">{chart}</div>{legend([*own, *branches])}' + f'<p class="note">{note}</p>' * bool(note),
    )


def sweeps_card(section: Section) -> str:
    """Heat maps of the settings that were swept two at a time; empty where none were."""
    found = sweeps(section.rows)
    if not found:
        return ""
    note = "Means over the seeds; bold: the highest. Empty: no finished run there that agrees in all other settings."
    blocks = [sweep_block(sweep, found) for sweep in found]
    return card("Two settings at a time", *blocks, f'<p class="note">{note}</p>')


def published_style(named: bool) -> str:
    return "published named" if named else "published"


def methods_of(section: Section) -> set[str]:
    return {row.facts["method"] for row in section.rows}


def tables_cards(section: Section, known: Published | None) -> str:
    ours = methods_of(section)
    named = frozenset(row.name for row in known.rows if row.method in ours) if known else frozenset()
    table = section_table(section)
    notes = [" ".join([f"Published: {source()}.", *known.notes])] if known else []
    text = "".join(f'<p class="note">{escape(note)}</p>' for note in (*notes, *table.remarks))
    return "".join(
        card(part.title, html_table(part, named), text if index == 0 else "") for index, part in enumerate(parts(table))
    )


def balance_card(section: Section) -> str:
    """Base accuracy, new accuracy and their harmonic mean over the sessions."""
    if not any(row.finished > 1 for row in section.rows):
        return ""
    titles = {"base": "base classes", "new": "new classes", "harmonic": "harmonic mean"}
    charts = "".join(
        f"<div><h4>{title}</h4>{line_chart(title, own_traces(section, metric), section.sessions, 380, 260)}</div>"
        for metric, title in titles.items()
    )
    key = legend(own_traces(section, "base"))
    return card("Base and new classes over the sessions", f'<div class="trio">{charts}</div>', key)


def confusion_card(section: Section) -> str:
    blocks = [confusion_block(row, unfolded=index == 0) for index, row in enumerate(section.rows)]
    return card("Which classes are taken for which, after the last session", *blocks) if any(blocks) else ""


def study_card(known: Published | None) -> str:
    if known is None or not known.study_rows:
        return ""
    table = html_table(study_table(known.study, known.study_rows))
    return card("Published for comparison", folded(escape(known.study), table))


def meanings() -> str:
    columns = (*SUMMARY, *COSTS)
    entries = "".join(f"<dt>{escape(column.name)}</dt><dd>{escape(column.meaning)}</dd>" for column in columns)
    return card("What the columns mean", f"<dl>{entries}</dl>")
