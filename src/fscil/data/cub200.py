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
        raise FscilError(f"CUB-200 is not in {root / FOLDER}: `fscil data cub200 --root {root}` downloads it")
    names, numbers, split, classes = (_column(folder / name) for name in LISTS)
    labels = _labels(numbers, len(classes), folder / LISTS[1])
    if not len(names) == len(labels) == len(split):
        raise FscilError(f"the lists in {folder} differ in length: {_again(folder)}")
    _require_images(folder / "images", names)
    train, test = (
        [(name, label) for name, label, one in zip(names, labels, split, strict=True) if one == part]
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
        lines = path.read_text(encoding="utf-8").splitlines()
        return [line.split(maxsplit=1)[1].strip() for line in lines if line.strip()]
    except (IndexError, UnicodeDecodeError) as error:
        raise FscilError(f"{path} is damaged or half downloaded: {_again(path.parent)}") from error


def _labels(numbers: list[str], classes: int, path: Path) -> list[int]:
    """Labels from 0 on of the class numbers in a list, which begin with 1."""
    wrong = [number for number in numbers if not number.isdecimal() or not 1 <= int(number) <= classes]
    if wrong:
        told = f"{path} calls {wrong[0]!r} a class, but classes are 1 to {classes}"
        raise FscilError(f"{told}: {_again(path.parent)}")
    return [int(number) - 1 for number in numbers]


def _require_images(folder: Path, names: list[str]) -> None:
    present = {f"{image.parent.name}/{image.name}" for image in folder.glob("*/*")}
    missing = [name for name in names if name not in present]
    if missing:
        lack = f"{folder} lacks {len(missing)} of {len(names)} images, such as {missing[0]}"
        raise FscilError(f"{lack}: {_again(folder.parent)}")


def _again(folder: Path) -> str:
    return f"delete {folder}, then `fscil data cub200 --root {folder.parent}` downloads it again"
