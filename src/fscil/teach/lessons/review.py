"""Leave-one-out: what a model would say about the photos of a class if each had not been taught, and which is odd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fscil.nn.prototypes import ClassSums
from fscil.teach.knowledge.memory import short
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import answers_with
from fscil.teach.names import Name
from fscil.teach.replies import Answer
from fscil.text import count, few

ENOUGH = 5  # photos from which a class is known well enough
MOST = 30  # photos of a class that are asked, the latest
FEWEST = 3  # photos among which one can be odd, and classes to compare with
DRAWN = 300  # lessons drawn from other classes
LARGEST = 10  # photos of such a lesson
TINY = 1e-12
RARE = 0.005  # share of them that may look as odd


@dataclass(frozen=True)
class Review:
    """The answers about photos of a class, each asked as if it had not been taught."""

    name: Name
    photos: tuple[str, ...]  # what they are called
    answers: tuple[Answer, ...]
    total: int = 0  # photos of the class, of which the latest were asked about

    @property
    def recognised(self) -> int:
        """Photos for which the model would be sure of the right class."""
        return sum(map(self._right, self.answers))

    @property
    def missed(self) -> list[bool]:
        """Of each photo whether it would not be recognised."""
        return [not self._right(answer) for answer in self.answers]

    def text(self) -> str:
        """4 of 5 photos of 'hoopoe' would be recognised; dark.jpg looks like 'jay'; more photos would help."""
        latest = "the latest " if self.total > len(self.photos) else ""
        asked = f"{self.recognised} of {latest}{count(len(self.photos), 'photo')} of {self.name!r}"
        told = [f"{asked} would be recognised if they had not been taught", *self._others()]
        if self.recognised == len(self.photos) >= ENOUGH:
            told.append("more would change little")
        elif len(self.photos) < MOST:
            told.append("more photos would help")
        return "; ".join(told)

    def _right(self, answer: Answer) -> bool:
        return answer.known and answer.best[0][0] == self.name

    def _others(self) -> list[str]:
        """What is said about the photos that would not be recognised."""
        mistaken: dict[str, list[str]] = {}
        for photo, answer in zip(self.photos, self.answers, strict=True):
            if not self._right(answer):
                best = answer.best[0][0]
                mistaken.setdefault("not sure" if best == self.name else f"looks like {best!r}", []).append(photo)
        return [f"{few(photos)}: {said}" for said, photos in mistaken.items()]


def review(model: Model, name: Name, features: Sequence[Tensor], called: Sequence[str]) -> Review | None:
    """Asks about taught photos of a class by their features (one (n, dim) per branch); None: it has one photo."""
    label = model.label(name)
    rows = [branch.prototypes.take(label) for branch in model.branches]
    if rows[0].photos < 2:
        return None
    counted = [branch.counted(f).double() for branch, f in zip(model.branches, features, strict=True)]
    without = [
        [ClassSums(r.total - f[i], r.photos - 1, r.bias) for r, f in zip(rows, counted, strict=True)]
        for i in range(len(called))
    ]
    with model.beside(without):
        own = model.classes.index(model.names[label])
        scores, evidence = (_with_own(judged(features), own) for judged in (model.scores, model.evidence))
    said = answers_with(model, features, scores, evidence, most=2)
    return Review(name, tuple(called), tuple(said), rows[0].photos)


def _with_own(judged: Tensor, column: int) -> Tensor:
    """Scores (n, classes) of n photos from (n, classes + n): what the class would be without each is among the last."""
    classes = judged.shape[1] - len(judged)
    kept = judged[:, :classes].clone()
    kept[:, column] = judged[:, classes:].diagonal()
    return kept


def review_class(model: Model, name: Name, called: Mapping[bytes, str] | None = None) -> Review | None:
    """Asks about the latest photos of a class whose features are remembered; None: there are none, or only one."""
    photos = [photo for photo in model.photos.get(model.label(name), ()) if photo in model.memory][-MOST:]
    if not photos:
        return None
    titles = [(called or {}).get(photo, f"photo {short(photo)}") for photo in photos]
    return review(model, name, model.memory.features(photos), titles)


def odd_photos(model: Model, name: Name) -> list[bytes]:
    """Photos of a class that are less like its others than in all but few lessons of other classes.

    A photo is odd if its cosine with the mean of the others is both low and far below that of the others, each measured
    on lessons of as many photos drawn from the classes whose features are remembered, and if it would not be recognised
    had it not been taught: base classes were whitened by their own photos and lie closer together than new ones.
    """
    own = model.label(name)
    photos = [photo for photo in model.photos.get(own, ()) if photo in model.memory]
    groups = [[p for p in known if p in model.memory] for label, known in model.photos.items() if label != own]
    size = min(len(photos), LARGEST, sorted(map(len, groups))[-FEWEST] if len(groups) >= FEWEST else 0)
    if size < FEWEST:
        return []
    rng, fitting = torch.Generator().manual_seed(0), [group for group in groups if len(group) >= size]
    drawn: list[bytes] = []
    for turn in range(DRAWN):
        group = fitting[turn % len(fitting)]
        drawn += [group[i] for i in torch.randperm(len(group), generator=rng)[:size].tolist()]
    lessons = model.memory.features(drawn)[0].view(DRAWN, size, -1)
    limits = _likeness(lessons).amin(-1).quantile(RARE, 1)
    features = model.memory.features(photos)
    low = (_likeness(features[0]) < limits[:, None]).all(0).nonzero()[:, 0].tolist()
    asked = review(model, name, [f[low] for f in features], [short(photos[i]) for i in low])
    missed = asked.missed if asked else [True] * len(low)
    return [photos[i] for i, miss in zip(low, missed, strict=True) if miss]


def _likeness(features: Tensor) -> Tensor:
    """Of photos (…, n, dim) the cosine with the mean of the others, and its lead over theirs, the median: (2, …, n).

    From their products with each other alone: with unit features u and their sum s it is u·(s - u) / |s - u|.
    """
    products = (features @ features.mT).double()
    lengths = products.diagonal(dim1=-2, dim2=-1).sqrt().clamp_min(TINY)
    with_sum = (products / lengths[..., None] / lengths[..., None, :]).sum(-1)
    rest = (with_sum.sum(-1, keepdim=True) - 2 * with_sum + 1).clamp_min(TINY).sqrt()
    closeness = (with_sum - 1) / rest
    n = closeness.shape[-1]
    others = torch.arange(n).expand(n, n)[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
    return torch.stack([closeness, closeness - closeness[..., others].quantile(0.5, -1)])
