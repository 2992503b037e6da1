"""At the door: who may come in, how much they may bring, how long they may stay, and what they are told on leaving."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fscil.serve.paths import spelled
from fscil.serve.problems import Problem, answer
from fscil.serve.service import Service
from fscil.serve.settings import Settings, is_loopback

READING = ("GET", "HEAD")
QUESTIONS = ("/v1/model", "/v1/classes", "/v1/map", "/v1/predict", "/v1/explain", "/v1/evaluate")
OPEN = ("/", "/health", "/ready", "/openapi.json")  # to everybody who reaches the service
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}


class Guard:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, service: Service):
        self._app, self._service, self._settings = app, service, service.settings
        self._room = Room(service.settings.limits.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = spelled(scope)  # here and not in the routes: who is let in is decided by the same path
        visit = Visit(scope, receive, send, self._settings, self._room)
        try:
            _check(scope, self._settings)
            self._room.check(visit.length())
            async with asyncio.timeout(self._settings.limits.seconds) as visit.deadline:
                await self._app(scope, visit.receive, visit.send)
        except TimeoutError:
            await visit.refuse(Problem(503, "the answer took too long; try again", headers={"Retry-After": "1"}))
        except Problem as problem:
            await visit.refuse(problem)
        finally:
            self._room.leave(visit.received)
            self._note(scope, visit)

    def _note(self, scope: Scope, visit: Visit) -> None:
        route: Any = scope.get("route")
        path = getattr(route, "path", "other")
        self._service.meters.requests.labels(path, str(visit.status)).inc()
        self._service.meters.seconds.labels(path).observe(time.perf_counter() - visit.began)


class Room:
    """Bytes of requests that are read or worked on; who only announces bytes takes no room from others."""

    def __init__(self, most: int):
        self._most, self._held = most, 0

    def check(self, size: int) -> None:
        """Refuses bytes for which there is no room."""
        if self._held + size > self._most:
            raise Problem(503, "the service holds too many photos; try again soon", headers={"Retry-After": "1"})

    def take(self, size: int) -> None:
        self._held += size

    def leave(self, size: int) -> None:
        self._held -= size


class Visit:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: Settings, room: Room):
        self._scope, self._receive, self._send, self._limits = scope, receive, send, settings.limits
        self._room, self._complete = room, False  # whether all of the request is here
        self.received = 0  # bytes
        self.began = time.perf_counter()
        self.status = 0  # none yet
        self.deadline: asyncio.Timeout | None = None  # of the request, and then of the beginning of the answer

    def length(self) -> int:
        """The bytes that the request announces, or the most that it may send."""
        told = Headers(scope=self._scope).get("content-length")
        if told is None:
            chunked = "transfer-encoding" in Headers(scope=self._scope)
            return self._limits.body if chunked else 0
        length = int(told) if told.isdecimal() else self._limits.body + 1
        if length > self._limits.body:
            raise _too_large(self._limits.body)
        return length

    async def receive(self) -> Message:
        if self._complete:  # what comes now is the news that the visitor has gone, however long the answer takes
            return await self._receive()
        try:
            async with asyncio.timeout(self._limits.idle):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "the request came too slowly") from None
        size = len(message.get("body", b""))
        if self.received + size > self._limits.body:
            raise _too_large(self._limits.body)
        self._room.check(size)
        self._room.take(size)
        self.received += size
        self._complete = not message.get("more_body", False)
        self._allow(self._limits.seconds + (0 if self._complete else self.received / self._limits.slowest))
        return message

    def _allow(self, seconds: float) -> None:
        """Gives an answer that has not begun so much time: from now, or from the beginning while the request comes."""
        if self.deadline is not None and not self.deadline.expired() and not self.status:
            passed = 0.0 if self._complete else time.perf_counter() - self.began
            self.deadline.reschedule(asyncio.get_running_loop().time() + seconds - passed)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.deadline is not None and not self.deadline.expired():
                self.deadline.reschedule(asyncio.get_running_loop().time() + self._limits.download)
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """Sends a problem, unless an answer has begun."""
        if not self.status:
            await answer(problem)(self._scope, self._receive, self.send)


def _too_large(most: int) -> Problem:
    return Problem(413, f"a request may have at most {most} bytes; send fewer or smaller photos")


def _check(scope: Scope, settings: Settings) -> None:
    """Refuses who calls the service by another name, comes from another page, or has no token."""
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    if not _is_ours(host, settings):
        raise Problem(421, "the service is not called like that; use its address")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(403, "pages of other origins may not use this service")
    if _needs_token(scope["method"], scope["path"], settings) and not _has_token(headers, settings):
        raise Problem(401, "this needs the token of the service", headers={"WWW-Authenticate": "Bearer"})


def _is_ours(host: str, settings: Settings) -> bool:
    """Whether a Host header is one of ours: a page that calls itself our address cannot reach a service at home."""
    if not is_loopback(settings.host):
        return True  # reached by names we cannot know; a token stands in the way
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.strip("[]") in ("localhost", "127.0.0.1", "::1", settings.host, *settings.names)


def _needs_token(method: str, path: str, settings: Settings) -> bool:
    if settings.token is None or path in OPEN or path.startswith("/page/"):
        return False
    asks = path in QUESTIONS and (method in READING or not path.endswith(("/model", "/classes", "/map")))
    return not (settings.open_prediction and asks)


def _has_token(headers: Headers, settings: Settings) -> bool:
    kind, _, token = headers.get("authorization", "").partition(" ")
    given, wanted = token.strip().encode(), (settings.token or "").encode()
    return kind.lower() == "bearer" and hmac.compare_digest(given, wanted)
