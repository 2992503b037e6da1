"""Correcting a model with photos as people name them: by file, or by the first digits of a digest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.knowledge.memory import meant
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import corrections
from fscil.teach.lessons.corrections import places
from fscil.teach.lessons.looking import Seen, look
from fscil.teach.lessons.review import Review, review_class
from fscil.teach.lessons.teaching import Lesson, repeated_advice, sort_out, why_none
from fscil.teach.names import NONE, Name
from fscil.teach.seeing.photos import Source, name_of
from fscil.text import few

DIGITS = re.compile(r"[0-9a-fA-F]{4,32}")


@dataclass
class Correction:
    """What came of a correction."""

    photos: int = 0  # that were moved or taken out
    sources: list[Name] = field(default_factory=list)  # classes, or NONE, that photos were taken out of
    gone: list[Name] = field(default_factory=list)  # classes that lost their last photo and are forgotten
    reviews: list[Review] = field(default_factory=list)  # of the classes that changed and are left


@dataclass(frozen=True)
class Chosen:
    """Photos that were named: digest -> how, and their features (one (n, dim) per branch)."""

    titles: dict[bytes, str]
    features: list[Tensor]
    small: dict[bytes, bytes] = field(default_factory=dict)  # digest -> small picture, where the model keeps them

    @property
    def photos(self) -> list[bytes]:
        return list(self.titles)


@contextmanager
def all_or_nothing(model: Model) -> Iterator[None]:
    """While entered, steps belong together: should one fail, those that were made before it are taken back."""
    before = model.copy()
    try:
        yield
    except BaseException:
        vars(model).update(vars(before))
        raise


def unteach(model: Model, name: Name, given: Sequence[Source], erase: bool = False) -> Correction:
    """Takes photos out of a class, or out of NONE; with `erase` every trace of them, which is final."""
    return unteach_chosen(model, name, choose(model, given), erase)


def unteach_chosen(model: Model, name: Name, chosen: Chosen, erase: bool = False) -> Correction:
    """As `unteach`, with photos that are known already."""
    name = name if name == NONE else model.names[model.label(name)]
    known = places(model)
    for photo, title in chosen.titles.items():
        if known.get(photo) != name:
            raise FscilError(_elsewhere(title, name, known.get(photo)))
    (corrections.erase_photos if erase else corrections.unteach)(model, name, chosen.photos, chosen.features)
    return _correction(model, len(chosen.photos), [name])


def correct(model: Model, name: Name, given: Sequence[Source]) -> Correction:
    """Counts photos into a class, or into NONE, and out of where they were taught; those already there stay."""
    return correct_chosen(model, name, choose(model, given))


def correct_chosen(model: Model, name: Name, chosen: Chosen) -> Correction:
    """As `correct`, with photos that are known already."""
    known = places(model)
    rows = [row for row, photo in enumerate(chosen.photos) if known.get(photo) != name]
    if not rows:
        return Correction()
    photos, features = [chosen.photos[row] for row in rows], [f[rows] for f in chosen.features]
    if name == NONE:
        corrections.keep_as_none(model, photos, features)
    else:
        corrections.correct(model, name, photos, features)
    model.album.add(chosen.small)
    sources = [place for photo in photos if (place := known.get(photo)) is not None]
    return _correction(model, len(photos), list(dict.fromkeys(sources)), name)


def teach_none(model: Model, sources: Sequence[Source]) -> Lesson:
    """Keeps photos that show none of the classes; photos that were taught as a class are skipped and named."""
    return teach_none_seen(model, [name_of(source, p) for p, source in enumerate(sources)], look(model, sources))


def teach_none_seen(model: Model, photos: Sequence[str], seen: Seen) -> Lesson:
    """As `teach_none`, with photos that were looked at before, and what they are called."""
    called = [photos[p] for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, [NONE] * len(called), places(model))
    advice = repeated_advice([called[i] for i in repeated], {called[i]: other for i, other in foreign.items()})
    if not taken and not repeated:
        raise FscilError(f"none of the photos could be kept: {why_none(seen.unreadable, advice)}")
    kept = [seen.digests[i] for i in taken]
    if kept:
        corrections.keep_as_none(model, kept, [f[taken] for f in seen.features])
        model.album.add(seen.small)
    return Lesson(len(kept), seen.unreadable, advice, photos=kept)


def choose(model: Model, given: Sequence[Source]) -> Chosen:
    """The photos that are meant, each once; a text that is no file may be the beginning of a digest."""
    known = places(model)
    named = {i: meant(str(source), known) for i, source in enumerate(given) if _is_digest(source)}
    shown = [i for i in range(len(given)) if i not in named]
    seen = look(model, [given[i] for i in shown])
    if seen.unreadable:
        problems = few([str(problem) for problem in seen.unreadable])
        raise FscilError(f"nothing was changed: {problems}; name other photos, or digits as fscil photos lists them")
    remembered = model.memory.features(list(named.values())) if named else [f[:0] for f in seen.features]
    titles: dict[bytes, str] = {}
    rows = []
    for row, (position, photo) in enumerate(zip([*named, *shown], [*named.values(), *seen.digests], strict=True)):
        if photo not in titles:
            titles[photo] = name_of(given[position], position)
            rows.append(row)
    features = [torch.cat(parts)[rows] for parts in zip(remembered, seen.features, strict=True)]
    return Chosen(titles, features, seen.small)


def _is_digest(source: Source) -> bool:
    return isinstance(source, str | Path) and not Path(source).exists() and bool(DIGITS.fullmatch(str(source)))


def _elsewhere(photo: str, name: Name, place: Name | None) -> str:
    where = NONE if name == NONE else repr(name)
    if place is None:
        return f"{photo} is not among the photos that were taught as {where}; a photo that was edited is another photo"
    return f"{photo} was not taught as {where} but as {NONE if place == NONE else repr(place)}; name that instead"


def _correction(model: Model, photos: int, sources: list[Name], target: Name | None = None) -> Correction:
    left = [name for name in [*sources, *([] if target is None else [target])] if name in model.names.values()]
    gone = [name for name in sources if name != NONE and name not in left]
    reviews = [review for name in left if (review := review_class(model, name))]
    return Correction(photos, sources, gone, reviews)
