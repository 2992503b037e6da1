"""What `fscil teach` says about a lesson, checked on CUB-200: is a photo called odd a wrong one, is leave-one-out true?

    python benchmarks/lessons.py data/CUB_200_2011 --lessons 200

Base species are learned; lessons of other species are drawn from photos of the training part, taught, judged and
undone. In half of them one photo is of yet another species that the model does not know. Test photos are not read.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fscil.teach.base import learning
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen, answers, look
from fscil.teach.lessons.review import odd_photos, review_class

NEW = "a new species"


@dataclass(frozen=True)
class Judgement:
    """What was said about one lesson whose first photo may be wrong, and what is true."""

    wrong: bool
    odd: list[int]  # places in the lesson of the photos called odd
    recognised: float  # share by leave-one-out
    truth: float  # share of other photos of the species that are recognised


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


def judge(model: Model, seen: Seen, own: list[int], stranger: int | None, shots: int) -> Judgement:
    """Teaches the first of the photos `own`, perhaps with a stranger in the place of the first; all is undone."""
    lesson = [*([] if stranger is None else [stranger]), *own][:shots]
    digests = [seen.digests[i] for i in lesson]
    model.teach([NEW] * shots, [f[lesson] for f in seen.features], digests)
    odd = [digests.index(photo) for photo in odd_photos(model, NEW)]
    review = review_class(model, NEW)
    assert review is not None
    share = review.recognised / shots
    truth = recognised(model, [f[own[shots:]] for f in seen.features])
    model.undo()
    return Judgement(stranger is not None, odd, share, truth)


def report(shots: int, made: list[Judgement]) -> None:
    good, bad = [j for j in made if not j.wrong], [j for j in made if j.wrong]
    alarms = sum(bool(j.odd) for j in good)
    found, others = sum(0 in j.odd for j in bad), sum(any(j.odd) for j in bad)
    print(f"lessons of {shots} photos: {alarms} of {len(good)} correct lessons have a photo called odd")
    print(f"  with one wrong photo: it is named in {found} of {len(bad)}, a right one in {others}")
    share, truth = (torch.tensor([getattr(j, name) for j in good]) for name in ("recognised", "truth"))
    print(f"  leave-one-out {100 * share.mean():.1f} % recognised, new photos {100 * truth.mean():.1f} %")
    for name, some in (("all recognised", share == 1), ("not all", share < 1)):
        if some.any():
            print(f"  {name}: {int(some.sum())} lessons, new photos {100 * truth[some].mean():.1f} % recognised")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--species", type=int, default=40, help="base species, and as many new ones")
    parser.add_argument("--photos", type=int, default=20, help="of each species")
    parser.add_argument("--lessons", type=int, default=400, help="of each size")
    parser.add_argument("--strength", default="prototypes")
    given = parser.parse_args()
    every = species(given.root, given.photos)[: 2 * given.species]
    base, new = every[::2], every[1::2]
    model = backbones.of_encoder(backbones.DEFAULT)
    sources = [photo for found in base for photo in found]
    learning.learn(model, sources, [photo.parent.name for photo in sources], given.strength, tell=print)
    shown = [photo for found in new for photo in found]
    seen = look(model, shown, "looking at photos")
    of = [[i for i, p in enumerate(seen.positions) if shown[p] in found] for found in new]
    rng = torch.Generator().manual_seed(0)
    for shots in (3, 5, 10):
        made = []
        for turn in range(given.lessons):
            at, other = torch.randperm(len(of), generator=rng)[:2].tolist()
            own = [of[at][i] for i in torch.randperm(len(of[at]), generator=rng).tolist()]
            stranger = of[other][int(torch.randint(len(of[other]), (1,), generator=rng))] if turn % 2 else None
            made.append(judge(model, seen, own, stranger, shots))
        report(shots, made)


if __name__ == "__main__":
    main()
