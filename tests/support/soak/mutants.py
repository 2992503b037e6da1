"""Photos, model files and requests that went wrong somewhere: case N of a seed is always the same."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from soak.visitor import BOUNDARY, form, noise

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
ODD = (
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\r\n",
    b"--",
    b'"',
    b"%s",
    b"../",
)
PATHS = (
    "/v1/predict", "/v1/classes/owl/photos", "/v1/none", "/v1/correct", "/v1/explain", "/v1/evaluate", "/v1/undo",
    "/v1/classes/owl", "/v1/classes", "/v1/model", "/v1/history", "/v1/map", "/v1/none/photos/00", "/metrics", "/",
    "/v1/classes/jay/photos/0123456789abcdef0123456789abcdef",
)  # fmt: skip
RIGHT = (
    ("POST", "/v1/predict"), ("POST", "/v1/classes/owl/photos"), ("POST", "/v1/none"), ("POST", "/v1/correct"),
    ("POST", "/v1/evaluate"), ("POST", "/v1/undo"), ("DELETE", "/v1/classes/owl"), ("GET", "/v1/classes"), ("GET", "/"),
    ("GET", "/v1/classes/jay/photos"), ("GET", "/v1/model/file"), ("GET", "/v1/map"), ("GET", "/openapi.json"),
)  # fmt: skip
METHODS = ("GET", "POST", "DELETE", "PATCH", "PUT", "OPTIONS", "HEAD", "BREW")
HEADERS = (
    "Content-Type",
    "Content-Length",
    "Transfer-Encoding",
    "If-Match",
    "Origin",
    "Range",
    "Authorization",
    "Expect",
)
VALUES = (
    f"multipart/form-data; boundary={BOUNDARY}", "multipart/form-data", "application/json", "-1", "9" * 21,
    "chunked", '"0"', "*", "W/,,,", "http://evil.example", "bytes=0-", "Bearer x", "100-continue", "\x80\xff", "",
)  # fmt: skip


def chance(seed: int, kind: str, number: int) -> random.Random:
    return random.Random(f"{seed} {kind} {number}")


def seeds() -> list[bytes]:
    """A small photo in every format."""
    picture, files = Image.open(io.BytesIO(noise(0))), []
    for name in FORMATS:
        file = io.BytesIO()
        picture.save(file, name)
        files.append(file.getvalue())
    return files


def mutated(content: bytes, draw: random.Random, most: int = 8) -> bytes:
    """Bytes changed, taken out, put in, doubled or cut off, in a few places."""
    data = bytearray(content)
    for _ in range(draw.randint(1, most)):
        place, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 4, 16, 200))
        deed = draw.randrange(6)
        if deed == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif deed == 1:
            data[place : place + length] = draw.choice(ODD)
        elif deed == 2:
            data[place : place + length] = draw.randbytes(length)
        elif deed == 3:
            del data[place : place + length]
        elif deed == 4:
            data[place:place] = data[place : place + length]
        elif draw.random() < 0.2:
            del data[place:]
    return bytes(data)


def photo(seed: int, number: int, files: Sequence[bytes]) -> bytes:
    draw = chance(seed, "photo", number)
    return mutated(draw.choice(files), draw)


def model_file(seed: int, number: int, content: bytes) -> bytes:
    """Damaged as bytes, or as what its header says."""
    draw = chance(seed, "model", number)
    if draw.random() < 0.5:
        return mutated(content, draw, 3)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    notes = json.loads(header["__metadata__"]["notes"])
    for _ in range(draw.randint(1, 3)):
        _twist(draw.choice((notes, notes, header)), draw)
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["notes"] = json.dumps(notes)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


STRANGE: tuple[Any, ...] = (
    None,
    -1,
    0,
    2**63,
    1e308,
    "",
    "x",
    [],
    {},
    [[]],
    True,
    "../../etc/passwd",
    "\ud800",
    float("nan"),
)


def _twist(tree: Any, draw: random.Random) -> None:
    """Changes one value somewhere in a tree of JSON."""
    while isinstance(tree, dict | list) and tree:
        key = draw.choice(list(tree)) if isinstance(tree, dict) else draw.randrange(len(tree))
        if isinstance(tree[key], dict | list) and tree[key] and draw.random() < 0.8:
            tree = tree[key]
            continue
        if draw.random() < 0.2:
            del tree[key]
        else:
            tree[key] = copy.deepcopy(draw.choice(STRANGE))  # which may be twisted in its turn
        return


def request(seed: int, number: int) -> bytes:
    """A request as bytes, wrong in its line, its headers or its body."""
    draw = chance(seed, "request", number)
    method, path = draw.choice(RIGHT) if draw.random() < 0.6 else (draw.choice(METHODS), draw.choice(PATHS))
    body = form([noise(1)], draw.choice(({}, {"class": "owl"}, {"labels": '["owl"]'}, {"digest": "0" * 32})))
    headers = {"Host": "127.0.0.1", "Content-Type": VALUES[0], "Content-Length": str(len(body)), "Connection": "close"}
    headers |= {"If-Match": "*"} if draw.random() < 0.5 else {}
    deeds: Sequence[Callable[[], Any]] = (
        lambda: headers.update({draw.choice(HEADERS): draw.choice(VALUES)}),
        lambda: headers.update({draw.choice(ODD).hex() * draw.choice((1, 500)): "x"}),
    )
    for _ in range(draw.randrange(3)):
        draw.choice(deeds)()
    if draw.random() < 0.5:
        body = mutated(body, draw)
        headers["Content-Length"] = str(len(body))
    if draw.random() < 0.3:
        path += draw.choice(
            ("?top=-1", "?top=1e9", "?erase=maybe", "?nearest=99", "%00", "/../..", "%2e%2e%2f", "?" + "a" * 9000)
        )
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    raw = head.encode("latin-1", "replace") + b"\r\n" + body
    return mutated(raw, draw, 2) if draw.random() < 0.2 else raw
