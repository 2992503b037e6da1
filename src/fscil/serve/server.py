"""Runs the application until it is told to stop; what was accepted is finished first."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fscil.errors import FscilError
from fscil.nn.allocation import keep_freed_memory
from fscil.serve.settings import MEGABYTE, Settings

if TYPE_CHECKING:
    import uvicorn

LONGEST_HEADERS = 16 * 1024  # bytes
MOST_VISITORS = 512  # connections and requests; more are sent away
KEPT = 32 * MEGABYTE  # largest piece of memory kept for the next photo; the pixels of a giant go back to the system
GRACE = 40  # seconds for what was accepted, more than any request may take


def run(settings: Settings, certificate: Path | None, key: Path | None, tell: Callable[[str], None]) -> None:
    """Serves a model; says where, once it is there to answer."""
    try:
        import uvicorn

        from fscil.serve.app import application
        from fscil.serve.patience import Patient
    except ImportError as problem:
        raise FscilError("serve needs more packages: pip install 'fscil[serve]'") from problem
    keep_freed_memory(KEPT)
    with _listening(settings.host, settings.port) as door:
        config = uvicorn.Config(
            application(settings),
            http=Patient,
            ws="none",
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            limit_concurrency=MOST_VISITORS,
        )
        _check_certificate(config)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "http" if certificate is None else "https"
        tell(f"{settings.model} at {scheme}://{host}:{door.getsockname()[1]}; Ctrl-C stops it")
        uvicorn.Server(config).run([door])


def _listening(host: str, port: int) -> socket.socket:
    """A socket at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=MOST_VISITORS)
    except (OSError, OverflowError) as problem:
        why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else "no such address"
        raise FscilError(f"nobody can listen at {host}:{port} ({why}); choose another --host or --port") from problem
    # Connections inherit it. asyncio does not set it on those of such a door, and on a line that is kept the body of
    # every answer would wait 40 ms until the visitor has said that its head has come.
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return door


def _check_certificate(config: uvicorn.Config) -> None:
    try:
        config.load()
    except OSError as problem:
        raise FscilError(
            f"the certificate or its key cannot be used ({problem.strerror or problem}); give --tls-cert and --tls-key "
            "in PEM form"
        ) from problem
