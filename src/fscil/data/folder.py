"""Any folder of images with one folder per class.

Without a split file a share of each class is kept for testing. A split file names the images instead, relative to the
folder: csv with the columns `image,part` (the part is `train` or `test`) or json `{"train": [...], "test": [...]}`.
Images that a split file does not name are left out, and so are classes of which it names none.
"""

import csv
import json
from pathlib import Path

import numpy as np
import torch

from fscil.data import Protocol, expanded
from fscil.data.images import FileImages, Ingredients
from fscil.data.pictures import SUFFIXES
from fscil.errors import FscilError

SPLIT_SEED = 0  # which images are test images does not depend on the seeds of shots and orders
SPLIT_FORMS = 'csv with the columns image,part (train or test) or json {"train": [...], "test": [...]}'

Row = tuple[str, int]  # image relative to the folder, label


def load(root: Path, protocol: Protocol) -> Ingredients:
    """The images below `root`, a folder of class folders."""
    found = sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != ".") if root.is_dir() else []
    images = {path.name: sorted(_images_in(path)) for path in found}
    if not any(images.values()):
        raise FscilError(f"{root} has no images in class folders: expected {root / 'CLASS' / 'IMAGE.jpg'} and so on")
    if protocol.split is None:
        train, test = _share(images, protocol.test_share)
    else:
        parts = _named(images, root, expanded(protocol.split))
        named = {*parts["train"], *parts["test"]}
        images = {name: found for name, found in images.items() if named & set(found)}
        label = {image: i for i, found in enumerate(images.values()) for image in found}
        train, test = ([(image, label[image]) for image in sorted(set(parts[part]))] for part in ("train", "test"))
    return Ingredients(
        train=_store(root, train),
        test=_store(root, test),
        class_names=tuple(images),
        pixels=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        flips=True,
        base_classes=max(1, round(0.6 * len(images))),
        ways=5,
    )


def _images_in(folder: Path) -> list[str]:
    paths = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    return [f"{folder.name}/{path.name}" for path in paths]


def _store(root: Path, rows: list[Row]) -> FileImages:
    return FileImages([root / name for name, _ in rows], torch.tensor([label for _, label in rows], dtype=torch.int64))


def _share(images: dict[str, list[str]], share: float) -> tuple[list[Row], list[Row]]:
    """Training and test images: of each class the share, but at least one, is for testing."""
    if not 0 < share < 1:
        raise FscilError(f"the protocol's test_share is {share}, but must lie between 0 and 1")
    train: list[Row] = []
    test: list[Row] = []
    for label, names in enumerate(images.values()):
        order = np.random.RandomState(SPLIT_SEED).permutation(len(names)).tolist()
        count = max(1, round(share * len(names)))
        test += [(names[i], label) for i in sorted(order[:count])]
        train += [(names[i], label) for i in sorted(order[count:])]
    return train, test


def _named(images: dict[str, list[str]], root: Path, path: Path) -> dict[str, list[str]]:
    """Training and test images as a split file names them."""
    known = {name for names in images.values() for name in names}
    parts = _read_split(path)
    for name in (*parts["train"], *parts["test"]):
        if name not in known:
            raise FscilError(f"{path} names {name}, which is no image in a class folder of {root}")
    both = set(parts["train"]) & set(parts["test"])
    if both:
        raise FscilError(f"{path} names {min(both)} for training and for testing: keep one of the two")
    return parts


def _read_split(path: Path) -> dict[str, list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark before the first column
        return _json_parts(text) if path.suffix == ".json" else _csv_parts(text)
    except OSError as error:
        raise FscilError(f"the split file {path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise FscilError(f"the split file {path} is not in one of the two forms: {SPLIT_FORMS}") from error


def _json_parts(text: str) -> dict[str, list[str]]:
    content = json.loads(text)
    return {part: [str(name) for name in content[part]] for part in ("train", "test")}


def _csv_parts(text: str) -> dict[str, list[str]]:
    rows = csv.DictReader(text.splitlines())
    if not {"image", "part"} <= set(rows.fieldnames or ()):
        raise KeyError("image, part")
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for row in rows:
        parts[row["part"].strip()].append(row["image"].strip())
    return parts
