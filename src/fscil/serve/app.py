"""The application: routes, problems and guards put together around one service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import fscil
from fscil.serve import asking, changing, classes, looking, pages, problems, testing, watching
from fscil.serve.guard import Guard
from fscil.serve.service import Service
from fscil.serve.settings import Settings

ANYWHERE = (400, 401, 403, 404, 405, 408, 413, 415, 421, 500, 503, 507)  # problems that any route may answer with
ABOUT = "Ask a model about photos, teach it new classes from a few of them, and take anything back."


ROUTES = [room.routes for room in (asking, watching, looking, testing, changing, classes, pages)]


def application(settings: Settings) -> FastAPI:
    """The service of a model file as an ASGI application; it opens the file at once."""
    service = Service(settings)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        service.open()
        yield
        service.close()

    app = FastAPI(
        title="fscil",
        version=fscil.__version__,
        description=ABOUT,
        lifespan=life,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # nobody is sent to an address made of what they sent
        responses=problems.documented(*ANYWHERE),
    )
    app.state.service = service
    problems.register(app)
    for routes in ROUTES:
        app.include_router(routes)
    app.add_middleware(Guard, service=service)
    return app
