"""Caltech-UCSD Birds-200-2011: 200 species, about 30 + 30 images each, with the official training and test images."""

from pathlib import Path

import torch

from fscil.data import Protocol
from fscil.data.images import FileImages, Ingredients
from fscil.errors import FscilError

FOLDER = "CUB_200_2011"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def find(root: Path) -> Path | None:
    """The folder that holds the lists of the data set."""
    return next((folder for folder in (root / FOLDER, root) if all((folder / name).is_file() for name in LISTS)), None)


def load(root: Path, protocol: Protocol) -> Ingredients:
    """CUB-200 from `root` or `root/CUB_200_2011`."""
    folder = find(root)
    if folder is None:
        raise FscilError(f"CUB-200 is not in {root / FOLDER}: `fscil data cub200 --root {root}` downloads it.")
    names, labels, split, classes = (_column(folder / name) for name in LISTS)
    if not len(names) == len(labels) == len(split):
        raise FscilError(f"The lists in {folder} differ in length: fetch CUB-200 again.")
    _require_images(folder / "images", names)
    train, test = (
        [(name, int(label) - 1) for name, label, one in zip(names, labels, split, strict=True) if one == part]
        for part in ("1", "0")
    )
    return Ingredients(
        train=_images(folder, train),
        test=_images(folder, test),
        class_names=tuple(name.partition(".")[2].replace("_", " ") for name in classes),
        pixels=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        flips=True,
        base_classes=100,
        ways=10,
        train_names=tuple(f"{FOLDER}/images/{name}" for name, _ in train),
    )


def _images(folder: Path, rows: list[tuple[str, int]]) -> FileImages:
    return FileImages([folder / "images" / name for name, _ in rows], torch.tensor([label for _, label in rows]))


def _column(path: Path) -> list[str]:
    """The second column of a list `number value`."""
    try:
        return [line.split(maxsplit=1)[1].strip() for line in path.read_text().splitlines() if line.strip()]
    except IndexError as error:
        raise FscilError(f"{path} is damaged or half downloaded: fetch CUB-200 again.") from error


def _require_images(folder: Path, names: list[str]) -> None:
    present = {f"{image.parent.name}/{image.name}" for image in folder.glob("*/*")}
    missing = [name for name in names if name not in present]
    if missing:
        lack = f"{folder} lacks {len(missing)} of {len(names)} images, such as {missing[0]}"
        raise FscilError(f"{lack}: delete {folder.parent}, then `fscil data cub200` downloads it again.")
