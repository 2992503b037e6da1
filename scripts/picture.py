"""Draws the README's picture: accuracy over the sessions of three benchmarks, and its average over compute.

`python scripts/picture.py` writes docs/pictures/accuracy-light.svg and accuracy-dark.svg from results/ and from the
published numbers in the package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fscil.report.html.charts import spread_out
from fscil.report.published import dataset_title, published

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
INCH = 72  # points, which are the pixels of the SVG file
WIDTH, HEIGHT = 900, 560
LINE, SMALL_LINE = 13.5, 9.5  # pixels from one label to the next
PEERS = ("SoftNet", "FACT", "CEC", "TOPIC")


@dataclass(frozen=True)
class Measured:
    """Where a curve of ours comes from: one results file a seed."""

    label: str
    files: str


OURS = {
    "cifar100": (
        Measured("KT-RCNet", "cifar100/kt_rcnet-large-seed*.json"),
        Measured("cosine", "cifar100/cosine-large-seed*.json"),
    ),
    "cub200": (
        Measured("KT-RCNet", "cub200/kt_rcnet-small-seed*.json"),
        Measured("cosine", "cub200/cosine-small-seed*.json"),
    ),
    "mini_imagenet": (
        Measured("KT-RCNet", "mini_imagenet/kt_rcnet-large-seed*.json"),
        Measured("cosine", "mini_imagenet/cosine-large-seed*.json"),
    ),
}


PLANNED = {"cifar100": 156.0, "cub200": 17.0, "mini_imagenet": 136.0}  # PMAC of `official` by --plan, KT-RCNet
DEAREST = 400.0  # PMAC at the right edge
PMAC = 1e15


@dataclass(frozen=True)
class Spent:
    """One setting that was measured: mean average accuracy and compute over its seeds."""

    method: str
    recipe: str
    pmac: float
    average: float


@dataclass(frozen=True)
class Curve:
    """Accuracy in percent after each session, with its standard deviation over n seeds."""

    label: str
    kind: str  # ours, baseline, paper or peer
    means: tuple[float, ...]
    stds: tuple[float, ...]
    n: int


@dataclass(frozen=True)
class Theme:
    """Colours that people with any colour vision tell apart (Okabe and Ito), on a light or a dark page."""

    paper: str
    ours: str
    text: str
    peers: str
    grid: str


THEMES = {
    "light": Theme(paper="#c04a00", ours="#0067a8", text="#24292f", peers="#6e7781", grid="#d8dee4"),
    "dark": Theme(paper="#e69f00", ours="#56b4e9", text="#e6edf3", peers="#8b949e", grid="#30363d"),
}


def accuracies(source: Measured) -> list[list[float]]:
    """Accuracies of each session, one list a seed."""
    files = sorted((ROOT / "results").glob(source.files))
    return [json.loads(file.read_text("utf-8"))["metrics"]["sum"]["accuracy"] for file in files]


def measured_curve(source: Measured, kind: str) -> Curve:
    seeds = accuracies(source)
    sessions = list(zip(*seeds, strict=True))
    stds = tuple(stdev(values) if len(seeds) > 1 else 0.0 for values in sessions)
    return Curve(source.label, kind, tuple(mean(values) for values in sessions), stds, len(seeds))


def published_curves(dataset: str) -> list[Curve]:
    """The rows of the paper that are drawn, its own method last."""
    table = published(dataset)
    rows = {row.name: row.sessions for row in table.rows} if table else {}
    kinds = dict.fromkeys(PEERS, "peer") | {"KT-RCNet": "paper"}
    return [Curve(name, kind, rows[name], (0.0,) * len(rows[name]), 1) for name, kind in kinds.items()]


def curves(dataset: str) -> list[Curve]:
    """What a panel shows, the most important curve last."""
    ours, baseline = OURS[dataset]
    return [*published_curves(dataset), measured_curve(baseline, "baseline"), measured_curve(ours, "ours")]


def measured_points(dataset: str) -> list[Spent]:
    """Every setting of every method whose base session was trained, in order of compute."""
    runs: dict[tuple[str, ...], list[Spent]] = {}
    for file in sorted((ROOT / "results").glob(f"**/{dataset}/*.json")):
        told = json.loads(file.read_text("utf-8"))
        if "method" in told and told["settings"]["base"]["epochs"]:
            setting = (str(file.parent), file.stem.rpartition("-seed")[0])
            run = Spent(told["method"], told["recipe"], told["macs"] / PMAC, told["avg"])
            runs.setdefault(setting, []).append(run)
    means = [
        Spent(same[0].method, same[0].recipe, mean(run.pmac for run in same), mean(run.average for run in same))
        for same in runs.values()
    ]
    return sorted(means, key=lambda point: point.pmac)


def frontier(points: Sequence[Spent]) -> list[Spent]:
    """Those that are better than everything cheaper, of points in order of compute."""
    return [point for i, point in enumerate(points) if all(point.average > other.average for other in points[:i])]


def draw_compute(axes: Axes, dataset: str, theme: Theme) -> None:
    """Average accuracy over compute, on a logarithmic scale."""
    points = measured_points(dataset)
    best = frontier([point for point in points if point.method in ("kt_rcnet", "cosine")])
    (line,) = axes.plot([p.pmac for p in best], [p.average for p in best], color=theme.ours, linewidth=1.6)
    line.set_gid(f"curve {dataset} compute best")
    others = [p for p in points if p.method not in ("kt_rcnet", "cosine")]
    axes.scatter([p.pmac for p in others], [p.average for p in others], 10, color=theme.peers)
    for method, fill in (("cosine", "none"), ("kt_rcnet", theme.ours)):
        some = [p for p in points if p.method == method]
        axes.scatter([p.pmac for p in some], [p.average for p in some], 26, facecolors=fill, edgecolors=theme.ours)
    row = next(row for row in published(dataset).rows if row.name == "KT-RCNet")
    axes.scatter([PLANNED[dataset]], [mean(row.sessions)], 34, color=theme.paper, marker="s")
    axes.set_xscale("log")
    axes.set_xlim(0.03, DEAREST)
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_ylim(45, 75)
    draw_published(axes, dataset, theme)
    axes.set_xlabel("PMAC of learning", fontsize=10.5, color=theme.text)
    for point, text, shade in (
        (best[-1], f"{best[-1].average:.1f}", theme.ours),
        (Spent("", "", PLANNED[dataset], mean(row.sessions)), f"{mean(row.sessions):.1f}", theme.paper),
    ):
        place = (point.pmac, point.average)
        axes.annotate(text, place, xytext=(0, 8), textcoords="offset points", ha="center", fontsize=10.5, color=shade)
    plain_frame(axes, theme)


def draw_published(axes: Axes, dataset: str, theme: Theme) -> None:
    """Averages of other published methods, whose compute nobody tells, as lines at the right edge."""
    rows = sorted((mean(curve.means), curve.label) for curve in published_curves(dataset)[:-1])
    rows = [row for row in rows if row[0] > axes.get_ylim()[0]]
    scale = axes.figure.dpi / INCH
    heights = [float(axes.transData.transform((DEAREST, average))[1]) for average, _ in rows]
    for (average, label), height, place in zip(rows, heights, spread_out(heights, SMALL_LINE * scale), strict=True):
        axes.plot([DEAREST / 3, DEAREST], [average, average], color=theme.peers, linewidth=1.4)
        axes.annotate(
            label,
            (DEAREST / 3.4, average),
            xytext=(0, (place - height) / scale),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
            color=theme.peers,
        )


def plain_frame(axes: Axes, theme: Theme) -> None:
    axes.tick_params(which="both", labelsize=10.5, colors=theme.text, length=0)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def colour(curve: Curve, theme: Theme) -> str:
    return {"peer": theme.peers, "paper": theme.paper}.get(curve.kind, theme.ours)


def draw_curve(axes: Axes, curve: Curve, dataset: str, theme: Theme) -> None:
    style = {"ours": "-", "baseline": (0, (4, 2)), "paper": "-", "peer": "-"}[curve.kind]
    width = {"ours": 2.4, "baseline": 1.6, "paper": 2.4, "peer": 1.0}[curve.kind]
    marker = {"ours": "o", "baseline": "", "paper": "s", "peer": ""}[curve.kind]
    sessions = range(len(curve.means))
    (line,) = axes.plot(
        sessions, curve.means, linestyle=style, linewidth=width, marker=marker, markersize=4, color=colour(curve, theme)
    )
    line.set_gid(f"curve {dataset} {curve.kind} {curve.label}")
    if curve.n > 1:
        low = [m - s for m, s in zip(curve.means, curve.stds, strict=True)]
        high = [m + s for m, s in zip(curve.means, curve.stds, strict=True)]
        axes.fill_between(sessions, low, high, color=colour(curve, theme), alpha=0.25, linewidth=0)


def draw_labels(axes: Axes, lines: Sequence[Curve], theme: Theme) -> None:
    """Names with the last accuracy beside the ends of the curves, moved apart where they would overlap."""
    lines = sorted(lines, key=lambda curve: curve.means[-1])
    end = len(lines[0].means) - 1
    heights = [float(axes.transData.transform((end, curve.means[-1]))[1]) for curve in lines]
    scale = axes.figure.dpi / INCH
    for curve, height, place in zip(lines, heights, spread_out(heights, LINE * scale), strict=True):
        axes.annotate(
            f"{curve.label} {curve.means[-1]:.1f}",
            (end, curve.means[-1]),
            xytext=(9, (place - height) / scale),
            textcoords="offset points",
            va="center",
            fontsize=10.5,
            fontweight="bold" if curve.kind in ("ours", "paper") else "normal",
            color=colour(curve, theme),
        )


def draw_panel(axes: Axes, dataset: str, theme: Theme) -> None:
    lines = curves(dataset)
    sessions = len(lines[-1].means)
    axes.set_title(f"{dataset_title(dataset)} (n = {lines[-1].n})", loc="left", fontsize=13, color=theme.text)
    axes.set_ylim(20, 90)
    axes.set_xticks(range(0, sessions, 2))
    axes.set_xlabel("session", fontsize=10.5, color=theme.text)
    plain_frame(axes, theme)
    for curve in lines:
        draw_curve(axes, curve, dataset, theme)
    draw_labels(axes, lines, theme)


def draw_legend(figure: Figure, theme: Theme) -> None:
    """One line above each row of panels that says what it shows and what each colour means."""
    words = (
        ("accuracy over all classes seen so far, %", theme.text, 0.035),
        ("● measured here, two CPU cores (dashed: one net)", theme.ours, 0.295),
        ("■ published KT-RCNet", theme.paper, 0.65),
        ("other published methods", theme.peers, 0.815),
    )
    for text, shade, left in words:
        figure.text(left, 0.967, text, fontsize=11, color=shade, va="center")
    below = "average of all sessions over compute, %: ● KT-RCNet, ○ cosine at every setting measured, line: the best"
    below += "; grey: other methods"
    figure.text(0.035, 0.365, below, fontsize=11, color=theme.text, va="center")


def draw(theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH / INCH, HEIGHT / INCH), dpi=INCH)
    for index, dataset in enumerate(OURS):
        left = 0.035 + index * 0.33
        draw_panel(figure.add_axes((left, 0.485, 0.2, 0.4)), dataset, theme)
        draw_compute(figure.add_axes((left, 0.085, 0.28, 0.235)), dataset, theme)
    draw_legend(figure, theme)
    return figure


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "fscil", "svg.fonttype": "path", "path.simplify": False}):
        for name, theme in THEMES.items():
            figure = draw(theme)
            nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
            figure.savefig(folder / f"accuracy-{name}.svg", transparent=True, metadata=nothing)


if __name__ == "__main__":
    write(PICTURES)
