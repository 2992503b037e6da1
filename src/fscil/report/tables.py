"""The tables of the report as plain data: lines of cells, ready to be written as HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fscil.report.captions import row_remarks, section_remarks
from fscil.report.columns import ACCURACY, COSTS, SUMMARY, Cell, Column, number
from fscil.report.published import PublishedRow, comparable, section_title
from fscil.report.rows import Row, Section
from fscil.report.runs import TOTAL


@dataclass(frozen=True)
class Line:
    """One line of a table; kind is run, incomplete, branch or published."""

    name: str
    kind: str
    cells: dict[str, Cell]
    branch: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        if self.branch:
            return f"branch {self.branch} alone"
        return f"{self.name} (published)" if self.kind == "published" else self.name


@dataclass(frozen=True)
class Table:
    """Lines and the columns that at least one of them fills."""

    title: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    remarks: tuple[str, ...] = ()  # sentences that stand below it

    def part(self, title: str) -> Table:
        """The columns of one of the report's tables, with the lines that fill them."""
        return make_table(title, self.lines, [column for column in self.columns if column.table == title])


def section_table(section: Section) -> Table:
    """Our rows with their branches, then the published rows, in all columns."""
    lines = [line for row in section.rows for line in row_lines(row)]
    found = comparable(section)
    lines += [published_line(row) for row in found.rows] if found else []
    table = make_table(section_title(section), lines, [*session_columns(section.sessions), *SUMMARY, *COSTS])
    return replace(table, remarks=tuple(section_remarks(section)))


def study_table(title: str, rows: Sequence[PublishedRow]) -> Table:
    """Published rows alone."""
    return make_table(title, [published_line(row) for row in rows], [*session_columns(len(rows[0].sessions)), *SUMMARY])


def make_table(title: str, lines: Sequence[Line], columns: Sequence[Column]) -> Table:
    filled = tuple(column for column in columns if any(column.name in line.cells for line in lines))
    kept = tuple(line for line in lines if any(column.name in line.cells for column in filled))
    return Table(title, kept, filled)


def session_columns(count: int) -> list[Column]:
    return [
        Column(str(index), ACCURACY, f"accuracy over all classes seen after session {index}", session_cell(index))
        for index in range(count)
    ]


def session_cell(index: int) -> Callable[[Row, str], Cell | None]:
    return lambda row, branch: number(row.curve("accuracy", branch)[index]) if index < row.finished else None


def row_lines(row: Row) -> list[Line]:
    """The row itself and one line per branch."""
    columns = [*session_columns(row.facts["sessions"]), *SUMMARY]
    missing = f" (incomplete: seed {row.facts['seed']}, {row.finished} of {row.facts['sessions']} sessions)"
    own = Line(
        row.name + ("" if row.complete else missing),
        "run" if row.complete else "incomplete",
        cells(row, TOTAL, [*columns, *COSTS]),
        remarks=tuple(row_remarks(row)),
    )
    return [own, *(Line(own.name, "branch", cells(row, name, columns), branch=name) for name in row.branches)]


def cells(row: Row, branch: str, columns: Sequence[Column]) -> dict[str, Cell]:
    found = {column.name: column.cell(row, branch) for column in columns}
    return {name: cell for name, cell in found.items() if cell is not None}


def published_line(row: PublishedRow) -> Line:
    values = {str(index): value for index, value in enumerate(row.sessions)}
    values |= {"Avg": row.avg, "gain": row.gain, "PD": row.performance_drop}
    values |= {} if row.diff is None else {"Diff": row.diff}
    return Line(row.name, "published", {name: Cell(f"{value:.2f}") for name, value in values.items()})
