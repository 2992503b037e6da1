"""A test with photos of which the sender knows what they show; large sets come in portions."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError

from fscil.serve import words
from fscil.serve.forms import PHOTOS, form
from fscil.serve.problems import Problem, documented
from fscil.serve.service import Served, unreadable
from fscil.serve.shapes import Confusion, EvaluationFacts, Row
from fscil.serve.uploads import Form
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.corrections import places
from fscil.teach.lessons.looking import Seen, answers
from fscil.teach.names import class_name
from fscil.teach.outputs.evaluation import Tally, Tested
from fscil.teach.replies import Answer

LABELS, ROWS = TypeAdapter(list[str]), TypeAdapter(list[Row])

routes = APIRouter(prefix="/v1")


@routes.post(
    "/evaluate",
    summary="Test the model on photos whose class is known",
    openapi_extra=form(
        {
            "photos": PHOTOS,
            "labels": {
                "type": "string",
                "contentMediaType": "application/json",
                "description": "the class of each photo",
            },
            "earlier": {
                "type": "string",
                "contentMediaType": "application/json",
                "description": "the results of earlier portions",
            },
        }
    ),
    responses=documented(409, 422),
)
async def evaluate(service: Served, request: Request, response: Response) -> EvaluationFacts:
    given = await service.form(request)
    labels, rows = _read(LABELS, given, "labels"), _read(ROWS, given, "earlier")
    if len(labels) != len(given.photos):
        raise Problem(
            422, f"there are {len(given.photos)} photos and {len(labels)} labels; send one label for each photo"
        )
    model = service.model
    if not model.names:
        raise Problem(409, "the model knows no class yet; teach it one")
    seen: Seen = await service.eyes.look(model, given.photos, False, lambda seen: seen)
    rows += await to_thread(_rows, model, given, labels, seen)
    facts = _facts(rows, words.tag(response, model))
    return facts.model_copy(update={"unreadable": unreadable(seen.unreadable)})


def _read(kind: TypeAdapter[Any], given: Form, field: str) -> list[Any]:
    try:
        values: list[Any] = kind.validate_json(given.texts.get(field, "[]"))
    except ValidationError as problem:
        raise Problem(422, f"{field} is not the JSON list that it should be") from problem
    return values


def _rows(model: Model, given: Form, labels: Sequence[str], seen: Seen) -> list[Row]:
    known, taught = {str(name) for name in model.names.values()}, places(model)
    return [
        Row(
            photo=given.photos[position].name,
            truth=class_name(labels[position]),
            said=str(answer.best[0][0]),
            known=answer.known,
            probability=answer.best[0][1],
            stranger=class_name(labels[position]) not in known,
            taught=digest in taught,
        )
        for position, digest, answer in zip(seen.positions, seen.digests, answers(model, seen.features), strict=True)
    ]


def _facts(rows: list[Row], revision: str) -> EvaluationFacts:
    tally = Tally(tuple(_tested(row) for row in rows))
    known = [one for one in tally.tested if not one.stranger]
    right = sum(one.right for one in known)
    photos: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        photos.setdefault((row.truth, row.said), []).append(row.photo)
    return EvaluationFacts(
        revision=revision,
        photos=len(known),
        right=right,
        accuracy=100 * right / len(known) if known else None,
        accuracy_interval_95=tally.interval if known else None,
        not_sure=sum(not one.answer.known for one in known),
        taught=sum(row.taught for row in rows),
        strangers=len(rows) - len(known),
        refused=tally.refused,
        taken_for_known_interval_95=tally.false_acceptance_interval if len(known) < len(rows) else None,
        confused=[
            Confusion(truth=pair.truth, said=pair.said, photos=photos[pair.truth, pair.said]) for pair in tally.confused
        ],
        results=rows,
        unreadable=[],
    )


def _tested(row: Row) -> Tested:
    answer = Answer(row.known, ((row.said, row.probability),))
    return Tested(Path(row.photo), row.truth, row.stranger, answer)
