"""Connections that say nothing: who opens one has to say soon what they want, or it is closed; sooner if many come."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0  # seconds from the opening of a connection, or the first byte of a request, to the end of its headers
CROWD = 400  # connections above which those make room that have brought no complete request for longest


class Patient(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to waiting for headers."""

    _hanging_up: asyncio.TimerHandle | None = None
    since = 0.0  # when it was opened or last answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        self.since = self.loop.time()
        if len(self.connections) > CROWD:
            others = [other for other in self.connections if isinstance(other, Patient) and other is not self]
            idle = [other for other in others if other.unfinished]
            if idle:
                min(idle, key=lambda other: other.since).transport.abort()

    @property
    def unfinished(self) -> bool:
        """Whether it is open, and no request has come completely."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._hanging_up is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._hanging_up = self.loop.call_later(HEADERS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None
