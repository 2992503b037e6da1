"""Few-shot class-incremental learning: `Classifier` for photos; `benchmark`, `methods`, `run`, `report` beside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fscil import methods, report
    from fscil.classifier import Classifier
    from fscil.data import benchmark
    from fscil.errors import FscilError
    from fscil.running.outcome import run

__version__ = "0.1.0"

__all__ = ["Classifier", "FscilError", "__version__", "benchmark", "methods", "report", "run"]

_HOMES = {
    "Classifier": "fscil.classifier",
    "FscilError": "fscil.errors",
    "benchmark": "fscil.data",
    "run": "fscil.running.outcome",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because torch takes seconds to import."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"fscil.{name}")
    raise AttributeError(f"module 'fscil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
