"""What a run will cost before anything is learned: compute, time, memory, and the precision that is faster here."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fscil.data.images import FileImages, free_memory
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.foreseen import foreseen
from fscil.methods.shared.method import Method, PlannedStage, Prototypical, Taught
from fscil.nn.branches import TEST_VIEWS
from fscil.nn.encoders import Encoder, portion_of
from fscil.nn.winograd import WinogradConvolution
from fscil.running.trying import Trial, trial

TESTS = "tests"  # the stage in which images are tested
PRECISIONS = ("float32", "bfloat16")
MASKS = "parametrizations"  # torch's name for what computes a weight
READ = 16  # images read to see how long that takes
PATIENCE = 0.3  # seconds, after which a precision is not timed any further
TIMED: dict[tuple[object, ...], float] = {}  # once per process: the cells of an experiment have few kinds of steps


@runtime_checkable
class OnFeatures(Protocol):
    """A method with a stage of `batch` 0, whose steps pass no image through an encoder: it times a step itself."""

    def step_seconds(self, base: Session, run: Trial) -> float: ...


def choose_precision(wanted: str, device: torch.device) -> dict[str, Any]:
    """float32 or bfloat16; `auto` times a block of convolutions both ways and takes the faster."""
    if wanted in PRECISIONS:
        return {"used": wanted}
    if wanted != "auto":
        raise FscilError(f"unknown precision {wanted!r}; choose auto, {' or '.join(PRECISIONS)}")
    seconds = block_seconds(device)
    return {"used": min(PRECISIONS, key=lambda name: seconds[name]), "block_seconds": dict(seconds)}


@functools.cache  # once per process: the seeds and methods of one command share their precision, and so their bases
def block_seconds(device: torch.device) -> dict[str, float]:
    """Seconds of a block of convolutions in each precision."""
    return {name: _time_block(getattr(torch, name), device) for name in PRECISIONS}


def _time_block(dtype: torch.dtype, device: torch.device) -> float:
    """Seconds of the fastest of a few passes, forward and backward, through a residual block."""
    with torch.random.fork_rng(devices=[]):
        first, second = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    block = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), second).to(device).to(memory_format=torch.channels_last)
    x = torch.zeros(16, 64, 16, 16, device=device).to(memory_format=torch.channels_last)
    times: list[float] = []
    while len(times) < 5 and sum(times) < PATIENCE:
        began = time.perf_counter()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            block(x).float().sum().backward()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cost(method: Method, sessions: Benchmark, device: torch.device, devices: int = 1) -> dict[str, Any]:
    """Compute, estimated seconds and memory of the base session, with the stages it is made of."""
    base = sessions.base(method.config.held_out)
    rows = _rows(method, base, method.plan(base))
    apart = devices // at_one_place(device, devices)  # processes on one CPU share the cores that were timed
    return {
        "parameters": sum(p.numel() for p in method.parameters()),
        "stages": rows,
        "macs": sum(row["macs"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows) / apart,
        "memory_bytes": memory_needed(method, sessions, device, devices),
        "memory_available_bytes": memory_available(device),
    }


def after_base(method: Method, sessions: Benchmark) -> list[dict[str, Any]]:
    """Stages behind the base session: those of later sessions, and the tests of all."""
    later = [stage for stages in later_plans(method, sessions) for stage in stages]
    rows = _rows(method, sessions.base(method.config.held_out), [*later, tests_plan(method, sessions)])
    rows[-1]["macs"] = 0  # compute is that of learning
    return rows


def later_plans(method: Method, sessions: Benchmark) -> Iterator[list[PlannedStage]]:
    """The stages of each later session."""
    for session in foreseen(sessions.sessions(oracle=method.needs.oracle, held_out=method.config.held_out)):
        stages = method.plan_new(session)
        if stages is None:
            raise FscilError(
                f"the method in {type(method).__module__} does not tell what its later sessions will compute; give it "
                "plan_new, or do without --plan and --budget"
            )
        yield stages


def tests_plan(method: Method, sessions: Benchmark) -> PlannedStage:
    """All test images once for a method whose encoders stand still, else after every session all of those seen."""
    sizes = [len(sessions.test_indices(t)) for t in range(sessions.session_count)]
    once = isinstance(method, Prototypical)
    images = sum(sizes) if once else sum(accumulate(sizes))
    views = len(TEST_VIEWS[method.config.views]) * (len(method.branches) if isinstance(method, Taught) else 1)
    return PlannedStage(TESTS, method.config.pixels, 1, min(images, 500), 0, views * images)


def _rows(method: Method, base: Session, stages: Sequence[PlannedStage]) -> list[dict[str, Any]]:
    """Stages with their compute and seconds."""
    encoder, reading = encoder_of(method), _reading_seconds(method, base)
    device = next(encoder.parameters()).device

    def seconds(stage: PlannedStage) -> float:
        if isinstance(method, OnFeatures) and not stage.batch:
            return stage.steps * method.step_seconds(base, trial(device, encoder.precision))
        return _seconds(stage, encoder) + (stage.trained + stage.encoded) * reading

    return [{**vars(s), "macs": stage_macs(s, encoder), "seconds": seconds(s)} for s in stages]


def encoder_of(method: Method) -> Encoder:
    """The encoder by which everything is estimated: the first, where a method has several."""
    return next(module for module in method.modules() if isinstance(module, Encoder))


def stage_macs(stage: PlannedStage, encoder: Encoder) -> int:
    """Three forward passes for an image trained on, one for an image only encoded."""
    return (3 * stage.trained + stage.encoded) * encoder.macs(stage.pixels)


def _seconds(stage: PlannedStage, encoder: Encoder) -> float:
    """One timed step on a few images, scaled to the stage."""
    device, count, trained = next(encoder.parameters()).device, min(stage.batch, 32), stage.trained > 0
    kind = (repr(encoder), encoder.precision, device, count, stage.pixels, trained)
    if kind not in TIMED:
        images = torch.zeros(count, 3, stage.pixels, stage.pixels, device=device)
        images = images.to(memory_format=torch.channels_last)
        TIMED[kind] = min(_time_step(encoder, images, trained) for _ in range(2))  # the first also warms up
        encoder.zero_grad()
    per_forward = TIMED[kind] / count / (3 if trained else 1)
    return (3 * stage.trained + stage.encoded) * per_forward


def _reading_seconds(method: Method, base: Session) -> float:
    """Seconds in which one training image is read and augmented, a few timed; workers read files side by side."""
    some, side_by_side = base.train.select(range(min(READ, len(base.train)))), 1
    if isinstance(some, FileImages):
        side_by_side, some.workers = max(some.workers, 1), 0  # timed in this process: workers take long to start
    began = time.perf_counter()
    next(some.batches([torch.arange(len(some))], method.train_framing(base), torch.Generator().manual_seed))
    return (time.perf_counter() - began) / len(some) / side_by_side


def _time_step(encoder: Encoder, images: Tensor, trained: bool) -> float:
    began = time.perf_counter()
    with torch.set_grad_enabled(trained):
        features = encoder(images)
    if trained:
        features.sum().backward()
    _wait(next(encoder.parameters()).device)
    return time.perf_counter() - began


def at_one_place(device: torch.device, devices: int) -> int:
    """Processes that share cores and memory: all on a CPU, while each GPU has one."""
    return devices if device.type == "cpu" else 1


def memory_needed(method: Method, sessions: Benchmark, device: torch.device, devices: int = 1) -> int:
    """Bytes that a run needs at one place: on the machine, or on each GPU, which holds the images too.

    For each process parameters, gradients and momenta, and the pass of the base session that needs most.
    """
    parameters = 4 * 4 * sum(p.numel() for p in method.parameters())
    encoder = encoder_of(method)
    stages = list(method.plan(sessions.base(method.config.held_out)))
    layers = {pixels: layer_bytes(encoder, pixels) for pixels in {stage.pixels for stage in stages}}
    passes = [pass_bytes(stage, layers[stage.pixels], devices) for stage in stages]
    return at_one_place(device, devices) * (parameters + max(passes, default=0)) + sessions.taken(device)


def pass_bytes(stage: PlannedStage, layers: tuple[int, int], devices: int = 1) -> int:
    """Bytes of one pass on one of some devices: what the backward pass keeps, and what is there for a moment.

    That is the images as they are read and as they are seen, and the largest layer of those that are only encoded: a
    portion of them at a time. `layers`: the bytes of one image of this size, by layer_bytes.
    """
    read = 2 * 4 * 3 * stage.pixels**2 * stage.batch
    portion = min(stage.batch, portion_of(stage.pixels, stage.pixels))
    kept, passing = layers
    mine = stage.support + math.ceil((stage.batch - stage.support) / devices)
    return (mine * kept if stage.trained else 0) + read + (portion * passing if stage.encoded else 0)


def layer_bytes(encoder: Encoder, pixels: int) -> tuple[int, int]:
    """Bytes of one image in float32: what all layers keep for a backward pass, and what the largest has without."""
    kept, largest = 0, 0
    encoder.macs(pixels)  # refuses images the encoder cannot take

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal kept, largest
        made = output.numel() * 4 if isinstance(output, Tensor) else 0
        tiles = module.kept_values(*inputs) * 4 if isinstance(module, WinogradConvolution) else 0
        kept += made + tiles
        given = sum(tensor.numel() * 4 for tensor in inputs if isinstance(tensor, Tensor))
        largest = max(largest, given + made + 3 * tiles)  # cut out, transformed, multiplied

    parts = [(name, dict(part.named_children()).keys()) for name, part in encoder.named_modules()]
    layers = [name for name, inside in parts if inside <= {MASKS} and MASKS not in name]  # a mask is no activation
    hooks = [encoder.get_submodule(layer).register_forward_hook(count) for layer in layers]
    before = encoder.training
    with torch.no_grad():
        encoder.eval()(torch.zeros(1, 3, pixels, pixels))
    encoder.train(before)
    for hook in hooks:
        hook.remove()
    return kept, largest


def memory_available(device: torch.device) -> float:
    """Bytes this process may still use: free memory, or what a control group leaves; on a GPU, what is free there."""
    if device.type != "cpu":
        return free_memory(device)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, left_in_groups(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))


def left_in_groups(root: Path, told: Path) -> float:
    """Bytes that the control groups of this process leave it; infinite where they limit nothing."""
    try:
        named = next(line[3:] for line in told.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        named = ""
    inner = root / named.lstrip("/")  # a container may see nothing but the root
    return min(_left_in_group(group) for group in (inner, *inner.parents))


def _left_in_group(group: Path) -> float:
    """Bytes that a control group leaves; file cache counts as free, because it is given up where memory is needed."""
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(told["inactive_file"]) + int(told["active_file"])
    except (OSError, ValueError, KeyError):  # no such group, or its limit is "max"
        return math.inf


def check_memory(method: Method, sessions: Benchmark, device: torch.device, devices: int = 1) -> None:
    """Refuses a run that cannot fit, before it has cost anything."""
    needed, available = memory_needed(method, sessions, device, devices), memory_available(device)
    if needed > available:
        raise FscilError(
            f"this run needs about {needed / 2**30:.1f} GiB of memory and {available / 2**30:.1f} GiB are free; "
            "take --recipe small, smaller --pixels, --base.batch or, for episodes, --way and --query"
        )
