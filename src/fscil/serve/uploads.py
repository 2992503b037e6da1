"""Photos of a request: multipart forms with bounds, read into memory and never onto a disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from fscil.serve.problems import Problem
from fscil.serve.settings import MEGABYTE, Limits
from fscil.teach.seeing.photos import Upload
from fscil.text import printable

FIELDS = 16  # texts of a form
LONGEST_TEXT = 8 * MEGABYTE  # bytes of one: earlier answers of a test of 50,000 photos
LONGEST_TITLE = 200  # characters of what a photo is called


@dataclass
class Form:
    """The photos and the texts of a request."""

    photos: list[Upload] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


class InMemory(MultiPartParser):
    """Reads a form without temporary files; the body is bounded before."""

    spool_max_size = 1 << 40


async def read_form(request: Request, limits: Limits) -> Form:
    """The form of a request."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "send photos as multipart/form-data, each in a field called photos")
    parser = InMemory(
        request.headers, _chunks(request), max_files=limits.photos, max_fields=FIELDS, max_part_size=LONGEST_TEXT
    )
    try:
        items = (await parser.parse()).multi_items()
    except MultiPartException as problem:
        raise _refusal(problem.message, limits) from problem
    form = Form()
    for name, value in items:
        if isinstance(value, UploadFile):
            if name not in ("photos", "photo"):
                raise Problem(422, "photos belong in fields called photos")
            form.photos.append(Upload(_title(value.filename, len(form.photos)), await value.read()))
        else:
            form.texts[name] = value
    return form


def _refusal(message: str, limits: Limits) -> Problem:
    """What is wrong with a form, from the parser's words."""
    if message.startswith("Too many"):
        return Problem(413, f"a form may hold at most {limits.photos} photos and {FIELDS} texts; send less")
    if message.startswith("Part exceeded"):
        return Problem(413, f"a text of a form may have at most {LONGEST_TEXT} bytes; send less")
    return Problem(400, "the form is broken or incomplete")


async def read_photos(request: Request, limits: Limits) -> list[Upload]:
    """The photos of a request, one at least."""
    form = await read_form(request, limits)
    if not form.photos:
        raise Problem(422, "there is no photo in the request; send photos in fields called photos")
    return form.photos


async def _chunks(request: Request) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise Problem(400, "the request ended too early") from None


def _title(name: str | None, position: int) -> str:
    """What a photo is called when it is talked about: no path, nothing that drives a terminal."""
    return printable((name or "").replace("\\", "/").rpartition("/")[2])[-LONGEST_TITLE:] or f"photo {position + 1}"
