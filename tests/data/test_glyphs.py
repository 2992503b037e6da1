"""The embedded benchmark: its characters cannot be confused under rotation, and its pictures are always the same."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from unicodedata import name as unicode_name

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from fscil.data import Protocol, glyphs
from fscil.data.images import Framing, Images

ALIKE = 0.84  # correlation of normalised shapes from which two characters look alike
SIDE = 20


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return glyphs.load(Path("nowhere"), Protocol())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Two characters only, and a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(glyphs, "CHARACTERS", "Fw")
    return tmp_path


def pixels(images: Images) -> torch.Tensor:
    """What is stored, 0..255: (n, 3, 32, 32)."""
    stored = Framing(32, (0.0,) * 3, (1 / 255,) * 3, margin=1.0)
    (batch,) = images.batches([torch.arange(len(images))], stored)
    return batch.round()


def normalised(shape: Image.Image, tilt: float) -> np.ndarray:
    """The shape cut to its bounding box, as large as the square allows, aspect kept: (SIDE, SIDE)."""
    tilted = shape.rotate(tilt, Image.Resampling.BICUBIC)
    tilted = tilted.crop(tilted.point(lambda value: 255 * (value > 60)).getbbox())
    scale = (SIDE - 2) / max(tilted.size)
    width, height = (max(1, round(side * scale)) for side in tilted.size)
    square = Image.new("L", (SIDE, SIDE))
    square.paste(tilted.resize((width, height), Image.Resampling.LANCZOS), ((SIDE - width) // 2, (SIDE - height) // 2))
    return np.asarray(square.filter(ImageFilter.GaussianBlur(0.8)), np.float32)


def unit(shapes: np.ndarray) -> np.ndarray:
    flat = shapes.reshape(len(shapes), -1)
    flat = flat - flat.mean(1, keepdims=True)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def likeness(characters: str) -> np.ndarray:
    """(4, n, n): largest correlation (over faces, shifts, tilts) of two characters, one of them turned 0 to 3 times."""
    faces = [glyphs.clean_shapes(character) for character in characters]
    first = np.cumsum([0] + [len(shapes) for shapes in faces[:-1]])
    upright, *tilted = (np.stack([normalised(s, t) for shapes in faces for s in shapes]) for t in (0, -10, 10))
    moved = [np.roll(upright, shift, (1, 2)) for shift in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))] + tilted
    alike = np.full((4, len(characters), len(characters)), -1, np.float32)
    for turn in range(4):
        for shapes in moved:
            pairs = unit(upright) @ unit(np.rot90(shapes, turn, (1, 2))).T
            largest = np.maximum.reduceat(np.maximum.reduceat(pairs, first, axis=0), first, axis=1)
            alike[turn] = np.maximum(alike[turn], np.maximum(largest, largest.T))
    return alike


def offenders(characters: str) -> list[str]:
    """Pairs that look alike under some turn, and characters (twice) that look like themselves turned."""
    alike = likeness(characters)
    alike[0][np.eye(len(characters), dtype=bool)] = 0  # everything looks like itself when it is not turned
    return [characters[a] + characters[b] for a, b in np.argwhere(alike.max(0) >= ALIKE) if a <= b]


def test_no_two_characters_look_alike_under_any_rotation():
    assert offenders(glyphs.CHARACTERS) == []


@pytest.mark.parametrize("pair", ["dp", "bq", "nu", "69", "MW", "EF", "cC", "aа", "иu"])
def test_the_check_finds_pairs_that_look_alike(pair):
    assert pair in offenders(pair)


@pytest.mark.parametrize("character", "SNZOXsx8%+")
def test_the_check_finds_characters_that_equal_themselves_when_turned(character):
    assert character * 2 in offenders(character + "F")


def test_sixty_base_classes_then_eight_sessions_of_five():
    assert len(glyphs.CHARACTERS) == len(set(glyphs.CHARACTERS)) == glyphs.BASE_CLASSES + 8 * glyphs.WAYS
    for start in range(glyphs.BASE_CLASSES, 100, glyphs.WAYS):
        session = glyphs.CHARACTERS[start : start + glyphs.WAYS]
        scripts = {unicode_name(character).split()[0] for character in session}
        assert len(scripts) >= 4, f"{session} is of too few scripts"


def test_every_character_is_drawn_in_several_faces():
    counts = {character: len(glyphs.clean_shapes(character)) for character in glyphs.CHARACTERS}
    assert min(counts.values()) >= 4
    assert counts["R"] == len(glyphs.FACES) == 16


def test_all_classes_have_their_images_names_and_sizes(loaded):
    assert loaded.train.labels.bincount().tolist() == [100] * 100
    assert loaded.test.labels.bincount().tolist() == [40] * 100
    assert not loaded.flips
    assert (loaded.pixels, loaded.base_classes, loaded.ways) == (32, 60, 5)
    assert "Σ greek capital sigma" in loaded.class_names
    first = pixels(loaded.train.select((loaded.train.labels == 7).nonzero()[:, 0]))[0].permute(1, 2, 0)
    assert torch.equal(first, torch.from_numpy(glyphs.draw(glyphs.CHARACTERS[7], 1)[0]).float())


def test_all_pictures_differ(loaded):
    pictures = torch.cat([pixels(loaded.train), pixels(loaded.test)]).flatten(1).byte().numpy()
    assert len({sha256(picture.tobytes()).digest() for picture in pictures}) == len(pictures)


def test_normalisation_is_that_of_the_base_pictures(loaded):
    base = pixels(loaded.train.select((loaded.train.labels < glyphs.BASE_CLASSES).nonzero()[:, 0])).double() / 255
    assert base.mean((0, 2, 3)).tolist() == pytest.approx(loaded.mean, abs=0.006)
    assert base.std((0, 2, 3)).tolist() == pytest.approx(loaded.std, abs=0.006)


def test_colours_do_not_tell_the_class(loaded):
    train, test = (pixels(images).mean((2, 3)) for images in (loaded.train, loaded.test))
    guessed = torch.cdist(test, train.view(100, 100, 3).mean(1)).argmin(1)
    assert (guessed == loaded.test.labels).double().mean() < 0.03


def test_characters_stay_upright():
    random = np.random.RandomState(0)
    for character in glyphs.CHARACTERS[::5]:
        shape = glyphs.clean_shapes(character)[0]
        seen = unit(np.stack([normalised(glyphs._distorted(shape, random), 0) for _ in range(20)]))
        turned = np.stack([np.rot90(normalised(shape, 0), turn) for turn in range(4)])
        assert (seen @ unit(turned).T).mean(0).argmax() == 0, f"{character} is turned"


def test_the_same_bytes_in_another_process():
    program = "import numpy, sys; numpy.random.seed(7); from fscil.data import glyphs; "
    program += "sys.stdout.buffer.write(glyphs.draw('R', 12).tobytes())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env={**os.environ})
    assert other.stdout == glyphs.draw("R", 12).tobytes()
    assert glyphs.draw("R", 5).tobytes() == other.stdout[: 5 * 32 * 32 * 3]


def test_pictures_are_drawn_once(cache, monkeypatch):
    drawn = glyphs.load(cache, Protocol())
    monkeypatch.setattr(glyphs, "draw", None)
    again = glyphs.load(cache, Protocol())
    assert torch.equal(pixels(drawn.train), pixels(again.train))
    assert torch.equal(pixels(drawn.test), pixels(again.test))
    assert [file.suffix for file in (cache / "fscil").iterdir()] == [".npz"]


@pytest.mark.parametrize("damage", [lambda content: content[:5000], lambda _: b"", lambda _: b"nonsense"])
def test_a_damaged_cache_is_replaced(cache, damage):
    whole = pixels(glyphs.load(cache, Protocol()).train)
    (file,) = (cache / "fscil").iterdir()
    size = file.stat().st_size
    file.write_bytes(damage(file.read_bytes()))
    assert torch.equal(pixels(glyphs.load(cache, Protocol()).train), whole)
    assert file.stat().st_size == size


def test_a_cache_that_cannot_be_written_is_done_without(cache, monkeypatch):
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert len(glyphs.load(cache, Protocol()).train) == 200


def test_a_home_that_does_not_exist_is_done_without(cache, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("no home")))
    assert len(glyphs.load(cache, Protocol()).train) == 200


def test_a_full_disk_leaves_nothing_behind(cache, monkeypatch):
    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert len(glyphs.load(cache, Protocol()).train) == 200
    assert list((cache / "fscil").iterdir()) == []
