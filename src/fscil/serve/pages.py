"""The page for people: files of the package, read once; no other file can be asked for."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

from fscil.serve.problems import Problem

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

routes = APIRouter(include_in_schema=False)


def _read() -> dict[str, tuple[bytes, str]]:
    """Name -> content and kind of each file of the page."""
    folder = files("fscil.serve") / "page"
    named = {file.name: file for file in folder.iterdir()}
    kinds = {name: KINDS.get(f".{name.rpartition('.')[2]}") for name in named}
    return {name: (named[name].read_bytes(), kind) for name, kind in kinds.items() if kind}


FILES = _read()


@routes.get("/")
async def page() -> Response:
    return _sent("index.html")


@routes.get("/page/{name}")
async def part(name: str) -> Response:
    return _sent(name)


def _sent(name: str) -> Response:
    if name not in FILES:
        raise Problem(404, "there is no such page")
    content, kind = FILES[name]
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})
