"""Class names in paths: a name may hold a slash, and is still one part of its path."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

CLASS = "/classes/{name:class}"  # routes of one class begin like this


class ClassName(Convertor[str]):
    """A part of a path, or several where a proxy has decoded their slashes."""

    regex = ".*"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("class", ClassName())


def spelled(scope: Scope) -> str:
    """The path as routes read it: `%2F` is no end of a part, all other characters are decoded.

    Servers decode the whole path, and then `a%2Fphotos%2F0` would be a photo of the class `a` instead of a class.
    """
    raw = scope.get("raw_path")
    if raw is None:
        return str(scope["path"]).replace("%", "%25")
    return "/".join(_part(part) for part in raw.decode("latin-1").partition("?")[0].split("/"))


def _part(text: str) -> str:
    return unquote(text).replace("%", "%25").replace("/", "%2F")
