"""From settings to a run folder: builds encoder, data, devices and precision, and hands them to the protocol."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fscil import methods, protocol
from fscil.data import Protocol, benchmark
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods._method import Method, Plan
from fscil.nn import encoders
from fscil.runfolder import FORMAT, RunFolder
from fscil.settings import to_dict
from fscil.training import Run

LIBRARIES = ("fscil", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow", "safetensors")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run: a method with its settings on a data set, with a seed."""

    method: str
    dataset: str
    recipe: str
    config: Any
    root: Path | None = None
    protocol: Protocol = Protocol()
    seed: int = 0
    out: Path = Path("runs")
    devices: int = 1
    precision: str = "auto"  # auto, float32 or bfloat16
    command: str = ""

    @property
    def folder(self) -> Path:
        return self.out / self.dataset / f"{self.method}-{Path(self.recipe).stem}" / f"seed{self.seed}"


def execute(experiment: Experiment, tell: Callable[[Session], None] | None = None) -> Path:
    """Runs an experiment, or the rest of it, and gives its run folder; `tell` hears of every session that is finished."""
    e = experiment
    fabric = launch(e.devices)
    first = fabric is None or fabric.global_rank == 0
    sessions = benchmark(e.dataset, e.root, e.protocol)
    precision = choose_precision(e.precision)
    method = build(e, precision["used"])
    check_memory(method, sessions)
    folder = RunFolder(e.folder, writable=first)
    folder.open(describe(e, method, sessions, precision))
    run = Run(folder, e.seed, e.out / "cache", fabric, precision["used"], sessions.fingerprint())
    protocol.run(method, sessions, run, tell if first else None)
    return e.folder


def build(experiment: Experiment, precision: str) -> Method:
    """The untrained method; its weights depend on the seed alone."""
    c = experiment.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(experiment.seed)
        encoder = encoders.build(c.encoder, c.pixels, c.weights).to(memory_format=torch.channels_last)
        encoder.precision = getattr(torch, precision)
        return methods.load(experiment.method).Method(c, encoder)


def launch(devices: int) -> Any:
    """Lightning Fabric with as many processes as devices; None for a single one, which needs none."""
    if devices == 1:
        return None
    available = torch.cuda.device_count() or os.cpu_count() or 1
    if not 1 <= devices <= available:
        kind = "GPUs" if torch.cuda.is_available() else "CPU cores"
        raise FscilError(f"--devices {devices} is not possible: this machine has {available} {kind}")
    from lightning_fabric import Fabric

    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    fabric = Fabric(accelerator=accelerator, devices=devices, strategy="ddp")
    fabric.launch()
    return fabric


def choose_precision(wanted: str) -> dict[str, Any]:
    """float32 or bfloat16; `auto` times a block of convolutions both ways and takes the faster."""
    if wanted != "auto":
        return {"used": wanted}
    seconds = {name: _time_block(getattr(torch, name)) for name in ("float32", "bfloat16")}
    return {"used": min(seconds, key=lambda name: seconds[name]), "block_seconds": seconds}


def _time_block(dtype: torch.dtype) -> float:
    block = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
    block = block.to(memory_format=torch.channels_last)
    x = torch.zeros(16, 64, 16, 16).to(memory_format=torch.channels_last)
    best = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            block(x).float().sum().backward()
        best = min(best, time.perf_counter() - began)
    return best


def describe(e: Experiment, method: Method, sessions: Benchmark, precision: dict[str, Any]) -> dict[str, Any]:
    """Everything needed to understand and repeat a run; the content of run.json."""
    c = e.config
    return {
        "format": FORMAT,
        "method": e.method,
        "dataset": e.dataset,
        "recipe": Path(e.recipe).stem,
        "seed": e.seed,
        "sessions": sessions.session_count,
        "command": e.command,
        "settings": to_dict(c),
        "protocol": to_dict(e.protocol),
        "versions": {name: version(name) for name in LIBRARIES},
        "git": git_hash(),
        "machine": {"cpu": _cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "devices": e.devices},
        "precision": precision,
        "class_names": list(sessions.class_names),
        "first_seen": {str(label): session for label, session in sessions.first_seen.items()},
        "encoder": c.encoder,
        "pixels": c.pixels,
        "parameters": sum(p.numel() for p in method.parameters()),
        "pretrained": Path(c.weights).name if c.weights else "no",
        "selection": "last epoch",
        "keeps": method.needs.keeps(),
        "benchmark_fingerprint": sessions.fingerprint(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def git_hash() -> str:
    """Commit of the source tree this package runs from, with a plus where files were changed; empty outside a checkout."""
    here = ("git", "-C", str(Path(__file__).parent))
    try:
        commit = subprocess.run([*here, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*here, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True).stdout.strip()
        return commit + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# ---- what a run will cost -------------------------------------------------------------------------------------------------------


def plan(experiment: Experiment) -> dict[str, Any]:
    """Settings, parameters, compute, memory and estimated time of the base session, without training anything."""
    e = experiment
    sessions = benchmark(e.dataset, e.root, e.protocol)
    precision = choose_precision(e.precision)
    method = build(e, precision["used"])
    encoder = next(module for module in method.modules() if isinstance(module, encoders.Encoder))
    stages = method.plan(_base_images(method, sessions))
    rows = [{**vars(stage), "macs": stage_macs(stage, encoder), "seconds": _seconds(stage, encoder)} for stage in stages]
    return {
        "settings": to_dict(e.config),
        "precision": precision,
        "parameters": sum(p.numel() for p in method.parameters()),
        "stages": rows,
        "macs": sum(row["macs"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "memory_bytes": memory_needed(method, stages),
        "memory_available_bytes": memory_available(),
    }


def _base_images(method: Method, sessions: Benchmark) -> int:
    return len(next(iter(sessions.sessions(held_out=method.config.held_out))).train)


def stage_macs(stage: Plan, encoder: encoders.Encoder) -> int:
    """Three forward passes for an image trained on, one for an image only encoded."""
    return stage.steps * (3 * stage.trained + stage.encoded) * encoder.macs(stage.pixels)


def _seconds(stage: Plan, encoder: encoders.Encoder) -> float:
    """One timed step on a few images, scaled to the stage."""
    images = torch.zeros(min(max(stage.trained, stage.encoded), 32), 3, stage.pixels, stage.pixels)
    images = images.to(memory_format=torch.channels_last)
    best = float("inf")
    for _ in range(2):  # the first pass also warms up
        began = time.perf_counter()
        if stage.trained:
            encoder(images).sum().backward()
        else:
            with torch.no_grad():
                encoder(images)
        best = min(best, time.perf_counter() - began)
    encoder.zero_grad()
    per_forward = best / len(images) / (3 if stage.trained else 1)
    return stage.steps * (3 * stage.trained + stage.encoded) * per_forward


def memory_needed(method: Method, stages: list[Plan]) -> int:
    """Bytes of parameters, their gradients and momenta, and of the activations of the largest training step."""
    parameters = 4 * sum(p.numel() for p in method.parameters()) * 4
    encoder = next(module for module in method.modules() if isinstance(module, encoders.Encoder))
    return parameters + max((stage.trained * activation_bytes(encoder, stage.pixels) for stage in stages if stage.trained), default=0)


def activation_bytes(encoder: encoders.Encoder, pixels: int) -> int:
    """Bytes that the backward pass of one image keeps: the output of every layer, in float32."""
    total = 0

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal total
        total += output.numel() * 4 if isinstance(output, torch.Tensor) else 0

    hooks = [module.register_forward_hook(count) for module in encoder.modules() if not list(module.children())]
    with torch.no_grad():
        encoder.eval()(torch.zeros(1, 3, pixels, pixels))
    for hook in hooks:
        hook.remove()
    return total


def memory_available() -> int:
    """Bytes this process may still use: free memory, or what a control group leaves."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return free if limit == "max" else min(free, int(limit) - used)
    except (OSError, ValueError):
        return free


def check_memory(method: Method, sessions: Benchmark) -> None:
    """Refuses a run that cannot fit, before it has cost anything."""
    stages = method.plan(_base_images(method, sessions))
    needed, available = memory_needed(method, stages), memory_available()
    if needed > available:
        raise FscilError(
            f"this run needs about {needed / 2**30:.0f} GiB of memory and {available / 2**30:.0f} GiB are free; "
            "take --recipe small, smaller --pixels, --base.batch or, for episodes, --way and --query"
        )
