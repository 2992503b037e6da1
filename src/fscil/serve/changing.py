"""Changes: photos and classes that come and go; each is on the disk before it is answered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from fscil.serve import words
from fscil.serve.asking import FORM
from fscil.serve.problems import documented
from fscil.serve.service import Served, unreadable
from fscil.serve.shapes import LessonFacts
from fscil.serve.store import Revisions
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.teaching import Lesson, teach_seen
from fscil.teach.names import check_name
from fscil.teach.seeing.photos import class_name

IfMatch = Annotated[str | None, Header(description="revision the change is meant for, in quotes")]

routes = APIRouter(prefix="/v1")


def expected(tags: str | None) -> Revisions:
    """The revisions that an If-Match header accepts; None: any."""
    if tags is None or tags.strip() == "*":
        return None
    return [tag.strip().removeprefix("W/").strip('"') for tag in tags.split(",")]


@routes.post(
    "/classes/{name:path}/photos",
    summary="Teach a class, new or known",
    openapi_extra=FORM,
    responses={201: {"model": LessonFacts, "description": "The class is new"}, **documented(409, 412, 422)},
)
async def teach(
    service: Served, request: Request, response: Response, name: str, if_match: IfMatch = None
) -> LessonFacts:
    name = class_name(name)
    check_name(name)
    photos = await service.photos(request)
    model = service.model
    seen = await service.look(model, photos)
    titles = [photo.name for photo in photos]

    def taught(model: Model) -> tuple[Lesson, bool]:
        meant = model.name_of(name)
        new = meant not in model.names.values()
        return teach_seen(model, [meant] * len(titles), titles, seen), new

    done = await service.change(taught, expected(if_match), model)
    lesson, new = done.value
    response.status_code = 201 if new else 200
    return _lesson_facts(words.tag(response, done.model), name, lesson)


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
