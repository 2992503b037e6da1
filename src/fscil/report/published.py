"""The numbers of the paper's tables, kept in published.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fscil import metrics
from fscil.report.captions import PSEUDO
from fscil.report.rows import Section

STANDARD = {
    "shots": (None, 5),
    "shots_seed": (None, 1),
    "order_seed": (None,),
    "later_order_seed": (None,),
    "tune": (None, False),
}  # None: the data set's own


@dataclass(frozen=True)
class PublishedRow:
    """One line of a published table; `gain` is over never learning a new class, from the share of base classes."""

    name: str
    method: str  # the method's name here; empty for rows of a study
    sessions: tuple[float, ...]
    avg: float
    diff: float | None
    gain: float

    @property
    def performance_drop(self) -> float:
        return metrics.performance_drop(self.sessions)


@dataclass(frozen=True)
class Published:
    """What the paper prints about one data set: its comparison and, where there is one, a study of its parts."""

    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...]
    study: str
    study_rows: tuple[PublishedRow, ...]


@cache
def numbers() -> dict[str, Any]:
    return dict(json.loads(files("fscil.report").joinpath("published.json").read_text(encoding="utf-8")))


def source() -> str:
    return str(numbers()["source"])


def dataset_title(dataset: str) -> str:
    return str(numbers()["datasets"].get(dataset, {}).get("title", dataset))


def section_title(section: Section) -> str:
    """What a section is called: its data set, which folder that is, and whether it is cut from the base classes."""
    name = f"{dataset_title(section.dataset)} {section.images}".strip()
    return name + (PSEUDO if section.pseudo else "")


def published(dataset: str) -> Published | None:
    """The published rows of a data set, if the paper has it."""
    table = numbers()["datasets"].get(dataset)
    if table is None:
        return None
    study = numbers()["studies"].get(dataset, {"title": "", "rows": []})
    base, ways = table["base_classes"], table["ways"]
    return Published(
        rows=tuple(published_row(row, base, ways) for row in table["rows"]),
        notes=tuple(table["notes"]),
        study=study["title"],
        study_rows=tuple(published_row(row, base, ways) for row in study["rows"]),
    )


def published_row(row: dict[str, Any], base: int, ways: int) -> PublishedRow:
    sessions = tuple(row["sessions"])
    shares = [base / (base + ways * index) for index in range(len(sessions))]
    gain = metrics.gain(sessions, shares)
    return PublishedRow(row["name"], row.get("method", ""), sessions, row["avg"], row.get("diff"), gain)


def comparable(section: Section) -> Published | None:
    """The published rows if a run of the section learned the same sessions as the paper."""
    found = published(section.dataset)
    if found is None or len(found.rows[0].sessions) != section.sessions:
        return None
    protocols = [row.facts.get("protocol") or {} for row in section.rows]
    return found if any(is_standard(section.dataset, protocol) for protocol in protocols) else None


def is_standard(dataset: str, protocol: Mapping[str, Any]) -> bool:
    """Whether these are the sessions of the paper, on a data set that it has."""
    table = numbers()["datasets"][dataset]
    allowed = STANDARD | {"base_classes": (None, table["base_classes"]), "ways": (None, table["ways"])}
    return all(protocol.get(key) in values for key, values in allowed.items())
