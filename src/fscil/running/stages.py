"""A stage of training: its epochs and steps, what it costs, and the checkpoint from which a killed process resumes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fscil.data.images import Framing, Images
from fscil.errors import FscilError
from fscil.running.costs import Cost, Stopwatch
from fscil.running.descent import Descent, optimiser, rate
from fscil.running.progress import Bar, Patience
from fscil.tensors import load_into, sent

if TYPE_CHECKING:
    from fscil.running.training import Run


LOSS_STEPS = 20  # of a GPU, after which it is waited for once: the loss is read, a checkpoint or Ctrl-C looked for


class Epoch:
    """One pass of a stage; `start` is not zero when a run resumes in the middle of an epoch."""

    def __init__(self, loop: Loop, number: int, start: int):
        self._loop, self.number, self.start, self.next = loop, number, start, start
        self.fresh = start == 0
        self.progress = number / loop.descent.epochs
        self._share = 1.0
        self._seed_layers()

    def rng(self, *purpose: object) -> torch.Generator:
        """A generator for one purpose in this epoch, the same whether or not the run was interrupted."""
        return self._loop.run.rng(self._loop.name, self.number, *purpose)

    def batches(self, images: Images, framing: Framing, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffled (images, labels), at most `batch` at a time; each device gets its share of every batch."""
        devices, labels = self._loop.run.devices, images.labels
        order = torch.randperm(len(images), generator=self.rng("order"))
        chunks = order.tensor_split(math.ceil(len(images) / batch))  # of equal size: no small last one for batch norm
        if len(chunks[-1]) < devices.count:
            raise FscilError(f"a batch of {len(chunks[-1])} cannot be shared by {devices.count} devices; raise batch")
        rest = chunks[self.start : self._loop.steps]
        for chunk, x in zip(
            rest, images.batches(rest, framing, lambda i: self.rng("view", self.start + i)), strict=True
        ):
            mine = slice(devices.rank, None, devices.count)
            self._share = devices.count * len(chunk[mine]) / len(chunk)
            yield x[mine], sent(labels[chunk[mine]], x.device)

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`, the mean over this device's share."""
        done = self.number * self._loop.steps + self.next
        self._loop.descend(loss if self._share == 1 else self._share * loss, done)
        self.next += 1
        self._seed_layers()
        self._loop.after(done + 1)

    def _seed_layers(self) -> None:
        """Random layers (drop-out in timm models) listen to torch's own generator only: each step seeds it."""
        devices = self._loop.run.devices
        seed = self.rng("layers", self.next, devices.rank).initial_seed()
        torch.default_generator.manual_seed(seed)
        if devices.device.type == "cuda":
            torch.cuda.manual_seed(seed)


class Averaging:
    """The mean of tensors over the steps of a stage behind a number of others; it takes their place in the end."""

    def __init__(self, tensors: Sequence[Tensor], behind: int):
        self.tensors, self.behind = tensors, behind
        self.means: list[Tensor] = []  # one for each tensor, as soon as a step was counted

    @torch.no_grad()
    def count(self, done: int) -> None:
        """Takes in what the tensors are after step `done`."""
        steps = done - self.behind
        if steps == 1:
            self.means = [tensor.detach().clone() for tensor in self.tensors]
        elif steps > 1:
            for mean, tensor in zip(self.means, self.tensors, strict=True):
                mean.lerp_(tensor, 1 / steps)

    @torch.no_grad()
    def put(self) -> None:
        """Replaces the tensors, where steps were counted, by their means."""
        for tensor, mean in zip(self.tensors, self.means, strict=False):
            tensor.copy_(mean)

    def stored(self) -> dict[str, Tensor]:
        return {f"mean.{i}": mean for i, mean in enumerate(self.means)}

    def restore(self, stored: dict[str, Tensor], done: int) -> None:
        """The means as they were after step `done`, in the memory layout of their tensors."""
        if done > self.behind:
            self.means = [torch.empty_like(t).copy_(stored[f"mean.{i}"]) for i, t in enumerate(self.tensors)]


class Loop:
    """Optimiser, progress and checkpoint of one stage."""

    def __init__(
        self, run: Run, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int, stop_after: int
    ):
        self.run, self.name, self.keeps, self.descent, self.steps = run, name, keeps, descent, steps
        self.total = (stop_after or descent.epochs) * steps
        self.goes_on = self.total < descent.epochs * steps  # in another run
        self.parameters = [p for p in trains.parameters() if p.requires_grad]
        self.statistics = [b for b in trains.buffers() if b.is_floating_point()]
        behind = self.total - round(descent.average * self.total)
        self.averaging = Averaging([*self.parameters, *self.statistics], behind)
        self.optimiser = optimiser(self.parameters, descent, run.precision)
        self.rates = [group["lr"] for group in self.optimiser.param_groups]
        self.file = run.folder.stage(run.session, name)
        self.stage = Cost(name)
        self.watch = Stopwatch(self.stage, run.meter, run.devices)
        self.written = time.monotonic()
        self.loss = math.nan
        self.rhythm = 1 if run.devices.device.type == "cpu" else LOSS_STEPS

    def epochs(self) -> Iterator[Epoch]:
        """The epochs that are still to be made; a checkpoint stands behind the last one."""
        title, shown = f"session {self.run.session}: {self.name}", self.run.rank == 0
        done = self._restore()
        if done and done == self.total:
            return
        with Bar(title, self.total, shown) as self.bar, Patience(shown) as self.user:
            while done < self.total:
                epoch = Epoch(self, number=done // self.steps, start=done % self.steps)
                if epoch.fresh:
                    self.run.devices.average(self.statistics)  # batch norm: each device keeps its own within an epoch
                yield epoch
                if epoch.next != self.steps:
                    raise RuntimeError(f"{self.name}: epoch {epoch.number} made {epoch.next} of {self.steps} steps")
                done += self.steps - epoch.start
            self.averaging.put()
            self.run.devices.average(self.statistics)
            self._write(done)
            if self.run.devices.agree(self.user.asked):
                raise KeyboardInterrupt

    def descend(self, loss: Tensor, done: int) -> None:
        """One step of the optimiser behind `done` others, with the gradient averaged over the devices."""
        factor = rate(self.descent, (done // self.steps + done % self.steps / self.steps) / self.descent.epochs)
        for group, lr in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = lr * factor
        if self._pauses(done + 1):
            self._read(loss)
        self.optimiser.zero_grad()
        loss.backward()
        # By hand, once per step: an episode makes several forward passes before its one backward pass.
        self.run.devices.average([p.grad for p in self.parameters if p.grad is not None])
        self.optimiser.step()

    def _pauses(self, done: int) -> bool:
        """Whether the host waits for the device at step `done`: always where they are one."""
        return done % self.rhythm == 0 or done == self.total

    def _read(self, loss: Tensor) -> None:
        mean = loss.detach().clone().reshape(1)
        self.run.devices.average([mean])
        self.loss = mean.item()
        if not math.isfinite(self.loss):
            raise FscilError(f"the loss of stage {self.name} is {self.loss}: it diverged; lower its learning rate")

    def after(self, done: int) -> None:
        """What follows a step: means, progress, a checkpoint when it is due, the end where the user asked for it."""
        self.averaging.count(done)
        if not self._pauses(done):
            return
        self.bar.advance(done, self.loss)
        due = time.monotonic() - self.written >= self.run.checkpoint_seconds
        stop, due = self.run.devices.agree((self.user.asked, due))
        if done == self.total:
            return  # `epochs` finishes the stage first
        if stop or due:
            self._write(done)
        if stop:
            raise KeyboardInterrupt

    def _write(self, done: int) -> None:
        self.stage.steps = done
        self.watch.read()
        tensors = {f"module.{name}": tensor for name, tensor in self.keeps.state_dict().items()}
        if done < self.total or self.goes_on:
            tensors |= _flatten(self.optimiser.state_dict()["state"])
            tensors |= self.averaging.stored()
            if self.run.devices.count > 1 and self.statistics:
                tensors["statistics"] = self.run.devices.collect(self._of_this_device())
        self.run.folder.write(self.file, tensors, {"done": done, "spent": vars(self.stage)})
        self.written = time.monotonic()

    def _of_this_device(self) -> list[Tensor]:
        """What no other device has: the statistics of its batches and, where they are averaged, their means."""
        return [*self.statistics, *self.averaging.means[len(self.parameters) :]]

    def _restore(self) -> int:
        """Loads the checkpoint of this stage, if there is one, and gives the number of steps already made."""
        if not self.run.devices.agree(self.file.exists()):
            return 0
        tensors, notes = self.run.folder.read(self.file)
        load_into(self.keeps, {k[7:]: v for k, v in tensors.items() if k.startswith("module.")}, self.file)
        try:
            spent, done = Cost(**notes["spent"]), int(notes["done"])
            if done < self.total:
                self.averaging.restore(tensors, done)
                self._restore_optimiser(tensors)
        except (RuntimeError, LookupError, ValueError, TypeError) as problem:
            raise FscilError(
                f"{self.file} does not fit this run: a part of it is missing; delete it and run again"
            ) from problem
        self.watch.inherit(spent)
        self.run.watch.inherit(spent)
        self.watch.read()
        self.stage.steps = done
        return done

    def _restore_optimiser(self, tensors: dict[str, Tensor]) -> None:
        state = _unflatten(tensors)
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
        for p in self.parameters:
            for name, value in self.optimiser.state[p].items():
                if value.shape == p.shape:  # in the parameter's memory layout, as before: others are slower
                    self.optimiser.state[p][name] = torch.empty_like(p).copy_(value)
        statistics = tensors.get("statistics")
        if statistics is not None and len(statistics) == self.run.devices.count:
            self.run.devices.fill(self._of_this_device(), statistics[self.run.rank])


def _flatten(state: dict[int, dict[str, Any]]) -> dict[str, Tensor]:
    entries = ((i, name, value) for i, slots in state.items() for name, value in slots.items())
    return {f"optimiser.{i}.{name}": torch.as_tensor(value) for i, name, value in entries}


def _unflatten(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
    return state
