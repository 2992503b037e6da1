"""The heat maps of a sweep over two settings, as SVG drawn by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import product

from fscil.report.captions import FEW_SETTINGS, differing, in_brackets, sessions_apart, settings, title
from fscil.report.columns import SUMMARY, Cell
from fscil.report.runs import TOTAL
from fscil.report.sweeps import Point, Sweep

SHOWN = tuple(column for column in SUMMARY if column.name in ("Avg", "new"))
WIDTH = 540  # of a map with few columns, so that letters have the same size in all of them
WIDE, HIGH = 64, 36  # a cell
TOP = 24  # room for the name of the setting that goes down
PALE, DEEP = 0.1, 0.75  # opacity of the lowest and the highest number; ink is readable on both, also in grey print
STEPS = 7  # of the key


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
