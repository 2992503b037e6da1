"""How fast teaching and predicting are on this machine, as ratios where they can be. Run by `make bench`."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fscil.command import show
from fscil.nn.folding import folded
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import AT_ONCE
from fscil.teach.lessons import looking, teaching
from fscil.teach.storage import modelfile

CLASSES = 10_000
BATCH = 32


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of some tries."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def in_turn(*works: Callable[[], object], times: int) -> list[float]:
    """Seconds of the fastest try of each; they take turns, so that a noisy moment of the machine meets all of them."""
    rounds = [[best(work, 1) for work in works] for _ in range(times)]
    return [min(taken) for taken in zip(*rounds, strict=True)]


def photos(folder: Path, count: int, seed: int) -> list[Path]:
    """JPEG files of 640 x 480 pixels."""
    rng, paths = np.random.RandomState(seed), [folder / f"{seed}-{i}.jpg" for i in range(count)]
    for path in paths:
        coarse = Image.fromarray(rng.randint(0, 255, (15, 20, 3)).astype(np.uint8))
        coarse.resize((640, 480), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def command(*words: object) -> float:
    return best(lambda: subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True), 1)


def known(model: Model, classes: int) -> Model:
    """The model with random prototypes of many classes."""
    rng = torch.Generator().manual_seed(0)
    for branch in model.branches:
        branch.prototypes.add(torch.arange(classes), torch.rand(classes, branch.encoder.dim, generator=rng))
    model.names = {label: str(label) for label in range(classes)}
    return model


def commands(folder: Path) -> None:
    model = backbones.of_encoder(backbones.DEFAULT)
    seen = looking.look(model, photos(folder, 6, 1))
    model.begin(["a", "b"] * 3, seen.features, seen.digests)
    modelfile.save(model, folder / "bench.fscil")
    torch_import = min(command("-c", "import torch") for _ in range(2))
    shots = [photos(folder, 5, seed) for seed in (2, 5)]  # other photos each time: known ones would not be taught
    taught = min(command("-m", "fscil", "teach", folder / "bench.fscil", "new", *five) for five in shots)
    show.say(f"teach five photos as a command: import torch ({torch_import:.2f} s) + {taught - torch_import:.2f} s")
    shown = [np.asarray(Image.open(path)) for path in photos(folder, 25, 3)]
    groups = iter(range(0, 25, 5))
    inside = best(lambda: teaching.teach(model, ["c"] * 5, shown[(i := next(groups)) : i + 5]))
    show.say(f"teach five photos in a running process: {1000 * inside:.0f} ms")


def rates(folder: Path) -> None:
    model = known(backbones.of_encoder(backbones.DEFAULT), 100)
    p = model.framing.pixels
    images = torch.rand(64, 3, p, p).to(memory_format=torch.channels_last)
    pictures = list((torch.rand(64, p, p, 3) * 255).byte().numpy())
    encoder = folded(model.branches[0].encoder)
    with torch.no_grad():
        alone, whole = in_turn(
            lambda: [encoder(batch) for batch in images.split(AT_ONCE)],
            lambda: looking.answers(model, looking.glance(model, pictures).features),
            times=10,
        )
    show.say(f"prediction in batches: {100 * alone / whole:.0f} % of the encoder's own {64 / alone:.0f} images/s")
    photo = photos(folder, 1, 4)
    many = known(backbones.of_encoder(backbones.DEFAULT), CLASSES)
    features = many.embed(images[:1])
    batch = [f.expand(BATCH, -1).contiguous() for f in features]
    many.scores(features)
    one, asked, together = in_turn(
        lambda: looking.answers(model, looking.glance(model, photo).features),
        lambda: many.scores(features),
        lambda: many.scores(batch),
        times=50,
    )
    shared = together / BATCH / (whole / len(pictures))
    told = f"{100 * asked / one:.1f} % of one prediction ({1000 * one:.0f} ms), {100 * shared:.1f} % in batches"
    show.say(f"{CLASSES} classes: {told} of {BATCH}")


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def growth() -> None:
    rows = []
    for classes in (1000, 10_000, 100_000, 1_000_000):
        before = resident()
        model = known(backbones.of_features(64), classes)
        features = model.embed(torch.rand(1, 64))
        first = best(lambda: model.scores(features), 1)  # noqa: B023 (called at once)
        asked = best(lambda: model.scores(features))  # noqa: B023
        held = resident() - before
        rows.append(
            (
                f"{classes:,}",
                f"{first * 1e3:.1f}",
                f"{asked * 1e3:.2f}",
                f"{asked / classes * 1e9:.0f}",
                f"{held / classes / 1024:.1f}",
            )
        )
    show.table(
        ("classes (64-d)", "first question, ms", "next, ms", "ns per class", "KiB of memory per class"), rows, numbers=4
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        commands(Path(place))
        rates(Path(place))
    growth()
