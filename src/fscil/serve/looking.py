"""Closer looks: the photos of a class, a map of the classes, where an answer comes from, a test, the file itself."""

from __future__ import annotations

import os
from asyncio import to_thread
from collections.abc import Callable, Iterator
from typing import BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from fscil.serve import words
from fscil.serve.asking import can_explain
from fscil.serve.forms import SOME_PHOTOS
from fscil.serve.meant import Digest, known_class
from fscil.serve.paths import CLASS
from fscil.serve.problems import PhotoProblem, Problem, documented
from fscil.serve.service import Served
from fscil.serve.settings import MEGABYTE
from fscil.serve.shapes import ClassPhotos, MapFacts, PhotoFacts
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.review import review_class
from fscil.teach.names import NONE, Name
from fscil.teach.outputs.map import class_map
from fscil.teach.replies import Answer
from fscil.teach.seeing.photos import Unreadable, Upload
from fscil.teach.storage.modelfile import revision_in

BINARY = {"schema": {"type": "string", "format": "binary"}}

routes = APIRouter(prefix="/v1")


@routes.get(f"{CLASS}/photos", summary="The photos a class was taught from")
async def class_photos(service: Served, response: Response, name: str) -> ClassPhotos:
    model = service.model
    return await to_thread(_photos, model, known_class(model, name), words.tag(response, model))


@routes.get("/none", summary="The photos of none of these")
async def none_photos(service: Served, response: Response) -> ClassPhotos:
    model = service.model
    facts = [
        PhotoFacts(digest=photo.hex(), thumbnail=photo in model.album.pictures, without=None, recognised=None)
        for photo in model.negatives
    ]
    told = {"class": NONE, "photos": facts[::-1], "text": None}
    return ClassPhotos.model_validate({"revision": words.tag(response, model), **told})


def _photos(model: Model, name: Name, revision: str) -> ClassPhotos:
    review = review_class(model.copy(), name, {p: p.hex() for p in model.memory})  # it changes the model for a while
    said = (
        {} if review is None else dict(zip(review.photos, zip(review.answers, review.missed, strict=True), strict=True))
    )
    facts = []
    for photo in reversed(model.photos.get(model.label(name), ())):
        answer, missed = said.get(photo.hex(), (None, None))
        facts.append(
            PhotoFacts(
                digest=photo.hex(),
                thumbnail=photo in model.album.pictures,
                without=None if answer is None else answer.text(),
                recognised=None if missed is None else not missed,
            )
        )
    text = None if review is None else words.review_line(review)
    return ClassPhotos.model_validate({"revision": revision, "class": str(name), "photos": facts, "text": text})


@routes.get(
    "/photos/{digest}",
    summary="A small picture of a photo that was taught",
    response_class=Response,
    responses={
        200: {
            "description": "A picture",
            "content": {"image/webp": {"schema": {"type": "string", "format": "binary"}}},
        },
        **documented(422),
    },
)
async def thumbnail(service: Served, digest: Digest) -> Response:
    picture = service.model.album.pictures.get(bytes.fromhex(digest))
    if picture is None:
        raise Problem(404, "no small picture of such a photo is kept")
    return Response(picture, media_type="image/webp")


@routes.get("/map", summary="Which classes look alike")
async def class_places(service: Served, response: Response) -> MapFacts:
    model = service.model
    drawn = await to_thread(class_map, model)
    counts = model.branches[0].prototypes.counts.tolist()
    places = [
        {"class": str(name), "photos": photos, "x": x, "y": y}
        for name, photos, (x, y) in zip(model.names.values(), counts, drawn.places, strict=False)
    ]
    return MapFacts.model_validate({"revision": words.tag(response, model), "share": drawn.share, "classes": places})


@routes.post(
    "/explain",
    summary="Where an answer comes from in a photo",
    openapi_extra=SOME_PHOTOS,
    response_class=Response,
    responses={
        200: {"description": "A picture", "content": {"image/png": BINARY}},
        **documented(409, 422, 501),
    },
)
async def explain(service: Served, request: Request) -> Response:
    photos = await service.photos(request)
    if len(photos) != 1:
        raise Problem(422, "one photo is explained at a time")
    model = service.model
    if not model.names:
        raise Problem(409, "the model knows no class yet; teach it one")
    if not can_explain(model):
        raise Problem(501, "this service cannot explain; pip install 'fscil[explain]' where it runs")
    drawing = await to_thread(_drawing)
    try:
        picture, _ = await service.eyes.run(lambda: drawing(model, photos[0]))
    except Unreadable as problem:
        facts = [PhotoProblem(photo=problem.name, problem=problem.reason)]
        raise Problem(422, "the photo could not be read; send another one", facts) from problem
    response = Response(picture, media_type="image/png")
    words.tag(response, model)
    return response


def _drawing() -> Callable[[Model, Upload], tuple[bytes, Answer]]:
    """What draws explanations; its packages take seconds to import, in which others get their answers."""
    import pytorch_grad_cam  # noqa: F401

    from fscil.teach.outputs.explain import drawing

    return drawing


@routes.get(
    "/model/file",
    summary="The model file, to keep a copy or to use elsewhere",
    response_class=Response,
    responses={
        200: {
            "description": "A model file",
            "content": {"application/octet-stream": BINARY},
        }
    },
)
async def model_file(service: Served) -> StreamingResponse:
    """What is sent is one state of the file, whatever happens to it meanwhile: a changed file is another file."""
    path = service.store.path
    try:
        file = path.open("rb")
        headers = {
            "ETag": f'"{revision_in(file)}"',
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}",
        }
    except (OSError, ValueError) as problem:
        raise Problem(503, "the model file cannot be read", headers={"Retry-After": "1"}) from problem
    return StreamingResponse(_chunks(file), media_type="application/octet-stream", headers=headers)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(MEGABYTE):
            yield chunk
