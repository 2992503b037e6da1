"""miniImageNet: 100 classes of 500 + 100 images of 84 pixels, in any of the layouts in which people have it.

Accepted in the folder given or in `miniimagenet`, `mini_imagenet`, `miniImageNet` or `MINI-ImageNet` inside it:

- TOPIC: `train/<wnid>/*.jpg` and `test/<wnid>/*.jpg` with the same classes in both
- CEC: `images/` with `split/train.csv` and `split/test.csv`, the same classes in both
- Ravi and Larochelle: `images/` with `train.csv`, `val.csv` and `test.csv`, or folders `train/`, `val/`, `test/`, with
  64 + 16 + 20 classes; which 100 of the 600 images of a class are test images is then looked up in `mini_imagenet.json`

The csv files have the columns `filename,label`; images lie in `images/` itself or in folders inside it. Of files with
the same name the one in `images/<label>/` is taken; a csv file may also name an image with its folder.
"""

import base64
import csv
import json
from collections import defaultdict
from importlib.resources import files
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from fscil.data import Protocol
from fscil.data.images import FileImages, Ingredients
from fscil.errors import FscilError

FOLDERS = (".", "miniimagenet", "mini_imagenet", "miniImageNet", "MINI-ImageNet")
PARTS = ("train", "val", "test")
LAYOUTS = "images/ with train.csv and test.csv (in split/ or beside it), or train/ and test/ with a folder per class"
KNOWN = json.loads(files("fscil.data").joinpath("mini_imagenet.json").read_text())  # wnid -> name, test images as bits

ByClass = dict[str, list[Path]]  # the images of each class, sorted by file name
Stored = dict[str, list[Path]]  # the files in `images/`, under NAME and, one each, under /FOLDER/NAME


def load(root: Path, protocol: Protocol) -> Ingredients:
    """miniImageNet from one of the accepted layouts below `root`."""
    parts = _find(root)
    train, test = parts["train"], parts["test"]
    if set(train) != set(test):
        train, test = _published_split(parts, root)
    classes = sorted(train)
    return Ingredients(
        train=_images(train, classes),
        test=_images(test, classes),
        class_names=tuple(KNOWN.get(wnid, {"name": wnid})["name"] for wnid in classes),
        pixels=84,
        mean=(0.472, 0.453, 0.410),
        std=(0.277, 0.268, 0.284),
        flips=True,
        base_classes=60,
        ways=5,
        train_names=tuple(f"MINI-ImageNet/train/{wnid}/{path.name}" for wnid in classes for path in train[wnid]),
        squeeze=True,
    )


def _images(by_class: ByClass, classes: list[str]) -> FileImages:
    paths = [path for wnid in classes for path in by_class[wnid]]
    return FileImages(paths, torch.tensor([label for label, wnid in enumerate(classes) for _ in by_class[wnid]]))


def _find(root: Path) -> dict[str, ByClass]:
    """The images of `train`, `test` and perhaps `val` in the first accepted layout."""
    for folder in (root / name for name in FOLDERS):
        images = folder / "images"
        for lists in (folder / "split", folder) if images.is_dir() else ():
            found = {part: lists / f"{part}.csv" for part in PARTS if (lists / f"{part}.csv").is_file()}
            if {"train", "test"} <= set(found):
                stored = _stored(images)
                return {part: _listed(path, images, stored) for part, path in found.items()}
        found = {part: folder / part for part in PARTS if (folder / part).is_dir()}
        if {"train", "test"} <= set(found):
            return {part: _tree(path) for part, path in found.items()}
    raise FscilError(f"miniImageNet is not in {root} (it has no public download): put there {LAYOUTS}")


def _stored(images: Path) -> Stored:
    """The files below a folder."""
    stored = defaultdict(list)
    for path in sorted(filter(Path.is_file, images.rglob("*"))):
        stored[path.name].append(path)
        stored[f"/{path.relative_to(images).as_posix()}"].append(path)
    return dict(stored)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a csv file, all of them with `filename` and `label`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:  # spreadsheets put a mark before the first column
            rows = list(csv.DictReader(lines))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FscilError(f"{path} cannot be read as csv in UTF-8 ({error}): write it again") from error
    if not rows or not all(row.get("filename") and row.get("label") for row in rows):
        raise FscilError(f"{path} must have the columns filename,label, both filled in every row, and at least one row")
    return rows


def _listed(path: Path, images: Path, stored: Stored) -> ByClass:
    """The images named in a csv file."""
    rows = _rows(path)
    labels = {row["label"] for row in rows}
    by_class: defaultdict[str, list[Path]] = defaultdict(list)
    missing: list[str] = []
    for row in sorted(rows, key=lambda row: Path(row["filename"]).name):
        name, label = row["filename"], row["label"]
        found = _candidates(name, label, labels - {label}, stored)
        if len(found) > 1:
            example = found[0].relative_to(images).as_posix()
            several = f"{path} names {name} of class {label}, which may be {found[0]} or {found[1]}"
            raise FscilError(f"{several}: write it with its folder, as in {example}")
        by_class[label] += found
        missing += [] if found else [f"{name} of class {label}"]
    if missing:
        raise FscilError(f"{len(missing)} images of {path} are not in {images}, such as {missing[0]}: copy them there")
    return dict(by_class)


def _candidates(name: str, label: str, others: set[str], stored: Stored) -> list[Path]:
    """The files that can be meant: the one in the folder of the class or just there, else all outside other classes."""
    exact = stored.get(f"/{label}/{name}") or stored.get(f"/{name}")
    return exact or [path for path in stored.get(name, []) if path.parent.name not in others]


def _tree(folder: Path) -> ByClass:
    """The images in a folder per class."""
    return {child.name: sorted(filter(Path.is_file, child.iterdir())) for child in folder.iterdir() if child.is_dir()}


def _published_split(parts: dict[str, ByClass], root: Path) -> tuple[ByClass, ByClass]:
    """Training and test images of each class, for lists that split the classes and not the images."""
    train, test = {}, {}
    for wnid, paths in chain.from_iterable(part.items() for part in parts.values()):
        if wnid not in KNOWN or len(paths) != 600:
            wrong = (
                f"Class {wnid} of miniImageNet has {len(paths)} images, not the 600 that the published split divides"
            )
            raise FscilError(f"{wrong}: complete it, or give a train.csv and a test.csv that both hold all classes")
        bits = np.unpackbits(np.frombuffer(base64.b64decode(KNOWN[wnid]["test"]), dtype=np.uint8))[:600]
        train[wnid] = [path for path, tested in zip(paths, bits, strict=True) if not tested]
        test[wnid] = [path for path, tested in zip(paths, bits, strict=True) if tested]
    if set(parts) != set(PARTS):
        wrong = f"miniImageNet in {root} has its classes in parts, train, val and test, of which val is missing"
        raise FscilError(f"{wrong}: put val.csv or the folder val beside the other two")
    return train, test
