"""Data sets are found in the layouts people have, downloaded safely, and everything wrong with them is said by name."""

import csv
import hashlib
import http.server
import io
import json
import os
import pickle
import re
import shutil
import tarfile
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscil.data import Protocol, benchmark, cifar100, cub200, download, ingredients, mini_imagenet, verify
from fscil.data.download import Archive, fetch
from fscil.data.images import FileImages, Framing, TensorImages
from fscil.errors import FscilError

SMALL = Protocol(base_classes=2, ways=1, shots=1)


def save_image(path: Path, seed: int, side: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.RandomState(seed).randint(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
    return path


# ---- CIFAR-100


def write_cifar(folder: Path, bytes_keys: bool = False) -> dict[str, np.ndarray]:
    """A CIFAR-100 of three classes with 4 + 2 images each; returns its pixels."""
    folder.mkdir(parents=True)
    pixels = {}
    for part, per_class in (("train", 4), ("test", 2)):
        labels = list(range(3)) * per_class
        pixels[part] = np.random.RandomState(per_class).randint(0, 256, (len(labels), 3072), dtype=np.uint8)
        content = {"data": pixels[part], "fine_labels": labels, "filenames": ["x.png"] * len(labels)}
        if bytes_keys:
            content = {key.encode(): value for key, value in content.items()}
        (folder / part).write_bytes(pickle.dumps(content, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["apple", "bear", "cup"]}, protocol=2))
    return pixels


@pytest.mark.filterwarnings("ignore:.*not the official")
@pytest.mark.parametrize("bytes_keys", [False, True])
@pytest.mark.parametrize("folder", ["cifar-100-python", "."])
def test_cifar_is_read(tmp_path, folder, bytes_keys):
    root = tmp_path / "data"
    pixels = write_cifar(root / folder, bytes_keys)
    made = benchmark("cifar100", root, SMALL)
    assert made.class_names == ("apple", "bear", "cup")
    images = made._train
    assert isinstance(images, TensorImages)
    assert images.labels.tolist() == [0, 1, 2] * 4
    raw = next(iter(images.batches([torch.arange(12)], Framing(32, (0, 0, 0), (1 / 255,) * 3, margin=1.0))))
    assert np.array_equal(raw.round().numpy().reshape(12, 3072), pixels["train"])


def test_cifar_of_numpy_1_and_2_is_read(tmp_path):
    write_cifar(tmp_path / "cifar-100-python")
    path = tmp_path / "cifar-100-python" / "train"
    written = path.read_bytes()
    old, new = b"cnumpy.core.multiarray\n", b"cnumpy._core.multiarray\n"
    assert (old in written) != (new in written)
    for module in (old, new):
        path.write_bytes(written.replace(old, module).replace(new, module))
        with pytest.warns(UserWarning, match="not the official"):
            assert len(cifar100.load(tmp_path, SMALL).train) == 12


def test_cifar_with_official_bytes_gives_no_warning(tmp_path, monkeypatch):
    write_cifar(tmp_path / "cifar-100-python")
    digests = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in tmp_path.glob("*/*")}
    with pytest.warns(UserWarning, match="complete, but train, test, meta are not the official") as told:
        cifar100.load(tmp_path, SMALL)
    assert len(told) == 1
    monkeypatch.setattr(cifar100, "MD5", digests)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cifar100.load(tmp_path, SMALL)


class Evil:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore:.*not the official")
def test_cifar_pickles_cannot_run_programs(tmp_path):
    write_cifar(tmp_path / "cifar-100-python")
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({"data": Evil(tmp_path / "harm")}, protocol=2))
    with pytest.raises(FscilError, match=r"train asks for (posix|nt)\.mkdir"):
        cifar100.load(tmp_path, SMALL)
    assert not (tmp_path / "harm").exists()


@pytest.mark.filterwarnings("ignore:.*not the official")
@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_half_downloaded_cifar_is_refused(tmp_path, share):
    write_cifar(tmp_path / "cifar-100-python")
    path = tmp_path / "cifar-100-python" / "test"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FscilError, match=r"test is damaged or half downloaded: delete .*python, then `fscil data"):
        cifar100.load(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar100", "`fscil data cifar100 --root .*` downloads it"),
        ("cub200", "`fscil data cub200 --root .*` downloads it"),
        ("mini_imagenet", "no public download.*images/ with train.csv and test.csv"),
        ("folder", "no images in class folders"),
    ],
)
def test_missing_data_says_what_to_do(tmp_path, name, message, monkeypatch):
    with pytest.raises(FscilError, match=message) as caught:
        benchmark(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    monkeypatch.setenv("FSCIL_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FscilError, match="elsewhere"):
        benchmark(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FSCIL_DATA", "~/below")
    with pytest.raises(FscilError, match=re.escape(str(tmp_path / "home" / "below"))):
        benchmark(name)
    with pytest.raises(FscilError, match=r"~nobody-of-this-name/x cannot be found .*: give the folder without ~"):
        benchmark(name, "~nobody-of-this-name/x")


# ---- miniImageNet

WNIDS = ("n01532829", "n01558993", "n01704323")


def write_csv(path: Path, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("filename", "label"), *rows])


def write_mini(root: Path, layout: str) -> None:
    """Three classes with 3 + 2 images: numbers 0..2 for training, 3 and 4 for testing."""
    parts = {"train": range(3), "test": range(3, 5)}
    names = {part: [(f"{wnid}{i:08d}.png", wnid) for wnid in WNIDS for i in parts[part]] for part in parts}
    for part, rows in names.items():
        for seed, (name, wnid) in enumerate(rows):
            where = {"topic": root / part / wnid, "cec": root / "images", "nested": root / "images" / wnid}[layout]
            save_image(where / name, seed, side=84 if part == "train" else 30)
        if layout != "topic":
            write_csv(root / ("split" if layout == "cec" else ".") / f"{part}.csv", rows[::-1])


@pytest.mark.parametrize("layout", ["topic", "cec", "nested"])
@pytest.mark.parametrize("folder", [".", "miniimagenet", "MINI-ImageNet"])
def test_mini_imagenet_is_read_in_every_layout(tmp_path, layout, folder):
    write_mini(tmp_path / folder, layout)
    made = benchmark("mini_imagenet", tmp_path, SMALL)
    assert made.class_names == ("house finch", "robin", "triceratops")
    assert made._train._pixels.shape[2:] == made._test._pixels.shape[2:] == (84, 84)
    assert made._train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    expected = [np.random.RandomState(seed).randint(0, 256, (84, 84, 3), dtype=np.uint8) for seed in range(9)]
    stored = made._train._pixels.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(stored, np.stack(expected))  # sorted by class and name, and unchanged at the native size
    listed = ingredients("mini_imagenet", tmp_path, SMALL).train_names
    assert listed[4] == "MINI-ImageNet/train/n01558993/n0155899300000001.png"


def write_parts(root: Path, layout: str, parts: tuple[str, ...]) -> None:
    """A class of 600 empty files in each part."""
    for part, wnid in zip(parts, WNIDS, strict=False):
        rows = [(f"{wnid}{i:08d}.jpg", wnid) for i in range(600)]
        folder = root / "images" if layout == "lists" else root / part / wnid
        folder.mkdir(parents=True, exist_ok=True)
        for name, _ in rows:
            (folder / name).touch()
        if layout == "lists":
            write_csv(root / f"{part}.csv", rows)


@pytest.mark.parametrize("layout", ["lists", "folders"])
def test_mini_imagenet_split_by_class_gets_the_published_test_images(tmp_path, layout):
    write_parts(tmp_path, layout, ("train", "val", "test"))
    found = ingredients("mini_imagenet", tmp_path, SMALL)
    assert found.train.labels.bincount().tolist() == [500] * 3
    assert found.test.labels.bincount().tolist() == [100] * 3
    tested = [int(Path(path).stem[-8:]) for path in found.test.paths]
    assert tested[:6] == [2, 13, 26, 30, 34, 44]
    assert tested[:100] != tested[100:200]
    assert not set(found.train.paths) & set(found.test.paths)


@pytest.mark.parametrize("layout", ["lists", "folders"])
def test_mini_imagenet_split_by_class_needs_all_three_parts(tmp_path, layout):
    write_parts(tmp_path, layout, ("train", "test"))
    with pytest.raises(FscilError, match=r"val is missing: put val.csv or the folder val") as caught:
        ingredients("mini_imagenet", tmp_path, SMALL)
    assert str(tmp_path) in str(caught.value)


def test_the_published_split_of_mini_imagenet_is_complete():
    assert len(mini_imagenet.KNOWN) == 100
    assert len({known["name"] for known in mini_imagenet.KNOWN.values()}) == 100
    for known in mini_imagenet.KNOWN.values():
        bits = int.from_bytes(mini_imagenet.base64.b64decode(known["test"]))
        assert bits.bit_count() == 100
        assert bits < 2**600


def test_incomplete_mini_imagenet_is_refused(tmp_path):
    write_mini(tmp_path, "cec")
    (tmp_path / "images" / f"{WNIDS[1]}00000003.png").unlink()
    with pytest.raises(FscilError, match=r"1 images of .*test.csv are not in .*images, such as n0155899300000003.png"):
        benchmark("mini_imagenet", tmp_path, SMALL)
    write_csv(tmp_path / "split" / "test.csv", [(f"{WNIDS[0]}00000003.png", WNIDS[0])])
    with pytest.raises(FscilError, match=r"Class n01532829 of miniImageNet has 3 images, not the 600"):
        benchmark("mini_imagenet", tmp_path, SMALL)
    (tmp_path / "split" / "train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FscilError, match=r"train.csv must have the columns filename,label"):
        benchmark("mini_imagenet", tmp_path, SMALL)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"filename,label\n\xff.png,a\n", "cannot be read as csv in UTF-8"),
        (b"filename,label\n" + b"x" * 200_000 + b",a\n", "cannot be read as csv in UTF-8"),  # more than csv takes
        (b"filename,label\nonly.png\n", "both filled in every row"),
    ],
)
def test_unreadable_lists_of_mini_imagenet_are_one_sentence(tmp_path, content, complaint):
    write_mini(tmp_path, "cec")
    path = tmp_path / "split" / "train.csv"
    path.write_bytes(content)
    with pytest.raises(FscilError, match=complaint) as caught:
        benchmark("mini_imagenet", tmp_path, SMALL)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_of_mini_imagenet_may_come_from_a_spreadsheet(tmp_path):
    write_mini(tmp_path, "cec")
    path = tmp_path / "split" / "train.csv"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert len(ingredients("mini_imagenet", tmp_path, SMALL).train) == 9


def write_same_names(root: Path, prefix: str) -> None:
    """Two classes whose images have the same names, 0 and 1 for training and 2 for testing."""
    for part, numbers in (("train", (0, 1)), ("test", (2,))):
        rows = [(f"{i}.png", label) for label in ("n02", "n01") for i in numbers]
        for seed, (name, label) in enumerate(rows):
            save_image(root / "images" / label / name, seed)
        write_csv(root / f"{part}.csv", [(prefix.format(label) + name, label) for name, label in rows])


@pytest.mark.parametrize("prefix", ["", "{}/"])
def test_equal_names_in_mini_imagenet_are_told_apart_by_class(tmp_path, prefix):
    write_same_names(tmp_path, prefix)
    save_image(tmp_path / "images" / "thumbnails" / "0.png", 99)
    found = ingredients("mini_imagenet", tmp_path, SMALL)
    names = [Path(path).relative_to(tmp_path / "images").as_posix() for path in found.train.paths + found.test.paths]
    assert names == ["n01/0.png", "n01/1.png", "n02/0.png", "n02/1.png", "n01/2.png", "n02/2.png"]
    assert found.train.labels.tolist() == [0, 0, 1, 1]


def test_an_image_of_another_class_of_mini_imagenet_is_not_taken(tmp_path):
    write_same_names(tmp_path, "")
    (tmp_path / "images" / "n02" / "1.png").unlink()
    with pytest.raises(FscilError, match=r"1 images of .*train.csv are not in .*, such as 1.png of class n02: copy"):
        ingredients("mini_imagenet", tmp_path, SMALL)


def test_names_of_mini_imagenet_that_may_be_two_files_are_refused(tmp_path):
    write_same_names(tmp_path, "")
    for old, new in (("n01", "finch"), ("n02", "robin")):
        (tmp_path / "images" / old).rename(tmp_path / "images" / new)
    one, other = (tmp_path / "images" / name / "0.png" for name in ("finch", "robin"))
    with pytest.raises(FscilError) as caught:
        ingredients("mini_imagenet", tmp_path, SMALL)
    assert f"which may be {one} or {other}: write it with its folder, as in finch/0.png" in str(caught.value)


# ---- CUB-200


def write_cub(folder: Path) -> None:
    names = [f"{c:03d}.Some_bird_{c}/Some_{i}.png" for c in (1, 2, 3) for i in (5, 4, 3, 2)]
    for seed, name in enumerate(names):
        save_image(folder / "images" / name, seed, side=40)
    lists = {
        "images.txt": names,
        "image_class_labels.txt": [int(name[:3]) for name in names],
        "train_test_split.txt": [1, 0, 1, 0] * 3,
        "classes.txt": sorted({name.partition("/")[0] for name in names}),
    }
    for name, column in lists.items():
        (folder / name).write_text("".join(f"{i} {value}\n" for i, value in enumerate(column, start=1)))


@pytest.mark.parametrize("folder", ["CUB_200_2011", "."])
def test_cub_is_read_in_the_order_of_its_list(tmp_path, folder):
    write_cub(tmp_path / folder)
    made = benchmark("cub200", tmp_path, SMALL)
    assert made.class_names == ("Some bird 1", "Some bird 2", "Some bird 3")
    assert isinstance(made._train, FileImages)
    assert [Path(path).name for path in made._train.paths] == ["Some_5.png", "Some_3.png"] * 3
    assert [Path(path).name for path in made._test.paths] == ["Some_4.png", "Some_2.png"] * 3
    assert made._test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    names = ingredients("cub200", tmp_path, SMALL).train_names
    assert names[2] == "CUB_200_2011/images/002.Some_bird_2/Some_5.png"


def test_incomplete_cub_is_refused(tmp_path):
    write_cub(tmp_path / "CUB_200_2011")
    (tmp_path / "CUB_200_2011/images/002.Some_bird_2/Some_3.png").unlink()
    with pytest.raises(FscilError, match=r"lacks 1 of 12 images, such as 002.Some_bird_2/Some_3.png: delete"):
        cub200.load(tmp_path, SMALL)
    (tmp_path / "CUB_200_2011/train_test_split.txt").write_text("1 0\n2 1\n")
    with pytest.raises(FscilError, match="differ in length"):
        cub200.load(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("image_class_labels.txt", b"1 one\n", "calls 'one' a class, but classes are 1 to 3"),
        ("image_class_labels.txt", b"1 4\n", "calls '4' a class"),
        ("image_class_labels.txt", b"1 0\n", "calls '0' a class"),
        ("images.txt", b"1 \xff.png\n", "damaged or half downloaded"),
        ("classes.txt", b"1\n", "damaged or half downloaded"),
    ],
)
def test_damaged_lists_of_cub_are_one_sentence(tmp_path, name, content, complaint):
    write_cub(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FscilError, match=complaint) as caught:
        cub200.load(tmp_path, SMALL)
    assert str(tmp_path / name) in str(caught.value)
    advice = f"delete {tmp_path}, then `fscil data cub200 --root {tmp_path.parent}` downloads it again"
    assert str(caught.value).endswith(advice)


# ---- folder


@pytest.fixture
def birds(tmp_path):
    """Five classes of ten images each, with things beside them that are no images."""
    root = tmp_path / "birds"
    for c, name in enumerate(["coot", "dunnock", "jay", "robin", "wren"]):
        for i in range(10):
            save_image(root / name / f"{i}.{('png', 'webp', 'BMP')[i % 3]}", 10 * c + i)
    (root / "jay" / "notes.txt").write_text("no image")
    (root / ".cache").mkdir()
    (root / "readme.md").write_text("no class")
    return root


def test_a_folder_of_classes_is_split_for_testing_alike_every_time(birds):
    made = benchmark("folder", birds, Protocol(shots=3))
    assert made.class_names == ("coot", "dunnock", "jay", "robin", "wren")
    assert (made.base_classes, made.ways, made.session_count) == (3, 5, 2)
    assert made._train.labels.bincount().tolist() == [8] * 5
    assert made._test.labels.bincount().tolist() == [2] * 5
    assert not set(made._train.paths) & set(made._test.paths)
    again = benchmark("folder", birds, Protocol(shots=3, shots_seed=7, order_seed=3))
    assert made._test.paths == again._test.paths
    assert benchmark("folder", birds, Protocol(test_share=0.5))._test.labels.bincount().tolist() == [5] * 5
    for share in (0.0, 1.0):
        with pytest.raises(FscilError, match=f"test_share is {share}"):
            benchmark("folder", birds, Protocol(test_share=share))


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_split_file_names_the_images(birds, tmp_path, form):
    train = [f"{name}/{i}.png" for name in ("coot", "dunnock", "jay", "robin", "wren") for i in (0, 3)]
    test = [f"{name}/6.png" for name in ("coot", "dunnock", "jay", "robin", "wren")]
    path = tmp_path / f"split.{form}"

    def write(train: list[str], test: list[str]) -> None:
        rows = [*((name, "train") for name in train), *((name, "test") for name in test)]
        lines = "image,part\n" + "".join(f"{name},{part}\n" for name, part in rows)
        path.write_text(lines if form == "csv" else json.dumps({"train": train, "test": test}))

    protocol = Protocol(split=str(path), shots=2)
    write(train, test)
    made = benchmark("folder", birds, protocol)
    assert made._train.paths == tuple(str(birds / name) for name in train)
    assert made._test.paths == tuple(str(birds / name) for name in test)
    write([*train, "coot/99.png"], test)
    with pytest.raises(FscilError, match=r"split.* names coot/99.png, which is no image"):
        benchmark("folder", birds, protocol)
    write([*train, test[0]], test)
    with pytest.raises(FscilError, match=r"names coot/6.png for training and for testing"):
        benchmark("folder", birds, protocol)
    for content in (b"nonsense", b"image,part\n" + b"x" * 200_000 + b",train\n", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(FscilError, match="not in one of the two forms"):
            benchmark("folder", birds, protocol)
    path.unlink()
    with pytest.raises(FscilError, match="cannot be read"):
        benchmark("folder", birds, protocol)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("split.csv", "image,part\njay/0.png,train\njay/3.png,test\n"),
        ("split.json", '{"train": ["jay/0.png"], "test": ["jay/3.png"]}'),
    ],
)
def test_a_split_file_may_come_from_a_spreadsheet(birds, tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8-sig")
    made = benchmark("folder", birds, Protocol(split=str(path), shots=1))
    assert made._train.paths == (str(birds / "jay" / "0.png"),)
    assert made._test.paths == (str(birds / "jay" / "3.png"),)


def split_without_tests(folder: Path, untested: set[str]) -> Protocol:
    """The birds with three training images each, and a test image of all but some classes."""
    names = ("coot", "dunnock", "jay", "robin", "wren")
    train = [f"{name}/{i}.png" for name in names for i in (0, 3, 9)]
    test = [f"{name}/6.png" for name in names if name not in untested]
    path = folder / "split.json"
    path.write_text(json.dumps({"train": train, "test": test}))
    return Protocol(split=str(path), shots=2)


@pytest.mark.parametrize("untested", [{"coot"}, {"wren"}, {"coot", "dunnock", "jay", "robin", "wren"}])
def test_classes_without_a_test_image_are_named(birds, tmp_path, untested):
    protocol = split_without_tests(tmp_path, untested)
    with pytest.raises(FscilError, match=f"there is no test image of {', '.join(sorted(untested))}: add one .*split"):
        benchmark("folder", birds, protocol)
    assert verify.inspect("folder", birds, protocol).untested == tuple(sorted(untested))


def test_tuning_needs_no_test_image(birds, tmp_path):
    protocol = split_without_tests(tmp_path, {"coot", "dunnock", "jay", "robin", "wren"})
    made = benchmark("folder", birds, replace(protocol, tune=True))
    assert made._test.labels.bincount().tolist() == [1, 1, 1]
    assert verify.inspect("folder", birds, replace(protocol, tune=True)).untested == ()


def test_a_class_with_fewer_images_than_shots_is_named(birds):
    for path in sorted((birds / "wren").iterdir())[2:]:
        path.unlink()
    with pytest.raises(FscilError, match=r"5 shots in wren \(1\)"):
        benchmark("folder", birds)


def test_a_copy_of_a_folder_is_the_same_data_set_and_another_picture_makes_it_another(birds, tmp_path):
    before = benchmark("folder", birds).fingerprint()
    copy = shutil.copytree(birds, tmp_path / "elsewhere", copy_function=shutil.copyfile)  # without the files' times
    assert benchmark("folder", copy).fingerprint() == before
    save_image(copy / "jay" / "0.png", seed=99, side=13)
    assert benchmark("folder", copy).fingerprint() != before
    shutil.copyfile(birds / "jay" / "0.png", copy / "jay" / "0.png")
    assert benchmark("folder", copy).fingerprint() == before
    (copy / "jay" / "0.png").rename(copy / "jay" / "00.png")  # sorted as before, so that only the name tells
    assert benchmark("folder", copy).fingerprint() != before


def test_a_file_that_vanished_is_left_to_those_who_read_it(birds):
    made, before = benchmark("folder", birds), benchmark("folder", birds).fingerprint()
    (birds / "jay" / "0.png").unlink()
    assert made.fingerprint() != before


# ---- verification


def test_inspection_shows_the_pseudo_sessions_of_tuning(birds):
    seen = verify.inspect("folder", birds, Protocol(tune=True, shots=2))
    assert [(row.session, row.classes, row.train, row.test) for row in seen.rows] == [
        (0, ("coot", "dunnock"), 12, 4),
        (1, ("jay",), 2, 6),
    ]


def test_inspection_names_what_is_wrong(birds):
    (birds / "coot" / "1.webp").write_bytes((birds / "jay" / "4.webp").read_bytes())
    broken = (birds / "robin" / "0.png").read_bytes()
    (birds / "robin" / "0.png").write_bytes(broken[:200])
    for path in sorted((birds / "wren").iterdir())[1:]:
        path.unlink()
    seen = verify.inspect("folder", birds)
    assert [(row.session, row.classes, row.train, row.test) for row in seen.rows] == [
        (0, ("coot", "dunnock", "jay"), 24, 6),
        (1, ("robin", "wren"), 5, 9),
    ]
    assert len(seen.unreadable) == 1
    assert str(birds / "robin" / "0.png") in seen.unreadable[0]
    assert [set(group) for group in seen.duplicates] == [{str(birds / "coot/1.webp"), str(birds / "jay/4.webp")}]
    assert seen.too_few == ("wren",)
    assert seen.untested == ()
    assert seen.published is None


@pytest.mark.filterwarnings("ignore:.*not the official")
def test_session_lists_are_compared_with_the_published_digests(tmp_path):
    write_cifar(tmp_path / "cifar-100-python")
    changed = verify.inspect("cifar100", tmp_path, SMALL)
    assert changed.published is None  # nothing is published for this protocol
    found = ingredients("cifar100", tmp_path, SMALL)
    made = verify.Benchmark("cifar100", found, SMALL)
    order = made.train_indices(1).tolist()
    assert verify.list_digest(made, found, 1) == hashlib.sha256(f"{order[0]}\n".encode()).hexdigest()
    assert verify.differing_sessions([verify.list_digest(made, found, t) for t in (0, 1)], made, found) == ()
    assert verify.differing_sessions([verify.list_digest(made, found, 0), "other", "more"], made, found) == (1, 2)


def test_the_shipped_digests_cover_every_published_session():
    digests = verify.published_digests()
    assert {name: len(lists) for name, lists in digests.items()} == {"cifar100": 9, "cub200": 11, "mini_imagenet": 9}
    # The first list of shots: of class 60 of CIFAR-100 and so on, as TOPIC published it.
    shots = "29774 33344 4815 6772 48317 29918 33262 5138 7342 47874 28864 32471 4316 6436 47498 "
    shots += "29802 33159 3730 5093 47740 30548 34549 2845 4996 47866"
    text = "".join(f"{number}\n" for number in shots.split())
    assert digests["cifar100"][1] == hashlib.sha256(text.encode()).hexdigest()


# ---- downloads


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one file; `stop_after` bytes it hangs up, `ranges` tells whether it can continue."""

    content = b""
    stop_after: int | None = None
    ranges = True
    status = 200
    asked: list[str | None]

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if self.status != 200 or start >= len(self.content):
            self.send_error(self.status if self.status != 200 else 416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        stop = len(self.content) if self.stop_after is None else self.stop_after
        self.wfile.write(self.content[start : max(start, stop)])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local server in place of the public source of CIFAR-100."""
    write_cifar(tmp_path / "source" / "cifar-100-python")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(tmp_path / "source" / "cifar-100-python", "cifar-100-python")
    handler = type("Handler", (Server,), {"content": packed.getvalue(), "asked": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{running.server_port}/cifar.tar.gz"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    source = Archive(url, hashlib.md5(handler.content).hexdigest(), "cifar-100-python")
    monkeypatch.setitem(download.ARCHIVES, "cifar100", source)
    yield handler
    running.shutdown()
    running.server_close()


def left_over(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


@pytest.mark.filterwarnings("ignore:.*not the official")
def test_a_download_is_complete_and_made_once(tmp_path, server):
    root = tmp_path / "new" / "data"
    fetch("cifar100", root)
    assert left_over(root) == {"cifar-100-python"}
    assert len(cifar100.load(root, SMALL).train) == 12
    fetch("cifar100", root)
    assert len(server.asked) == 1
    fetch("mini_imagenet", root)  # has no public source; loading it says so


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_continues(tmp_path, server, ranges):
    half = len(server.content) // 2
    server.stop_after, server.ranges = half, ranges
    with pytest.raises(FscilError, match=r"stopped .*: the same command continues it"):
        fetch("cifar100", tmp_path)
    assert (tmp_path / "cifar.tar.gz.part").stat().st_size == half
    assert not (tmp_path / "cifar-100-python").exists()
    server.stop_after = None
    fetch("cifar100", tmp_path)
    assert server.asked == [None, f"bytes={half}-"]
    assert left_over(tmp_path) == {"cifar-100-python", "source"}


def test_a_python_that_cannot_unpack_safely_downloads_nothing(tmp_path, server, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(FscilError, match=r"archives cannot be unpacked safely before Python 3\.11\.4: update"):
        fetch("cifar100", tmp_path)
    assert server.asked == []


def test_a_download_that_was_complete_but_not_unpacked_is_used(tmp_path, server):
    (tmp_path / "cifar.tar.gz.part").write_bytes(server.content)
    fetch("cifar100", tmp_path)
    assert (tmp_path / "cifar-100-python" / "meta").is_file()
    assert left_over(tmp_path) == {"cifar-100-python", "source"}
    assert server.asked == []


def test_an_archive_put_there_by_hand_is_used_and_kept(tmp_path, server):
    (tmp_path / "cifar.tar.gz").write_bytes(server.content)
    fetch("cifar100", tmp_path)
    assert (tmp_path / "cifar-100-python" / "meta").is_file()
    assert (tmp_path / "cifar.tar.gz").read_bytes() == server.content
    assert server.asked == []


def test_a_wrong_archive_put_there_by_hand_is_named_and_kept(tmp_path, server):
    (tmp_path / "cifar.tar.gz").write_bytes(server.content[:-1])
    with pytest.raises(
        FscilError, match=r"cifar.tar.gz is not the file of .* \(wrong checksum\): replace it, or delete"
    ):
        fetch("cifar100", tmp_path)
    assert left_over(tmp_path) == {"cifar.tar.gz", "source"}
    assert server.asked == []


def test_a_wrong_file_is_not_used(tmp_path, server):
    server.content = server.content[:-50] + bytes(50)
    with pytest.raises(FscilError, match="wrong checksum"):
        fetch("cifar100", tmp_path)
    assert left_over(tmp_path) == {"source"}


def test_an_unreachable_source_is_one_sentence(tmp_path, server, monkeypatch):
    server.status = 404
    with pytest.raises(FscilError, match=r"answers 404 .* by hand") as caught:
        fetch("cifar100", tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(download.ARCHIVES, "cifar100", Archive("http://127.0.0.1:9/x.tar.gz", "", "cifar-100-python"))
    with pytest.raises(FscilError, match="refused"):
        fetch("cifar100", tmp_path)


def test_an_incomplete_folder_is_not_overwritten(tmp_path, server):
    write_cifar(tmp_path / "cifar-100-python")
    (tmp_path / "cifar-100-python" / "test").unlink()
    with pytest.raises(FscilError, match="cifar-100-python is incomplete: delete it"):
        fetch("cifar100", tmp_path)
    assert server.asked == []
