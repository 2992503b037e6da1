"""Two settings swept against each other: which rows form such a grid, and its heat maps as SVG drawn by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations, product
from typing import Any

from fscil.report.columns import SUMMARY, Cell
from fscil.report.naming import FEW_SETTINGS, differing, in_brackets, sessions_apart, settings, title
from fscil.report.rows import Row, by_seed, task
from fscil.report.runs import TOTAL, Run

SHOWN = tuple(column for column in SUMMARY if column.name in ("Avg", "new"))
WIDTH = 540  # of a map with few columns, so that letters have the same size in all of them
WIDE, HIGH = 64, 36  # a cell
TOP = 24  # room for the name of the setting that goes down
PALE, DEEP = 0.1, 0.75  # opacity of the lowest and the highest number; ink is readable on both, also in grey print
STEPS = 7  # of the key

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
    def runs(self) -> list[Run]:
        return [run for row in self.rows.values() for run in row.runs]

    @property
    def corners(self) -> int:
        """How many corners are there of the fullest rectangle: 4 in a grid, 3 in a cross, fewer in a line."""
        rectangles = product(*(combinations(axis, 2) for axis in self.axes))
        return max((sum(corner in self.rows for corner in product(*sides)) for sides in rectangles), default=0)


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
    planes: dict[str, dict[Point, list[Run]]] = {}
    for row in rows:
        others = settings(row.runs[0])
        point = others.pop(down, None), others.pop(across, None)
        if all(map(is_number, point)):
            planes.setdefault(json.dumps(others, sort_keys=True), {}).setdefault(point, []).extend(row.runs)
    return [Sweep(down, across, {at: one_row(runs) for at, runs in plane.items()}) for plane in planes.values()]


def one_row(runs: list[Run]) -> Row:
    """Runs of the same settings under one or several recipe names; a seed counts once."""
    return Row(tuple(found[0] for found in by_seed(runs).values()), "")


def sweep_block(sweep: Sweep, among: Sequence[Sweep]) -> str:
    """The heat maps of a sweep side by side."""
    maps = ""
    for column in SHOWN:
        found = {at: column.cell(row, TOTAL) for at, row in sweep.rows.items()}
        cells = {at: cell for at, cell in found.items() if cell}
        head = f"<h4>{escape(column.name)}: {escape(column.meaning)}</h4>"
        maps += f"<div>{head}{heat_map(column.name, sweep, cells)}</div>" if cells else ""
    return f'<p class="sweep">{escape(sweep_name(sweep, among))}</p><div class="pair">{maps}</div>'


def sweep_name(sweep: Sweep, among: Sequence[Sweep]) -> str:
    """Method, recipe if there is one only, both settings, and what tells the sweep from others of the same two."""
    first = sweep.runs[0]
    names = {title(run) for run in sweep.runs}
    rivals = [other.runs[0] for other in among if rivalry(other) == rivalry(sweep)]
    own = {name: value for name, value in settings(first).items() if name not in (sweep.down, sweep.across)}
    apart = [*sessions_apart(first, rivals), *differing(own, map(settings, rivals))[:FEW_SETTINGS]]
    name = names.pop() if len(names) == 1 else first.facts["method"]
    return f"{name}: {sweep.down} × {sweep.across}{in_brackets(apart)}"


def rivalry(sweep: Sweep) -> tuple[str, str, str]:
    return sweep.runs[0].facts["method"], sweep.down, sweep.across


def heat_map(metric: str, sweep: Sweep, cells: Mapping[Point, Cell]) -> str:
    """An <svg>: a number in every cell that is there, the deeper its colour the higher; the highest is bold."""
    rows, columns = sweep.axes
    left = 14 + 7 * max(len(f"{value:g}") for value in rows)
    numbers = [float(cell.text) for cell in cells.values()]
    low, high = min(numbers), max(numbers)
    parts = [ticks(sweep, left), key(low, high, left, TOP + HIGH * len(rows) + 56)]
    for (i, down), (j, across) in product(enumerate(rows), enumerate(columns)):
        cell, place = cells.get((down, across)), (left + WIDE * j, TOP + HIGH * i)
        name = f"{sweep.down} {down:g}, {sweep.across} {across:g}: {metric} "
        parts.append(square(place, cell, low, high, name) if cell else box(place, "missing"))
    width, height = max(WIDTH, left + WIDE * len(columns) + 4), TOP + HIGH * len(rows) + 76
    label = escape(f"{metric} by {sweep.down} and {sweep.across}")
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def ticks(sweep: Sweep, left: int) -> str:
    """Names and values of both settings."""
    rows, columns = sweep.axes
    bottom = TOP + HIGH * len(rows)
    parts = [text(0, 14, f"{sweep.down} ↓", "axis"), text(left, bottom + 36, f"{sweep.across} →", "axis")]
    for i, value in enumerate(rows):
        parts.append(text(left - 8, TOP + HIGH * i + HIGH // 2 + 4, f"{value:g}", "tick", "end"))
    for j, value in enumerate(columns):
        parts.append(text(left + WIDE * j + WIDE // 2, bottom + 17, f"{value:g}", "tick", "middle"))
    return "".join(parts)


def square(place: tuple[int, int], cell: Cell, low: float, high: float, name: str) -> str:
    value = float(cell.text)
    told = f"{name}{cell.text}" + (f" ± {cell.std}" if cell.std else "")
    style = "value best" if value == high > low else "value"
    number = text(place[0] + WIDE // 2, place[1] + HIGH // 2 + 5, cell.text, style, "middle")
    share = (value - low) / (high - low) if high > low else 0.5
    return f"<g><title>{escape(told)}</title>{box(place, 'shade', share)}{number}</g>"


def box(place: tuple[int, int], style: str, share: float = 0, width: int = WIDE, height: int = HIGH) -> str:
    """A rectangle with a thin gap around it; share 0 is the pale end of the colours, 1 the deep one."""
    x, y = place
    shape = f'x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{height - 2}"'
    return f'<rect class="{style}" {shape} fill-opacity="{PALE + (DEEP - PALE) * share:.3f}"/>'


def key(low: float, high: float, left: int, y: int) -> str:
    """The colours from the lowest to the highest number; empty where these are one."""
    if low == high:
        return ""
    start = left + 42
    steps = [box((start + 22 * i, y), "shade", i / (STEPS - 1), 24, 12) for i in range(STEPS)]
    lowest = text(start - 6, y + 10, f"{low:.2f}", "tick", "end")
    highest = text(start + 22 * STEPS + 8, y + 10, f"{high:.2f}", "tick")
    return "".join([lowest, *steps, highest])


def text(x: int, y: int, content: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>'
