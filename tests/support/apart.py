"""Tiny runs, here or in a process of their own, where tests can kill them, starve them of disk or start them twice."""

import importlib
import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import fscil.running.experiment
from fscil import methods, settings
from fscil.data import Protocol
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.running.experiment import RunSpec, execute
from tiny import tiny_ingredients

NO: Mapping[str, Any] = {}
FINISHED = "finished"
STEPS = "fscil.running.stages:Loop.after"  # called after every step of a stage
NANO = {
    "encoder": "nano",
    "pixels": 16,
    "held_out": 5,
    "augment.crop": "pad",
    "augment.padding": 1,
    "augment.margin": 1.0,
    "base.epochs": 3,
    "base.batch": 40,
    "base.optimizer": "muon",
    "base.lr": 0.05,
}
NANO_RESA = {
    "transfer.epochs": 2,
    "transfer.step_epochs": 1,
    "tasks": 4,
    "way": 4,
    "shot": 5,
    "query": 6,
    "feature_scale": 0.0,
}


def nano(pixels: int, weights: str | None) -> Encoder:
    """An encoder that costs nearly nothing but has what matters: convolutions and batch norm."""
    first, second = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 16, 3, 2, 1, bias=False)
    layers = (nn.Sequential(conv, nn.BatchNorm2d(n), nn.ReLU()) for conv, n in ((first, 8), (second, 16)))
    return Encoder(nn.Sequential(*layers), 16, pixels)


def dropping(pixels: int, weights: str | None) -> Encoder:
    """The same with a layer that draws random numbers."""
    encoder = nano(pixels, weights)
    encoder.stages.append(nn.Dropout(0.5))
    return encoder


@cache
def tiny_benchmark(protocol: Protocol) -> Benchmark:
    return Benchmark("tiny", tiny_ingredients(), protocol)


@contextmanager
def on_tiny_images() -> Iterator[None]:
    """Experiments learn the tiny benchmark instead of what is on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fscil.running.experiment, "benchmark", lambda name, root, protocol: tiny_benchmark(protocol))
        yield


@pytest.fixture(scope="module", autouse=True)
def always_tiny() -> Iterator[None]:
    """For test modules that import it: all their experiments learn the tiny benchmark."""
    with on_tiny_images():
        yield


encoders.BUILDERS |= {"nano": nano, "dropping": dropping}
torch.set_num_threads(1)
torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # torch imports much at the first use of these: not in every fork
nano(16, None).macs(16)


def tiny_experiment(out: Path, method: str = "kt_rcnet", changes: Mapping[str, Any] = NO, **rest: Any) -> RunSpec:
    """Six base classes and three sessions of two, learned in a fraction of a second; a checkpoint after every step."""
    wanted = {**NANO, **(NANO_RESA if method == "kt_rcnet" else {}), **changes}
    config = settings.resolve(methods.load(method).Config, method, "folder", "paper", wanted)
    plain = {"precision": "float32", "checkpoint_seconds": 0.0}
    return RunSpec(method=method, dataset="folder", recipe="paper", config=config, out=out, **{**plain, **rest})


@dataclass(frozen=True)
class Fate:
    """A signal that the process sends itself when a function is called for the n-th time."""

    function: str  # "module:name"
    call: int
    signal: int = signal.SIGKILL

    def prepare(self) -> None:
        module, names = self.function.split(":")
        owner: Any = importlib.import_module(module)
        *outer, name = names.split(".")
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def counted(*positional: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.call:
                os.kill(os.getpid(), self.signal)
            return function(*positional, **named)

        return counted


def start(experiment: RunSpec, fate: Fate | None = None, file_limit: int = 0) -> tuple[BaseProcess, Connection]:
    """The experiment in a process of its own, which tells how it ended."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["apart"])  # torch is imported once, not in every process
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(experiment, fate, file_limit, there))
    process.start()
    there.close()
    return process, here


def run_apart(experiment: RunSpec, fate: Fate | None = None, file_limit: int = 0) -> str:
    """How the experiment ended in a process of its own: FINISHED, an error's sentence, or the signal that ended it."""
    process, connection = start(experiment, fate, file_limit)
    try:
        ended = connection.recv()
    except EOFError:
        ended = ""
    process.join()
    return ended or f"signal {-(process.exitcode or 0)}"


def _work(experiment: RunSpec, fate: Fate | None, file_limit: int, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is missing where tests run in the background
    if fate:
        fate.prepare()
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, resource.RLIM_INFINITY))
    try:
        with on_tiny_images():
            execute(experiment)
        connection.send(FINISHED)
    except FscilError as error:
        connection.send(str(error))
    except KeyboardInterrupt:
        connection.send("stopped")


def results(folder: Path) -> dict[str, Any]:
    """What a run folder holds that must not depend on interruptions: states, predictions and compute, not seconds."""
    tensors = {
        f"{file.stem}: {name}": values
        for file in sorted(folder.glob("*.safetensors"))
        for name, values in load_file(file).items()
    }
    return {**tensors, **{file.stem: _costs(file) for file in sorted(folder.glob("session-*.json"))}}


def _costs(file: Path) -> dict[str, Any]:
    record = json.loads(file.read_text())
    stages = [{key: stage[key] for key in ("name", "macs", "images", "steps")} for stage in record["stages"]]
    return {"macs": record["macs"], "classes": record["classes"], "stages": stages}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what is not bit for bit the same in two results."""
    names = one.keys() | other.keys()
    return sorted(n for n in names if n not in one or n not in other or not np.array_equal(one[n], other[n]))
