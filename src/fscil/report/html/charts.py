"""Session curves as SVG drawn by hand: sharp at every size, coloured by the page's style sheet in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isnan

from fscil.metrics import Spread

COLOURS = 8  # .c0 to .c7 in page.css


@dataclass(frozen=True)
class Trace:
    """One line of a chart: a value per session (nan: no point), drawn in a style of page.css."""

    name: str
    values: Sequence[Spread]
    style: str
    label: bool = False  # write the name at the right end of the line


@dataclass(frozen=True)
class Frame:
    """Where sessions and percentages lie on the paper."""

    width: int
    height: int
    sessions: int
    low: float
    high: float
    right: int  # room for labels
    left: int = 34
    top: int = 12
    bottom: int = 30

    def x(self, session: float) -> float:
        return self.left + 8 + session * (self.width - self.left - self.right - 16) / max(self.sessions - 1, 1)

    def y(self, value: float) -> float:
        return self.top + (self.high - value) * (self.height - self.top - self.bottom) / (self.high - self.low)


def line_chart(title: str, traces: Sequence[Trace], sessions: int, width: int = 900, height: int = 420) -> str:
    """An <svg> of all traces over the sessions 0..sessions-1; later traces lie on top."""
    low, high = limits(traces)
    labelled = [trace for trace in traces if trace.label]
    room = 28 + 7 * max(len(trace.name) for trace in labelled) if labelled else 8
    frame = Frame(width, height, sessions, low, high, room)
    drawing = [grid(frame), *(band(frame, trace) + line(frame, trace) for trace in traces), labels(frame, labelled)]
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
    return head + "".join(drawing) + "</svg>"


def limits(traces: Sequence[Trace]) -> tuple[int, int]:
    """Full tens below and above everything that is drawn, within 0..100."""
    present = [value for trace in traces for value in trace.values if not isnan(value.mean)]
    edges = [value.mean + sign * (0 if isnan(value.std) else value.std) for value in present for sign in (-1, 1)]
    low = min(max(10 * floor(min(edges, default=0) / 10), 0), 90)
    high = min(10 * ceil(max(edges, default=100) / 10), 100)
    return low, max(high, low + 10)


def grid(frame: Frame) -> str:
    step = next(step for span, step in ((10, 2), (30, 5), (80, 10), (100, 20)) if frame.high - frame.low <= span)
    parts = []
    for value in range(int(frame.low), int(frame.high) + 1, step):
        y = frame.y(value)
        ends = f'x1="{frame.left}" x2="{frame.width - frame.right}"'
        parts.append(f'<line class="grid" {ends} y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{frame.left - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for session in range(frame.sessions):
        place = f'x="{frame.x(session):.1f}" y="{frame.height - 10}"'
        parts.append(f'<text class="tick" {place} text-anchor="middle">{session}</text>')
    return "".join(parts)


def band(frame: Frame, trace: Trace) -> str:
    """One standard deviation up and down, where there are several seeds."""
    spreads = [(i, value) for i, value in enumerate(trace.values) if not isnan(value.mean) and not isnan(value.std)]
    if len(spreads) < 2:
        return ""
    upper = [f"{frame.x(i):.1f},{frame.y(value.mean + value.std):.1f}" for i, value in spreads]
    lower = [f"{frame.x(i):.1f},{frame.y(value.mean - value.std):.1f}" for i, value in reversed(spreads)]
    return f'<polygon class="band {trace.style}" points="{" ".join(upper + lower)}"/>'


def line(frame: Frame, trace: Trace) -> str:
    points = [(i, value.mean) for i, value in enumerate(trace.values) if not isnan(value.mean)]
    path = " ".join(f"{frame.x(i):.1f},{frame.y(value):.1f}" for i, value in points)
    dots = "".join(
        f'<circle cx="{frame.x(i):.1f}" cy="{frame.y(value):.1f}" r="3">'
        f"<title>{escape(trace.name)}, session {i}: {value:.2f}</title></circle>"
        for i, value in points
    )
    return f'<g class="trace {trace.style}"><polyline points="{path}"/>{dots}</g>'


def labels(frame: Frame, traces: Sequence[Trace]) -> str:
    """Names beside the last points, moved apart where they would overlap and tied to their points by thin lines."""
    ends = []
    for trace in traces:
        points = [(i, value.mean) for i, value in enumerate(trace.values) if not isnan(value.mean)]
        ends += [(frame.y(points[-1][1]), frame.x(points[-1][0]), trace)] if points else []
    ends.sort(key=lambda end: end[0])
    places = spread_out([end[0] for end in ends], 14)
    return "".join(
        f'<path class="tie" d="M{x + 5:.1f} {y:.1f}L{x + 20:.1f} {place:.1f}"/>'
        f'<text class="label {trace.style}" x="{x + 23:.1f}" y="{place + 4:.1f}">{escape(trace.name)}</text>'
        for (y, x, trace), place in zip(ends, places, strict=True)
    )


def spread_out(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as possible (least squares) so that neighbours are at least `gap` apart."""
    blocks: list[list[float]] = []  # places minus index * gap, pooled while they are out of order
    for index, place in enumerate(places):
        blocks.append([place - index * gap])
        while len(blocks) > 1 and sum(blocks[-2]) / len(blocks[-2]) > sum(blocks[-1]) / len(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    centres = [sum(block) / len(block) for block in blocks for _ in block]
    return [centre + index * gap for index, centre in enumerate(centres)]
