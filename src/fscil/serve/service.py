"""What the routes share: the store, the eyes, the settings, and how long anybody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from fscil.serve.eyes import Eyes, same_eyes
from fscil.serve.meters import Meters
from fscil.serve.problems import PhotoProblem, Problem
from fscil.serve.settings import Settings
from fscil.serve.store import Done, Revisions, Store
from fscil.serve.uploads import Form, read_form, read_photos
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen
from fscil.teach.seeing.photos import Unreadable, Upload

T = TypeVar("T")


class Service:
    """A model that is served."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.store = Store(settings.model, settings.limits.changes)
        self.eyes = Eyes(settings.limits.waiting)
        self.meters = Meters()
        self.stopping = False

    def open(self) -> None:
        """Begins to work."""
        self.eyes.open()
        self.store.open()

    def close(self) -> None:
        """Ends after what was accepted."""
        self.stopping = True
        self.eyes.close()
        self.store.close()

    @property
    def model(self) -> Model:
        """The newest state."""
        return self.store.model

    @property
    def works(self) -> bool:
        return self.eyes.alive and self.store.alive

    async def photos(self, request: Request) -> list[Upload]:
        return await read_photos(request, self.settings.limits)

    async def form(self, request: Request) -> Form:
        return await read_form(request, self.settings.limits)

    async def look(self, model: Model, photos: Sequence[Upload], small: bool = False) -> Seen:
        """What learning and answering need of photos of which one at least can be read, and small pictures."""
        seen: Seen = await self.eyes.look(model, photos, small, _with_photos)
        return seen

    async def answer(self, model: Model, photos: Sequence[Upload], say: Callable[[Seen], T]) -> T:
        """What is said about photos of which one at least can be read, by the thread that has encoded them."""
        said: T = await self.eyes.look(model, photos, False, lambda seen: say(_with_photos(seen)))
        return said

    async def change(
        self, apply: Callable[[Model], Any], expected: Revisions = None, seen_by: Model | None = None
    ) -> Done:
        """Changes the model; who stops waiting before its turn has changed nothing, later it is too late."""

        def checked(model: Model) -> Any:
            if seen_by is not None and not same_eyes(model, seen_by):
                why = "the model file was replaced by another model while the photos were read; send them again"
                raise Problem(503, why, headers={"Retry-After": "1"})
            return apply(model)

        future = self.store.submit(checked, expected)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if future.cancel():
                raise
            return await waiting


def _with_photos(seen: Seen) -> Seen:
    if not seen.positions:
        raise Problem(422, "none of the photos could be read; send other photos", unreadable(seen.unreadable))
    return seen


def unreadable(problems: Sequence[Unreadable]) -> list[PhotoProblem]:
    """Photos that could not be read, as they are sent."""
    return [PhotoProblem(photo=problem.name, problem=problem.reason) for problem in problems]


async def _service(request: Request) -> Service:
    """Asynchronous, though it waits for nothing: FastAPI asks a thread to run what is not."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(_service)]
