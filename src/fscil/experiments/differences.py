"""Arms compared: means and standard deviations over the repetitions, and paired differences from the reference."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from fscil.errors import FscilError
from fscil.experiments.cells import Reading, value_text
from fscil.experiments.specs import Experiment
from fscil.metrics import Interval, RunMetrics, Spread, paired_difference, spread
from fscil.report.captions import DAGGER, RECONSTRUCTED, mark
from fscil.report.published import PublishedRow, is_standard, published
from fscil.report.runs import TOTAL, Record
from fscil.report.text import latex_row, latex_text

METRICS: dict[str, Callable[[RunMetrics], float]] = {
    "Avg": lambda curve: curve.average,
    "last": lambda curve: curve.sessions[-1].accuracy,
    "base": lambda curve: curve.sessions[-1].base,
    "new": lambda curve: curve.sessions[-1].new,
}
Values = dict[str, RunMetrics]  # by repetition
Key = tuple[str, str]  # arm and point of a line


@dataclass(frozen=True)
class Line:
    """One arm at one point of the axes."""

    name: str
    arm: str
    point: Mapping[str, Any]
    reference: str  # the line it is compared with; empty for the reference itself
    n: int  # repetitions
    spreads: Mapping[str, Spread]
    pairs: int  # repetitions that line and reference share
    gaps: Mapping[str, Interval]
    published: float | None  # Avg of the paper
    sessions: Sequence[float] = ()  # mean accuracy after each of them, where all repetitions have as many
    published_sessions: Sequence[float] = ()

    @property
    def published_text(self) -> str:
        return _number(self.published)


def comparisons(experiment: Experiment, readings: Sequence[Reading], records: Mapping[Path, Record]) -> list[Line]:
    """A line for each arm at each point of which at least one run is finished, in the order of the experiment."""
    groups, names = gathered(readings, records, len(experiment.arms))
    lines = []
    first = {(reading.arm.name, json.dumps(reading.point)): reading for reading in reversed(readings)}
    for key in groups:
        other = reference_of(key, experiment, list(names))
        own, base = groups[key], groups.get(other, {}) if other != key else {}
        place = {"name": names[key], "arm": key[0], "point": json.loads(key[1])}
        reference, paper = names[other] if other != key else "", published_row(first[key])
        beside = {"published": paper.avg, "published_sessions": paper.sessions} if paper else {"published": None}
        sessions = mean_sessions([curve.accuracies for curve in own.values()])
        lines.append(Line(**place, reference=reference, sessions=sessions, **beside, **compared(own, base)))
    return lines


def mean_sessions(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean accuracy after each session; none where repetitions have other numbers of sessions."""
    if len({len(curve) for curve in curves}) > 1:
        return []
    return [fmean(after) for after in zip(*curves, strict=True)]


def gathered(
    readings: Sequence[Reading], records: Mapping[Path, Record], arms: int
) -> tuple[dict[Key, Values], dict[Key, str]]:
    """The finished repetitions of each line, and the names of all lines, in the order of the experiment."""
    groups: dict[Key, Values] = {}
    names: dict[Key, str] = {}
    for reading in readings:
        key = reading.arm.name, json.dumps(reading.point)
        names.setdefault(key, line_name(reading, arms))
        if reading.run.folder in records:
            names[key] = names[key].removesuffix(DAGGER) + mark(records[reading.run.folder])
            curve = curve_of(reading, records[reading.run.folder])
            groups.setdefault(key, {})[json.dumps(reading.repetition)] = curve
    return {key: groups[key] for key in names if key in groups}, names


def reference_of(key: Key, experiment: Experiment, keys: Sequence[Key]) -> Key:
    """The reference arm at the same point; where there is one arm alone, its first point."""
    if len(experiment.arms) == 1:
        return keys[0]
    return experiment.reference or experiment.arms[0].name, key[1]


def compared(own: Values, base: Values) -> dict[str, Any]:
    """The numbers of a line, from the runs of its repetitions and of those of its reference."""
    shared = sorted(own.keys() & base.keys())
    gaps = {metric: paired(own, base, shared, value) for metric, value in METRICS.items() if shared}
    spreads = {metric: spread([value(curve) for curve in own.values()]) for metric, value in METRICS.items()}
    return {"n": len(own), "spreads": spreads, "pairs": len(shared), "gaps": gaps}


def paired(own: Values, base: Values, shared: Sequence[str], value: Callable[[RunMetrics], float]) -> Interval:
    """The difference of the repetitions that two lines share; of several intervals the widest."""

    def means(curves: Values, groups: list[list[str]]) -> list[float]:
        return [fmean(value(curves[key]) for key in group) for group in groups]

    found = [paired_difference(means(own, groups), means(base, groups)) for groups in independent(shared)]
    return max(found, key=lambda interval: interval.high - interval.low)


def independent(repetitions: Sequence[str]) -> list[list[list[str]]]:
    """Repetitions in groups of one seed and, where they also have several draws or orders, in groups of one of these.

    Runs of one seed share their training, and runs of one draw their shots: they are not so many independent pairs.
    """
    told = {key: json.loads(key) for key in repetitions}
    ways: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, repetition in told.items():
        for name, level in repetition.items():
            ways[name][json.dumps(level)].append(key)
    return [[*levels.values()] for levels in ways.values() if len(levels) > 1] or [[[key] for key in repetitions]]


def curve_of(reading: Reading, record: Record) -> RunMetrics:
    """The sessions as an arm reads them: the method's own answers, or those of a branch."""
    branch = reading.arm.branch or TOTAL
    if branch not in record.curves:
        branches = ", ".join(name for name in record.curves if name != TOTAL) or "none"
        raise FscilError(
            f"arm {reading.arm.name!r} reads branch {branch!r}, but {reading.run.method} has these branches: {branches}"
        )
    return record.curves[branch]


def line_name(reading: Reading, arms: int) -> str:
    place = ", ".join(f"{name} {value_text(value)}" for name, value in reading.point.items())
    named = reading.arm.name if arms > 1 or not place else ""
    return ", ".join(filter(None, (named, place)))


def published_row(reading: Reading) -> PublishedRow | None:
    """The row of the paper that an arm names, by its name or its method's; None where it has no such.

    Nor beside runs of other sessions than the paper's; draws and orders, over which a line is a mean, may differ.
    """
    arm, run = reading.arm, reading.run
    tables = published(run.dataset)
    protocol = {name: value for name, value in vars(run.protocol).items() if name not in reading.repetition}
    if tables is None or not arm.published or not is_standard(run.dataset, protocol):
        return None
    rows = (*tables.rows, *tables.study_rows)
    return next((row for row in rows if arm.published in (row.name, row.method)), None)


def markdown(experiment: Experiment, lines: Sequence[Line]) -> str:
    """Both tables for people: ± is one standard deviation, brackets hold the 95 % interval of the difference."""
    where = f" ({experiment.shows})" if experiment.shows else ""
    titles = ["", "n", *METRICS, "published Avg"]
    table = [[r.name, str(r.n), *(spread_text(r.spreads[m]) for m in METRICS), _number(r.published)] for r in lines]
    compared = [r for r in lines if r.gaps]
    gaps = [[r.name, r.reference, str(r.pairs), *(interval_text(r.gaps[m]) for m in METRICS)] for r in compared]
    blocks = [
        f"# {experiment.title or experiment.name}{where}",
        *filter(None, [experiment.note]),
        "Percent of the images that were tested. Avg: mean over the sessions; last, base, new: after the last session. "
        "n: finished repetitions; ±: one standard deviation over them.",
        plain_markdown(titles, table),
        *([f"{RECONSTRUCTED}."] if any(line.name.endswith(DAGGER) for line in lines) else []),
        "## Paired differences",
        "Mean of the differences of runs with the same seed (and draw or order), with Student's 95 % interval; of "
        "several seeds and several draws the wider one, over the means of each seed or of each draw. An interval that "
        "excludes 0 speaks for a difference. Many lines: some exclude it by chance.",
        plain_markdown(["", "minus", "pairs", *METRICS], gaps)
        if gaps
        else "No two lines have a finished repetition in common.",
    ]
    return "\n\n".join(blocks) + "\n"


def latex(lines: Sequence[Line]) -> str:
    """Both tables as booktabs tabulars."""
    table = [[r.name, str(r.n), *(spread_text(r.spreads[m]) for m in METRICS), r.published_text] for r in lines]
    gaps = [[r.name, r.reference, *(interval_text(r.gaps[m]) for m in METRICS)] for r in lines if r.gaps]
    blocks = ["% needs \\usepackage{booktabs}", _tabular(["", "n", *METRICS, "published"], table)]
    blocks += [_tabular(["", "minus", *METRICS], gaps)] if gaps else []
    blocks += [latex_text(f"{RECONSTRUCTED}.")] if any(line.name.endswith(DAGGER) for line in lines) else []
    return "\n\n".join(blocks) + "\n"


def _tabular(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = [f"\\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}", "\\toprule", latex_row(titles), "\\midrule"]
    return "\n".join([*head, *map(latex_row, rows), "\\bottomrule", "\\end{tabular}"])


def comma_separated(lines: Sequence[Line]) -> str:
    """One line each, with all numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{m} {part}" for m in METRICS for part in ("mean", "std")]
    gaps = [f"{m} {part}" for m in METRICS for part in ("difference", "low", "high")]
    writer.writerow(["name", "n", *columns, "reference", "pairs", *gaps, "published Avg"])
    for r in lines:
        spreads = [_plain(value) for m in METRICS for value in r.spreads[m]]
        intervals = [_plain(value) for m in METRICS for value in r.gaps[m]] if r.gaps else [""] * len(gaps)
        writer.writerow([r.name, r.n, *spreads, r.reference, r.pairs, *intervals, _plain(r.published)])
    return text.getvalue()


def plain_markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))


def spread_text(value: Spread) -> str:
    return _number(value.mean) + ("" if isnan(value.std) else f" ± {value.std:.2f}")


def interval_text(value: Interval) -> str:
    return f"{value.mean:+.2f}" + ("" if isnan(value.low) else f" [{value.low:+.2f}, {value.high:+.2f}]")


def _number(value: float | None) -> str:
    return "–" if value is None or isnan(value) else f"{value:.2f}"


def _plain(value: float | None) -> str:
    return "" if value is None or isnan(value) else f"{value:.4f}"
