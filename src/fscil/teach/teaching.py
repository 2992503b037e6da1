"""Teaching a class from a few photos, and what is worth saying about these photos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.journal import Name, count, few
from fscil.teach.looking import answers, look
from fscil.teach.model import Model
from fscil.teach.photos import Source, Unreadable, name_of

ENOUGH = 5  # photos from which a class is known well enough


@dataclass
class Lesson:
    """What came of teaching: how many photos were taken in, which could not be read, and advice in plain sentences."""

    taught: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


def teach(model: Model, names: Sequence[Name], sources: Sequence[Source]) -> Lesson:
    """Adds each photo to the class of its name, new or known; photos that were taught before are left out."""
    seen = look(model, sources)
    given = [names[p] for p in seen.positions]
    called = [name_of(sources[p], p) for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, given, known_photos(model))
    lesson = Lesson(len(taken), seen.unreadable)
    lesson.advice += repeated_advice([called[i] for i in repeated], {called[i]: other for i, other in foreign.items()})
    if not taken:
        if repeated:
            return lesson  # every photo was known already: nothing to do, nothing wrong
        raise FscilError(f"none of the photos could be taught: {_why(lesson)}; give other photos")
    for name in dict.fromkeys(given[i] for i in taken):
        mine = [i for i in taken if given[i] == name]
        lesson.advice += photo_advice(model, name, [f[mine] for f in seen.features], [called[i] for i in mine])
    dull = [called[i] for i in taken if seen.positions[i] in seen.plain]
    if dull:
        lesson.advice.append(f"{few(dull)}: almost one colour; a photo that shows the object teaches more")
    model.teach([given[i] for i in taken], [f[taken] for f in seen.features], [seen.digests[i] for i in taken])
    return lesson


def photo_advice(model: Model, name: Name, features: Sequence[Tensor], called: Sequence[str]) -> list[str]:
    """What is worth saying about photos before they are taught as one class."""
    told = looks_like(model, name, features) + unlike_the_others(model, features[0], called)
    known = {other: label for label, other in model.names.items()}
    photos = len(called) + (model.branches[0].prototypes.take(known[name]).photos if name in known else 0)
    if photos < ENOUGH:
        told.append(f"{name!r} is known from {count(photos, 'photo')}; {ENOUGH} or more make it surer")
    return told


def known_photos(model: Model) -> dict[bytes, Name]:
    """Digest -> class of every photo a model was taught from."""
    return {photo: model.names[label] for label, photos in model.photos.items() for photo in photos}


def sort_out(
    digests: Sequence[bytes], names: Sequence[Name], known: Mapping[bytes, Name]
) -> tuple[list[int], list[int], dict[int, Name]]:
    """Positions of photos that are new, of those known for the same class, and of those known for another class."""
    seen, taken, repeated, foreign = dict(known), [], [], {}
    for i, (digest, name) in enumerate(zip(digests, names, strict=True)):
        if digest not in seen:
            seen[digest] = name
            taken.append(i)
        elif seen[digest] == name:
            repeated.append(i)
        else:
            foreign[i] = seen[digest]
    return taken, repeated, foreign


def repeated_advice(repeated: Sequence[str], foreign: Mapping[str, Name]) -> list[str]:
    """What to say about photos that came more than once."""
    told = [f"{count(len(repeated), 'photo')} known already and counted once: {few(repeated)}"] if repeated else []
    if foreign:
        named = [f"{photo} ({other!r})" for photo, other in foreign.items()]
        told.append(f"left out, because the same photo was taught as another class: {few(named)}; decide for one")
    return told


def looks_like(model: Model, name: Name, features: Sequence[Tensor]) -> list[str]:
    """A sentence when most of the photos would be taken, with some certainty, for another class."""
    if not [other for other in model.names.values() if other != name]:
        return []
    told = [answer.best[0] for answer in answers(model, features) if answer.known and answer.best[0][0] != name]
    counted = Counter(other for other, _ in told)
    if not counted:
        return []
    other, times = counted.most_common(1)[0]
    certainty = sum(p for n, p in told if n == other) / times
    if times * 2 <= len(features[0]) or certainty < 0.5:
        return []
    said = f"{times} of {count(len(features[0]), 'photo')} look like {other!r} {certainty:.2f}"
    return [f"{said}; if it is the same thing, undo and teach {other!r} instead"]


def unlike_the_others(model: Model, features: Tensor, called: Sequence[str]) -> list[str]:
    """A sentence about photos that resemble the rest of the lesson less than photos of one class usually do."""
    if model.calibration.odd is None or len(features) < 3:
        return []
    unit = F.normalize(features, dim=1)
    rest = F.normalize(unit.sum(0) - unit, dim=1)
    closeness = (unit * rest).sum(1).tolist()
    odd = [photo for photo, close in zip(called, closeness, strict=True) if close < model.calibration.odd]
    if not odd:
        return []
    if len(odd) * 2 > len(called):
        return ["these photos differ much from each other; do they all show the same class?"]
    return [f"{few(odd)}: unlike the other photos; undo if it was a mistake"]


def _why(lesson: Lesson) -> str:
    return "; ".join([*(str(problem) for problem in lesson.unreadable[:3]), *lesson.advice]) or "there are none"
