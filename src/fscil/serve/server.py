"""Runs the application until it is told to stop; what was accepted is finished first."""

from __future__ import annotations

from pathlib import Path

from fscil.errors import FscilError
from fscil.serve.settings import Settings

LONGEST_HEADERS = 16 * 1024  # bytes
MOST_VISITORS = 512  # connections and requests; more are sent away
GRACE = 40  # seconds for what was accepted, more than any request may take


def run(settings: Settings, certificate: Path | None, key: Path | None) -> None:
    """Serves a model."""
    try:
        import uvicorn

        from fscil.serve.app import application
    except ImportError as problem:
        raise FscilError("serve needs more packages: pip install 'fscil[serve]'") from problem
    uvicorn.run(
        application(settings),
        host=settings.host,
        port=settings.port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        http="h11",  # the other one takes headers of any length
        ws="none",
        h11_max_incomplete_event_size=LONGEST_HEADERS,
        limit_concurrency=MOST_VISITORS,
    )
