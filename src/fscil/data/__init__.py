"""Benchmarks: data sets cut into a base session and few-shot sessions."""

import importlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fscil.errors import FscilError
from fscil.settings.names import suggestion

if TYPE_CHECKING:
    from fscil.data.images import Ingredients
    from fscil.data.sessions import Benchmark, Session

__all__ = ["PUBLISHED", "Benchmark", "Protocol", "Session", "benchmark", "default_root", "ingredients", "names"]

LARGEST_SEED = 2**32 - 1  # that numpy takes


def check_seed(option: str, seed: int) -> None:
    """Refuses a seed, given by an option, that a generator would not take."""
    if not 0 <= seed <= LARGEST_SEED:
        raise FscilError(f"{option} is {seed}, but must lie between 0 and {LARGEST_SEED}")


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a data set becomes sessions."""

    base_classes: int | None = None  # classes of the base session (none: the data set's own; folder: about 60 %)
    ways: int | None = None  # classes per later session (none: the data set's own)
    shots: int = 5  # training images per class in later sessions
    shots_seed: int = 1  # which images these are; 1 gives the published lists
    order_seed: int | None = None  # shuffles the classes (none: the data set's own order)
    later_order_seed: int | None = None  # shuffles the classes of later sessions alone; the base session stays
    test_share: float = 0.2  # folder only: share of each class kept for testing
    split: str | None = None  # folder only: csv or json file naming the training and test images
    tune: bool = False  # pseudo-sessions cut from the base classes, for choosing settings; test images are not read

    def __post_init__(self) -> None:
        check_seed("--shots-seed", self.shots_seed)
        for option, seed in {"--order-seed": self.order_seed, "--later-order-seed": self.later_order_seed}.items():
            if seed is not None:
                check_seed(option, seed)


PUBLISHED = Protocol()  # the protocol of the published tables


def names() -> tuple[str, ...]:
    """The data sets that `benchmark` knows."""
    return ("cifar100", "cub200", "folder", "glyphs", "mini_imagenet")


def check_name(name: str) -> None:
    """Refuses a data set that does not exist."""
    if name not in names():
        raise FscilError(f"unknown data set {name!r}: {suggestion(name, names())}")


def default_root() -> Path:
    """Where data sets are looked for when no folder is given: $FSCIL_DATA, else ./data."""
    return expanded(os.environ.get("FSCIL_DATA") or "data")


def expanded(folder: str | Path) -> Path:
    """A folder with ~ as the user's own."""
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise FscilError(f"{folder} cannot be found ({error}): give the folder without ~") from error


def ingredients(name: str, root: str | Path | None = None, protocol: Protocol = PUBLISHED) -> "Ingredients":
    """The images, class names and defaults of a data set, before any session is cut from it."""
    check_name(name)
    if name != "folder" and (protocol.test_share, protocol.split) != (PUBLISHED.test_share, PUBLISHED.split):
        raise FscilError(f"--test-share and --split are for the data set folder, not for {name}: omit them")
    folder = expanded(root) if root is not None else default_root()
    parts: Ingredients = importlib.import_module(f"fscil.data.{name}").load(folder, protocol)
    return parts


def cut(name: str, root: str | Path | None, protocol: Protocol) -> "tuple[Ingredients, Protocol]":
    """The ingredients from which sessions are cut, and how: with `tune` those of pseudo-sessions."""
    parts = ingredients(name, root, protocol)
    if not protocol.tune:
        return parts, protocol
    from fscil.data.tuning import pseudo_sessions

    return pseudo_sessions(parts, protocol), replace(protocol, base_classes=None)


def benchmark(name: str, root: str | Path | None = None, protocol: Protocol = PUBLISHED) -> "Benchmark":
    """The sessions of a data set found below `root`.

    >>> benchmark("glyphs").session_count
    9
    """
    from fscil.data.decoding import in_memory
    from fscil.data.sessions import Benchmark

    parts, protocol = cut(name, root, protocol)
    built = Benchmark(name, in_memory(parts), protocol)
    built.require_shots()
    built.require_tests()
    return built


def __getattr__(name: str) -> object:
    if name in ("Benchmark", "Session"):  # late, because they import torch, which a look at the settings does not need
        return getattr(importlib.import_module("fscil.data.sessions"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
