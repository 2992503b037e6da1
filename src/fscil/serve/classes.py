"""Changes of whole classes: renamed, forgotten, erased; and the last change taken back."""

from __future__ import annotations

from fastapi import APIRouter, Response

from fscil.errors import FscilError
from fscil.serve import words
from fscil.serve.meant import Erase, IfMatch, known_class, revisions
from fscil.serve.paths import CLASS
from fscil.serve.problems import Problem, documented
from fscil.serve.service import Served
from fscil.serve.shapes import Forgotten, NewName, Renamed, Undone
from fscil.serve.store import Revisions
from fscil.teach.knowledge.model import Model
from fscil.teach.names import check_name, class_name

routes = APIRouter(prefix="/v1")


def needed(tags: str | None) -> Revisions:
    """The revisions that an If-Match header accepts; there has to be one."""
    if tags is None:
        raise Problem(412, "send If-Match with the revision of the model that this is meant for")
    return revisions(tags)


@routes.patch(CLASS, summary="Rename a class", responses=documented(409, 412, 422))
async def rename(service: Served, response: Response, name: str, new: NewName, if_match: IfMatch = None) -> Renamed:
    expected, called = needed(if_match), class_name(new.name)
    check_name(called)

    def renamed(model: Model) -> str:
        known, meant = known_class(model, name), model.name_of(called)
        if meant in model.names.values() and meant != known:
            raise Problem(409, "there is already a class of this name; forget it first or choose another name")
        model.rename(known, meant)
        return str(meant)

    done = await service.change(renamed, expected)
    return Renamed.model_validate({"revision": words.tag(response, done), "class": done.value})


@routes.delete(CLASS, summary="Forget or erase a class", responses=documented(409, 412, 422))
async def forget(
    service: Served, response: Response, name: str, erase: Erase = False, if_match: IfMatch = None
) -> Forgotten:
    expected = needed(if_match)

    def forgotten(model: Model) -> bool:
        if erase:
            return any(label < model.base for label in _erased(model, name))
        known = known_class(model, name)
        label = model.label(known)
        model.forget(known)
        return label < model.base

    done = await service.change(forgotten, expected)
    facts = {"class": class_name(name), "erased": erase, "was_base": done.value}
    return Forgotten.model_validate({"revision": words.tag(response, done), **facts})


def _erased(model: Model, name: str) -> set[int]:
    """Erases a class, which may have been forgotten before; gives its labels."""
    try:
        return model.erase(class_name(name))
    except FscilError:
        raise Problem(404, "the model knows no such class") from None


@routes.post("/undo", summary="Take the last change back", responses=documented(409, 412, 422))
async def undo(service: Served, response: Response, if_match: IfMatch = None) -> Undone:
    expected = needed(if_match)

    def undone(model: Model) -> str:
        try:
            return model.undo().text()
        except FscilError as problem:
            raise Problem(409, str(problem)) from problem

    done = await service.change(undone, expected)
    return Undone(revision=words.tag(response, done), undone=done.value)
