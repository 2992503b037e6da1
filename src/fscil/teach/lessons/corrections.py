"""Changes of single photos: taken out of a class, moved to another, or kept as photos of none of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.knowledge.memory import short
from fscil.teach.knowledge.model import Model
from fscil.teach.names import NONE, Name, check_name


def places(model: Model) -> dict[bytes, Name]:
    """Digest -> class, or NONE, of every photo a model was taught from."""
    taught = {photo: model.names[label] for label, photos in model.photos.items() for photo in photos}
    return taught | dict.fromkeys(model.negatives, NONE)


def unteach(model: Model, name: Name, photos: Sequence[bytes], features: Sequence[Tensor] | None = None) -> None:
    """Takes photos out of a class, or out of NONE; a class without photos is forgotten.

    `features` (one (n, dim) per branch) serve where the model remembers none.
    """
    _check_there(model, name, photos)
    if name == NONE:
        model.note("unteach", {}, len(photos), negatives=model.negatives)
        _drop_negatives(model, photos)
        return
    rows, sources = _rows_of(model, photos, features), _sources(model, photos)
    model.note("unteach", _called(model, sources), len(photos))
    model.take_out(sources, photos, rows)
    model.recheck()


def correct(model: Model, name: Name, photos: Sequence[bytes], features: Sequence[Tensor] | None = None) -> None:
    """Counts photos into a class, new or known, and out of where they were taught before: one step."""
    check_name(name)
    rows, sources = _rows_of(model, photos, features), _sources(model, photos)
    label = next((label for label, known in model.names.items() if known == name), model.next_label())
    if label in sources:
        raise FscilError(f"photo {short(photos[sources[label][0]])} was taught as {name!r} already")
    negatives = model.negatives if set(photos) & set(model.negatives) else None
    model.note("correct", {label: name, **_called(model, sources)}, len(photos), negatives=negatives)
    model.take_out(sources, photos, rows)
    _drop_negatives(model, photos)
    model.count_in([label] * len(photos), [name] * len(photos), rows, photos)
    model.recheck()


def keep_as_none(model: Model, photos: Sequence[bytes], features: Sequence[Tensor] | None = None) -> None:
    """Keeps photos as photos of none of these, and takes them out of the classes they were taught as: one step."""
    rows, sources = _rows_of(model, photos, features), _sources(model, photos)
    model.note("none", _called(model, sources), len(photos), negatives=model.negatives)
    model.take_out(sources, photos, rows)
    model.memory.add(photos, rows)
    model.negatives += tuple(photo for photo in dict.fromkeys(photos) if photo not in model.negatives)
    model.recheck()


def erase_photos(model: Model, name: Name, photos: Sequence[bytes], features: Sequence[Tensor] | None = None) -> None:
    """Takes photos out of a class, or out of NONE, with every trace of them; nothing before it can be undone."""
    unteach(model, name, photos, features)
    model.journal.steps.pop()
    model.journal.erase_photos(len(photos))
    model.tidy()


def _check_there(model: Model, name: Name, photos: Sequence[bytes]) -> None:
    there = model.negatives if name == NONE else model.photos.get(model.label(name), ())
    missing = [photo for photo in photos if photo not in there]
    if missing:
        where = NONE if name == NONE else repr(name)
        raise FscilError(f"photo {short(missing[0])} was not taught as {where}; fscil photos MODEL lists them")


def _sources(model: Model, photos: Sequence[bytes]) -> dict[int, list[int]]:
    """Label -> positions of those of the photos that were taught as this class."""
    taught = {photo: label for label, known in model.photos.items() for photo in known}
    sources: dict[int, list[int]] = {}
    for position, photo in enumerate(photos):
        if photo in taught:
            sources.setdefault(taught[photo], []).append(position)
    return sources


def _called(model: Model, labels: Iterable[int]) -> dict[int, Name]:
    return {label: model.names[label] for label in labels}


def _rows_of(model: Model, photos: Sequence[bytes], features: Sequence[Tensor] | None) -> list[Tensor]:
    return model.memory.features(photos) if features is None else model.memory.instead_of(photos, features)


def _drop_negatives(model: Model, photos: Sequence[bytes]) -> None:
    model.negatives = tuple(photo for photo in model.negatives if photo not in photos)
