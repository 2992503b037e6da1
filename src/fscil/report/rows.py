"""Seeds become rows: runs of one method with the same settings on the same sessions are averaged, nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fscil.metrics import RunMetrics, Spread, spread
from fscil.report.captions import (
    FOLDER,
    digest,
    distinction,
    folder_name,
    in_brackets,
    label,
    sessions_apart,
    sessions_of,
    settings,
    task,
    title,
)
from fscil.report.results import without_folders
from fscil.report.runs import TOTAL, Record

JOINT = "joint"


@dataclass(frozen=True)
class Row:
    """The seeds of one configuration, or one run that has not finished."""

    runs: tuple[Record, ...]
    name: str
    joint: Row | None = None  # the Joint-CNN that Diff is measured against
    left_out: tuple[Record, ...] = ()  # further runs of its seeds

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

    def mean(self, value: Callable[[Record], float]) -> float:
        return spread([value(run) for run in self.runs]).mean


class TableKey(NamedTuple):
    """What rows must share to stand in one table."""

    dataset: str
    sessions: int
    pseudo: bool
    images: str  # digest, of the data set `folder` alone


@dataclass(frozen=True)
class Section:
    """All rows of one data set with the same number of sessions, best average first, unfinished runs last."""

    dataset: str
    sessions: int
    pseudo: bool  # pseudo-sessions of the base classes, tested on training images that were held out
    rows: tuple[Row, ...]
    images: str = ""  # of the data set `folder`: which folder

    @property
    def tested_on(self) -> str:
        return self.rows[0].runs[0].tested_on


def sections(runs: Iterable[Record]) -> list[Section]:
    """Rows grouped by data set and by what they are tested on; of the data set `folder`, each folder is one."""
    groups: dict[TableKey, list[Record]] = {}
    for run in runs:
        groups.setdefault(benchmark(run), []).append(run)
    names = folder_names({key: group for key, group in groups.items() if key.dataset == FOLDER})
    return [
        Section(key.dataset, key.sessions, key.pseudo, tuple(rows(groups[key])), names.get(key, ""))
        for key in sorted(groups)
    ]


def benchmark(run: Record) -> TableKey:
    images = digest(run) if run.facts["dataset"] == FOLDER else ""
    return TableKey(run.facts["dataset"], run.facts["sessions"], run.pseudo, images)


def folder_names(groups: dict[TableKey, list[Record]]) -> dict[TableKey, str]:
    """What each folder of images is called: by its name, and by what tells it from others of that name."""
    names = {key: folder_name(group) for key, group in groups.items()}
    titles = {}
    for key, group in groups.items():
        namesakes = [groups[other][0] for other in groups if (names[other], other.pseudo) == (names[key], key.pseudo)]
        titles[key] = (names[key] + in_brackets(sessions_apart(group[0], namesakes))).strip()
    return titles


def rows(runs: list[Record]) -> list[Row]:
    groups: dict[str, list[Record]] = {}
    for run in runs:
        groups.setdefault(configuration(run), []).append(run)
    plain = [row for group in groups.values() for row in rows_of(group)]
    ordered = sorted(plain, key=lambda row: (not row.complete, -average(row), title(row.runs[0]), row.facts["seed"]))
    first = [row.runs[0] for row in ordered]
    named = [replace(row, name=label(run) + distinction(run, first)) for row, run in zip(ordered, first, strict=True)]
    return [replace(row, joint=joint_of(row, named)) for row in named]


def configuration(run: Record) -> str:
    """What runs must share to be averaged: everything that decides the result except the seed."""
    what = {"method": run.facts["method"], "recipe": run.facts.get("recipe"), "images": digest(run)}
    facts = {"protocol": sessions_of(run), **what, "settings": settings(run)}
    return json.dumps(without_folders(facts), sort_keys=True)


def rows_of(runs: list[Record]) -> Iterator[Row]:
    """The rows of one configuration, not yet named: the finished seeds together, each other seed alone."""
    seeds = by_seed(runs)
    for part in finished_and_not([found[0] for found in seeds.values()]):
        repeated = (run for kept in part for run in seeds[kept.facts["seed"]][1:] if not is_of(run, kept))
        yield Row(part, "", left_out=tuple(repeated))


def by_seed(runs: list[Record]) -> dict[int, list[Record]]:
    """The runs of each seed, that which counts first, whatever the order in which they were given."""
    seeds: dict[int, list[Record]] = {}
    for run in sorted(runs, key=standing, reverse=True):
        seeds.setdefault(run.facts["seed"], []).append(run)
    return dict(sorted(seeds.items()))


def standing(run: Record) -> tuple[int, str, bool, str]:
    """By which runs of one seed are ranked: the most finished, of these the newest, a folder before a results file."""
    return len(run.learning), str(run.facts.get("started") or ""), not run.summary, str(run.source)


def is_of(run: Record, kept: Record) -> bool:
    """Whether a results file sums up the run that is kept, so that nothing is lost without it."""
    return run.summary and run.facts.get("started") == kept.facts.get("started")


def finished_and_not(runs: list[Record]) -> Iterator[tuple[Record, ...]]:
    complete = tuple(run for run in runs if run.complete)
    yield from ([complete] if complete else [])
    yield from ((run,) for run in runs if not run.complete)


def average(row: Row) -> float:
    return row.over_seeds(lambda curve: curve.average).mean if row.complete else 0.0


def joint_of(row: Row, among: list[Row]) -> Row | None:
    """The finished Joint-CNN row on the same sessions: that of the same recipe, else the only one there is."""
    joints = [
        other
        for other in among
        if other.facts["method"] == JOINT and other.complete and task(other.runs[0]) == task(row.runs[0])
    ]
    of_recipe = [other for other in joints if other.facts["recipe"] == row.facts["recipe"]] or joints
    return of_recipe[0] if len(of_recipe) == 1 else None
