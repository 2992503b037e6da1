"""Problems as answers: documents of RFC 9457, with one sentence for people."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from fscil.errors import FscilError

MEDIA = "application/problem+json"
LOG = logging.getLogger("fscil.serve")


class PhotoProblem(BaseModel):
    """A photo that could not be used, and why."""

    photo: str
    problem: str


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="the name of the status")
    status: int
    detail: str = Field(description="one sentence for people")
    photos: list[PhotoProblem] | None = Field(None, description="photos that could not be used")


class Problem(Exception):
    """An answer that is no success."""

    def __init__(
        self,
        status: int,
        detail: str,
        photos: Sequence[PhotoProblem] | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status, self.detail, self.photos, self.headers = status, detail, photos, headers


def answer(problem: Problem) -> JSONResponse:
    """A problem as it is sent."""
    document = ProblemDocument(
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=problem.detail,
        photos=None if problem.photos is None else list(problem.photos),
    )
    content = document.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status, dict(problem.headers or {}), MEDIA)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says about problems with these statuses."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    return {status: {"description": HTTPStatus(status).phrase, "content": {MEDIA: schema}} for status in statuses}


def register(app: FastAPI) -> None:
    """Makes every error of an application a problem document; none tells more than one sentence."""

    async def told(_: Request, problem: Exception) -> JSONResponse:
        return answer(_as_problem(problem))

    for kind in (Problem, FscilError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, told)


def _as_problem(problem: Exception) -> Problem:
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, FscilError):
        return Problem(422, str(problem))
    if isinstance(problem, RequestValidationError):
        return Problem(422, _invalid(problem))
    if isinstance(problem, HTTPException):
        return Problem(problem.status_code, str(problem.detail).lower(), headers=problem.headers)
    LOG.error("a request failed", exc_info=problem)
    return Problem(500, "the service made a mistake; its log says more")


def _invalid(problem: RequestValidationError) -> str:
    """Which value of a request is wrong, and why."""
    first = problem.errors()[0]
    place = ".".join(str(part) for part in first.get("loc", ())[1:])
    return f"{place or 'the request'}: {str(first.get('msg', 'is not valid')).lower()}"
