"""What a change costs a service of 100 classes, beyond encoding, and what of that is the disk. Run by `make bench`.

The old file gives its room back after the answer. A change right after another one waits for that.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from fscil.command import show
from fscil.files import write_bytes
from fscil.serve.store import Store
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.corrections import unteach
from fscil.teach.lessons.looking import Seen
from fscil.teach.lessons.teaching import teach_seen
from fscil.teach.storage import modelfile

CLASSES, BASE = 100, 60
PHOTOS = 10  # of a base class
SHOTS = 5  # of any other class
TIMES = 15
PAUSE = 0.1  # seconds before a change that comes alone


class Photos:
    """Made-up features of photos that nobody has seen, near the centres of their classes."""

    def __init__(self, model: Model) -> None:
        self._dim, self._rng = model.branches[0].encoder.dim, torch.Generator().manual_seed(0)
        self._number = 0

    def of(self, number: int, branches: int) -> Seen:
        centre = torch.rand(1, self._dim, generator=self._rng)
        features = torch.nn.functional.normalize(centre + torch.rand(number, self._dim, generator=self._rng), dim=1)
        self._number += number
        digests = [i.to_bytes(16, "big") for i in range(self._number - number, self._number)]
        return Seen(list(range(number)), [features] * branches, [], digests)


def hundred(photos: Photos, model: Model) -> Model:
    """A model of 60 base classes and 40 that were taught, with one branch and its matrix, as learning leaves it."""
    model.branches = model.branches[:1]
    model = replace(model)
    for branch in model.branches:
        branch.whitening += 0.01 * torch.rand(branch.whitening.shape, generator=torch.Generator().manual_seed(0))
    seen = [photos.of(PHOTOS, len(model.branches)) for _ in range(BASE)]
    features = [torch.cat(parts) for parts in zip(*(one.features for one in seen), strict=True)]
    names = [f"class {i}" for i in range(BASE) for _ in range(PHOTOS)]
    model.begin(names, features, [digest for one in seen for digest in one.digests])
    for i in range(BASE, CLASSES):
        taught(f"class {i}", photos.of(SHOTS, len(model.branches)))(model)
    return model


def taught(name: str, seen: Seen) -> Callable[[Model], object]:
    titles = [f"{i}.jpg" for i in seen.positions]
    return lambda model: teach_seen(model, [name] * len(titles), titles, seen)


class Cost(NamedTuple):
    """Milliseconds of some works: the middle, the fastest, and the middle of what the processor worked."""

    middle: float
    fastest: float
    processor: float

    def text(self) -> str:
        return f"{self.middle:.0f} ms (fastest {self.fastest:.0f}; the processor works {self.processor:.0f})"


def cost(works: list[Callable[[], object]], pause: float = 0.0) -> Cost:
    taken, worked = [], []
    for work in works:
        time.sleep(pause)
        began, before = time.perf_counter(), time.process_time()
        work()
        taken.append(1000 * (time.perf_counter() - began))
        worked.append(1000 * (time.process_time() - before))
    return Cost(statistics.median(taken), min(taken), statistics.median(worked))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hundred.fscil"
        model = backbones.of_encoder(backbones.DEFAULT)
        photos = Photos(model)
        modelfile.write(hundred(photos, model), file)
        content = file.read_bytes()
        store = Store(file, TIMES)
        store.open()
        lessons = [taught(f"new {i}", photos.of(SHOTS, 1)) for i in range(2 * TIMES)]
        latest = [store.model.photos[label][-1] for label in list(store.model.photos)[: 2 * TIMES]]
        changes: dict[str, list[Callable[[Model], object]]] = {
            f"teach {SHOTS} photos, with the leave-one-out line": lessons,
            "take one photo back": [lambda m, p=p, i=i: unteach(m, f"class {i}", [p]) for i, p in enumerate(latest)],
            "rename": [lambda m, i=i: m.rename(m.classes[-1], f"name {i}") for i in range(2 * TIMES)],
        }
        disk = cost([lambda: write_bytes(Path(folder) / "plain", content)] * TIMES, PAUSE)
        show.say(f"{CLASSES} classes, a file of {len(content) / 1e6:.0f} MB; {TIMES} times each")
        show.say(f"write and sync the bytes alone: {disk.text()}")
        for title, works in changes.items():
            calls = [lambda work=work: store.submit(work, None).result() for work in works]
            show.say(f"{title}: {cost(calls[:TIMES], PAUSE).text()}")
            show.say(f"{title}, one right after the other: {cost(calls[TIMES:]).text()}")
        store.close()


if __name__ == "__main__":
    main()
