"""Changes of photos: taught, taken back, moved, kept as none of these; on the disk before they are answered."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from fastapi import APIRouter, Request, Response

from fscil.serve import words
from fscil.serve.forms import PHOTOS, SOME_PHOTOS, form
from fscil.serve.meant import Digest, Erase, IfMatch, known_class, revisions
from fscil.serve.paths import CLASS
from fscil.serve.problems import Problem, documented
from fscil.serve.service import Served, unreadable
from fscil.serve.shapes import CorrectionFacts, LessonFacts
from fscil.serve.uploads import Form
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.correcting import Chosen, Correction, correct_chosen, teach_none_seen, unteach_chosen
from fscil.teach.lessons.corrections import places
from fscil.teach.lessons.looking import Seen
from fscil.teach.lessons.teaching import Lesson, teach_seen
from fscil.teach.names import NONE, Name, check_name, class_name

routes = APIRouter(prefix="/v1")


@routes.post(
    f"{CLASS}/photos",
    summary="Teach a class, new or known",
    openapi_extra=SOME_PHOTOS,
    responses={201: {"model": LessonFacts, "description": "The class is new"}, **documented(409, 412, 422)},
)
async def teach(
    service: Served, request: Request, response: Response, name: str, if_match: IfMatch = None
) -> LessonFacts:
    name = class_name(name)
    check_name(name)
    photos = await service.photos(request)
    model = service.model
    seen = await service.look(model, photos, model.album.keep)
    titles = [photo.name for photo in photos]

    def taught(model: Model) -> tuple[Lesson, bool]:
        meant = model.name_of(name)
        new = meant not in model.names.values()
        return teach_seen(model, [meant] * len(titles), titles, seen), new

    done = await service.change(taught, revisions(if_match), model)
    lesson, new = done.value
    response.status_code = 201 if new else 200
    return _lesson_facts(words.tag(response, done), name, lesson)


@routes.post(
    "/none", summary="Keep photos as none of these", openapi_extra=SOME_PHOTOS, responses=documented(409, 412, 422)
)
async def teach_none(service: Served, request: Request, response: Response, if_match: IfMatch = None) -> LessonFacts:
    photos = await service.photos(request)
    model = service.model
    seen = await service.look(model, photos, model.album.keep)
    titles = [photo.name for photo in photos]
    done = await service.change(lambda model: teach_none_seen(model, titles, seen), revisions(if_match), model)
    return _lesson_facts(words.tag(response, done), NONE, done.value)


@routes.post(
    "/correct",
    summary="Say what a photo really is",
    openapi_extra=form(
        {"class": {"type": "string"}, "photos": PHOTOS, "digest": {"type": "string", "pattern": "^[0-9a-f]{32}$"}},
        ("class",),
    ),
    responses=documented(409, 412, 422),
)
async def correct(service: Served, request: Request, response: Response, if_match: IfMatch = None) -> CorrectionFacts:
    given = await service.form(request)
    name = class_name(given.texts.get("class", ""))
    if name != NONE:
        check_name(name)
    model = service.model
    seen = await service.look(model, given.photos, model.album.keep) if given.photos else Seen()
    if seen.unreadable:
        raise Problem(422, "not every photo could be read, so nothing was changed", unreadable(seen.unreadable))

    def corrected(model: Model) -> Correction:
        return correct_chosen(model, NONE if name == NONE else model.name_of(name), _chosen(model, given, seen))

    done = await service.change(corrected, revisions(if_match), model)
    return _correction_facts(words.tag(response, done), name, done.value)


@routes.delete(
    f"{CLASS}/photos/{{digest}}",
    summary="Take one photo back, as if it had never been taught",
    responses=documented(409, 412, 422),
)
async def unteach(
    service: Served, response: Response, name: str, digest: Digest, erase: Erase = False, if_match: IfMatch = None
) -> CorrectionFacts:
    def taken(model: Model) -> Correction:
        return unteach_chosen(model, known_class(model, name), _remembered(model, digest, name), erase)

    done = await service.change(taken, revisions(if_match))
    return _correction_facts(words.tag(response, done), name, done.value)


@routes.delete(
    "/none/photos/{digest}", summary="Take a photo of none of these back", responses=documented(409, 412, 422)
)
async def unteach_none(
    service: Served, response: Response, digest: Digest, erase: Erase = False, if_match: IfMatch = None
) -> CorrectionFacts:
    done = await service.change(
        lambda model: unteach_chosen(model, NONE, _remembered(model, digest, NONE), erase), revisions(if_match)
    )
    return _correction_facts(words.tag(response, done), NONE, done.value)


def _remembered(model: Model, digest: str, name: str) -> Chosen:
    """A photo that was taught as a class, by what the model keeps of it."""
    photo = bytes.fromhex(digest)
    if str(places(model).get(photo)) != class_name(name):
        raise Problem(404, "no such photo was taught as this class")
    if photo not in model.memory:
        raise Problem(
            409, "the model keeps no feature of this photo; take it back with fscil unteach and the photo itself"
        )
    return Chosen({photo: digest[:8]}, model.memory.features([photo]))


def _chosen(model: Model, given: Form, seen: Seen) -> Chosen:
    """The photos of a correction: sent along, or one that was taught, by its digest."""
    digest = given.texts.get("digest")
    if digest is not None and not given.photos:
        place = places(model).get(_bytes(digest))
        if place is None:
            raise Problem(404, "no photo with this digest was taught")
        return _remembered(model, digest, str(place))
    if digest is not None or not given.photos:
        raise Problem(422, "send either photos, or the digest of a photo that was taught")
    rows = {photo: row for row, photo in reversed(list(enumerate(seen.digests)))}
    order = sorted(rows.values())
    titles = {seen.digests[row]: given.photos[seen.positions[row]].name for row in order}
    return Chosen(titles, [f[torch.tensor(order)] for f in seen.features], seen.small)


def _bytes(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        raise Problem(422, "a digest is made of hexadecimal digits") from None


def _lesson_facts(revision: str, name: str, lesson: Lesson) -> LessonFacts:
    return LessonFacts.model_validate(
        {
            "revision": revision,
            "class": name,
            "taught": lesson.taught,
            "digests": [photo.hex() for photo in lesson.photos],
            "unreadable": unreadable(lesson.unreadable),
            "advice": lesson.advice,
            "review": words.review_facts(lesson.reviews[0]) if lesson.reviews else None,
        }
    )


def _correction_facts(revision: str, name: str, done: Correction) -> CorrectionFacts:
    return CorrectionFacts.model_validate(
        {
            "revision": revision,
            "class": name,
            "photos": done.photos,
            "sources": _texts(done.sources),
            "gone": _texts(done.gone),
            "reviews": [words.review_facts(review) for review in done.reviews],
        }
    )


def _texts(names: Sequence[Name]) -> list[str]:
    return [str(name) for name in names]
