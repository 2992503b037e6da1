"""One hostile visitor at a time; how long the polite ones wait meanwhile."""

from __future__ import annotations

import io
import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from PIL import Image

from soak.crash import ENVIRONMENT, learned
from soak.lives import Life
from soak.rush import rush
from soak.visitor import BOUNDARY, FORM, Gone, Visitor, form, noise

POLITE = 4
LONGEST_WAIT = 10.0  # seconds that a polite visitor may have to wait; a request may take 30
HEAD = "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
TYPE = f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
PART = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="photos"; filename="a"\r\n\r\n'

Enough = threading.Event
Deed = Callable[[int, Enough], None]


def drip(port: int, start: bytes, lines: int, enough: Enough) -> None:
    """Many connections that each send a byte now and then, and never come to an end."""
    open_lines = []
    for _ in range(lines):
        with suppress(OSError):
            line = socket.create_connection(("127.0.0.1", port), 5)
            line.sendall(start)
            open_lines.append(line)
    while not enough.wait(0.5):
        for line in open_lines:
            with suppress(OSError):
                line.sendall(b"a")
    for line in open_lines:
        line.close()


def slow_uploads(port: int, enough: Enough) -> None:
    drip(port, f"{HEAD}{TYPE}Content-Length: 100000\r\n\r\n{PART}".encode(), 600, enough)


def slow_headers(port: int, enough: Enough) -> None:
    drip(port, f"{HEAD}X-Slow: ".encode(), 600, enough)


def silence(port: int, enough: Enough) -> None:
    drip(port, b"", 600, enough)


def repeated(port: int, enough: Enough, body: bytes) -> None:
    while not enough.is_set():
        with suppress(Gone):
            Visitor(port).ask("POST", "/v1/predict", body, FORM)


def huge_form(port: int, enough: Enough) -> None:
    """As large as a form may be, and one part of it."""
    repeated(port, enough, form([bytes(60 * 2**20)]))


def many_fields(port: int, enough: Enough) -> None:
    repeated(port, enough, form([], {f"field {i}": "x" for i in range(10_000)}))


def bombs(port: int, enough: Enough) -> None:
    """Small files that are large pictures."""
    file = io.BytesIO()
    Image.new("RGB", (8900, 8900)).save(file, "PNG")
    repeated(port, enough, form([file.getvalue()] * 16))


def endless(port: int, enough: Enough) -> None:
    """Chunks without an end."""
    while not enough.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
            line.sendall(f"{HEAD}{TYPE}Transfer-Encoding: chunked\r\n\r\n".encode())
            line.sendall(f"{len(PART):x}\r\n{PART}\r\n".encode())
            while not enough.is_set():
                line.sendall(b"100000\r\n" + bytes(2**20) + b"\r\n")


DEEDS: tuple[Deed, ...] = (
    slow_uploads, slow_headers, silence, huge_form, many_fields, bombs, endless,
)  # fmt: skip


def meet(folder: Path, seconds: float, tell: Callable[[str], None], deeds: Sequence[Deed] = DEEDS) -> list[str]:
    """Tells how long polite visitors wait in peace and beside each hostile one; complains where they wait too long."""
    life = Life(learned(folder), folder / "service.log", ENVIRONMENT)
    complaints = []
    try:
        for deed in (None, *deeds):
            name = deed.__name__.replace("_", " ") if deed else "nobody"
            enough = Enough()
            other = threading.Thread(target=deed, args=(life.port, enough)) if deed else None
            if other:
                other.start()
                time.sleep(min(seconds, 2.0))
            bodies = (form([noise(i)]) for i in itertools.count())
            polite = rush(life.port, itertools.repeat("/v1/predict"), bodies, POLITE, seconds, 10**9)
            enough.set()
            if other:
                other.join()
            longest, memory = max(polite.waits), life.memory() / 1e6
            tell(f"beside {name}: {polite.text()}, longest {1000 * longest:.0f} ms; the service has {memory:.0f} MB")
            if longest > LONGEST_WAIT or set(polite.statuses) != {200}:
                complaints.append(f"beside {name} others wait {longest:.1f} s, answers {dict(polite.statuses)}")
            complaints += [] if life.alive else [f"{name} ended the service"]
    finally:
        life.stop()
    return complaints
