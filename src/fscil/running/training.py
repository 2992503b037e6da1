"""Run: the only door through which a method reaches the outside: randomness, devices, stages of training, caches."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import fscil
from fscil.data.images import Framing, Images
from fscil.errors import FscilError
from fscil.files import alone, remove_abandoned
from fscil.nn import compute
from fscil.nn.compute import Meter, counting
from fscil.running.costs import Cost, Stopwatch
from fscil.running.descent import Descent
from fscil.running.devices import Devices
from fscil.running.features import FeatureFolder, Way
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Epoch, Loop
from fscil.tensors import digest, load_into, read_tensors, write_tensors

AnyWay = TypeVar("AnyWay", bound=Way)
CHECKPOINT_SECONDS = 120.0
PACKAGE = Path(__file__).parent.parent
DECISIVE = (  # source files that decide what training computes, as patterns below the package
    "nn/*.py",
    "data/*.py",
    "running/training.py",
    "running/stages.py",
    "running/descent.py",
    "methods/shared/base.py",
    "methods/shared/method.py",
)


@dataclass
class Run:
    """What a method may use of the outside: epochs(), cached(), rng() and batches of images."""

    folder: RunFolder
    seed: int
    cache: Path
    devices: Devices = field(default_factory=Devices)
    precision: str = "float32"
    fingerprint: str = ""  # digest of the base session, so that nothing cached is shared between different data
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # time between two checkpoints of a stage; 0: after every step
    keeps_features: bool = False  # features of frozen encoders are kept in the cache, for other runs
    keeps_base_features: bool = False  # those of the base alone are
    keeps_trained: bool = False  # so is what is trained behind the base
    session: int = 0
    stages: list[Cost] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    bases: set[str] = field(default_factory=set)  # digests of encoders whose features are kept, though others are not

    def __post_init__(self) -> None:
        self.watch = Stopwatch(Cost("learn"), self.meter, self.devices)

    @property
    def rank(self) -> int:
        return self.devices.rank

    @property
    def world(self) -> int:
        return self.devices.count

    def rng(self, *purpose: object) -> torch.Generator:
        """A generator of its own for each purpose: adding one never changes the numbers of another."""
        digest = hashlib.sha256(json.dumps([self.seed, self.session, *map(str, purpose)]).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))

    def batches(self, images: Images, framing: Framing, batch: int = 500) -> Iterator[Tensor]:
        """All images in order, under a framing without randomness."""
        return images.batches(torch.arange(len(images)).split(batch) if len(images) else [], framing)

    def epochs(
        self, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int, stop_after: int = 0
    ) -> Iterator[Epoch]:
        """Trains the parameters of `trains` that need gradients; a checkpoint holds the whole state of `keeps`.

        A stage that was finished before is loaded and yields nothing; an interrupted one resumes at its checkpoint.
        With `stop_after` it ends after so many epochs, in the middle of its schedule.
        """
        loop = Loop(self, name, keeps, trains, descent, steps, stop_after)
        self.stages.append(loop.stage)
        with torch.random.fork_rng(devices=[]):  # random layers are seeded step by step
            yield from loop.epochs()

    @property
    def _surroundings(self) -> dict[str, Any]:
        """What else decides the numbers that are computed: arithmetic, devices and code."""
        machine = {"precision": self.precision, "devices": self.world, "torch": torch.__version__}
        return {**machine, "fscil": fscil.__version__, "code": code_digest()}

    def cached(self, name: str, key: dict[str, Any], module: nn.Module, make: Callable[[], None]) -> None:
        """Fills `module` by `make()`, or by what another run made of the same module with this key on the same data."""
        start = {"start": digest(module.state_dict()), "data": self.fingerprint, "seed": self.seed}
        full = json.dumps({**key, **start, **self._surroundings}, sort_keys=True)
        file = self.cache / f"{name}-{hashlib.sha256(full.encode()).hexdigest()[:16]}.safetensors"
        with self._sole_maker(file):
            if self.devices.agree(file.exists()):
                self._take(file, full, module)
            else:
                self._make(file, full, module, make)

    @contextmanager
    def relay(self, stage: str, key: dict[str, Any], epochs: int, goes_on: bool) -> Iterator[None]:
        """While entered, a stage of `epochs` begins where another run with this key has stopped it, or at its start.

        Where it `goes_on` beyond them, its checkpoint is left to other runs. They wait for each other.
        """
        full = json.dumps({**key, "data": self.fingerprint, "seed": self.seed, **self._surroundings}, sort_keys=True)
        name = f"{stage}-{hashlib.sha256(full.encode()).hexdigest()[:16]}"
        files = [self.cache / f"{name}-after{number}.safetensors" for number in range(epochs + 1)]
        own = self.folder.stage(self.session, stage)
        with alone(self.cache / f"{name}.lock") if self.folder.writable else nullcontext():
            there = [file for file in files if file.exists()]
            if there and not own.exists():
                self.folder.write(own, *read_tensors(there[-1]))
            yield
            if goes_on and self.folder.writable:
                write_tensors(files[-1], *self.folder.read(own))

    def _sole_maker(self, file: Path) -> AbstractContextManager[None]:
        """While entered, no other process makes a file of the cache; nobody waits for one that is there."""
        return nullcontext() if file.exists() or not self.folder.writable else alone(file.with_suffix(".lock"))

    def _make(self, file: Path, key: str, module: nn.Module, make: Callable[[], None]) -> None:
        before = len(self.stages)
        make()
        if self.folder.writable:
            notes = {"key": key, "stages": [vars(stage) for stage in self.stages[before:]]}
            remove_abandoned(self.cache)
            write_tensors(file, module.state_dict(), notes)

    def features(
        self,
        looks: Sequence[AnyWay],
        images: Images,
        framing: Framing,
        make: Callable[[Sequence[AnyWay]], list[Tensor]],
    ) -> list[Tensor]:
        """Features (n, dim) for each look, by `make` or from another run; compute counts as if all had been made."""
        folder = FeatureFolder(self.cache, self._surroundings)
        keys = [folder.file(look, images, framing) if self._keeps(look) else i for i, look in enumerate(looks)]
        stored = [key for key in keys if isinstance(key, Path) and key.exists()]
        features: dict[Path | int, Tensor] = {key: folder.read(key).to(images.device) for key in stored}
        missing = {key: look for key, look in zip(keys, looks, strict=True) if key not in features}
        for key, made in zip(missing, make([*missing.values()]) if missing else [], strict=True):
            features[key] = made
            if isinstance(key, Path) and self.folder.writable:
                folder.write(key, made)
        places = {key: i for i, key in enumerate(keys) if key in missing}  # of what was made; a look may come twice
        taken = [look for i, look in enumerate(looks) if places.get(keys[i]) != i]
        compute.add(sum(look.encoder.macs(framing.pixels) for look in taken) * len(images))
        return [features[key] for key in keys]

    def keep_features_of(self, encoder: nn.Module) -> None:
        """From now on features of an encoder as it is now are kept for other runs, where those of the base are."""
        if self.keeps_base_features:
            self.bases.add(digest(encoder.state_dict()))

    def _keeps(self, look: Way) -> bool:
        return self.keeps_features or (bool(self.bases) and digest(look.encoder.state_dict()) in self.bases)

    def _take(self, file: Path, key: str, module: nn.Module) -> None:
        """Loads a cached module; what it cost counts as if this run had trained it."""
        tensors, notes = read_tensors(file)
        if notes.get("key") != key:
            raise FscilError(f"{file} was made with other settings than its name says; delete it and run again")
        load_into(module, tensors, file)
        for stage in notes["stages"]:
            self.stages.append(Cost(**stage))
            self.watch.inherit(self.stages[-1])

    @contextmanager
    def told_as_stage(self) -> Iterator[None]:
        """What is computed inside beside stages becomes one more: who takes the result over inherits all it cost."""
        before, known = replace(self.watch.read()), len(self.stages)
        yield
        self.stages.append(self.watch.read().less(before, *self.stages[known:]))

    @contextmanager
    def learning(self, session: int) -> Iterator[Cost]:
        """Counts everything a method does while it learns one session."""
        total = Cost("learn")
        self.session, self.stages = session, []
        self.watch = Stopwatch(total, self.meter, self.devices)
        with counting(self.meter):
            yield total
        self.watch.read()
        total.steps = sum(stage.steps for stage in self.stages)


@functools.cache
def code_digest(patterns: tuple[str, ...] = DECISIVE) -> str:
    """Digest of source files, by default those that decide a trained base: what older code made is not taken over."""
    total = hashlib.sha256()
    for file in sorted(file for pattern in patterns for file in PACKAGE.glob(pattern)):
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()


code_digest()  # of what is imported now: the files may be edited before the first result is kept
