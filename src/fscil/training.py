"""Run: the only door through which a method reaches the outside. Optimiser, schedule, devices, checkpoints and progress live here."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fscil.data.images import Images, View
from fscil.errors import FscilError
from fscil.nn.compute import Meter, counting
from fscil.nn.muon import Muon
from fscil.progress import Bar
from fscil.runfolder import RunFolder, read_tensors, write_tensors

CHECKPOINT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How parameters are optimised."""

    epochs: int = 80  # passes
    optimizer: Literal["sgd", "muon", "adamw"] = "sgd"  # muon: orthogonalised steps for convolutions, SGD for the rest
    lr: float = 0.03  # learning rate (muon: of the convolutions)
    rest_lr: float = 0.05  # muon only: learning rate of everything that is no convolution
    momentum: float = 0.9  # momentum, with Nesterov
    weight_decay: float = 1e-4  # L2 penalty (muon: not on convolutions, whose norm is fixed)
    schedule: Literal["step", "cosine", "linear"] = "step"  # how the rate falls; cosine and linear end at zero
    step_epochs: int = 20  # schedule step: epochs between two decays
    milestones: tuple[int, ...] = ()  # schedule step: the epochs of the decays, instead of one every step_epochs
    gamma: float = 0.1  # schedule step: factor of a decay
    warmup: float = 0.0  # share of all steps in which the rate rises from zero


@dataclass(frozen=True, kw_only=True)
class Training(Descent):
    """How a classifier is trained on batches of images."""

    batch: int = 128  # images per step, over all devices
    label_smoothing: float = 0.0  # share of the target spread over all classes
    pixels: tuple[int, ...] = ()  # training image sizes, one after the other in equal parts of the epochs; empty: the encoder's


def rate(descent: Descent, done: float) -> float:
    """Factor of the learning rate after the share `done` (0..1) of all steps."""
    if done < descent.warmup:
        return done / descent.warmup
    if descent.schedule == "step":
        epoch = int(done * descent.epochs + 1e-9)
        decays = sum(epoch >= m for m in descent.milestones) if descent.milestones else epoch // descent.step_epochs
        return descent.gamma**decays
    left = 1 - (done - descent.warmup) / (1 - descent.warmup)
    return left if descent.schedule == "linear" else 0.5 * (1 - float(torch.cos(torch.tensor(torch.pi * left))))


def optimiser(parameters: Sequence[nn.Parameter], descent: Descent) -> torch.optim.Optimizer:
    d = descent
    if d.optimizer == "muon":
        return Muon(parameters, d.lr, d.rest_lr, d.momentum, 0.85, d.weight_decay)
    if d.optimizer == "adamw":
        return torch.optim.AdamW(parameters, d.lr, weight_decay=d.weight_decay)
    return torch.optim.SGD(parameters, d.lr, d.momentum, weight_decay=d.weight_decay, nesterov=d.momentum > 0)


@dataclass
class Stage:
    """What a stage of training cost, over all processes that worked on it."""

    name: str
    seconds: float = 0.0
    macs: int = 0
    images: int = 0
    steps: int = 0


class Stopwatch:
    """Seconds and compute since its start; what earlier processes spent is inherited."""

    def __init__(self, meter: Meter):
        self.meter, self.began, self.macs, self.trained = meter, time.perf_counter(), meter.macs, meter.trained

    def inherit(self, spent: Stage) -> None:
        self.began -= spent.seconds
        self.meter.macs += spent.macs
        self.meter.trained += spent.images

    def read(self, stage: Stage) -> None:
        stage.seconds = time.perf_counter() - self.began
        stage.macs = self.meter.macs - self.macs
        stage.images = self.meter.trained - self.trained


@dataclass
class Run:
    """What a method may use of the outside: epochs(), cached(), rng() and batches of images."""

    folder: RunFolder
    seed: int
    cache: Path
    fabric: Any = None  # lightning Fabric where several devices work together
    precision: str = "float32"
    fingerprint: str = ""  # digest of the data, so that nothing cached is shared between different data
    session: int = 0
    stages: list[Stage] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self.watch = Stopwatch(self.meter)

    @property
    def rank(self) -> int:
        return self.fabric.global_rank if self.fabric else 0

    @property
    def world(self) -> int:
        return self.fabric.world_size if self.fabric else 1

    def rng(self, *purpose: object) -> torch.Generator:
        """A generator of its own for each purpose: adding one never changes the numbers of another."""
        digest = hashlib.sha256(json.dumps([self.seed, self.session, *map(str, purpose)]).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))

    def batches(self, images: Images, view: View, batch: int = 500) -> Iterator[Tensor]:
        """All images in order, under a view without randomness."""
        return images.batches(list(torch.arange(len(images)).split(batch)), view)

    def epochs(self, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int) -> Iterator[Epoch]:
        """Trains the parameters of `trains` that need gradients; `keeps` is the module whose whole state a checkpoint holds.

        A stage that was finished before is loaded and yields nothing; one that was interrupted goes on where its checkpoint stands.
        """
        loop = _Loop(self, name, keeps, trains, descent, steps)
        total = descent.epochs * steps
        self.stages.append(loop.stage)
        with Bar(f"session {self.session}: {name}", total, self.rank == 0) as bar:
            done = loop.restore()
            if done == total and total:
                return
            while done < total:
                epoch = Epoch(loop, bar, number=done // steps, start=done % steps)
                yield epoch
                if epoch.next != steps:
                    raise RuntimeError(f"stage {name}: epoch {epoch.number} made {epoch.next} of {steps} steps")
                done = (epoch.number + 1) * steps
            loop.finish()

    def cached(self, name: str, key: dict[str, Any], module: nn.Module, make: Callable[[], None]) -> None:
        """Fills `module` by `make()`, or by what an earlier run with the same key on the same data, seed and precision made."""
        world = {"data": self.fingerprint, "seed": self.seed, "precision": self.precision, "devices": self.world, "torch": torch.__version__}
        full = {**key, **world}
        digest = hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:16]
        file = self.cache / f"{name}-{digest}.safetensors"
        if file.exists():
            state, notes = read_tensors(file)
            module.load_state_dict(state)
            for stage in (Stage(**stage) for stage in notes["stages"]):
                self.stages.append(stage)
                self.watch.inherit(stage)
            return
        before = len(self.stages)
        make()
        if self.folder.writable:
            write_tensors(file, module.state_dict(), {"key": full, "stages": [vars(stage) for stage in self.stages[before:]]})

    @contextmanager
    def learning(self, session: int) -> Iterator[Stage]:
        """Counts everything a method does while it learns one session."""
        self.session, self.stages, self.watch = session, [], Stopwatch(self.meter)
        total = Stage("learn")
        with counting(self.meter):
            yield total
        self.watch.read(total)
        total.steps = sum(stage.steps for stage in self.stages)


class Epoch:
    """One pass of a stage. `start` is the first step to make: not zero when a run goes on in the middle of an epoch."""

    def __init__(self, loop: _Loop, bar: Bar, number: int, start: int):
        self.number, self.start, self.next = number, start, start
        self.fresh = start == 0
        self.progress = number / loop.descent.epochs
        self._loop, self._bar = loop, bar

    def rng(self, *purpose: object) -> torch.Generator:
        return self._loop.run.rng(self._loop.name, self.number, *purpose)

    def batches(self, images: Images, view: View, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffled batches (images, labels); with several devices each takes its share of every batch."""
        order = torch.randperm(len(images), generator=self.rng("order"))
        chunks = list(order.split(batch))[: self._loop.steps]
        rank, world = self._loop.run.rank, self._loop.run.world
        shown = images.batches(chunks[self.start :], view, lambda i: self.rng("view", self.start + i))
        for chunk, x in zip(chunks[self.start :], shown, strict=True):
            yield x[rank::world], images.labels[chunk][rank::world]

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`."""
        self._loop.descend(loss, self.number + self.next / self._loop.steps)
        self.next += 1
        done = self.number * self._loop.steps + self.next
        self._bar.advance(done, float(loss.detach()))
        self._loop.checkpoint(done)


class _Loop:
    """Optimiser and checkpoint of one stage."""

    def __init__(self, run: Run, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int):
        self.run, self.name, self.keeps, self.descent, self.steps = run, name, keeps, descent, steps
        self.parameters = [p for p in trains.parameters() if p.requires_grad]
        self.buffers = [b for b in trains.buffers() if b.is_floating_point()]
        self.optimiser = optimiser(self.parameters, descent) if descent.epochs and self.parameters else None
        self.rates = [group["lr"] for group in self.optimiser.param_groups] if self.optimiser else []
        self.file = run.folder.stage(run.session, name)
        self.stage, self.watch = Stage(name), Stopwatch(run.meter)
        self.written = time.monotonic()

    def descend(self, loss: Tensor, epochs_done: float) -> None:
        assert self.optimiser is not None
        factor = rate(self.descent, epochs_done / self.descent.epochs)
        for group, lr in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = lr * factor
        if not torch.isfinite(loss):
            raise FscilError(f"the loss of stage {self.name!r} is {float(loss)}: training diverged; lower the learning rate of this stage")
        self.optimiser.zero_grad()
        loss.backward()
        if self.run.world > 1:
            self._average([p.grad for p in self.parameters if p.grad is not None])
        self.optimiser.step()

    def _average(self, tensors: Sequence[Tensor]) -> None:
        """Mean over the devices. Once per step and by hand: an episode makes several forward passes before its one backward."""
        for tensor in tensors:
            tensor.copy_(self.run.fabric.all_reduce(tensor, reduce_op="mean"))

    def checkpoint(self, done: int) -> None:
        self.stage.steps = done
        if time.monotonic() - self.written > CHECKPOINT_SECONDS:
            self._write(done)

    def finish(self) -> None:
        if self.run.world > 1:
            self._average(self.buffers)  # batch statistics differ per device
        self._write(self.descent.epochs * self.steps)

    def _write(self, done: int) -> None:
        self.watch.read(self.stage)
        self.written = time.monotonic()
        if not self.run.folder.writable:
            return
        tensors = {f"module.{k}": v for k, v in self.keeps.state_dict().items()}
        if self.optimiser and done < self.descent.epochs * self.steps:
            tensors |= _flatten(self.optimiser.state_dict()["state"])
        write_tensors(self.file, tensors, {"done": done, "spent": vars(self.stage)})

    def restore(self) -> int:
        """Loads the checkpoint of this stage, if there is one, and gives the number of steps already made."""
        if not self.file.exists():
            return 0
        tensors, notes = read_tensors(self.file)
        try:
            self.keeps.load_state_dict({k[7:]: v for k, v in tensors.items() if k.startswith("module.")})
            if self.optimiser:
                state = self.optimiser.state_dict()
                self.optimiser.load_state_dict({**state, "state": _unflatten(tensors)})
            spent = Stage(**notes["spent"])
            done = int(notes["done"])
        except (RuntimeError, KeyError, ValueError, TypeError) as problem:
            raise FscilError(f"{self.file} does not fit this run ({problem}); delete it and run the same command again") from problem
        self.watch.inherit(spent)
        self.run.watch.began -= spent.seconds
        self.watch.read(self.stage)
        self.stage.steps = done
        return done


def _flatten(state: dict[int, dict[str, Any]]) -> dict[str, Tensor]:
    return {f"optimiser.{i}.{name}": torch.as_tensor(value) for i, slots in state.items() for name, value in slots.items()}


def _unflatten(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
    return state
