"""A full disk, a folder that is closed, a file replaced by another `learn`: each comes and goes under load.

The disk that is full is a small one of its own; where nobody may mount one, a limit on the size of files is left.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pocket  # noqa: F401 (the encoder of the other model)
from fscil.teach.storage import modelfile
from soak import lives
from soak.crash import ENVIRONMENT, learned, unsound
from soak.crowd import FULL, REFUSALS, Client
from soak.ledger import Ledger
from soak.lives import NOBODY, Life
from soak.visitor import Visitor

CLIENTS = 16
FILES = 1000  # bytes that a file may have while no file may grow
DISK = 4 * 2**20  # bytes of a disk of its own


class Unable(Exception):
    """A fault that cannot be made on this machine, and why."""


@dataclass
class Scene:
    """A service with its clients, and a fault that comes and goes."""

    folder: Path
    file: Path
    life: Life
    ledger: Ledger
    clients: list[Client]
    complaints: list[str] = field(default_factory=list)

    def promises(self, wanted: int, seconds: float = 60.0) -> None:
        """Waits until some more changes are promised."""
        end, before = time.monotonic() + seconds, self.ledger.promised
        while self.ledger.promised < before + wanted:
            if time.monotonic() > end:
                self.complaints.append(f"only {self.ledger.promised - before} changes in {seconds:.0f} s")
                return
            time.sleep(0.02)

    def refusals(self, wanted: int, keep_up: Callable[[], None] = lambda: None) -> None:
        """Waits until some more changes could not be saved; the fault is kept up meanwhile."""
        end, before = time.monotonic() + 60.0, self._refusals()
        while self._refusals() < before + wanted:
            keep_up()
            if time.monotonic() > end:
                self.complaints.append("the fault did not happen: no change was answered by 507")
                return
            time.sleep(0.02)

    def _refusals(self) -> int:
        return sum(client.unsaved for client in self.clients)


@contextmanager
def scene(folder: Path, humble: bool = False) -> Iterator[Scene]:
    """Begins with a service under load, ends with a file that is held against all promises; `humble`: not as root."""
    source = learned(folder)
    place = folder / "served"
    place.mkdir(exist_ok=True)
    file = place / "birds.fscil"
    shutil.copy(source, file)
    if humble and os.geteuid() == 0:
        os.chown(place, NOBODY, -1)
        os.chown(file, NOBODY, -1)
    ledger, life = Ledger(), Life(file, folder / "service.log", ENVIRONMENT, humble)
    clients = [Client(str(i), life.port, ledger, i, (*REFUSALS, FULL)) for i in range(CLIENTS)]
    stage = Scene(folder, file, life, ledger, clients)
    try:
        for client in clients:
            client.start()
        yield stage
        for client in clients:
            client.leave()
        model = modelfile.load(file)
        stage.complaints += ledger.complaints([step.text() for step in model.journal.steps]) + unsound(model)
        if Visitor(life.port).get("/v1/model")["revision"] != model.revision:
            stage.complaints.append("the service is not at the revision of the file")
        stage.complaints += [complaint for client in clients for complaint in client.complaints]
    finally:
        life.stop()


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A disk of its own in memory, as small as a few model files."""
    place.mkdir(exist_ok=True)
    options = f"size={DISK},mode=755"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise Unable("nobody may mount a disk here; as root it would work") from problem
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True, capture_output=True)


def fill(file: Path) -> None:
    """Takes all the room that is left on a disk; what others free meanwhile is taken as well."""
    with file.open("ab", buffering=0) as ballast:
        for size in (4096, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise


def full_disk(folder: Path, times: int) -> list[str]:
    """There is no room on the disk while the fault lasts."""
    with small_disk(folder / "served"), scene(folder) as stage:
        for _ in range(times):
            stage.promises(10)
            fill(ballast := stage.file.parent / "ballast")
            stage.refusals(10, lambda: fill(ballast))
            ballast.unlink()
        stage.promises(10)
    return stage.complaints


def files_cannot_grow(folder: Path, times: int) -> list[str]:
    """No file may grow while the fault lasts."""
    with scene(folder) as stage:
        for _ in range(times):
            stage.promises(10)
            stage.life.limit_files(FILES)
            stage.refusals(10)
            stage.life.limit_files(-1)
        stage.promises(10)
    return stage.complaints


def closed_folder(folder: Path, times: int) -> list[str]:
    """Nobody may make a new file in the folder while the fault lasts."""
    with scene(folder, humble=True) as stage:
        for _ in range(times):
            stage.promises(10)
            stage.file.parent.chmod(0o555)
            stage.refusals(10)
            stage.file.parent.chmod(0o755)
        stage.promises(10)
    return stage.complaints


def replaced(folder: Path, times: int) -> list[str]:
    """Another `learn` with another encoder overwrites the file."""
    with scene(folder) as stage:
        for turn in range(times):
            stage.promises(10)
            tokens = ["learn", folder / "album", "--save", stage.file, "--overwrite", "--strength", "prototypes"]
            began = time.monotonic()
            learning = lives.command(
                [*tokens, "--encoder", ("pocket", "tiny")[turn % 2], "--pixels", 32],
                folder / "learn.log",
                ENVIRONMENT,
            )
            learning.join()
            stage.ledger.replaced(began, time.monotonic())
            stage.complaints += ["learn failed"] if learning.exitcode else []
        stage.promises(10)
    return stage.complaints


FAULTS: dict[str, Callable[[Path, int], list[str]]] = {
    "full disk": full_disk,
    "files cannot grow": files_cannot_grow,
    "closed folder": closed_folder,
    "replaced file": replaced,
}


def all_of(folder: Path, times: int, tell: Callable[[str], None]) -> list[str]:
    """Every fault, some times each."""
    complaints, file = [], learned(folder)
    for name, happen in FAULTS.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        shutil.copy(file, place)
        try:
            wrong = happen(place, times)
        except Unable as reason:
            tell(f"{name}: not done, {reason}")
            continue
        tell(f"{name}, {times} times: {len(wrong)} complaints")
        complaints += [f"{name}: {what}" for what in wrong]
    return complaints
