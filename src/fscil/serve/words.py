"""What the library says, put into the shapes that are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from fastapi import Response

from fscil.serve.shapes import Missed, ReviewFacts, Told
from fscil.serve.store import Done
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen, answers
from fscil.teach.lessons.nearest import Neighbour, Taught
from fscil.teach.lessons.review import Review
from fscil.teach.seeing.photos import Upload

_TAUGHT: WeakKeyDictionary[Model, Taught] = WeakKeyDictionary()  # what was forgotten goes with its snapshot


def tag(response: Response, state: Model | Done) -> str:
    """The revision of a model, or to which a change led; it is also the entity tag of an answer."""
    revision = state.revision or ""
    response.headers["ETag"] = f'"{revision}"'
    return revision


def taught(model: Model) -> Taught:
    """The photos of a snapshot: put together when the first one asks, not for every question."""
    known = _TAUGHT.get(model)
    if known is None:
        known = _TAUGHT[model] = Taught(model)
    return known


def told(model: Model, photos: Sequence[Upload], seen: Seen, top: int, near: int) -> list[Told]:
    """What a model says about photos that were looked at."""
    said, known = answers(model, seen.features, top), taught(model)
    neighbours = known.nearest(seen.features, near) if near and len(known) else [()] * len(said)
    return [
        Told.model_validate(
            {
                "photo": photos[position].name,
                "digest": digest.hex(),
                "class": str(answer.best[0][0]),
                "known": answer.known,
                "like_none": answer.rejected,
                "taught_as": str(known.places[digest]) if digest in known.places else None,
                "text": answer.text(),
                "best": [{"class": str(name), "probability": p} for name, p in answer.best],
                "nearest": [_near(one) for one in some],
            }
        )
        for position, digest, answer, some in zip(seen.positions, seen.digests, said, neighbours, strict=True)
    ]


def _near(one: Neighbour) -> dict[str, str | float]:
    return {"digest": one.photo.hex(), "class": str(one.name), "likeness": one.likeness}


def review_line(review: Review) -> str:
    """The line about a review whose photos are called by their digests, which are shortened."""
    return replace(review, photos=tuple(f"photo {photo[:8]}" for photo in review.photos)).text()


def review_facts(review: Review) -> ReviewFacts:
    """A leave-one-out line as it is sent."""
    wrong = [(photo, a) for photo, a, miss in zip(review.photos, review.answers, review.missed, strict=True) if miss]
    missed = [
        Missed(photo=photo, said=None if answer.best[0][0] == review.name else str(answer.best[0][0]))
        for photo, answer in wrong
    ]
    facts = {"class": str(review.name), "recognised": review.recognised, "photos": len(review.photos)}
    return ReviewFacts.model_validate({**facts, "missed": missed, "text": review.text()})
