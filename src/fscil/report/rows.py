"""Seeds become rows: runs of one method with the same settings on the same sessions are averaged, nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fscil.metrics import RunMetrics, Spread, spread
from fscil.report.results import without_folders
from fscil.report.runs import TOTAL, Run

JOINT = "joint"


@dataclass(frozen=True)
class Row:
    """The seeds of one configuration, or one run that has not finished."""

    runs: tuple[Run, ...]
    name: str
    joint: Row | None = None  # the Joint-CNN that Diff is measured against

    @property
    def facts(self) -> dict[str, Any]:
        return self.runs[0].facts

    @property
    def complete(self) -> bool:
        return self.runs[0].complete

    @property
    def finished(self) -> int:
        return len(self.runs[0].learning)

    @property
    def branches(self) -> list[str]:
        return [name for name in self.runs[0].curves if name != TOTAL]

    def over_seeds(self, value: Callable[[RunMetrics], float], branch: str = TOTAL) -> Spread:
        """Mean and standard deviation over the seeds of a number of the method's sum or of one branch."""
        return spread([value(run.curves[branch]) for run in self.runs])

    def curve(self, name: str, branch: str = TOTAL) -> list[Spread]:
        """A metric of SessionMetrics, session by session."""
        curves = [run.curves[branch] for run in self.runs]
        return [spread([getattr(curve.sessions[i], name) for curve in curves]) for i in range(self.finished)]

    def mean(self, value: Callable[[Run], float]) -> float:
        return spread([value(run) for run in self.runs]).mean


@dataclass(frozen=True)
class Section:
    """All rows of one data set with the same number of sessions, best average first, unfinished runs last."""

    dataset: str
    sessions: int
    rows: tuple[Row, ...]


def sections(runs: Iterable[Run]) -> list[Section]:
    """Rows grouped by data set; a seed that occurs twice in a row counts once."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.facts["dataset"], run.facts["sessions"]), []).append(run)
    return [Section(*key, tuple(rows(groups[key]))) for key in sorted(groups)]


def rows(runs: list[Run]) -> list[Row]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(configuration(run), []).append(run)
    plain = [Row(part, "") for group in groups.values() for part in finished_and_not(one_run_per_seed(group))]
    ordered = sorted(plain, key=lambda row: (not row.complete, -average(row), title(row), row.facts["seed"]))
    named = [replace(row, name=title(row) + distinction(row, ordered)) for row in ordered]
    return [replace(row, joint=joint_of(row, named)) for row in named]


def configuration(run: Run) -> str:
    """What runs must share to be averaged: everything that decides the result except the seed."""
    keys = ("method", "recipe", "settings", "protocol", "benchmark_fingerprint")
    return json.dumps(without_folders({key: run.facts.get(key) for key in keys}), sort_keys=True)


def one_run_per_seed(runs: list[Run]) -> list[Run]:
    """The most finished run of each seed (a folder before a results file): repeating a seed adds nothing to n."""
    best: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (len(run.learning), run.confusion is not None)):
        best[run.facts["seed"]] = run
    return [best[seed] for seed in sorted(best)]


def finished_and_not(runs: list[Run]) -> Iterator[tuple[Run, ...]]:
    complete = tuple(run for run in runs if run.complete)
    yield from ([complete] if complete else [])
    yield from ((run,) for run in runs if not run.complete)


def average(row: Row) -> float:
    return row.over_seeds(lambda curve: curve.average).mean if row.complete else 0.0


def title(row: Row) -> str:
    return f"{row.facts['method']} · {row.facts['recipe']}"


def distinction(row: Row, among: list[Row]) -> str:
    """Settings by which a row differs from the others of its title, as in " (transfer.epochs 10)"."""
    own = settings(row.runs[0])
    others = [settings(other.runs[0]) for other in among if title(other) == title(row)]
    differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
    text = ", ".join(f"{key} {own[key]}" for key in differing[:3])
    return f" ({text}{', …' if len(differing) > 3 else ''})" if differing else ""


def settings(run: Run) -> dict[str, Any]:
    """Settings and protocol with dotted names."""
    return flatten(without_folders({**run.facts.get("settings", {}), "protocol": run.facts.get("protocol", {})}))


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat


def joint_of(row: Row, among: list[Row]) -> Row | None:
    """The finished Joint-CNN row on the same sessions: that of the same recipe, else the only one there is."""
    joints = [
        other
        for other in among
        if other.facts["method"] == JOINT and other.complete and task(other.runs[0]) == task(row.runs[0])
    ]
    of_recipe = [other for other in joints if other.facts["recipe"] == row.facts["recipe"]] or joints
    return of_recipe[0] if len(of_recipe) == 1 else None


def task(run: Run) -> Any:
    """What is learned: the protocol and the digest of the session lists."""
    return without_folders([run.facts.get("protocol"), run.facts.get("benchmark_fingerprint")])
