"""Photos as people have them: each is read as upright RGB, or named and skipped; never a traceback."""

import io
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from albums import picture
from commands import Fscil
from fscil.data.framing import Framing
from fscil.data.images import decode
from fscil.data.pictures import upright_rgb
from fscil.teach.seeing import photos
from fscil.teach.seeing.photos import Unreadable, Upload, read, size

FRAMING = Framing(16, (0.5,) * 3, (0.5,) * 3)
BROKEN_EXIF = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff garbage"
RED, BLUE = (200, 30, 30), (30, 30, 200)


def two_halves(width: int = 60, height: int = 40) -> Image.Image:
    """Red above blue."""
    drawn = Image.new("RGB", (width, height), RED)
    drawn.paste(BLUE, (0, height // 2, width, height))
    return drawn


def near(picture: Image.Image, at: tuple[float, float], colour: tuple[int, ...], distance: int = 40) -> bool:
    x, y = int(at[0] * (picture.width - 1)), int(at[1] * (picture.height - 1))
    return bool(np.abs(np.array(picture.getpixel((x, y)), dtype=int) - colour).max() <= distance)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "bmp", "tif"])
def test_common_formats_are_read(tmp_path: Path, suffix: str) -> None:
    two_halves().save(tmp_path / f"photo.{suffix}")
    found = read(tmp_path / f"photo.{suffix}")
    assert found.mode == "RGB"
    assert near(found, (0.5, 0.1), RED)
    assert near(found, (0.5, 0.9), BLUE)


def test_exif_rotation_is_respected(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    two_halves().save(tmp_path / "turned.jpg", exif=exif)
    found = read(tmp_path / "turned.jpg")
    assert near(found, (0.5, 0.1), BLUE)
    assert near(found, (0.5, 0.9), RED)


def test_broken_exif_does_not_cost_the_photo(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "photo.jpg", exif=BROKEN_EXIF)
    assert read(tmp_path / "photo.jpg").size == (60, 40)


def test_grey_is_grey_in_all_channels(tmp_path: Path) -> None:
    Image.new("L", (30, 30), 90).save(tmp_path / "grey.png")
    assert read(tmp_path / "grey.png").getpixel((3, 3)) == (90, 90, 90)


def test_transparent_parts_become_white(tmp_path: Path) -> None:
    drawn = two_halves().convert("RGBA")
    drawn.putalpha(0)
    drawn.save(tmp_path / "clear.png")
    assert read(tmp_path / "clear.png").getpixel((5, 5)) == (255, 255, 255)
    two_halves().convert("P").save(tmp_path / "clear.gif", transparency=0)
    assert read(tmp_path / "clear.gif").mode == "RGB"


def test_cmyk_keeps_its_colours(tmp_path: Path) -> None:
    two_halves().convert("CMYK").save(tmp_path / "print.jpg")
    found = read(tmp_path / "print.jpg")
    assert near(found, (0.5, 0.1), RED, 60)
    assert near(found, (0.5, 0.9), BLUE, 60)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.full((30, 30), 40000, dtype=np.uint16)
    values[:15] = 10000
    Image.fromarray(values).save(tmp_path / "deep.png")
    found = np.asarray(read(tmp_path / "deep.png"))
    assert abs(int(found[0, 0, 0]) - 10000 // 257) <= 1
    assert abs(int(found[29, 0, 0]) - 40000 // 257) <= 1


def test_the_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in (RED, BLUE)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert near(read(tmp_path / "moving.gif"), (0.5, 0.5), RED)


def test_heic_is_read_with_the_extra(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC needs the extra fscil[heic]")
    heif.register_heif_opener()
    two_halves(64, 64).save(tmp_path / "phone.heic")
    assert near(read(tmp_path / "phone.heic"), (0.5, 0.9), BLUE)


def test_heic_without_the_extra_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "phone.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(Unreadable, match=r"phone.heic is a HEIC photo: pip install 'fscil\[heic\]'"):
        read(tmp_path / "phone.heic")


def bomb(width: int, height: int) -> bytes:
    """A few bytes of PNG that claim to be a huge picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def cut_off(path: Path) -> None:
    picture(1, 1, 200).save(path)
    path.write_bytes(path.read_bytes()[:3000])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero bytes": (lambda path: path.touch(), "is empty"),
    "text": (lambda path: path.write_text("this is no photo"), "is no picture that can be read"),
    "cut off": (cut_off, "is cut off"),
    "100 megapixels": (
        lambda path: path.write_bytes(bomb(10_000, 10_000)),
        "has 100 megapixels; at most 80 can be read (178 of a plain JPEG file), make it smaller",
    ),
    "a gigapixel": (
        lambda path: path.write_bytes(bomb(40_000, 40_000)),
        "has more than 178 megapixels; at most 80 can be read (178 of a plain JPEG file), make it smaller",
    ),
    "a folder": (lambda path: path.mkdir(), "is a folder"),
    "nothing": (lambda path: None, "does not exist"),
    "a loop": (lambda path: path.symlink_to(path), "is a link that leads back to itself"),
    "a dead link": (
        lambda path: path.symlink_to(path.with_name("gone.jpg")),
        "is a link to a file that does not exist",
    ),
    "a pipe": (os.mkfifo, "is no file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, kind: str) -> None:
    make, reason = BROKEN[kind]
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    two_halves().save(good)
    make(bad)
    (batch,) = photos.batches([good, bad, good], FRAMING)
    assert batch.positions == [0, 2]
    assert len(batch.crops) == 2
    assert [problem.name for problem in batch.unreadable] == [str(bad)]
    assert reason in batch.unreadable[0].reason
    assert photos.summary(batch.unreadable, 3).startswith("1 of 3 photos skipped: ")


def test_photos_are_read_or_refused_without_the_words_of_pillow(
    fscil_command: Fscil, birds_file: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    Image.new("L", (10_000, 9_500), 120).save(tmp_path / "large.jpg", exif=BROKEN_EXIF)
    (tmp_path / "large.png").write_bytes(bomb(10_000, 10_000))
    for _ in range(2):  # the second answer needs no torch, where ONNX Runtime is installed
        _, said, complaints = fscil_command("predict", birds_file, tmp_path / "large.jpg", tmp_path / "large.png")
        assert said.startswith(f"{tmp_path / 'large.jpg'}: ")
        assert complaints.startswith(f"fscil: {tmp_path / 'large.png'} has 100 megapixels; ")
    assert [str(warning.message) for warning in recwarn if "PIL" in warning.filename] == []


@pytest.mark.parametrize("white", [1.0, 255.0, 65535.0])
def test_tiff_files_of_floats(tmp_path: Path, white: float) -> None:
    levels = np.linspace(0, white, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(levels).save(tmp_path / "grey.tiff")
    shown = np.asarray(read(tmp_path / "grey.tiff"))
    np.testing.assert_array_equal(shown[:, :, 0], np.rint(np.linspace(0, 255, 64)).reshape(8, 8))


def test_tiff_files_of_measurements_are_stretched(tmp_path: Path) -> None:
    levels = np.array([[-3, np.nan, 1], [7, np.inf, 2]], dtype=np.float32)
    Image.fromarray(levels).save(tmp_path / "depth.tif")
    shown = np.asarray(read(tmp_path / "depth.tif"))[:, :, 0]
    np.testing.assert_array_equal(shown, np.rint([[0, 0, 102], [255, 0, 127.5]]))
    Image.fromarray(np.full((2, 2), -5, np.float32)).save(tmp_path / "flat.tif")
    assert np.asarray(read(tmp_path / "flat.tif")).max() == 0


@settings(max_examples=60)
@given(
    content=st.binary(max_size=300),
    start=st.sampled_from(
        [b"", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x10\0\0\0WEBP", b"\x89PNG\r\n\x1a\n", b"II*\0", b"BM"]
    ),
)
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "photo.jpg"
    path.write_bytes(start + content)
    try:
        assert read(path).mode == "RGB"
    except Unreadable as problem:
        assert str(path) in str(problem)  # noqa: PT017 (most bytes are no photo, some are)


def test_large_jpegs_are_read_at_the_size_they_are_needed(tmp_path: Path) -> None:
    two_halves(2400, 1600).save(tmp_path / "large.jpg")
    small = read(tmp_path / "large.jpg", 100)
    assert 200 <= min(small.size) < 1600
    assert near(small, (0.5, 0.1), RED)
    assert near(small, (0.5, 0.9), BLUE)


def test_the_same_photo_in_every_form(tmp_path: Path) -> None:
    drawn = picture(3, 1)
    drawn.save(tmp_path / "größer als ein Wort 鳥.png")
    pixels = np.asarray(drawn)
    forms = [
        tmp_path / "größer als ein Wort 鳥.png",
        str(tmp_path / "größer als ein Wort 鳥.png"),
        drawn,
        pixels,
        pixels.astype(np.float32) / 255,
        pixels.astype(np.uint16) * 257,
        np.moveaxis(pixels, 2, 0),
        torch.from_numpy(pixels.copy()).permute(2, 0, 1),
        torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255,
        torch.from_numpy(pixels.copy()),
    ]
    (batch,) = photos.batches(forms, FRAMING)
    assert batch.positions == list(range(len(forms)))
    assert len(set(photos.digests(batch.crops))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((5, 5, 7)),
        np.full((4, 4, 3), 300.0),
        np.full((4, 4), np.nan),
        np.zeros((0, 4, 3)),
        np.zeros(5),
        np.full((4, 4), -1),
        7,
        None,
    ],
)
def test_what_is_no_picture_is_named_by_its_place(wrong: object) -> None:
    (batch,) = photos.batches([picture(0, 0), wrong], FRAMING)
    assert batch.positions == [0]
    assert str(batch.unreadable[0]).startswith("photo 2 ")


def test_batches_keep_the_order_of_many_photos() -> None:
    sources = [picture(kind, 0, 16) for kind in range(11)]
    whole = next(iter(photos.batches(sources, FRAMING, 100)))
    parts = list(photos.batches(sources, FRAMING, 4))
    assert [part.positions for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert torch.equal(torch.cat([part.crops for part in parts]), whole.crops)
    assert list(photos.batches([], FRAMING)) == []


def test_benchmarks_read_the_same_pictures(tmp_path: Path) -> None:
    drawn = two_halves().convert("RGBA")
    drawn.save(tmp_path / "photo.png")
    assert np.array_equal(np.asarray(decode(tmp_path / "photo.png")), np.asarray(read(tmp_path / "photo.png")))


@pytest.mark.parametrize("name", ["phone.heic", "sent.jpg"])
def test_heic_is_known_by_name_and_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With a stand-in for the extra: the opener is registered before the file is opened."""
    (tmp_path / name).write_bytes(b"\x00\x00\x00\x18ftypheic\x00\x00")
    opened = []

    def register_heif_opener() -> None:
        monkeypatch.setattr(Image, "open", lambda file, formats: opened.append(file.name) or two_halves(64, 64))

    stand_in = SimpleNamespace(register_heif_opener=register_heif_opener)
    monkeypatch.setitem(sys.modules, "pillow_heif", stand_in)
    assert near(read(tmp_path / name), (0.5, 0.9), BLUE)
    assert opened == [str(tmp_path / name)]


def test_one_picture_given_many_times_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    picture(1, 1, 400).save(tmp_path / "photo.jpg", exif=exif)
    readings = []
    monkeypatch.setattr(photos, "upright_rgb", lambda shown: readings.append(shown) or upright_rgb(shown))
    with Image.open(tmp_path / "photo.jpg") as lazy:
        parts = list(photos.batches([lazy] * 40, FRAMING))
    assert len(readings) == 1
    assert [part.positions for part in parts] == [list(range(32)), list(range(32, 40))]
    assert len({digest for part in parts for digest in photos.digests(part.crops)}) == 1
    (part,) = photos.batches([tmp_path / "photo.jpg"], FRAMING)
    assert float((part.crops[0].float() - parts[0].crops[0].float()).abs().mean()) < 3  # read at another size


def test_whatever_a_picture_stumbles_over_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(tmp_path / "half.png")
    with Image.open(tmp_path / "half.png") as half, pytest.raises(Unreadable, match=r"half.png is cut off"):
        read(half)
    drawn = two_halves()
    monkeypatch.setattr(drawn, "load", lambda: next(iter(())))  # StopIteration
    with pytest.raises(Unreadable, match="photo 3 is no picture that can be read"):
        read(drawn, position=2)


def test_short_floats_are_pixels_too() -> None:
    assert read(torch.full((3, 8, 8), 0.25, dtype=torch.bfloat16)).getpixel((2, 2)) == (64, 64, 64)


def test_a_jpeg_that_is_called_heic_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    two_halves().save(tmp_path / "sent.heic", "JPEG")
    assert near(read(tmp_path / "sent.heic"), (0.5, 0.9), BLUE)


@pytest.mark.parametrize(("progressive", "pixels"), [(False, 800 * 600 // 64), (True, 800 * 600)])
def test_a_progressive_picture_is_held_as_a_whole(progressive: bool, pixels: int) -> None:
    """Others are decoded at an eighth of their width and height."""
    file = io.BytesIO()
    Image.new("RGB", (800, 600)).save(file, "JPEG", progressive=progressive)
    assert size(Upload("a.jpg", file.getvalue()), 32) == pixels
