"""The methods: one file each; the folder is the registry."""

import importlib
from pathlib import Path
from types import ModuleType

from fscil.errors import FscilError
from fscil.settings.names import suggestion


def names() -> tuple[str, ...]:
    """Names of all methods, in alphabetical order."""
    return tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_")))


def load(name: str) -> ModuleType:
    """The module of a method, with its `Config` and its `Method`."""
    if name not in names():
        raise FscilError(f"unknown method {name!r}: {suggestion(name, names())}")
    return importlib.import_module(f"fscil.methods.{name}")
