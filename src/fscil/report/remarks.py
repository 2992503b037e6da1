"""What has to be said below a table: which runs were left out, and in what the runs of one row differ."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from fscil.report.rows import Row, Section, task
from fscil.report.runs import Run


def section_remarks(section: Section) -> list[str]:
    """The remarks on all rows, each with the name of its row."""
    tasks = [task(row.runs[0]) for row in section.rows]
    mixed = any(other != tasks[0] for other in tasks)
    general = ["Not all rows have the same protocol and images: their names tell the difference."] if mixed else []
    return general + [f"{row.name}: {remark}." for row in section.rows for remark in row_remarks(row)]


def row_remarks(row: Row) -> list[str]:
    """Seeds that were run more than once, and surroundings that the runs of the row do not share."""
    return [*left_out(row), *differences(row, "git commit", commit), *differences(row, "precision", precision)]


def left_out(row: Row) -> list[str]:
    remarks = []
    for run in row.runs:
        seed = run.facts["seed"]
        places = ", ".join(str(other.source) for other in row.left_out if other.facts["seed"] == seed)
        remarks += [f"seed {seed} counts once, from {run.source}; left out: {places}"] if places else []
    return remarks


def differences(row: Row, name: str, value: Callable[[Run], str]) -> list[str]:
    """One remark if a value is not the same for all seeds: "precision float32 (seed 0), bfloat16 (seed 1, 2)"."""
    seeds: dict[str, list[str]] = {}
    for run in row.runs:
        seeds.setdefault(value(run), []).append(str(run.facts["seed"]))
    told = ", ".join(f"{found} (seed {', '.join(numbers)})" for found, numbers in seeds.items())
    return [f"its runs differ in {name}: {told}"] if len(seeds) > 1 else []


def commit(run: Run) -> str:
    return " then ".join(str(found or "unknown") for found in over_time(run, "git"))


def precision(run: Run) -> str:
    found = [entry.get("used") if isinstance(entry, dict) else entry for entry in over_time(run, "precision")]
    return " then ".join(str(entry or "unknown") for entry, _ in groupby(found))


def over_time(run: Run, key: str) -> list[Any]:
    """A fact as it was when the run began, and as it was whenever the run went on with another."""
    continued = run.facts.get("continued_with") or []
    changes = [continued] if isinstance(continued, dict) else continued  # dict: earlier runs
    return [run.facts.get(key), *(change[key] for change in changes if key in change)]
