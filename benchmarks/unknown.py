"""Does "not sure" keep its promise? Classes are learned with a promise of 5 %, and photos of other classes shown.

    python benchmarks/unknown.py data out.json

`data` holds CUB_200_2011 and cifar-100-python. Four sets: ten bird species beside 20 others, 100 species beside 100
others, seven classes of CIFAR-100 beside three unknown ones, and ten characters drawn as photos beside ten others. Of
each class 30 photos are learned, as a folder of photos would be. What is learned are species, classes and characters on
which nothing was chosen (that were training photos of the first 100 species, 30 classes of CIFAR-100 and 50
characters). Far unknowns: 500 images of CIFAR-100 shown to the models of birds.

Ten species, seven classes and ten characters are drawn `--draws` times, because few unknown classes say little; bounds
are counted over the draws. Each photo is looked at once; `--features FILE` keeps what was seen of it and of its mirror
image (with `--views negative`: its negative), and reads it if it is there: `--views one` and `--views flip` then need
one pass between them. What `fscil learn --best` makes of photos, and of signs, is measured by

    python benchmarks/unknown.py data out.json --encoder efficientnet_lite0+efficientnet_lite2 --views flip
    python benchmarks/unknown.py data out.json --sets signs --views negative \
        --encoder efficientnet_lite0_layout+efficientnet_lite2_layout
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import resultfile
from fscil.data import Protocol, cifar100, cub200, glyphs
from fscil.nn.branches import Views
from fscil.nn.compute import Meter, counting
from fscil.nn.pretrained import WHEELS
from fscil.report.results import rounded
from fscil.teach.base.fitting import Wish
from fscil.teach.base.learning import learn_table, look_at_lengths
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.calibration import auroc
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from seen import Look, Part, Photos, averaged, encoded, kept, shown, sources

LEARNED, DRAW, FAR = 30, 5, 500
MOST_ACCEPTED, MOST_REFUSED = 8.0, 45.0  # in percent, of few classes
WORST = 0.9  # quantile over draws
SETS = ("birds", "things", "signs")


@dataclass(frozen=True)
class Test:
    """Photos to learn, and photos of the same and of other classes to show; `far` (n, dim) are shown as well."""

    name: str
    learned: Photos
    known: Photos
    unknown: Photos
    far: Tensor | None = None


def birds(data: Path, look: Look, draws: int, seed: int = DRAW) -> Iterator[Test]:
    """Ten of the last 100 species beside 20 others of them, and these 100 beside the first 100."""
    photos = cub200.load(data, Protocol())
    train = shown(photos.train, range(100, 200), look, "birds to learn", LEARNED)
    test = shown(photos.test, range(200), look, "birds to show")
    far = look(sources(cifar100.load(data, Protocol()).test, range(100), FAR // 100)[0], "far unknowns")
    rng = np.random.RandomState(seed)
    for draw in range(draws):
        species = (100 + rng.permutation(100)).tolist()
        known, unknown = species[:10], species[10:30]
        yield Test(f"10 species, draw {draw + 1}", train.of(known), test.of(known), test.of(unknown), far)
    yield Test("100 species", train, test.of(range(100, 200)), test.of(range(100)), far)


def things(data: Path, look: Look, draws: int, seed: int = DRAW) -> Iterator[Test]:
    """Seven of 70 classes of CIFAR-100 beside three others."""
    photos, allowed = cifar100.load(data, Protocol()), np.random.RandomState(0).permutation(100)[30:]
    train = shown(photos.train, allowed.tolist(), look, "things to learn", LEARNED)
    test = shown(photos.test, allowed.tolist(), look, "things to show")
    rng = np.random.RandomState(seed)
    for draw in range(draws):
        classes = rng.permutation(allowed).tolist()
        known, unknown = classes[:7], classes[7:10]
        yield Test(f"CIFAR-100, 7 + 3, draw {draw + 1}", train.of(known), test.of(known), test.of(unknown))


def signs(data: Path, look: Look, draws: int, seed: int = DRAW) -> Iterator[Test]:
    """Ten of the last 50 characters beside ten others of them."""
    photos, allowed = glyphs.load(data, Protocol()), range(50, 100)
    train = shown(photos.train, allowed, look, "50 characters to learn", LEARNED)
    test = shown(photos.test, allowed, look, "50 characters to show")
    rng = np.random.RandomState(seed)
    for draw in range(draws):
        classes = rng.permutation(allowed).tolist()
        known, unknown = classes[:10], classes[10:20]
        yield Test(f"glyphs, 10 + 10, draw {draw + 1}", train.of(known), test.of(known), test.of(unknown))


def learned(photos: Photos, dims: Sequence[int]) -> Model:
    """A model of photos whose features from encoders of some dims are known; `fscil learn` makes the same of them."""
    ends = accumulate(dims)
    parts = [Part(slice(end - dim, end)) for dim, end in zip(dims, ends, strict=True)]
    branches = [branch for part in parts for branch in backbones.pair(part, "one", unit=True)]
    model = Model(branches, None, Origin("features", "none", "none"))
    look_at_lengths(model.branches)
    learn_table(model, photos.features, photos.classes.tolist(), Wish(strength="prototypes"))
    return model


def measured(test: Test, dims: Sequence[int]) -> dict[str, Any]:
    """What a model that learned the photos says about known, unknown and far ones."""
    began = time.perf_counter()
    model = learned(test.learned, dims)
    seconds = time.perf_counter() - began
    known, unknown = (model.evidence(model.embed(some.features)) for some in (test.known, test.unknown))
    c = model.calibration
    result = {
        "set": test.name,
        "learned_photos": len(test.learned.classes),
        "known_photos": len(known),
        "unknown_photos": len(unknown),
        "accepted": rounded(100 * float(c.known(unknown).double().mean())),
        "refused": rounded(100 * float((~c.known(known)).double().mean())),
        "auroc": rounded(auroc(c.fit_of(known), c.fit_of(unknown))),
        "fit_seconds": seconds,
        "calibration": {k: v for k, v in asdict(c).items() if not isinstance(v, tuple)},
    }
    if test.far is not None:
        shown = c.known(model.evidence(model.embed(test.far)))
        result |= {"far_photos": len(shown), "far_accepted": rounded(100 * float(shown.double().mean()))}
    return result


def spread(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several draws of one set: means, the worst tenth, and in how many percent of them the bounds are kept."""
    accepted, refused, aurocs = (np.array([one[name] for one in found]) for name in ("accepted", "refused", "auroc"))
    few, held = accepted <= MOST_ACCEPTED, refused <= MOST_REFUSED
    return {
        "set": found[0]["set"].split(", draw")[0],
        "draws": len(found),
        "accepted": rounded(float(accepted.mean())),
        "accepted_in_worst_tenth": rounded(float(np.quantile(accepted, WORST))),
        "refused": rounded(float(refused.mean())),
        "refused_in_worst_tenth": rounded(float(np.quantile(refused, WORST))),
        "auroc": rounded(float(aurocs.mean())),
        "accepted_kept": rounded(100 * float(few.mean())),
        "refused_kept": rounded(100 * float(held.mean())),
        "both_kept": rounded(100 * float((few & held).mean())),
    }


def run(
    data: Path, look: Look, dims: Sequence[int], draws: int, sets: Sequence[str] = SETS, seed: int = DRAW
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What was measured in each draw, and over the draws of each set that was drawn."""
    tests = {
        "birds": lambda: birds(data, look, draws, seed),
        "things": lambda: things(data, look, draws, seed),
        "signs": lambda: signs(data, look, draws, seed),
    }
    found = [[measured(test, dims) for test in tests[name]()] for name in SETS if name in sets]
    drawn = [[one for one in some if ", draw" in one["set"]] for some in found]
    return [one for some in found for one in some], [spread(some) for some in drawn if some]


def told(given: argparse.Namespace) -> dict[str, Any]:
    began, meter = time.perf_counter(), Meter()
    with counting(meter):
        dims = [WHEELS[name].dim for name in given.encoder.split("+")]
        seen: Views = "flip" if given.features is not None and given.views == "one" else given.views
        look = kept(given.features, encoded(given.encoder, seen), given.encoder, seen)
        found, over_draws = run(
            given.data, averaged(look, dims, given.views), dims, given.draws, given.sets, given.seed
        )
    return {
        "kind": "fscil unknown",
        "dataset": "cub200, cifar100, glyphs",
        "seed": given.seed,
        "settings": {
            "encoder": given.encoder,
            "views": given.views,
            "false_acceptance": 0.05,
            "draws": given.draws,
            "sets": list(given.sets),
        },
        **resultfile.facts(began, meter),
        "sets": found,
        "spread": over_draws,
        "metrics": {},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of CUB_200_2011 and cifar-100-python")
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--encoder", default="efficientnet_lite0", help="NAME or NAME+NAME of packages with weights")
    parser.add_argument(
        "--views", choices=("one", "flip", "negative"), default="one", help="mirror images, or negatives, as well"
    )
    parser.add_argument("--draws", type=int, default=3, help="of ten species, seven classes and ten characters")
    parser.add_argument("--seed", type=int, default=DRAW, help="of what is drawn")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="those to measure")
    parser.add_argument("--features", type=Path, help="NPZ file of what was seen")
    given = parser.parse_args()
    result = told(given)
    resultfile.write(result, given.out)
    for one in result["sets"]:
        far = f", far unknown photos accepted {one['far_accepted']} %" if "far_accepted" in one else ""
        print(f"{one['set']}: accepted {one['accepted']} %, refused {one['refused']} %, AUROC {one['auroc']}{far}")
    for one in result["spread"]:
        means = f"accepted {one['accepted']} %, refused {one['refused']} %"
        print(f"{one['set']}, {one['draws']} draws: {means}, both bounds kept in {one['both_kept']} %")
