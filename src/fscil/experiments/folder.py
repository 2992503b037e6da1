"""The folder of an experiment: whose it is, which of its cells are finished, and its pages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fscil import data, report
from fscil.errors import FscilError
from fscil.experiments import figures, ranking
from fscil.experiments.cells import Reading, Surroundings, cells
from fscil.experiments.differences import comma_separated, comparisons, latex, markdown
from fscil.experiments.page import opening
from fscil.experiments.specs import Experiment
from fscil.files import FORMAT, alone, read_json, write_bytes, write_json
from fscil.report.runs import FACTS, Record, read_folder
from fscil.running.devices import launch
from fscil.running.experiment import RunSpec, defaults, identity, images_of
from fscil.running.planning import choose_precision
from fscil.running.runfolder import changes
from fscil.settings import differences

KIND = "fscil experiment"
IDENTITY = ("experiment", "dataset", "recipe", "settings")  # axes, arms and seeds may grow: every cell guards its own
TABLES = {"md": "table.md", "csv": "table.csv", "latex": "table.tex"}
ELSEWHERE = "choose another --out"


def described(out: Path) -> dict[str, Any]:
    """What experiment.json says; empty before an experiment has begun there."""
    file = out / "experiment.json"
    return read_json(file, f"delete this file, or {ELSEWHERE}") if file.exists() else {}


def precision(out: Path, wanted: str) -> str:
    """The precision asked for; for `auto` the one with which the experiment began, else the faster, for all cells."""
    begun = described(out).get("precision")
    return begun if begun and wanted == "auto" else str(choose_precision(wanted, launch(1).device)["used"])


def claim(experiment: Experiment, surroundings: Surroundings) -> None:
    """Makes a folder that of an experiment; one that is another's is refused. Parts may begin at the same time."""
    with alone(surroundings.out / "experiment.lock"):
        _claim(experiment, surroundings)


def _claim(experiment: Experiment, surroundings: Surroundings) -> None:
    out, there = surroundings.out, described(surroundings.out)
    here = {
        "kind": KIND,
        "format": FORMAT,
        "experiment": experiment.name,
        "title": experiment.title,
        "dataset": surroundings.dataset,
        "recipe": surroundings.recipe or experiment.recipe,
        "settings": {**experiment.settings, **surroundings.changes},
        "precision": surroundings.precision,
        "command": surroundings.command,
    }
    changes = differences({key: there.get(key) for key in IDENTITY}, {key: here[key] for key in IDENTITY})
    if there and changes:
        raise FscilError(f"{out} holds another experiment ({'; '.join(changes[:3])}); {ELSEWHERE}")
    begun = there.get("precision", surroundings.precision)
    if begun != surroundings.precision:
        raise FscilError(
            f"{out} began in {begun}, and cells are compared in one precision: take --precision {begun}, or {ELSEWHERE}"
        )
    if not there:
        write_json(out / "experiment.json", here)


def record(run: RunSpec) -> Record | None:
    """What the folder of a cell holds; None where that is nothing, or not this run."""
    if not (run.folder / FACTS).is_file():
        return None
    try:
        there = read_folder(run.folder)
    except FscilError:  # `execute` repairs it, or says what to do
        return None
    return None if changes(there.facts, identity(run), defaults(run)) else there


def check_images(runs: Iterable[RunSpec]) -> None:
    """Refuses cells that were measured on other images than are there now; one cell speaks for all."""
    run, there = next(((run, there) for run in runs if (there := record(run))), (None, None))
    if run is None or there is None:
        return
    try:
        now = images_of(run)
    except FscilError:  # without the data finished cells can still be reported, and the others say what is missing
        return
    if there.facts.get("benchmark_fingerprint", now) != now:
        where = run.root or data.default_root()
        raise FscilError(f"{run.folder} was measured on other images than {where} holds now: {ELSEWHERE}")


def unfinished(runs: Iterable[RunSpec]) -> list[RunSpec]:
    """The runs that are not there, or not yet complete."""
    return [run for run in runs if not ((there := record(run)) and there.complete)]


def finished(runs: Iterable[RunSpec]) -> list[RunSpec]:
    """The runs that are complete."""
    return [run for run in runs if (there := record(run)) and there.complete]


def write_results(experiment: Experiment, readings: Sequence[Reading], out: Path) -> list[Path]:
    """Writes the page and the tables of the cells that are there; gives the files, none before a cell has begun."""
    records = {run.folder: there for run in cells(readings) if (there := record(run)) and there.learning}
    if not records:
        return []
    complete = {folder: r for folder, r in records.items() if r.complete}
    lines = comparisons(experiment, readings, complete)
    order = ranking.neighbours(experiment, readings, complete)
    drawn = figures.drawn(experiment, lines)
    top = opening(experiment, lines, order, figures.for_page(drawn))
    page = report.write_html(records, out / "report.html", top)
    tables = [report.write_table(records, style, out / name) for style, name in TABLES.items()]
    texts = {
        "differences.md": markdown(experiment, lines) + ranking.markdown(order),
        "differences.csv": comma_separated(lines),
        "differences.tex": latex(lines),
    }
    files = {**{name: text.encode() for name, text in texts.items()}, **figures.files(drawn)}
    for name, content in files.items():
        write_bytes(out / name, content)
    return [page, *tables, *(out / name for name in files)]
