"""Captions: what rows and sections are called, and what has to be said below a table about the runs in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fscil.report.earlier import for_all_seeds, telling_settings
from fscil.report.reconstructions import reconstruction
from fscil.report.results import without_folders
from fscil.report.runs import Record
from fscil.settings.fields import dotted

if TYPE_CHECKING:
    from fscil.report.rows import Row, Section

FEW_SETTINGS = 3  # of a method that are named; differences in the sessions are all named
FOLDER = "folder"  # the data set of which there are many
DAGGER = " †"
RECONSTRUCTED = "† in part a reconstruction: what neither the paper nor released code tells is our own choice"
PSEUDO = ", pseudo-sessions of the base classes"


def title(run: Record) -> str:
    return f"{run.facts['method']}{mark(run)} · {run.facts['recipe']}"


def mark(run: Record) -> str:
    """† behind the name of a method of which a part is our own, since neither its paper nor released code tells it."""
    return DAGGER if reconstruction(run.facts) else ""


def label(run: Record) -> str:
    """Title and the settings in which a run differs from its recipe: "cosine · small, base.epochs 1"."""
    return ", ".join([title(run), *overrides(run)])


def overrides(run: Record) -> list[str]:
    """The settings that were given beside the recipe, as texts; earlier runs do not tell."""
    changed = for_all_seeds(run.facts.get("changed") or {}, run.facts["seed"])
    return shortened([f"{name} {value}" for name, value in changed.items()])


def shortened(texts: list[str]) -> list[str]:
    return texts[:FEW_SETTINGS] + ["…"] * (len(texts) > FEW_SETTINGS)


def distinction(run: Record, among: Iterable[Record]) -> str:
    """What tells a run from the others of its table, as in " (protocol.shots 1, transfer.epochs 10)".

    Protocols are compared with those of all others, settings with those of the same label.
    """
    others = list(among)
    own = differing(settings(run), [settings(other) for other in others if label(other) == label(run)])
    return in_brackets([*sessions_apart(run, others), *shortened(own)])


def sessions_apart(run: Record, among: Iterable[Record]) -> list[str]:
    """What tells the sessions of a run from those of others: the protocol, or the images where that is the same."""
    others, own = list(among), protocol(run)
    digests = {digest(other) for other in others if protocol(other) == own}
    images = [f"images {digest(run)[:8] or 'unknown'}"] if digests - {digest(run)} else []
    return differing(own, map(protocol, others)) + images


def digest(run: Record) -> str:
    """The fingerprint of sessions and images; empty where a run does not tell."""
    return str(run.facts.get("benchmark_fingerprint") or "")


def differing(own: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """The entries of a mapping in which at least one of the others is different, as texts."""
    there = list(others)
    return [f"{key} {value}" for key, value in own.items() if any(other.get(key) != value for other in there)]


def in_brackets(texts: Sequence[str]) -> str:
    return f" ({', '.join(texts)})" if texts else ""


def settings(run: Record) -> dict[str, Any]:
    """Settings of the method that tell it from others, with dotted names."""
    return telling_settings(run.facts)


def protocol(run: Record) -> dict[str, Any]:
    """How the data set became sessions, with dotted names."""
    return dotted(without_folders({"protocol": run.facts.get("protocol") or {}}))


def folder_name(runs: Iterable[Record]) -> str:
    """Name of the folder that runs on the same images read; empty for runs that do not tell."""
    return min((str(run.facts["root"]) for run in runs if run.facts.get("root")), default="")


def task(run: Record) -> Any:
    """What is learned: the protocol and the digest of the session lists."""
    return without_folders([sessions_of(run), digest(run)])


def sessions_of(run: Record) -> dict[str, Any]:
    """The protocol without what is None: runs of before such an entry do not have it."""
    return {name: value for name, value in (run.facts.get("protocol") or {}).items() if value is not None}


def section_remarks(section: Section) -> list[str]:
    """The remarks on all rows, each with the name of its row."""
    tasks = [task(row.runs[0]) for row in section.rows]
    mixed = any(other != tasks[0] for other in tasks)
    general = ["Not all rows have the same protocol and images: their names say how they differ."] if mixed else []
    marked = any(mark(row.runs[0]) for row in section.rows)
    general += [f"{RECONSTRUCTED}; the column “reconstructed” says what."] if marked else []
    return general + [f"{row.name}: {remark}." for row in section.rows for remark in row_remarks(row)]


def row_remarks(row: Row) -> list[str]:
    """Seeds that were run more than once, and surroundings that the runs of the row do not share."""
    return [*left_out(row), *differences(row, "git commit", commit), *differences(row, "precision", precision)]


def left_out(row: Row) -> list[str]:
    remarks = []
    for run in row.runs:
        seed = run.facts["seed"]
        places = ", ".join(str(other.source) for other in row.left_out if other.facts["seed"] == seed)
        remarks += [f"seed {seed} counts once, from {run.source}; left out: {places}"] if places else []
    return remarks


def differences(row: Row, name: str, value: Callable[[Record], str]) -> list[str]:
    """One remark if a value is not the same for all seeds: "precision float32 (seed 0), bfloat16 (seed 1, 2)"."""
    seeds: dict[str, list[str]] = {}
    for run in row.runs:
        seeds.setdefault(value(run), []).append(str(run.facts["seed"]))
    told = ", ".join(f"{found} (seed {', '.join(numbers)})" for found, numbers in seeds.items())
    return [f"its runs differ in {name}: {told}"] if len(seeds) > 1 else []


def commit(run: Record) -> str:
    return " then ".join(str(found or "unknown") for found in over_time(run, "git"))


def precision(run: Record) -> str:
    found = [entry.get("used") if isinstance(entry, dict) else entry for entry in over_time(run, "precision")]
    return " then ".join(str(entry or "unknown") for entry, _ in groupby(found))


def over_time(run: Record, key: str) -> list[Any]:
    """A fact as it was when the run began, and as it was whenever the run was resumed with another."""
    continued = run.facts.get("continued_with") or []
    changes = [continued] if isinstance(continued, dict) else continued  # dict: earlier runs
    return [run.facts.get(key), *(change[key] for change in changes if key in change)]
