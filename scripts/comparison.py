"""The tables of all methods in docs/results.md, from the files below results/compare.

`python scripts/comparison.py` prints them; with --write it also puts them into the page.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

from fscil.experiments.differences import interval_text, spread_text
from fscil.metrics import Interval, average, paired_difference, spread
from fscil.report.captions import DAGGER
from fscil.report.reconstructions import reconstruction
from tables import placed

RESULTS = Path(__file__).parent.parent / "results" / "compare" / "cifar100"
PAGE = Path(__file__).parent.parent / "docs" / "results.md"
REFERENCE, JOINT = "`cosine`", "`joint`"
LINEAR = "class means on the linear base"
ARMS = {"cosine_two_nets": "cosine, two nets", "class_means_on_the_linear_base": LINEAR}
MEANS = {REFERENCE: "sum", LINEAR: "sum", "cosine, two nets": "B"}  # what class means on a base are in the files
TITLES = ["", "n", "session 0", "session 8", "Avg", "Avg minus `cosine`", "base / new / HM at the end", "gain", "Diff"]
TITLES += ["keeps", "PMAC"]

ABOVE, BELOW, UNTOLD = "above", "below", "not told apart"

Run = dict[str, Any]
Seeds = Mapping[int, Run]


def rows(folder: Path = RESULTS) -> dict[str, Seeds]:
    """The runs of each row by seed, the highest average first."""
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text("utf-8"))
        variant = file.stem.removeprefix(f"{run['method']}-compare").rpartition("-seed")[0].strip("-")
        found[ARMS[variant] if variant else row_name(run["method"])][run["seed"]] = run
    return dict(sorted(found.items(), key=lambda row: -_mean(row[1], _average)))


def table(found: Mapping[str, Seeds]) -> list[str]:
    """The lines of the table in Markdown."""
    cells = [TITLES, ["---"] * len(TITLES), *(_cells(name, found) for name in found)]
    return [f"| {' | '.join(row)} |" for row in cells]


def order(found: Mapping[str, Seeds]) -> list[str]:
    """Of each row and the next whether their averages can be told apart, as lines of a table."""
    lines = ["| | minus the next | pairs | Avg | told apart |", "|---|---|---|---|---|"]
    for above, below in pairwise(found):
        pairs, gap = minus(found, above, below)
        apart = "no" if word(gap) == UNTOLD else "yes"  # by its pairs the next may be the higher one
        names = (labelled(name, found[name]).replace("`", "") for name in (above, below))
        lines.append(f"| {' | '.join(names)} | {pairs} | {interval_text(gap)} | {apart} |")
    return lines


def on_the_same_base(found: Mapping[str, Seeds]) -> dict[str, tuple[int, Interval]]:
    """Of each row that takes over a trained base: pairs, and what it has over plain class means on that base.

    Whoever takes over a base is told the seconds that it took, by which it is known here.
    """
    means: dict[tuple[int, float], float] = {}
    for name, branch in MEANS.items():
        means |= {_base(run): average(run["metrics"][branch]["accuracy"]) for run in found[name].values()}
    gaps = {}
    for name in [name for name in found if MEANS.get(name) != "sum"]:
        own = [run for run in found[name].values() if _base(run) in means]
        if own:
            own_means = [means[_base(run)] for run in own]
            gaps[name] = len(own), paired_difference([_average(run) for run in own], own_means)
    return gaps


def same_base_table(found: Mapping[str, Seeds]) -> list[str]:
    """The lines of a table of what rows have over class means on their own base."""
    lines = ["| | pairs | Avg minus class means on the same base | |", "|---|---|---|---|"]
    for name, (pairs, gap) in on_the_same_base(found).items():
        own = labelled(name, found[name]).replace("`", "")
        lines.append(f"| {own} | {pairs} | {interval_text(gap)} | {word(gap)} |")
    return lines


def beside_cosine(found: Mapping[str, Seeds]) -> list[str]:
    """Which rows are above and below one cosine net, and of which that cannot be told, as lines of a table."""
    words: dict[str, list[str]] = {ABOVE: [], BELOW: [], UNTOLD: []}
    for name in found:
        if name != REFERENCE:
            words[word(minus(found, name, REFERENCE)[1])].append(labelled(name, found[name]))
    return [
        "| beside `cosine` | rows |",
        "|---|---|",
        *(f"| {w} | {', '.join(r) or 'none'} |" for w, r in words.items()),
    ]


def row_name(method: str) -> str:
    """What the row of a method is called."""
    return f"`{method}`"


def labelled(name: str, seeds: Seeds) -> str:
    """The name of a row, with a dagger where the method is a reconstruction."""
    return name + (DAGGER if reconstruction(next(iter(seeds.values()))) else "")


def mean_of(seeds: Seeds, number: str) -> float:
    """The mean over the seeds of `avg`, of session 0 (`first`), of `gain`, or of a number after the last session."""
    reads: dict[str, Callable[[Run], float]] = {"avg": _average, "first": lambda run: _total(run)["accuracy"][0]}
    reads["gain"] = lambda run: _total(run)["gain"]
    return _mean(seeds, reads.get(number, lambda run: _total(run)[number][-1]))


def minus(found: Mapping[str, Seeds], name: str, other: str) -> tuple[int, Interval]:
    """How many pairs two rows have, and the mean difference of their averages."""
    return len(found[name].keys() & found[other].keys()), _gap(found[name], found[other], _average)


def word(gap: Interval) -> str:
    """What an interval says; one pair has none, which says nothing."""
    return ABOVE if gap.low > 0 else BELOW if gap.high < 0 else UNTOLD


def _base(run: Run) -> tuple[int, float]:
    return run["seed"], run["learning"][0]["stages"][0]["seconds"]


def _cells(name: str, found: Mapping[str, Seeds]) -> Sequence[str]:
    seeds = found[name]
    run = next(iter(seeds.values()))
    joint = _mean(found[JOINT], _last)
    ends = " / ".join(f"{_mean(seeds, lambda r, p=part: _total(r)[p][-1]):.1f}" for part in ("base", "new", "harmonic"))
    return (
        labelled(name, seeds),
        str(len(seeds)),
        *(spread_text(spread([_total(run)["accuracy"][at] for run in seeds.values()])) for at in (0, -1)),
        f"**{spread_text(spread([_average(run) for run in seeds.values()]))}**",
        "" if name == REFERENCE else interval_text(_gap(seeds, found[REFERENCE], _average)),
        ends,
        f"{_mean(seeds, lambda run: _total(run)['gain']):+.2f}",
        "" if name == JOINT else f"{_mean(seeds, lambda run: _last(run) - joint):+.2f}",
        run["keeps"],
        f"{_mean(seeds, lambda run: run['macs']) / 1e15:.3f}",
    )


def _gap(own: Seeds, other: Seeds, value: Callable[[Run], float]) -> Interval:
    """The mean difference of the seeds that two rows share."""
    shared = sorted(own.keys() & other.keys())
    return paired_difference([value(own[seed]) for seed in shared], [value(other[seed]) for seed in shared])


def _mean(seeds: Seeds, value: Callable[[Run], float]) -> float:
    return spread([value(run) for run in seeds.values()]).mean


def _average(run: Run) -> float:
    """From the sessions, as docs/methods.md does: of a tie both pages print the same side."""
    return average(_total(run)["accuracy"])


def _last(run: Run) -> float:
    return float(_total(run)["accuracy"][-1])


def _total(run: Run) -> dict[str, Any]:
    total: dict[str, Any] = run["metrics"]["sum"]
    return total


TABLES = (table, beside_cosine, same_base_table, order)


def main() -> None:
    tables = [make(rows()) for make in TABLES]
    for lines in tables:
        print("\n".join(lines), end="\n\n")
    if "--write" in sys.argv:
        text = reduce(placed, tables, PAGE.read_text("utf-8"))
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
