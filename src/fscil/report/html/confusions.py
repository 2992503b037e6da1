"""Which classes are taken for which: a picture for hundreds of classes, a table by session, the worst pairs by name."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

from fscil.report.rows import Row
from fscil.report.runs import Confusion

RIGHT, WRONG = (
    (52, 120, 246),
    (240, 110, 30),
)  # the same two colours on light and dark paper: only their opacity changes
SIDE, MARGIN = 600, 30


def row_confusion(row: Row) -> Confusion | None:
    """The counts of all seeds of a row together; None if only results files are there."""
    found = [run.confusion for run in row.runs if run.confusion is not None]
    if not found:
        return None
    counts = np.sum([confusion.counts for confusion in found], axis=0)
    return Confusion(counts, found[0].names, found[0].sessions)


def shares(counts: np.ndarray) -> np.ndarray:
    """Counts divided by the sum of their row; rows without images stay 0."""
    per_row = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(counts / per_row)


def by_session(confusion: Confusion) -> np.ndarray:
    """(sessions, sessions) percent of the images of session i that are called a class of session j."""
    sessions = np.array(confusion.sessions)
    member = np.eye(sessions.max() + 1, dtype=np.int64)[sessions]
    return 100 * shares(member.T @ confusion.counts @ member)


def worst_pairs(confusion: Confusion, count: int = 10) -> list[tuple[str, str, float]]:
    """The (true class, answer, percent of the true class's images) taken most often for one another, worst first."""
    wrong = shares(confusion.counts)
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(confusion.names[i], confusion.names[j], 100 * wrong[i, j]) for i, j in pairs if wrong[i, j] > 0]


def picture(confusion: Confusion) -> str:
    """An <svg>: one dot per pair of classes, the darker the more often; lines between the sessions."""
    edges = np.flatnonzero(np.diff(confusion.sessions)) + 1
    bounds = [0, *edges.tolist(), len(confusion.names)]
    scale = SIDE / len(confusion.names)
    parts = [f'<image x="{MARGIN}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" href="{png(confusion.counts)}"/>']
    for edge in bounds:
        at, end = MARGIN + edge * scale, MARGIN + SIDE
        parts.append(f'<line class="edge" x1="{at:.1f}" x2="{at:.1f}" y1="{MARGIN}" y2="{end}"/>')
        parts.append(f'<line class="edge" y1="{at:.1f}" y2="{at:.1f}" x1="{MARGIN}" x2="{end}"/>')
    for index, (start, stop) in enumerate(pairwise(bounds)):
        middle = MARGIN + (start + stop) / 2 * scale
        name = "base" if index == 0 else str(index)
        parts.append(f'<text class="tick" x="{middle:.1f}" y="{MARGIN - 8}" text-anchor="middle">{name}</text>')
        turned = f'transform="rotate(-90 {MARGIN - 8} {middle:.1f})"' if index == 0 else ""
        anchor = "middle" if index == 0 else "end"
        y = middle if index == 0 else middle + 4
        parts.append(f'<text class="tick" x="{MARGIN - 8}" y="{y:.1f}" text-anchor="{anchor}" {turned}>{name}</text>')
    total = SIDE + MARGIN + 4
    label = f"Confusion matrix of {len(confusion.names)} classes"
    return f'<svg viewBox="0 0 {total} {total}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def png(counts: np.ndarray) -> str:
    """The shares as a PNG data address: right and wrong answers in two colours, opacity = root of the share."""
    from PIL import Image

    diagonal = np.eye(len(counts), dtype=bool)[..., None]
    colour = np.where(diagonal, np.array(RIGHT), np.array(WRONG))
    opacity = np.rint(255 * np.sqrt(shares(counts)))[..., None]
    pixels = np.concatenate([colour, opacity], axis=2).astype(np.uint8)
    enlarge = max(1, 1000 // len(counts))  # whole pixels per class, so that browsers do not blur neighbours together
    pixels = pixels.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    out = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def heat_table(values: np.ndarray, title: str, names: Sequence[str]) -> str:
    """A small table of percentages with the value as the depth of its colour; nan stays empty."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for name, row in zip(names, values, strict=True):
        body += f"<tr><th>{escape(name)}</th>{''.join(map(heat_cell, row))}</tr>"
    head = f"<thead><tr><th></th>{head}</tr></thead>"
    return f'<h4>{escape(title)}</h4><div class="scroll"><table class="heat">{head}<tbody>{body}</tbody></table></div>'


def heat_cell(value: float) -> str:
    if np.isnan(value):
        return "<td></td>"
    return f'<td style="background:rgba(52,120,246,{0.75 * value / 100:.2f})">{value:.2f}</td>'
