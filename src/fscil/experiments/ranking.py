"""The order of the lines of an experiment, tested: each line minus the next, paired, before the order is stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from pathlib import Path

from fscil.experiments.cells import Reading
from fscil.experiments.differences import METRICS, Key, Values, compared, gathered, interval_text, plain_markdown
from fscil.experiments.specs import Experiment
from fscil.metrics import Interval, spread
from fscil.report.runs import Record

RANKED = "Avg"
TITLES = ("", "minus the next", "pairs", *METRICS)
MEANING = (
    "Lines in the order of their mean Avg, each minus the next: the mean of the differences of runs with the same seed "
    "(and draw or order), with Student's 95 % interval. The order comes from the same runs, and there are many "
    "neighbours: some intervals exclude 0 by chance."
)


@dataclass(frozen=True)
class Neighbours:
    """A line and the next one below it in the order."""

    above: str
    below: str
    pairs: int  # repetitions that both share
    gaps: Mapping[str, Interval]  # above minus below; empty without a pair

    @property
    def order(self) -> tuple[str, str] | None:
        """The higher line, then the lower one, where the interval of the difference in Avg excludes 0.

        By their pairs the line below may be the higher one, where the line above has repetitions that it lacks.
        """
        if not self.gaps or isnan(self.gaps[RANKED].low):  # one pair has no interval
            return None
        if self.gaps[RANKED].low > 0:
            return self.above, self.below
        return (self.below, self.above) if self.gaps[RANKED].high < 0 else None

    @property
    def cells(self) -> list[str]:
        told = [interval_text(self.gaps[metric]) for metric in METRICS] if self.gaps else ["–"] * len(METRICS)
        return [self.above, self.below, str(self.pairs), *told]


def neighbours(experiment: Experiment, readings: Sequence[Reading], records: Mapping[Path, Record]) -> list[Neighbours]:
    """All neighbours in the order of the finished lines; of several arms at several points, of each point."""
    groups, names = gathered(readings, records, len(experiment.arms))
    made = []
    for keys in rankings(groups, by_point=len(experiment.arms) > 1):
        for above, below in pairwise(keys):
            found = compared(groups[above], groups[below])
            made.append(Neighbours(names[above], names[below], found["pairs"], found["gaps"]))
    return made


def rankings(groups: Mapping[Key, Values], by_point: bool) -> Iterator[list[Key]]:
    """The lines that are ranked among each other, the best first."""
    averages = {key: spread([METRICS[RANKED](curve) for curve in own.values()]).mean for key, own in groups.items()}
    ordered = sorted(groups, key=lambda key: -averages[key])
    for point in dict.fromkeys(key[1] for key in groups) if by_point else [None]:
        yield [key for key in ordered if point is None or key[1] == point]


def sentences(found: Sequence[Neighbours]) -> list[str]:
    """Which neighbours can be told apart, in plain words."""
    if all(pair.pairs < 2 for pair in found):
        return ["n = 1: nothing can be told apart, so the order is not stated. More seeds would tell."]
    apart = ["{} is above {}".format(*pair.order) for pair in found if pair.order]
    alike = [f"{pair.above} and {pair.below}" for pair in found if not pair.order]
    told = f"By Avg can be told apart: {'; '.join(apart)}." if apart else "By Avg no two neighbours can be told apart."
    return [told, *([f"Cannot be told apart: {'; '.join(alike)}."] if apart and alike else [])]


def markdown(found: Sequence[Neighbours]) -> str:
    """The section below the paired differences; empty where there is one line alone."""
    if not found:
        return ""
    table = plain_markdown(TITLES, [pair.cells for pair in found])
    return "\n\n".join(["\n## Neighbours in the ranking", MEANING, table, *sentences(found)]) + "\n"
