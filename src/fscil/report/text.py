"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from math import inf

from fscil.errors import FscilError
from fscil.report.columns import ACCURACY, COST, FURTHER
from fscil.report.tables import Line, Table

PARTS = (ACCURACY, FURTHER, COST)
LATEX = {
    "\\": "\\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "·": "$\\cdot$",
    "…": "\\ldots{}",
    "–": "--",
    "†": "$^\\dagger$",
    "“": "``",
    "”": "''",
}


def write(tables: Sequence[Table], style: str) -> str:
    """The tables of all data sets as one text: md and latex in up to three parts each, csv as one wide table."""
    writers: dict[str, Callable[[Sequence[Table]], str]] = {"md": markdown, "csv": comma_separated, "latex": latex}
    if style not in writers:
        raise FscilError(f"there is no table format {style!r}: choose one of {', '.join(writers)}")
    return writers[style](tables)


def parts(table: Table) -> list[Table]:
    """The tables that a page shows one below the other; those without a line are left out."""
    return [part for part in map(table.part, PARTS) if part.lines]


def texts(line: Line, table: Table) -> list[str]:
    """The cells of a line as text, – where there is nothing."""
    cells = [line.cells.get(column.name) for column in table.columns]
    return [(f"{cell.text} ± {cell.std}" if cell.std else cell.text) if cell else "–" for cell in cells]


def markdown(tables: Sequence[Table]) -> str:
    blocks = []
    for table in tables:
        blocks.append(f"## {table.title}")
        for part in parts(table):
            blocks += [f"{part.title}:", "\n".join(markdown_lines(part))]
        blocks += ["\n".join(f"- {remark}" for remark in table.remarks)] if table.remarks else []
    return "\n\n".join(blocks) + "\n"


def markdown_lines(table: Table) -> list[str]:
    header = ["method", *(column.name for column in table.columns)]
    rule = ["---", *("---" if column.words else "---:" for column in table.columns)]
    lines = [[("↳ " if line.branch else "") + line.label, *texts(line, table)] for line in table.lines]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in [header, rule, *lines]]


def latex(tables: Sequence[Table]) -> str:
    """One booktabs tabular per part; titles and remarks are comments."""
    blocks = []
    for table in tables:
        for part in parts(table):
            head = f"% {table.title}: {part.title} (needs \\usepackage{{booktabs}})"
            blocks.append("\n".join([head, *latex_lines(part)]))
        blocks += ["\n".join(f"% {remark}" for remark in table.remarks)] if table.remarks else []
    return "\n\n".join(blocks) + "\n"


def latex_lines(table: Table) -> list[str]:
    sides = "".join("l" if column.words else "r" for column in table.columns)
    lines = [f"\\begin{{tabular}}{{l{sides}}}", "\\toprule"]
    lines += [latex_row(["Method", *(column.name for column in table.columns)]), "\\midrule"]
    for index, line in enumerate(table.lines):
        if index and line.kind == "published" != table.lines[index - 1].kind:
            lines.append("\\midrule")
        lines.append(("\\quad " if line.branch else "") + latex_row([line.label, *texts(line, table)]))
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(latex_text, texts)) + " \\\\"


def latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def comma_separated(tables: Sequence[Table]) -> str:
    """One line per row, with the data set in front and every standard deviation in a column of its own."""
    names = dict.fromkeys(
        name for table in tables for column in table.columns for name in record_names(column.name, table)
    )
    remarks = ["remarks"] if any(line.remarks for table in tables for line in table.lines) else []
    fields = ["dataset", "method", "branch", "kind", *sorted(names, key=sessions_first), *remarks]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for line in table.lines:
            about = {"dataset": table.title, "method": line.name, "branch": line.branch, "kind": line.kind}
            writer.writerow(about | record(line))
    return out.getvalue()


def record_names(column: str, table: Table) -> list[str]:
    spread = any(line.cells[column].std for line in table.lines if column in line.cells)
    return [column, f"{column} std"] if spread else [column]


def sessions_first(name: str) -> float:
    first = name.split()[0]
    return int(first) if first.isdigit() else inf


def record(line: Line) -> dict[str, str]:
    values = {name: cell.text for name, cell in line.cells.items()}
    values |= {f"{name} std": cell.std for name, cell in line.cells.items() if cell.std}
    return values | ({"remarks": "; ".join(line.remarks)} if line.remarks else {})
