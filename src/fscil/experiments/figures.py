"""The figures of an experiment: the numbers in the form of the paper, and the paired differences with their intervals.

Okabe and Ito's colours and the map cividis can be told apart by people who see few colours.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil, isnan
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fscil.experiments.cells import value_text
from fscil.experiments.differences import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fscil.experiments.specs import Experiment

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
SHOWN = ("Avg", "new")  # metrics of heat maps and differences
CURVES = ("Avg", "base", "new")
INCHES = 0.28  # of a line
DARK = "#111111"  # ink on a bright cell, also where a dark page makes black bright


def drawn(experiment: Experiment, lines: Sequence[Line]) -> dict[str, Figure]:
    """The figures by the names of their files; none before a cell is finished."""
    if not lines:
        return {}
    numeric = [name for name, values in experiment.axes.items() if all(isinstance(v, int | float) for v in values)]
    if len(numeric) == 2 and len(experiment.places) == 2 and len(experiment.arms) == 1:
        figures = {"figure": heat_maps(numeric, lines)}
    elif len(numeric) == 1 and len(experiment.axes) == 1:
        figures = {"figure": curves(numeric[0], lines)}
    else:
        figures = {"figure": dots(lines)}
    compared = [line for line in lines if line.gaps]
    return {**figures, "differences": intervals(compared)} if compared else figures


def heat_maps(axes: Sequence[str], lines: Sequence[Line]) -> Figure:
    """Avg and new accuracy over two settings, the best framed (Figure 3)."""
    down, across = ([*dict.fromkeys(line.point[name] for line in lines)] for name in axes)
    figure = Figure(figsize=(4.6 * len(SHOWN), 3.8), layout="constrained")
    for plane, metric in zip(figure.subplots(1, len(SHOWN)), SHOWN, strict=True):
        means = {(line.point[axes[0]], line.point[axes[1]]): line.spreads[metric].mean for line in lines}
        grid = [[means.get((one, other), float("nan")) for other in across] for one in down]
        shades = plane.imshow(grid, cmap="cividis")
        best = max((value for value in means.values() if not isnan(value)), default=float("nan"))
        for row, column in product(range(len(down)), range(len(across))):
            value = grid[row][column]
            weight, ink = "bold" if value == best else "normal", DARK if shades.norm(value) > 0.6 else "white"
            text = "" if isnan(value) else f"{value:.2f}"
            plane.text(column, row, text, ha="center", va="center", color=ink, weight=weight)
        plane.set_xticks(range(len(across)), [value_text(value) for value in across])
        plane.set_yticks(range(len(down)), [value_text(value) for value in down])
        plane.set(xlabel=axes[1], ylabel=axes[0], title=f"{metric} (bold: highest)")
    return figure


def curves(axis: str, lines: Sequence[Line]) -> Figure:
    """Accuracies over one setting and, below, after each session, a plane for each arm and choice (Figure 4)."""
    names = [*dict.fromkeys(curve_name(axis, line) for line in lines)]
    own = {name: [line for line in lines if curve_name(axis, line) == name] for name in names}
    rows = 1 + ceil(len(names) / len(CURVES))
    figure = Figure(figsize=(4.2 * len(CURVES), 3.6 * rows), layout="constrained")
    top, *below = figure.subplots(rows, len(CURVES))
    for plane, metric in zip(top, CURVES, strict=True):
        over_setting(plane, axis, metric, own)
    after = [plane for row in below for plane in row]
    for plane, name in zip(after, names, strict=False):
        plane.sharey(after[0])
        after_sessions(plane, axis, name, own[name])
    for plane in after[len(names) :]:
        plane.remove()
    figure.legend(
        *top[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(len(names), 4), frameon=False
    )
    return figure


def over_setting(plane: Axes, axis: str, metric: str, own: Mapping[str, Sequence[Line]]) -> None:
    """One accuracy over a setting, a curve for each arm and choice, with bands of one standard deviation."""
    for place, (name, lines) in enumerate(own.items()):
        at = [line.point[axis] for line in lines]
        means, stds = ([getattr(line.spreads[metric], part) for line in lines] for part in ("mean", "std"))
        plane.plot(at, means, label=name, **look(place))
        low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
        plane.fill_between(at, low, high, color=look(place)["color"], alpha=0.18, linewidth=0)
    plane.set(xlabel=axis, ylabel="% of test images", title=metric)
    plane.grid(alpha=0.3)


def after_sessions(plane: Axes, axis: str, name: str, lines: Sequence[Line]) -> None:
    """Mean accuracy after each session, a curve for each value of a setting, and the published one where it is told."""
    for place, line in enumerate(lines):
        plane.plot(line.sessions, label=value_text(line.point[axis]), **look(place))
        if line.published_sessions:
            label = f"{value_text(line.point[axis])}, published"
            plane.plot(line.published_sessions, label=label, color=look(place)["color"], linestyle="--")
    plane.set(xlabel="session", ylabel="% of test images", title=f"{name}: after each session")
    plane.legend(title=axis, fontsize="small", frameon=False)
    plane.grid(alpha=0.3)


def look(place: int) -> dict[str, Any]:
    """Colour and marker of a curve by its place among others."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def curve_name(axis: str, line: Line) -> str:
    """The arm of a line and its place, but for the axis along which its curve runs."""
    others = (f"{name} {value_text(value)}" for name, value in line.point.items() if name != axis)
    return ", ".join([line.arm, *others])


def dots(lines: Sequence[Line]) -> Figure:
    """Avg of every line with one standard deviation, and the published Avg beside it."""
    figure = Figure(figsize=(7.5, 1.6 + INCHES * len(lines)), layout="constrained")
    plane = figure.subplots()
    means, stds = ([getattr(line.spreads["Avg"], part) for line in lines] for part in ("mean", "std"))
    places = range(len(lines))
    errors = [0.0 if isnan(std) else std for std in stds]
    plane.errorbar(means, places, xerr=errors, fmt="o", color=COLOURS[0], capsize=3, label="here, ± one std")
    published = [(line.published, place) for place, line in enumerate(lines) if line.published is not None]
    if published:
        plane.plot(*zip(*published, strict=True), "D", mfc="none", color=COLOURS[1], linestyle="", label="published")
    _name_lines(plane, lines)
    plane.set_xlabel("Avg, % of test images")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def intervals(lines: Sequence[Line]) -> Figure:
    """Paired differences from the reference with 95 % intervals; filled where an interval excludes 0."""
    figure = Figure(figsize=(9.5, 1.2 + INCHES * len(lines)), layout="constrained")
    references = {line.reference for line in lines}
    beside = references.pop() if len(references) == 1 else "the reference at the same point"
    for plane, metric in zip(figure.subplots(1, len(SHOWN), sharey=True), SHOWN, strict=True):
        plane.axvline(0, color="black", linewidth=0.8)
        for place, line in enumerate(lines):
            gap = line.gaps[metric]
            sure = not isnan(gap.low) and (gap.low > 0 or gap.high < 0)
            if not isnan(gap.low):
                plane.plot([gap.low, gap.high], [place, place], color=COLOURS[0])
            plane.plot(gap.mean, place, "o", color=COLOURS[0], mfc=COLOURS[0] if sure else "none")
        plane.set_xlabel(f"{metric}: points above {beside}")
        plane.grid(axis="x", alpha=0.3)
    _name_lines(figure.axes[0], lines)
    return figure


def _name_lines(plane: Axes, lines: Sequence[Line]) -> None:
    plane.set_yticks(range(len(lines)), [f"{line.name} (n = {line.n})" for line in lines], parse_math=False)
    plane.set_ylim(len(lines) - 0.5, -0.5)


def files(figures: Mapping[str, Figure]) -> dict[str, bytes]:
    """Each figure as SVG and PNG, by file name."""
    return {f"{name}.{kind}": _rendered(figure, kind) for name, figure in figures.items() for kind in ("svg", "png")}


def for_page(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Each figure as a part of an HTML page, by name: without a ground of its own, and black becomes the page's ink."""
    texts = {name: _rendered(figure, "svg", transparent=True).decode() for name, figure in figures.items()}
    return {name: text[text.index("<svg") :].replace("#000000", "currentColor") for name, text in texts.items()}


def _rendered(figure: Figure, kind: str, transparent: bool = False) -> bytes:
    content, nothing = io.BytesIO(), {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "fscil"}):  # the same numbers make the same file
        figure.savefig(content, format=kind, dpi=150, metadata=nothing, transparent=transparent)
    return content.getvalue()
