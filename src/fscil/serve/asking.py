"""Questions: what the model is, what it knows, what a photo shows."""

from __future__ import annotations

import importlib.util
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

import fscil
from fscil.serve import words
from fscil.serve.forms import SOME_PHOTOS
from fscil.serve.problems import Problem, documented
from fscil.serve.service import Served, unreadable
from fscil.serve.settings import Settings
from fscil.serve.shapes import Answers, Bounds, Classes, ClassFacts, History, ModelFacts, StepFacts
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen
from fscil.teach.names import LONGEST
from fscil.teach.seeing.photos import MOST_PIXELS

LATEST = 4  # photos of a class that a list names

routes = APIRouter(prefix="/v1")


# The route that is asked most: it comes first, and what it answers is written once, and not checked by FastAPI again.
@routes.post(
    "/predict",
    summary="What photos show",
    openapi_extra=SOME_PHOTOS,
    response_model=Answers,
    responses=documented(409, 422),
)
async def predict(
    service: Served,
    request: Request,
    top: Annotated[int, Query(ge=1, le=100, description="classes that an answer names")] = 3,
    nearest: Annotated[int, Query(ge=0, le=20, description="taught photos that an answer names")] = 3,
) -> Response:
    photos = await service.photos(request)
    model = service.model
    if not model.names:
        raise Problem(409, "the model knows no class yet; teach it one")

    def say(seen: Seen) -> Response:
        answers = words.told(model, photos, seen, top, nearest)
        said = Answers(revision=model.revision or "", answers=answers, unreadable=unreadable(seen.unreadable))
        response = Response(said.model_dump_json(by_alias=True), media_type="application/json")
        words.tag(response, model)
        return response

    return await service.answer(model, photos, say)


@routes.get("/model", summary="What the model is")
async def model_facts(service: Served, response: Response) -> ModelFacts:
    model = service.model
    return _facts(model, service.settings, words.tag(response, model))


def _facts(model: Model, settings: Settings, revision: str) -> ModelFacts:
    limits = settings.limits
    return ModelFacts(
        revision=revision,
        file=settings.model.name,
        program=f"fscil {fscil.__version__}",
        encoder=model.origin.encoder,
        weights=model.origin.weights,
        licence=model.origin.licence,
        classes=len(model.names),
        base_classes=sum(label < model.base for label in model.names),
        photos=int(model.branches[0].prototypes.counts[: len(model.names)].sum()),
        none=len(model.negatives),
        steps=len(model.journal.steps),
        undo=_undo(model),
        keeps_features=model.memory.keep,
        thumbnails=model.album.keep,
        explain=can_explain(model),
        false_acceptance=model.calibration.false_acceptance,
        token_for="nothing" if settings.token is None else "changes" if settings.open_prediction else "everything",
        limits=Bounds(body_bytes=limits.body, photos=limits.photos, pixels=MOST_PIXELS, name_characters=LONGEST),
    )


def can_explain(model: Model) -> bool:
    """Whether answers about photos can be explained here."""
    return model.framing is not None and importlib.util.find_spec("pytorch_grad_cam") is not None


def _undo(model: Model) -> str | None:
    """What undo would take back."""
    last = model.journal.steps[-1] if model.journal.steps else None
    return last.text() if last is not None and last.before is not None else None


@routes.get("/classes", summary="What the model knows")
async def classes(service: Served, response: Response) -> Classes:
    model = service.model
    bank = model.branches[0].prototypes
    facts = [
        ClassFacts(
            name=str(name),
            photos=int(bank.counts[row]),
            learned="base" if label < model.base else "taught",
            latest=[photo.hex() for photo in model.photos.get(label, ())[: -LATEST - 1 : -1]],
        )
        for row, (label, name) in enumerate(model.names.items())
    ]
    return Classes(revision=words.tag(response, model), classes=facts, none=len(model.negatives))


@routes.get("/history", summary="What was changed")
async def history(service: Served, response: Response) -> History:
    model = service.model
    steps = [
        StepFacts(when=step.when, kind=step.kind, text=step.text(), undoable=step.before is not None)
        for step in reversed(model.journal.steps)
    ]
    return History(revision=words.tag(response, model), steps=steps)
