"""CIFAR-100 from its python archive: 100 classes of 500 + 100 images of 32 pixels."""

import hashlib
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fscil.data import Protocol
from fscil.data.images import Ingredients, TensorImages
from fscil.errors import FscilError

FOLDER = "cifar-100-python"
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),  # written by numpy 1
    ("numpy._core.multiarray", "_reconstruct"),  # written by numpy 2
    ("_codecs", "encode"),
}


def find(root: Path) -> Path | None:
    """The folder that holds the three files."""
    return next((folder for folder in (root / FOLDER, root) if all((folder / name).is_file() for name in MD5)), None)


def load(root: Path, protocol: Protocol) -> Ingredients:
    """CIFAR-100 from `root` or `root/cifar-100-python`."""
    folder = find(root)
    if folder is None:
        raise FscilError(f"CIFAR-100 is not in {root / FOLDER}: `fscil data cifar100 --root {root}` downloads it")
    class_names = tuple(_text(name) for name in _read(folder / "meta", "fine_label_names")[0])
    train, test = (_images(folder / part, len(class_names)) for part in ("train", "test"))
    _warn_if_not_official(folder)
    return Ingredients(
        train=train,
        test=test,
        class_names=class_names,
        pixels=32,
        mean=(0.5071, 0.4867, 0.4408),
        std=(0.2675, 0.2565, 0.2761),
        flips=True,
        base_classes=60,
        ways=5,
        train_names=tuple(map(str, range(len(train)))),
    )


def _images(path: Path, classes: int) -> TensorImages:
    pixels, labels = map(np.asarray, _read(path, "data", "fine_labels"))
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072) or labels.dtype.kind != "i":
        raise FscilError(f"{path} does not hold 32-pixel images with labels: {_again(path)}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise FscilError(f"{path} has labels outside 0..{classes - 1}: {_again(path)}")
    return TensorImages(torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels))


def _warn_if_not_official(folder: Path) -> None:
    strange = []
    for name, md5 in MD5.items():
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "md5").hexdigest() != md5:
                strange.append(name)
    if strange:
        told = f"{folder} is complete, but {', '.join(strange)} are not the official files: results may differ."
        warnings.warn(told, stacklevel=3)


def _read(path: Path, *keys: str) -> list[Any]:
    """The values of some keys of a pickled dictionary."""
    try:
        with path.open("rb") as file:
            pickled = _Unpickler(file, encoding="latin1").load()
        named = {_text(key): value for key, value in pickled.items()}
        return [named[key] for key in keys]
    except FscilError as error:
        raise FscilError(f"{path} {error}") from error
    except Exception as error:  # a broken pickle can fail in any way
        raise FscilError(f"{path} is damaged or half downloaded: {_again(path)}") from error


def _again(path: Path) -> str:
    return f"delete {path.parent}, then `fscil data cifar100 --root {path.parent.parent}` downloads CIFAR-100 again"


class _Unpickler(pickle.Unpickler):
    """Reads arrays, lists, dictionaries and text and refuses everything else, because a pickle can run any program."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in ADMITTED:
            raise FscilError(f"asks for {module}.{name}, which CIFAR-100 does not hold: do not trust this file")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
