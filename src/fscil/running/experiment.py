"""From settings to a run folder: builds encoder, data, devices and precision, and hands them to the protocol."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fscil
from fscil import data, methods
from fscil.data import PUBLISHED, Protocol, benchmark, check_seed, default_root
from fscil.data.episodes import SmallClass
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.files import FORMAT
from fscil.methods.shared.method import Method
from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.branches import TEST_VIEWS, Views
from fscil.running import planning, protocol
from fscil.running.costs import forget_peak_memory
from fscil.running.devices import check_count, launch
from fscil.running.inherited import check_inherited, check_new_classes
from fscil.running.runfolder import RunFolder
from fscil.running.sharing import Overture, shared_bases
from fscil.running.training import CHECKPOINT_SECONDS, Run, code_digest
from fscil.settings import default_recipe, from_dict, resolve, to_dict
from fscil.settings.fields import dotted

METHODS = ("methods/*.py", "methods/shared/*.py")  # code that decides a whole base session, beside that of the base
LIBRARIES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow", "safetensors")


class Choice(NamedTuple):
    """What a user's settings amount to."""

    recipe: str
    config: Any
    protocol: Protocol


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: a method with its settings on a data set, with a seed."""

    method: str
    dataset: str
    recipe: str
    config: Any
    root: Path | None = None
    protocol: Protocol = PUBLISHED
    seed: int = 0
    out: Path = Path("runs")
    devices: int = 1
    precision: str = "auto"  # auto, float32 or bfloat16
    command: str = ""
    variant: str = ""  # what tells this run from others of its recipe in the same `out`
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # time between two checkpoints in a stage of training
    keeps_features: bool = False  # features of frozen encoders are kept in the cache below `out`, for other runs
    keeps_base_features: bool = False  # those of the base alone are, where what is trained behind it would take room
    keeps_trained: bool = False  # so is what is trained behind the base, for runs that differ in the read-out alone
    keeps_states: bool = True  # False: for one of many quick runs, which begins again where it was interrupted
    shares_base: bool = False  # what the base session makes of the method is shared by runs that differ in later shots

    def __post_init__(self) -> None:
        check_seed("--seed", self.seed)

    @property
    def folder(self) -> Path:
        name = "-".join(filter(None, (self.method, Path(self.recipe).stem, self.variant)))
        return self.out / self.dataset / name / f"seed{self.seed}"


def resolved(method: str, dataset: str, recipe: str | Path | None, changes: Mapping[str, Any]) -> Choice:
    """What a recipe (None: the default one) and settings by dotted name, of method and sessions alike, amount to."""
    data.check_name(dataset)
    chosen = recipe or default_recipe(method, dataset)
    of_sessions = {name: value for name, value in changes.items() if name in vars(PUBLISHED)}
    own = {name: value for name, value in changes.items() if name not in of_sessions}
    config = resolve(methods.load(method).Config, method, dataset, chosen, own)
    return Choice(str(chosen), config, from_dict(Protocol, of_sessions))


def execute(experiment: RunSpec, tell: Callable[[Session], None] | None = None) -> Path:
    """Runs an experiment, or the rest of it, and gives its run folder; `tell` hears of every finished session."""
    trained(experiment, tell)
    return experiment.folder


def trained(experiment: RunSpec, tell: Callable[[Session], None] | None = None) -> tuple[Benchmark, Method]:
    """The same; gives its sessions and the method as the last of them has left it."""
    e = experiment
    forget_peak_memory()
    torch.cuda.empty_cache()  # else what torch keeps of the run before would not count as free
    sessions = benchmark(e.dataset, e.root, e.protocol)  # before `launch`: what is missing is made by one process
    devices = launch(e.devices)
    folder = RunFolder(e.folder, devices.rank == 0, e.keeps_states)
    precision = devices.agree(precision_of(e, folder, devices.device))
    method = build(e, precision["used"], devices.device)
    check_method(method, sessions)
    if folder.writable:
        planning.check_memory(method, sessions, devices.device, e.devices)
    folder.open(describe(e, method, sessions, precision), defaults(e))
    with closing(folder):
        cache = e.out / "cache"
        run = Run(
            folder,
            e.seed,
            cache,
            devices,
            precision["used"],
            sessions.base_fingerprint(),
            e.checkpoint_seconds,
            keeps_features=e.keeps_features,
            keeps_base_features=e.keeps_base_features,
            keeps_trained=e.keeps_trained,
        )
        made_by = {"method": e.method, "settings": to_dict(e.config), "code of methods": code_digest(METHODS)}
        base = made_by if e.shares_base else None
        protocol.follow(method, sessions.on(devices.device), run, tell if folder.writable else None, base)
        devices.agree("finished")  # nobody leaves before the first process has written everything
    return sessions, method.cpu()


def check(experiments: Iterable[RunSpec]) -> None:
    """Refuses what one of several experiments cannot do, before any of them trains; data they share is read once."""
    opened: dict[tuple[Any, ...], Benchmark] = {}
    device = launch(1).device
    for e in experiments:
        source = (e.dataset, e.root, e.protocol)
        if source not in opened:
            opened[source] = benchmark(*source)
        try:
            method = build(e, precision_of(e, RunFolder(e.folder), device)["used"], torch.device("cpu"))
            check_method(method, opened[source])
            planning.check_memory(method, opened[source], device, e.devices)
        except FscilError as problem:
            raise FscilError(f"{e.method}: {problem}") from problem


def plan(experiment: RunSpec) -> dict[str, Any]:
    """Precision, parameters, compute, memory and estimated time of the base session; trains nothing."""
    return _planned(experiment)[0]


def plan_all(experiment: RunSpec) -> dict[str, Any]:
    """What `plan` tells, with the stages behind the base session, and the bases that other runs may share."""
    e = replace(experiment, seed=0)  # whatever the seed: methods that share a base shall tell the same digest
    told, method, sessions = _planned(e)
    base, run = sessions.base(method.config.held_out), Overture(RunFolder(e.folder, writable=False), e.seed, e.out)
    later = planning.after_base(method, sessions)
    fresh = build(e, told["precision"]["used"], torch.device("cpu"))  # timed steps have moved batch statistics
    return {**told, "later": later, "bases": shared_bases(fresh, base, run)}


def _planned(e: RunSpec) -> tuple[dict[str, Any], Method, Benchmark]:
    """The cost of the base session, and whose it is."""
    check_count(e.devices)
    sessions = benchmark(e.dataset, e.root, e.protocol)
    device = launch(1).device
    precision = precision_of(e, RunFolder(e.folder), device)
    method = build(e, precision["used"], device)
    check_method(method, sessions)
    cost = planning.cost(method, sessions, device, e.devices)
    return {"precision": precision, **cost}, method, sessions


def precision_of(experiment: RunSpec, folder: RunFolder, device: torch.device) -> dict[str, Any]:
    """The precision asked for; for `auto` the one with which the run began, else the faster."""
    begun, wanted = folder.described().get("precision"), experiment.precision
    return begun if begun and wanted == "auto" else planning.choose_precision(wanted, device)


def build(experiment: RunSpec, precision: str, device: torch.device) -> Method:
    """The untrained method; its weights depend on the seed alone."""
    c = experiment.config
    check_inherited(experiment.dataset, root_name(experiment), c, experiment.protocol)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(experiment.seed)
        encoder = encoders.build(c.encoder, c.pixels, c.weights).to(memory_format=torch.channels_last)
        set_arithmetic(encoder, getattr(torch, precision), c.winograd)
        method: Method = methods.load(experiment.method).Method(c, encoder)
        return method.to(device)


def images_of(experiment: RunSpec) -> str:
    """The digest of the sessions that a run would see now."""
    return benchmark(experiment.dataset, experiment.root, experiment.protocol).fingerprint()


def root_name(experiment: RunSpec) -> str:
    """The name of the folder of the data, without where it is."""
    return Path(experiment.root or default_root()).expanduser().resolve().name


def check_method(method: Method, sessions: Benchmark) -> None:
    """Refuses what a method cannot do on a benchmark."""
    check_views(method.config.views, sessions)
    check_new_classes(method.config, sessions)
    try:
        method.check(sessions)
    except SmallClass as problem:
        raise problem.named(sessions.class_names) from problem


def check_views(views: Views, sessions: Benchmark) -> None:
    """Refuses mirrored test views where a mirrored image may belong to another class."""
    if not sessions.flips and any(view.mirrored for view in TEST_VIEWS[views]):
        raise FscilError(
            f"images of {sessions.name} change their class when mirrored: take --views one instead of {views}"
        )


def describe(e: RunSpec, method: Method, sessions: Benchmark, precision: dict[str, Any]) -> dict[str, Any]:
    """Everything needed to understand and repeat a run; the content of run.json."""
    c = e.config
    threads = torch.get_num_threads()
    return {
        "format": FORMAT,
        **identity(e),
        "recipe": Path(e.recipe).stem,
        "sessions": sessions.session_count,
        "command": e.command,
        "changed": changed(e),
        "versions": {"fscil": fscil.__version__, **{name: version(name) for name in LIBRARIES}},
        "git": git_hash(),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads, "devices": e.devices},
        "precision": precision,
        "class_names": list(sessions.class_names),
        "first_seen": {str(label): session for label, session in sessions.first_seen.items()},
        "encoder": c.encoder,
        "pixels": c.pixels,
        "mean": list(sessions.mean),
        "std": list(sessions.std),
        "parameters": sum(p.numel() for p in method.parameters()),
        "pretrained": Path(c.weights).name if c.weights else "no",
        "selection": "last epoch",
        "keeps": method.needs.keeps(),
        "encoder_needs": method.needs.of_encoder(),
        "reconstruction": method.reconstruction,
        "root": root_name(e),
        "benchmark_fingerprint": sessions.fingerprint(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def identity(e: RunSpec) -> dict[str, Any]:
    """What decides the numbers of a run, apart from its images, as `describe` tells of it."""
    own = {"method": e.method, "dataset": e.dataset, "seed": e.seed}
    return {**own, "settings": to_dict(e.config), "protocol": to_dict(e.protocol)}


def defaults(e: RunSpec) -> dict[str, Any]:
    """Settings and protocol of a run that changes nothing, as `describe` tells of them."""
    return {"settings": to_dict(type(e.config)()), "protocol": to_dict(PUBLISHED)}


def changed(e: RunSpec) -> dict[str, Any]:
    """The settings, by dotted name, in which a run differs from its recipe."""
    recipe = dotted(to_dict(resolve(type(e.config), e.method, e.dataset, e.recipe)))
    return {name: value for name, value in dotted(to_dict(e.config)).items() if value != recipe.get(name)}


@functools.cache
def git_hash() -> str:
    """Commit of the source tree from which this package was imported, plus where files were changed; else empty."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # else the commit of whatever the package lies in
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


git_hash()  # of what is imported now: an experiment may outlast a commit


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
