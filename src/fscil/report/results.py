"""Results files: a run summed up as JSON, small enough to be committed and complete enough for every table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from math import isnan, nan
from pathlib import Path
from typing import Any

from fscil.errors import FscilError
from fscil.files import FORMAT, write_bytes
from fscil.metrics import RunMetrics, SessionMetrics
from fscil.report.runs import NEEDED, RESULTS_KIND, TOTAL, Record, find, read_facts, read_folder

PATH = re.compile(r"(^|[\s='\"])/(?:[^\s/'\"]+/)*([^\s/'\"]+)/?")
QUOTED_PATH = re.compile(
    r"""('(?:--[\w.-]+=)?)/(?:(?:[^'/]|'"'"')*/)*((?:[^'/]|'"'"')+)/?'"""
)  # as `shlex` quotes a word; an apostrophe in it becomes '"'"'
COLUMNS = tuple(field.name for field in fields(SessionMetrics))


def summarise(folder: str | Path) -> dict[str, Any]:
    """What is committed of a run: the facts of run.json, the cost and the metrics of each session; no machine paths."""
    run = read_folder(Path(folder))
    total = run.curves[TOTAL]
    return {
        "kind": RESULTS_KIND,
        "format": FORMAT,
        **without_folders(run.facts),
        "avg": rounded(total.average),
        "macs": run.macs,
        "seconds": run.seconds,
        "peak_memory_bytes": run.peak_memory,
        "test_images": total.sessions[-1].images if total.sessions else 0,
        "metrics": {name: metrics_to_json(curve) for name, curve in run.curves.items()},
        "learning": [{key: value for key, value in record.items() if key != "classes"} for record in run.learning],
    }


def write_results(paths: Iterable[str | Path], out_dir: str | Path) -> list[Path]:
    """Write `<dataset>/<method>-<recipe>-seed<k>.json` below out_dir for every run folder found; gives the files.

    Cells of an experiment have their name between recipe and seed.
    """
    summaries: dict[Path, dict[str, Any]] = {}
    for folder in dict.fromkeys(source for path in paths for source in find(Path(path)) if source.is_dir()):
        summary = summarise(folder)
        file = Path(out_dir) / summary["dataset"] / file_name(summary, folder)
        if file in summaries:
            raise FscilError(
                f"two runs would be written to {file}, one of them {folder}: write them to different folders"
            )
        summaries[file] = summary
    if not summaries:
        raise FscilError("there is no run folder among the paths given: results files are made from run folders")
    for file, summary in summaries.items():
        write_bytes(file, to_text(summary).encode())
    return list(summaries)


def read_results(file: Path) -> Record:
    """The run that a results file sums up: every number of the tables, no confusion matrix."""
    facts = read_facts(file, (*NEEDED, "kind", "metrics", "learning"))
    try:
        curves = {name: metrics_from_json(curve) for name, curve in facts["metrics"].items()}
        learning = tuple(dict(record) for record in facts["learning"])
        complete = {len(curve.sessions) for curve in curves.values()} == {len(learning)} and TOTAL in curves
    except (AttributeError, KeyError, TypeError, ValueError):
        complete = False
    if not complete:
        raise FscilError(f"{file} is broken: its metrics are not one number per session; write it again from its run")
    kept = {key: value for key, value in facts.items() if key not in ("metrics", "learning")}
    return Record(file, kept, curves, learning, None)


def metrics_to_json(curve: RunMetrics) -> dict[str, Any]:
    columns = {name: [rounded(getattr(session, name)) for session in curve.sessions] for name in COLUMNS}
    summary = {name: rounded(getattr(curve, name)) for name in ("average", "average_harmonic", "gain")}
    further = {name: rounded(getattr(curve, name)) for name in ("performance_drop", "forgetting")}
    return columns | summary | further | {"matrix": [[rounded(value) for value in row] for row in curve.matrix]}


def metrics_from_json(curve: dict[str, Any]) -> RunMetrics:
    sessions = zip(*(map(nan_for_none, curve[name]) for name in COLUMNS), strict=True)
    return RunMetrics(
        tuple(SessionMetrics(*values) for values in sessions),
        tuple(tuple(map(nan_for_none, row)) for row in curve["matrix"]),
    )


def rounded(value: float) -> float | None:
    """Four decimals; None for what does not exist, because JSON knows no nan."""
    return None if isnan(value) else round(value, 4)


def nan_for_none(value: float | None) -> float:
    return nan if value is None else value


def without_folders(value: Any) -> Any:
    """The same value with every absolute path in its texts cut to its last name."""
    if isinstance(value, dict):
        return {key: without_folders(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(entry) for entry in value]
    return text_without_folders(value) if isinstance(value, str) else value


def text_without_folders(text: str) -> str:
    if text.startswith("/"):
        return Path(text).name
    return PATH.sub(r"\1\2", QUOTED_PATH.sub(r"\1\2'", text))


def file_name(summary: dict[str, Any], folder: Path) -> str:
    name = f"{summary['method']}-{Path(summary['recipe']).stem}"
    cell = folder.parent.name.removeprefix(name) if folder.parent.name.startswith(f"{name}-") else ""
    return re.sub(r"[^\w.+-]+", "_", f"{name}{cell}-seed{summary['seed']}") + ".json"


def to_text(summary: dict[str, Any]) -> str:
    """JSON with one line per list of numbers, so that changes are readable in a diff."""
    text = json.dumps(summary, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found[0]), text) + "\n"
