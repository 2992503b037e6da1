"""Forms as OpenAPI describes them; they are read by hand, with bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PHOTOS = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}


def form(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The body of a request as a form with these fields."""
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


SOME_PHOTOS = form({"photos": PHOTOS}, ("photos",))
