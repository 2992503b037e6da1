"""What the estimator is given: photos, tables and labels in any of the forms that scikit-learn's users hand in.

What is wrong is a ValueError, as scikit-learn has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from fscil.data import LARGEST_SEED
from fscil.teach.seeing.folders import class_folders, expanded
from fscil.teach.seeing.photos import Source


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuses a parameter that is not one of a few words."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")


def check_share(name: str, value: float) -> None:
    """Refuses a parameter that is not part of a whole."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}, but must lie between 0 and 1")


def check_random_state(seed: int) -> None:
    """Refuses a seed that a generator would not take."""
    if not isinstance(seed, Integral) or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"random_state is {seed!r}, but must be a whole number from 0 to {LARGEST_SEED}")


def sources(X: Any) -> list[Source]:
    """The photos in X: one path or picture, the photos of a folder, or any sequence of photos."""
    if isinstance(X, str | Path):
        return list(expanded([Path(X)]))
    colour = {np.ndarray: -1, Tensor: 0}.get(type(X))
    one = colour is not None and X.ndim == 3 and X.shape[colour] in (1, 3, 4)  # (h, w, 3), or as a tensor (3, h, w)
    return [X] if one or isinstance(X, Image.Image) else list(X)


def folder(X: Any, encoder: str | None) -> tuple[list[Path], list[str]]:
    """The photos in a folder with one sub-folder per class, and the class of each."""
    if not isinstance(X, str | Path):
        raise ValueError("fit requires y to be passed, but the target y is None; only a folder brings its own classes")
    if encoder is None:
        raise ValueError(f"{X} is a folder of photos, but encoder=None takes a table of features; choose an encoder")
    pairs = [(photo, name) for name, some in class_folders(X).items() for photo in some]
    return [photo for photo, _ in pairs], [name for _, name in pairs]


def labels(y: ArrayLike, expected: int) -> list[Any]:
    """The classes as plain Python values."""
    column: NDArray[Any] = column_or_1d(y, warn=True)
    check_classification_targets(column)
    if len(column) != expected:
        raise ValueError(f"X and y have inconsistent lengths: {expected} and {len(column)}")
    return [plain(value) for value in column]


def by_class(X: Any, y: ArrayLike) -> list[tuple[Any, list[Source]]]:
    """The photos of each class that is named."""
    given = sources(X)
    groups: dict[Any, list[Source]] = {}
    for source, name in zip(given, labels(y, len(given)), strict=True):
        groups.setdefault(name, []).append(source)
    return list(groups.items())


def sorted_order(names: Sequence[Any]) -> list[int]:
    """Positions by class, as scikit-learn sorts classes; those of one class keep their order."""
    codes = np.unique(np.array(names), return_inverse=True)[1]
    order: list[int] = np.argsort(codes, kind="stable").tolist()
    return order


def plain(value: Any) -> Any:
    """A label as a plain Python value."""
    return value.item() if isinstance(value, np.generic) else value


def table(X: NDArray[np.float64]) -> Tensor:
    """Features (n, d) as a tensor in float32."""
    return torch.from_numpy(np.ascontiguousarray(X)).float()
