"""What a request means by what it names: a class that is known, a photo, the revision that a change is for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path, Query

from fscil.serve.problems import Problem
from fscil.serve.store import Revisions
from fscil.teach.knowledge.model import Model
from fscil.teach.names import Name, class_name

IfMatch = Annotated[str | None, Header(description="revision that the change is meant for, in quotes")]
Digest = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="of a photo")]
Erase = Annotated[
    bool,
    Query(description="remove every trace but what was fitted to all base classes; nothing before it can be undone"),
]


def revisions(tags: str | None) -> Revisions:
    """The revisions that an If-Match header accepts; None: any."""
    if tags is None or tags.strip() == "*":
        return None
    return [tag.strip().removeprefix("W/").strip('"') for tag in tags.split(",")]


def known_class(model: Model, name: str) -> Name:
    """The class that is called like this, or 404."""
    meant = next((known for known in model.names.values() if str(known) == class_name(name)), None)
    if meant is None:
        raise Problem(404, "the model knows no such class")
    return meant
