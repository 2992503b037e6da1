"""One visitor of a service, over one connection that is kept, with next to no work of its own."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

BOUNDARY = "a-line-that-no-photo-holds"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
ANY = {"If-Match": "*"}


class Gone(Exception):
    """The service went away before it answered."""


class Answer(NamedTuple):
    """What a service said."""

    status: int
    body: bytes

    def told(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """Asks one thing after the other."""

    def __init__(self, port: int, patience: float = 60.0):
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        try:
            self._line.request(method, path, body, dict(headers or {}))
            answer = self._line.getresponse()
            return Answer(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as problem:
            self._line.close()
            raise Gone(str(problem)) from problem

    def get(self, path: str) -> Any:
        return self.ask("GET", path).told()


def form(photos: Sequence[bytes], texts: Mapping[str, str] | None = None) -> bytes:
    """Photos and texts as the body of a request."""
    parts = [(f'name="photos"; filename="{i}.png"', photo) for i, photo in enumerate(photos)]
    parts += [(f'name="{name}"', text.encode()) for name, text in (texts or {}).items()]
    lines = [f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + part for head, part in parts]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


def noise(seed: int, size: int = 40) -> bytes:
    """A photo that nobody has seen before, as PNG."""
    coarse = np.random.default_rng(seed).integers(0, 255, (4, 4, 3))
    fine = np.random.default_rng(seed + 1).integers(-40, 40, (size, size, 3))
    pixels = (np.kron(coarse, np.ones((size // 4, size // 4, 1))) + fine).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
