"""What `fscil teach` says about a lesson, checked on CUB-200: is a photo called unlike a wrong one, is leave-one-out
true, and do more photos change little where it says so?

    python benchmarks/lessons.py data/CUB_200_2011 results/lessons/cub200.json

40 of the last 100 species are learned. Lessons of 40 others of them are drawn from training photos, taught, judged and
undone; in half of the lessons one photo is of yet another species that the model does not know. In the others as many
photos again are then taught, and the same other photos of the species asked about once more. Nothing was chosen on the
last 100 species. Test photos are not read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import resultfile
from fscil.nn.compute import Meter, counting
from fscil.report.results import rounded
from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen, answers, look
from fscil.teach.lessons.review import odd_photos, review_class

NEW = "a new species"
SIZES = (3, 5, 10)
FIRST = 100  # species on which settings were chosen; those behind them are drawn from
LITTLE = "more would change little"
UNLIKE = [
    "photos in the lesson",
    "correct lessons with a photo called unlike",
    "wrong photo named",
    "right photo named beside it",
    "leave-one-out says",
    "new photos recognised",
]


@dataclass(frozen=True)
class Judgement:
    """What was said about one lesson whose first photo may be wrong, and what is true."""

    wrong: bool
    odd: list[int]  # places in the lesson of the photos called odd
    little: bool  # it was said that more photos would change little
    recognised: float  # share by leave-one-out
    truth: float  # share of other photos of the species that are recognised
    after: float  # the same after as many photos again


@dataclass(frozen=True)
class Lessons:
    """What is drawn from: photos seen by a model, and which of them belong to each species it does not know."""

    model: Model
    seen: Seen
    species: list[list[int]]

    def drawn(self, shots: int, number: int, rng: torch.Generator) -> list[Judgement]:
        """Lessons of one size; every second has a stranger in it."""
        made = []
        for turn in range(number):
            at, other = torch.randperm(len(self.species), generator=rng)[:2].tolist()
            order = torch.randperm(len(self.species[at]), generator=rng).tolist()
            strange = int(torch.randint(len(self.species[other]), (1,), generator=rng))
            stranger = self.species[other][strange] if turn % 2 else None
            made.append(self.judge([self.species[at][i] for i in order], stranger, shots))
        return made

    def judge(self, own: list[int], stranger: int | None, shots: int) -> Judgement:
        """Teaches the first of the photos `own`, perhaps with a stranger before them, and more; all is undone."""
        lesson = [*([] if stranger is None else [stranger]), *own][:shots]
        shown = [f[own[2 * shots :]] for f in self.seen.features]
        self._teach(lesson)
        digests = [self.seen.digests[i] for i in lesson]
        odd = [digests.index(photo) for photo in odd_photos(self.model, NEW)]
        review = review_class(self.model, NEW)
        assert review is not None
        truth = recognised(self.model, shown)
        self._teach(own[shots : 2 * shots])
        after = recognised(self.model, shown)
        self.model.undo()
        self.model.undo()
        share = review.recognised / shots
        return Judgement(stranger is not None, odd, LITTLE in review.text(), share, truth, after)

    def _teach(self, photos: list[int]) -> None:
        features = [f[photos] for f in self.seen.features]
        self.model.teach([NEW] * len(photos), features, [self.seen.digests[i] for i in photos])


def species(root: Path, photos: int) -> list[list[Path]]:
    """The first training photos of each species."""
    files = dict(line.split() for line in (root / "images.txt").read_text().splitlines())
    train = [line.split() for line in (root / "train_test_split.txt").read_text().splitlines()]
    by_folder: dict[str, list[Path]] = {}
    for number, part in train:
        if part == "1":
            by_folder.setdefault(files[number].partition("/")[0], []).append(root / "images" / files[number])
    return [found[:photos] for found in by_folder.values()]


def recognised(model: Model, features: list[Tensor]) -> float:
    said = answers(model, features)
    return sum(answer.known and answer.best[0][0] == NEW for answer in said) / len(said)


def prepared(every: Sequence[list[Path]], encoder: str, strength: str, pixels: int | None = None) -> Lessons:
    """Every other species is learned; photos of the others are looked at."""
    base, new = every[::2], every[1::2]
    model = backbones.of_encoder(encoder, pixels=pixels)
    sources = [photo for found in base for photo in found]
    learning.learn(model, sources, [photo.parent.name for photo in sources], strength, tell=print)
    shown = [photo for found in new for photo in found]
    seen = look(model, shown, "looking at photos")
    of = [[i for i, p in enumerate(seen.positions) if shown[p] in found] for found in new]
    return Lessons(model, seen, of)


def summed(shots: int, made: Sequence[Judgement]) -> dict[str, Any]:
    """Counts, and shares in percent, over the lessons of one size."""
    good, bad = [j for j in made if not j.wrong], [j for j in made if j.wrong]
    told = {"little": [j for j in good if j.little], "help": [j for j in good if not j.little]}
    return {
        "shots": shots,
        "correct_lessons": len(good),
        "with_a_photo_called_unlike": sum(bool(j.odd) for j in good),
        "lessons_with_a_wrong_photo": len(bad),
        "wrong_photo_named": sum(0 in j.odd for j in bad),
        "right_photo_named": sum(any(j.odd) for j in bad),
        "leave_one_out": _percent([j.recognised for j in good]),
        "recognised": _percent([j.truth for j in good]),
        **{
            f"more_photos_{name}": {
                "lessons": len(some),
                "recognised": _percent([j.truth for j in some]),
                "after_as_many_again": _percent([j.after for j in some]),
            }
            for name, some in told.items()
        },
    }


def _percent(shares: Sequence[float]) -> float | None:
    return rounded(100 * mean(shares)) if shares else None


def tables(result: dict[str, Any]) -> list[str]:
    """The lines of the two tables of docs/teach.md."""
    first = [UNLIKE]
    second = [["photos in the lesson", "it says", "correct lessons", "new photos recognised", "after as many again"]]
    for one in result["lessons"]:
        good, bad = one["correct_lessons"], one["lessons_with_a_wrong_photo"]
        named = [f"{one[name]} of {bad}" for name in ("wrong_photo_named", "right_photo_named")]
        shares = [f"{one[name]:.1f} %" for name in ("leave_one_out", "recognised")]
        first.append([str(one["shots"]), f"{one['with_a_photo_called_unlike']} of {good}", *named, *shares])
        for name, said in (("little", LITTLE), ("help", "more photos would help")):
            told = one[f"more_photos_{name}"]
            if told["lessons"]:
                shares = [f"{told[part]:.1f} %" for part in ("recognised", "after_as_many_again")]
                second.append([str(one["shots"]), said, f"{told['lessons']} of {good}", *shares])
    return [*resultfile.table(first), "", *resultfile.table(second)]


def run(lessons: Lessons, number: int, seed: int) -> list[dict[str, Any]]:
    rng = torch.Generator().manual_seed(seed)
    return [summed(shots, lessons.drawn(shots, number, rng)) for shots in SIZES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder CUB_200_2011")
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--species", type=int, default=40, help="that are learned, and as many new ones")
    parser.add_argument("--photos", type=int, default=30, help="of each species, more than 20")
    parser.add_argument("--lessons", type=int, default=200, help="of each size")
    parser.add_argument("--encoder", default=backbones.DEFAULT)
    parser.add_argument("--pixels", type=int, help="size of the images [default: the encoder's own]")
    parser.add_argument("--strength", default="prototypes")
    parser.add_argument("--seed", type=int, default=0, help="of the lessons that are drawn")
    given = parser.parse_args()
    began, meter = time.perf_counter(), Meter()
    every = species(given.root, given.photos)[FIRST:][: 2 * given.species]
    with counting(meter):
        lessons = prepared(every, given.encoder, given.strength, given.pixels)
        found = run(lessons, given.lessons, given.seed)
    settings = {name: getattr(given, name) for name in ("encoder", "strength", "species", "photos", "lessons")}
    told = {"kind": "fscil lessons", "dataset": "cub200", "seed": given.seed, "settings": settings}
    result = {**told, **resultfile.facts(began, meter), "lessons": found, "metrics": {}}
    resultfile.write(result, given.out)
    print("\n".join(tables(result)))


if __name__ == "__main__":
    main()
