"""Reports from run folders: tables, one HTML page, and the results files that are committed.

>>> from fscil import report
>>> report.write_html(["runs"], "report.html")          # doctest: +SKIP
>>> print(report.table(["runs"], "md"))                 # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fscil.errors import FscilError
from fscil.files import write_bytes
from fscil.report.html.page import page
from fscil.report.results import read_results, summarise, write_results
from fscil.report.rows import sections
from fscil.report.runs import Record, find, read_folder
from fscil.report.tables import section_table
from fscil.report.terminal import method_lines, run_line, session_line, terminal_table
from fscil.report.text import write

__all__ = [
    "Record",
    "load",
    "method_lines",
    "run_line",
    "session_line",
    "summarise",
    "table",
    "terminal_table",
    "write_html",
    "write_results",
    "write_table",
]


def load(paths: Iterable[str | Path]) -> list[Record]:
    """The runs of run folders and results files, given themselves or found below the folders given."""
    sources = {source.resolve(): source for path in paths for source in find(Path(path))}
    if not sources:
        raise FscilError("there is nothing to report: name at least one run folder, such as runs/")
    return [read_folder(source) if source.is_dir() else read_results(source) for source in sources.values()]


def write_html(paths: Iterable[str | Path], out: str | Path, opening: str = "") -> Path:
    """Write the report of all runs as one self-contained HTML file, below an opening in HTML; gives its path."""
    out = Path(out)
    content = page(load(paths), opening)
    write_bytes(out, content.encode())
    return out


def table(paths: Iterable[str | Path], format: str) -> str:  # noqa: A002
    """The tables of all runs and of the published rows as md, csv or latex."""
    return write([section_table(section) for section in sections(load(paths))], format)


def write_table(paths: Iterable[str | Path], format: str, out: str | Path) -> Path:  # noqa: A002
    """Write the tables into a file; gives its path."""
    write_bytes(Path(out), table(paths, format).encode())
    return Path(out)
