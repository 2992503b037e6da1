"""The verb `fscil experiment`: a set of runs and the tables that compare them."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from fscil import data
from fscil.command import live, show
from fscil.command.options import Count
from fscil.errors import FscilError

if TYPE_CHECKING:
    from fscil.data.sessions import Session
    from fscil.experiments.budget import Cost
    from fscil.experiments.schedule import Ended
    from fscil.running.experiment import RunSpec


def experiment(
    name: Annotated[str, Parameter(help="a shipped experiment (without a name they are listed), or a .toml file")] = "",
    dataset: Annotated[str | None, Parameter(help="data set [default: that of the experiment]")] = None,
    /,
    *,
    root: Annotated[Path | None, Parameter(help="folder of the data [default: $FSCIL_DATA, else ./data]")] = None,
    recipe: Annotated[str | None, Parameter(help="name or .toml file [default: that of the experiment]")] = None,
    seeds: Annotated[Count | None, Parameter(help="runs of each cell [default: those of the experiment]")] = None,
    trains: Annotated[
        Literal["encoder", "last_stage", "map"] | None, Parameter(help="what complementary learning trains of f2")
    ] = None,
    set_: Annotated[
        list[str] | None,
        Parameter(
            name="--set", help="NAME=VALUE, of all cells that have such a setting; {seed}: the seed", negative=()
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        Parameter(help="arm=NAME,NAME, seed=1,2 or AXIS=VALUE,VALUE: only these cells", negative=()),
    ] = None,
    budget: Annotated[
        float | None, Parameter(help="most compute in PMAC: of the cells to do, only the first that fit are run")
    ] = None,
    jobs: Annotated[Count, Parameter(help="cells at once, each in a process of its own")] = 1,
    ray: Annotated[
        str | None,
        Parameter(help="local, or the address of a Ray cluster: cells become its tasks"),
    ] = None,
    part: Annotated[str, Parameter(help="K/N: of every N cells only the K-th, for several machines")] = "1/1",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], Parameter(help="auto: the faster one, the same for all cells")
    ] = "auto",
    out: Annotated[Path | None, Parameter(help="folder of the experiment [default: runs/NAME-DATASET]")] = None,
    log: Annotated[
        Literal["csv", "tensorboard"] | None, Parameter(help="also write down the sessions of every cell as it ends")
    ] = None,
    plan: Annotated[bool, Parameter(help="print cells, compute and time, and stop", negative=())] = False,
) -> None:
    """Run a set of runs that belong together, and compare them; the same command continues one that was stopped."""
    from fscil.experiments import cells, folder, gradcam, journal, specs

    if not name:
        return _print_shipped()
    if name == gradcam.NAME:
        return _draw(dataset, root, out)
    chosen = specs.load(name)
    dataset = dataset or chosen.dataset
    data.check_name(dataset)
    place = out or Path("runs") / f"{chosen.name}-{dataset}"
    surroundings = cells.Surroundings(
        dataset=dataset,
        out=place,
        seeds=seeds or chosen.seeds,
        changes=specs.changes([*(set_ or ()), *([f"trains={trains}"] if trains else ())], chosen),
        root=root,
        recipe=recipe,
        precision=folder.precision(place, precision),
        command=shlex.join(["fscil", *sys.argv[1:]]),
    )
    readings = cells.readings(chosen, surroundings)
    wanted = cells.only(readings, only or ())
    cells.check_changes(chosen, wanted, surroundings.changes)
    asked = cells.part(cells.cells(wanted), part)
    if plan:
        return _print_plan(asked, cells.cells(readings))
    runs = asked if budget is None else _affordable(asked, cells.cells(readings), budget)
    folder.claim(chosen, surroundings)
    folder.check_images(cells.cells(readings))
    missing = folder.unfinished(runs)
    writer = journal.journal(log, place) if log else None
    failures = _execute(runs, missing, _ends(missing, jobs, ray), writer)
    for file in folder.write_results(chosen, readings, place):
        show.say(file)
    if failures:
        raise FscilError(_failure_sentence(failures, len(runs), len(asked) - len(runs)))
    return None


def _draw(folder: str | None, root: Path | None, out: Path | None) -> None:
    """Figure 5 of a run folder."""
    from fscil.experiments import gradcam

    if not folder:
        raise FscilError("gradcam draws a finished run: give its run folder, such as runs/cub200/kt_rcnet-small/seed0")
    for file in gradcam.draw(Path(folder), root, out or Path("runs") / gradcam.NAME):
        show.say(file)


def _print_shipped() -> None:
    from fscil.experiments import gradcam, specs

    shipped = [specs.load(name) for name in specs.names()]
    rows = [(e.name, e.title, e.shows, e.dataset) for e in shipped]
    rows.append((gradcam.NAME, "Where the relations of a finished run (its folder) look", "Figure 5", "its own"))
    show.table(("experiment", "what it compares", "in the paper", "data set"), rows)


def _print_plan(runs: Sequence["RunSpec"], everything: Sequence["RunSpec"]) -> None:
    """What some cells of an experiment cost; what any of its finished cells has left is there already."""
    from fscil.experiments import budget, folder

    planner, missing = budget.Planner(), folder.unfinished(runs)
    possible, impossible = _told_apart(planner.costs(runs), len(runs))
    kinds = (budget.BASE, budget.REST, budget.LATER)
    rows = (
        (
            _name(cost.run),
            "to do" if cost.run in missing else "finished",
            *("shared" if cost.takes(kind) else f"{cost.macs_of(kind) / 1e15:.4f}" for kind in kinds),
            f"{cost.memory_bytes / 2**30:.1f}",
            show.duration(cost.seconds),
        )
        for cost in possible
    )
    columns = ("PMAC of its base", "rest of session 0", "later sessions", "GiB", "time")
    show.table(("cell", "state", *columns), rows, numbers=5)
    left = [cost for cost in planner.costs(missing, finished=folder.finished(everything)) if not cost.error]
    show.say("")
    for cost in impossible:
        show.say(f"cannot be run: {_name(cost.run)} ({cost.error})")
    for title, part in (("in all", possible), ("to do", left)):
        macs, seconds = sum(cost.macs for cost in part), sum(cost.seconds for cost in part)
        show.say(f"{title:8}{len(part)} cells, {macs / 1e15:.4f} PMAC, about {show.duration(seconds)} on this machine")
    show.say("All sessions; what cells share counts once. The time includes tests, whose compute does not count.")


def _told_apart(costs: Sequence["Cost"], count: int) -> tuple[list["Cost"], list["Cost"]]:
    """The cells that can be run, and the others; where none of all cells can, the command fails as they would."""
    possible, impossible = [cost for cost in costs if not cost.error], [cost for cost in costs if cost.error]
    if impossible and len(impossible) == count:
        raise FscilError(impossible[0].error)
    return possible, impossible


def _affordable(runs: Sequence["RunSpec"], everything: Sequence["RunSpec"], pmac: float) -> list["RunSpec"]:
    """Finished cells, and of the others the first that fit into a number of PMAC beside all that is finished."""
    from fscil.experiments import budget, folder

    missing = folder.unfinished(runs)
    costs = budget.Planner().costs(missing, finished=folder.finished(everything))
    possible, impossible = _told_apart(costs, len(runs))
    fitting = budget.fitting(possible, pmac * 1e15)
    for cost in impossible:
        show.say(f"left out, cannot be run: {_name(cost.run)} ({cost.error})")
    for cost in possible:
        if cost.run not in fitting:
            show.say(f"left out, beyond the budget of {pmac:g} PMAC: {_name(cost.run)}")
    return [run for run in runs if run in fitting or run not in missing]


def _execute(
    runs: Sequence["RunSpec"],
    missing: Sequence["RunSpec"],
    ends: Iterable["Ended"],
    log: Callable[["RunSpec"], None] | None,
) -> list["Ended"]:
    """Runs what is missing and tells of it, on a terminal as a table; gives what failed."""
    show.say(f"{len(runs)} cells, {len(runs) - len(missing)} of them finished before")
    board = live.Board(missing, [_name(run) for run in missing])
    failures = []
    terminal = sys.stdout.isatty()
    with live.LiveTable(board, show.console()) if terminal else nullcontext():
        for number, end in enumerate(ends, 1):
            board.end(end)
            if not terminal:
                show.say(f"{number} of {len(missing)}: {_told(end)}")
            if end.error:
                failures.append(end)
            elif log:
                log(end.run)
    for end in failures if terminal else ():
        show.say(_told(end))
    return failures


def _told(end: "Ended") -> str:
    return f"{_name(end.run)} {f'failed: {end.error}' if end.error else 'finished'}"


def _ends(missing: Sequence["RunSpec"], jobs: int, ray: str | None) -> Iterable["Ended"]:
    """The cells as they end: on Ray, or in processes of their own; without a terminal one after the other in this."""
    from fscil.experiments import cluster, schedule

    if not missing:
        return ()
    if ray:
        return cluster.on_ray(missing, ray, schedule.share_of_cores(jobs))
    if jobs > 1 or sys.stdout.isatty():  # there the table must be the only one who draws
        return schedule.side_by_side(missing, jobs)
    return schedule.in_turn(missing, _announce)


def _announce(run: "RunSpec") -> Callable[["Session"], None]:
    show.say(_name(run))
    return show.Teller(run.folder).line


def _name(run: "RunSpec") -> str:
    return f"{run.folder.parent.name}, seed {run.seed}"


def _failure_sentence(failures: Sequence["Ended"], count: int, left_out: int) -> str:
    first, again = failures[0], "run the same command again to try only those that failed"
    if left_out:
        again = f"{left_out} more were left out; run the same command again to go on"
    failed = f"{len(failures)} of {count} cells failed, such as {_name(first.run)} ({first.error})"
    return f"{failed}; the others are finished; {again}"
