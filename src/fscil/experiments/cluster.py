"""Cells as tasks of Ray, on this machine or on a cluster whose machines see the same folders.

All state stays in the run folders: a task that Ray starts again continues at the last checkpoint of its cell.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fscil.data import default_root
from fscil.errors import FscilError
from fscil.experiments.schedule import Ended, bases_first, sentence
from fscil.running.experiment import RunSpec, execute

LOCAL = "local"
RETRIES = 3  # times a cell is begun again whose worker was killed
PATIENCE = 5.0  # seconds in which a cluster has to answer


def on_ray(runs: Sequence[RunSpec], address: str, cores: int) -> Iterator[Ended]:
    """The cells as tasks with some cores each, and a GPU where there are any; in the order in which they end."""
    ray = connected(address)
    try:
        gpus = min(1, int(ray.cluster_resources().get("GPU", 0)))
        cores = min(cores, most_cores(ray.nodes(), gpus))  # a task that no machine can take would wait for ever
        if not cores:
            kind = "a core and a GPU" if gpus else "a core"
            raise FscilError(f"no machine of the Ray cluster at {address} offers {kind}: start one with --num-cpus")
        task = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=RETRIES)(work)
        waiting = {task.remote(anywhere(run), cores, Path.cwd()): run for run in bases_first(runs)}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            yield Ended(waiting.pop(done), _error(ray, done))
    finally:
        ray.shutdown()


def connected(address: str) -> Any:
    """The module ray, connected to a cluster or to one that it starts on this machine."""
    try:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
    except ImportError as problem:
        raise FscilError("--ray needs more packages: pip install 'fscil[ray]'") from problem
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            ray.init(address=LOCAL, include_dashboard=False, **quiet)
        else:
            check_reachable(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as problem:  # ConnectionError is an OSError
        raise FscilError(
            f"there is no Ray cluster at {address} ({problem}): start one with `ray start --head`, or take --ray local"
        ) from problem
    return ray


def check_reachable(address: str) -> None:
    """Raises OSError within seconds where nobody listens; Ray itself waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), PATIENCE).close()


def most_cores(nodes: Iterable[Mapping[str, Any]], gpus: int) -> int:
    """Cores of the largest machine of a cluster, of those alone that have so many GPUs."""
    there = [node["Resources"] for node in nodes if node["Alive"]]
    return max((int(has.get("CPU", 0)) for has in there if has.get("GPU", 0) >= gpus), default=0)


def anywhere(run: RunSpec) -> RunSpec:
    """A run whose folders do not depend on where a process was started."""
    return replace(run, out=run.out.absolute(), root=(run.root or default_root()).absolute())


def work(run: RunSpec, cores: int, begun_in: Path) -> str:
    """Runs a cell; gives its error, empty after success.

    Files that its settings name lie where the command was begun. Their names stay as they are: they are a part of
    what the run is, and of what its bases are kept by.
    """
    torch.set_num_threads(cores)
    with suppress(OSError):  # a machine without this folder can still run cells that name no files
        os.chdir(begun_in)
    try:
        execute(run)
    except Exception as problem:
        return sentence(problem)
    return ""


def _error(ray: Any, done: Any) -> str:
    try:
        return str(ray.get(done))
    except ray.exceptions.RayError as problem:
        return f"its worker was lost {RETRIES + 1} times ({str(problem).splitlines()[0]})"
