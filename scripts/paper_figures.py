"""Draws Figures 3 and 4 of the paper from results/: sweeps of RESA and shots of new classes, on CUB-200.

`python scripts/paper_figures.py` writes docs/pictures/figure3-light.svg, figure4-light.svg and their dark twins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fscil.report.published import PublishedRow, published
from picture import INCH, PICTURES, ROOT, THEMES, Theme, plain_frame

DATASET = "cub200"
SHOTS = (1, 5, 10, 20)
WIDTH, HEIGHTS = 900, {"figure3": 320, "figure4": 360}
FRAME = THEMES["light"].paper  # around a cell, which is as bright on a dark page
BRIGHT = 0.55  # share of the range of a heat map above which its cells are so bright that ink is dark
NAMES = {"kt_rcnet": "KT-RCNet", "cosine": "cosine"}

Told = Mapping[str, Any]  # a results file


@dataclass(frozen=True)
class Sweep:
    """One heat map: the files, the two settings in their names, what is shown, and where the paper has its best."""

    title: str
    folder: str
    down: str
    across: str
    value: Callable[[Told], float]
    chosen: tuple[str, str]


def average(told: Told) -> float:
    return float(told["avg"])


def new_accuracy(told: Told) -> float:
    return float(told["metrics"]["sum"]["new"][-1])


SWEEPS = (
    Sweep("(a) average", "way_shot", "way", "shot", average, ("5", "20")),
    Sweep("(b) average", "lambdas", "global_weight", "local_weight", average, ("1.5", "2.0")),
    Sweep("(c) new classes", "lambdas", "global_weight", "local_weight", new_accuracy, ("1.5", "2.0")),
)
WORDS = {"way": "way", "shot": "shot", "global_weight": "λ₁, global loss", "local_weight": "λ₂, local loss"}


def read(pattern: str) -> dict[str, Told]:
    """The results files of a pattern below results/ by their names."""
    files = sorted((ROOT / "results").glob(pattern))
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


def grid(sweep: Sweep) -> dict[tuple[str, str], list[float]]:
    """What is shown of every cell, one value a seed, by the texts of the two settings."""
    cells: dict[tuple[str, str], list[float]] = {}
    for name, told in read(f"{sweep.folder}/{DATASET}/*.json").items():
        found = re.search(rf"-{sweep.down}([\d.]+)_{sweep.across}([\d.]+)-seed", name)
        if found:
            cells.setdefault((found[1], found[2]), []).append(sweep.value(told))
    return cells


def runs_of_shots(method: str, shots: int) -> list[Told]:
    return list(read(f"shots/{DATASET}/{method}-map-shots{shots}-seed*.json").values())


def draw_heat_map(axes: Axes, sweep: Sweep, theme: Theme) -> None:
    """A square a cell with its mean; the highest in bold, the paper's best with a frame."""
    means = {place: mean(values) for place, values in grid(sweep).items()}
    rows, columns = (sorted({place[i] for place in means}, key=float) for i in (0, 1))
    shade, best = Normalize(min(means.values()), max(means.values())), max(means.values())
    for (row, column), value in means.items():
        x, y, bright = columns.index(column), rows.index(row), shade(value) > BRIGHT
        square = Rectangle((x - 0.5, y - 0.5), 1, 1, color=mpl.colormaps["cividis"](shade(value)), linewidth=0)
        square.set_gid(f"cell {sweep.title} {row} {column} {value:.4f}")
        axes.add_patch(square)
        look = {"color": "#000000" if bright else "#ffffff", "weight": "bold" if value == best else "normal"}
        axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=10, **look)
    x, y = columns.index(sweep.chosen[1]), rows.index(sweep.chosen[0])
    for edge, width in (("#ffffff", 4.0), (FRAME, 2.2)):
        axes.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, edgecolor=edge, linewidth=width))
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(WORDS[sweep.across], fontsize=10.5, color=theme.text)
    axes.set_ylabel(WORDS[sweep.down], fontsize=10.5, color=theme.text)
    axes.set_title(sweep.title, loc="left", fontsize=12, color=theme.text)
    axes.tick_params(labelsize=10.5, colors=theme.text, length=0)
    axes.spines[:].set_visible(False)


def figure3(theme: Theme) -> Figure:
    """The sizes of the tasks, and the weights of the losses."""
    figure = Figure(figsize=(WIDTH / INCH, HEIGHTS["figure3"] / INCH), dpi=INCH)
    for place, sweep in enumerate(SWEEPS):
        draw_heat_map(figure.add_axes((0.055 + place * 0.332, 0.14, 0.272, 0.69)), sweep, theme)
    seeds = {len(values) for sweep in SWEEPS for values in grid(sweep).values()}
    n = " to ".join(str(count) for count in sorted({min(seeds), max(seeds)}))
    words = f"CUB-200, a map in place of f₂, %, mean of n = {n}; bold: highest"
    figure.text(0.01, 0.95, words, fontsize=11, color=theme.text)
    beside = f"□ the paper's best ({published_row().avg:.2f} in its Table 3; its figure prints no numbers)"
    figure.text(0.535, 0.95, beside, fontsize=11, color=theme.paper)
    return figure


def published_row() -> PublishedRow:
    """KT-RCNet in the paper's Table 3."""
    table = published(DATASET)
    return next(row for row in (table.rows if table else ()) if row.name == "KT-RCNet")


def draw_band(axes: Axes, at: Sequence[float], seeds: Sequence[Sequence[float]], shade: str, **look: Any) -> None:
    """The mean over seeds with a band of one standard deviation; `seeds` are curves over `at`."""
    columns = list(zip(*seeds, strict=True))
    means = [mean(column) for column in columns]
    stds = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
    gid = look.pop("gid")
    (line,) = axes.plot(at, means, color=shade, **look)
    line.set_gid(gid)
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    axes.fill_between(at, low, high, color=shade, alpha=0.25, linewidth=0)


def draw_sessions(axes: Axes, theme: Theme) -> None:
    """Accuracy after each session of KT-RCNet, a line for each number of shots, with the published one of five."""
    styles: dict[int, Any] = dict(zip(SHOTS, ((0, (1, 1.5)), "-", (0, (5, 2)), (0, (8, 2, 1, 2))), strict=True))
    for shots, marker in zip(SHOTS, "vo^D", strict=True):
        runs = runs_of_shots("kt_rcnet", shots)
        curves = [run["metrics"]["sum"]["accuracy"] for run in runs]
        look = {"linestyle": styles[shots], "linewidth": 1.8, "marker": marker, "markersize": 4.5}
        label = f"{shots} shot{'s' * (shots > 1)}: Avg {mean(average(run) for run in runs):.2f}"
        draw_band(axes, range(len(curves[0])), curves, theme.ours, gid=f"curve sessions {shots}", label=label, **look)
    row = published_row()
    (line,) = axes.plot(row.sessions, color=theme.paper, linewidth=2.2, marker="s", markersize=4)
    line.set_gid("curve sessions published")
    line.set_label(f"published, 5 shots (Table 3): Avg {row.avg:.2f}")
    axes.set_ylim(30, 85)
    axes.set_xticks(range(0, len(row.sessions), 2))
    axes.set_xlabel("session", fontsize=10.5, color=theme.text)
    axes.set_title("KT-RCNet after each session", loc="left", fontsize=12, color=theme.text)


def draw_ends(axes: Axes, theme: Theme) -> None:
    """Base and new classes after the last session over the number of shots."""
    for method, fill in (("kt_rcnet", None), ("cosine", "none")):
        for part, marker, line in (("base", "o", "-"), ("new", "^", (0, (4, 2)))):
            runs = [runs_of_shots(method, shots) for shots in SHOTS]
            curves = [[run["metrics"]["sum"][part][-1] for run in seed] for seed in zip(*runs, strict=True)]
            look = {"linestyle": line, "linewidth": 1.8, "marker": marker, "markersize": 6.5, "markerfacecolor": fill}
            shade = theme.ours if method == "kt_rcnet" else theme.peers
            name = f"{NAMES[method]}, {part} classes"
            draw_band(axes, SHOTS, curves, shade, gid=f"curve ends {method} {part}", label=name, **look)
    axes.set_ylim(0, 85)
    axes.set_xticks(SHOTS, [str(shots) for shots in SHOTS])
    axes.set_xlabel("shots of each new class", fontsize=10.5, color=theme.text)
    axes.set_title("after the last session", loc="left", fontsize=12, color=theme.text)


def figure4(theme: Theme) -> Figure:
    """The number of shots of new classes."""
    figure = Figure(figsize=(WIDTH / INCH, HEIGHTS["figure4"] / INCH), dpi=INCH)
    for left, draw in ((0.045, draw_sessions), (0.555, draw_ends)):
        axes = figure.add_axes((left, 0.31, 0.43, 0.54))
        draw(axes, theme)
        plain_frame(axes, theme)
        place = {"loc": "upper left", "bbox_to_anchor": (0, -0.17), "ncols": 2, "columnspacing": 1.2}
        axes.legend(**place, fontsize=10, labelcolor=theme.text, frameon=False, handlelength=2.6, borderpad=0)
    n = len(runs_of_shots("kt_rcnet", SHOTS[0]))
    words = f"accuracy on CUB-200, a map in place of f₂, %; bands: one standard deviation of n = {n}"
    figure.text(0.01, 0.955, words, fontsize=11, color=theme.text)
    return figure


FIGURES = {"figure3": figure3, "figure4": figure4}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with mpl.rc_context({"svg.hashsalt": "fscil", "svg.fonttype": "path", "path.simplify": False}):
        for name, draw in FIGURES.items():
            for shade, theme in THEMES.items():
                draw(theme).savefig(folder / f"{name}-{shade}.svg", transparent=True, metadata=nothing)


if __name__ == "__main__":
    write(PICTURES)
