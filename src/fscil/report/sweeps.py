"""Two settings swept against each other: which rows of a section form such a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from fscil.report.captions import settings, task
from fscil.report.rows import Row, by_seed
from fscil.report.runs import Record

Point = tuple[float, float]  # value of the setting that goes down, of the one that goes across


@dataclass(frozen=True)
class Sweep:
    """Rows of one method on one task that are alike in all settings but two."""

    down: str
    across: str
    rows: Mapping[Point, Row]

    @property
    def axes(self) -> tuple[list[float], list[float]]:
        """The values of both settings, ascending."""
        return sorted({point[0] for point in self.rows}), sorted({point[1] for point in self.rows})

    @property
    def runs(self) -> list[Record]:
        return [run for row in self.rows.values() for run in row.runs]

    @property
    def corners(self) -> int:
        """How many corners are there of the fullest rectangle: 4 in a grid, 3 in a cross, fewer in a line."""
        lines: dict[float, set[float]] = {}
        for down, across in self.rows:
            lines.setdefault(down, set()).add(across)
        pairs = combinations(lines.values(), 2)
        return max((min(2, len(one & other)) + min(2, len(one | other)) for one, other in pairs), default=0)


def sweeps(rows: Iterable[Row]) -> list[Sweep]:
    """The sweeps among the finished rows of a section; recipes may differ in name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.complete:
            key = json.dumps([row.facts["method"], task(row.runs[0])], sort_keys=True)
            groups.setdefault(key, []).append(row)
    return [sweep for group in groups.values() for sweep in grids(group)]


def grids(rows: Sequence[Row]) -> list[Sweep]:
    """The grids among rows of one method on one task; cells may be missing.

    Two grids with a common row, such as way × shot and λ₁ × λ₂, also make crosses: each setting of one grid with each
    of the other. A cross is therefore shown only where it is all there is.
    """
    planes = [plane for down, across in combinations(varied(rows), 2) for plane in alike(rows, down, across)]
    crossed = [plane for plane in planes if plane.corners >= 3]
    return [plane for plane in crossed if plane.corners == 4] or (crossed if len(crossed) == 1 else [])


def varied(rows: Iterable[Row]) -> list[str]:
    """The settings with more than one number, in the order in which the method declares them."""
    numbers: dict[str, set[float]] = {}
    for row in rows:
        for name, value in settings(row.runs[0]).items():
            if is_number(value):
                numbers.setdefault(name, set()).add(value)
    return [name for name, found in numbers.items() if len(found) > 1]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def alike(rows: Iterable[Row], down: str, across: str) -> list[Sweep]:
    """The rows with a number for both settings, those together that agree in all others."""
    planes: dict[str, dict[Point, list[Record]]] = {}
    for row in rows:
        others = settings(row.runs[0])
        point = others.pop(down, None), others.pop(across, None)
        if all(map(is_number, point)):
            planes.setdefault(json.dumps(others, sort_keys=True), {}).setdefault(point, []).extend(row.runs)
    return [Sweep(down, across, {at: one_row(runs) for at, runs in plane.items()}) for plane in planes.values()]


def one_row(runs: list[Record]) -> Row:
    """Runs of the same settings under one or several recipe names; a seed counts once."""
    return Row(tuple(found[0] for found in by_seed(runs).values()), "")
