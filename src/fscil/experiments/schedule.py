"""The cells of an experiment one after the other, or several at once; one that fails stops none of the others."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import torch

from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.running.devices import usable_cores
from fscil.running.experiment import RunSpec, execute

STOPPED = "stopped"

Teller = Callable[[RunSpec], Callable[[Session], None]]  # hears of a cell that begins, gives who hears of its sessions


class Ended(NamedTuple):
    """A cell that was tried; the error is empty after success."""

    run: RunSpec
    error: str


def in_turn(runs: Sequence[RunSpec], tell: Teller) -> Iterator[Ended]:
    """One cell after the other in this process, with all cores."""
    for run in runs:
        try:
            execute(run, tell(run))
            yield Ended(run, "")
        except Exception as problem:  # whatever it is, the other cells do not depend on it
            yield Ended(run, sentence(problem))


def side_by_side(runs: Sequence[RunSpec], jobs: int) -> Iterator[Ended]:
    """`jobs` cells at once, each in a process of its own with its share of the cores; in the order in which they end.

    After Ctrl-C no further cell begins; those at work, which hear it too, write their checkpoints first.
    """
    threads = share_of_cores(jobs)
    waiting = ThreadPoolExecutor(jobs)
    try:
        ends = [waiting.submit(apart, run, threads) for run in (bases_first(runs) if jobs > 1 else runs)]
        for end in as_completed(ends):
            yield end.result()
    finally:
        waiting.shutdown(cancel_futures=True)


def bases_first(runs: Sequence[RunSpec]) -> list[RunSpec]:
    """The first cell of each seed before all others: it trains the base for which others of its seed would wait."""
    first = {run.seed: run for run in reversed(runs)}
    return sorted(runs, key=lambda run: run is not first[run.seed])


def share_of_cores(jobs: int) -> int:
    """Cores of each of several cells at once."""
    return max(1, usable_cores() // jobs)


def apart(run: RunSpec, threads: int) -> Ended:
    """A cell in a process of its own."""
    context = multiprocessing.get_context("forkserver")  # a fork of a process that has used torch may hang
    context.set_forkserver_preload([execute.__module__])  # torch is imported once, not by every cell
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(run, threads, there))  # no daemon: it may load images by processes
    process.start()
    there.close()
    try:
        error = here.recv()
    except EOFError:
        error = ""
    process.join()
    killed = f"its process ended with code {process.exitcode}; see {log_file(run)}"
    return Ended(run, error or (killed if process.exitcode else ""))


def log_file(run: RunSpec) -> Path:
    """Where a cell with a process of its own writes what a terminal would show."""
    return run.out / "logs" / f"{run.folder.parent.name}-{run.folder.name}.log"


def sentence(problem: Exception) -> str:
    """An error of ours as it is, any other with its name."""
    return str(problem) if isinstance(problem, FscilError) else f"{type(problem).__name__}: {problem}"


def _work(run: RunSpec, threads: int, connection: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _redirect(log_file(run))
    torch.set_num_threads(threads)
    try:
        execute(run)
        connection.send("")
    except KeyboardInterrupt:
        connection.send(STOPPED)
    except Exception as problem:
        connection.send(sentence(problem))
        raise


def _end_with_parent() -> None:
    """Ends this process when the experiment was killed: the same command shall not find its cells at work."""
    parent = multiprocessing.parent_process()
    if parent:
        wait([parent.sentinel])
        os._exit(1)


def _redirect(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(number, stream)
