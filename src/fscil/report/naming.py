"""What a row and a section are called: by method and recipe, and by what tells them from their neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fscil.fields import dotted
from fscil.report.results import without_folders
from fscil.report.runs import Run

FEW_SETTINGS = 3  # of a method that are named; differences in the sessions are all named
FOLDER = "folder"  # the data set of which there are many
PSEUDO = ", pseudo-sessions of the base classes"


def title(run: Run) -> str:
    return f"{run.facts['method']} · {run.facts['recipe']}"


def distinction(run: Run, among: Iterable[Run]) -> str:
    """What tells a run from the others of its table, as in " (protocol.shots 1, transfer.epochs 10)".

    Protocols are compared with those of all others, settings with those of the same method and recipe.
    """
    others = list(among)
    own = differing(settings(run), [settings(other) for other in others if title(other) == title(run)])
    return in_brackets([*sessions_apart(run, others), *own[:FEW_SETTINGS], *(["…"] if len(own) > FEW_SETTINGS else [])])


def sessions_apart(run: Run, among: Iterable[Run]) -> list[str]:
    """What tells the sessions of a run from those of others: the protocol, or the images where that is the same."""
    others, own = list(among), protocol(run)
    digests = {digest(other) for other in others if protocol(other) == own}
    images = [f"images {digest(run)[:8] or 'unknown'}"] if digests - {digest(run)} else []
    return differing(own, map(protocol, others)) + images


def digest(run: Run) -> str:
    """The fingerprint of sessions and images; empty where a run does not tell."""
    return str(run.facts.get("benchmark_fingerprint") or "")


def differing(own: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """The entries of a mapping in which at least one of the others is different, as texts."""
    there = list(others)
    return [f"{key} {value}" for key, value in own.items() if any(other.get(key) != value for other in there)]


def in_brackets(texts: Sequence[str]) -> str:
    return f" ({', '.join(texts)})" if texts else ""


def settings(run: Run) -> dict[str, Any]:
    """Settings of the method with dotted names."""
    return dotted(without_folders(run.facts.get("settings") or {}))


def protocol(run: Run) -> dict[str, Any]:
    """How the data set became sessions, with dotted names."""
    return dotted(without_folders({"protocol": run.facts.get("protocol") or {}}))


def folder_name(runs: Iterable[Run]) -> str:
    """Name of the folder that runs on the same images read; empty for runs that do not tell."""
    return min((str(run.facts["root"]) for run in runs if run.facts.get("root")), default="")
