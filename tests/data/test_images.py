"""Images in memory and in files give the same views, drawn independently for each image, from the generator given."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import RandomResizedCrop

from fscil.data.framing import draw, finish, interpolation, windows
from fscil.data.images import PREFETCH, WAITING, Augment, FileImages, Framing, TensorImages, decode, suited
from fscil.data.pictures import from_array
from fscil.errors import FscilError

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
GREY_LEVELS = 1.01 / 255 / min(STD)  # files are rounded to whole grey levels after resizing, images in memory are not


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def framing(pixels: int, augment: Augment | None = None, margin: float = 1.0) -> Framing:
    return Framing(pixels, MEAN, STD, augment, margin)


def smooth_images(count: int, height: int, width: int) -> torch.Tensor:
    coarse = torch.rand(count, 3, 6, 6, generator=generator(0)) * 255
    enlarged = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    return enlarged.clamp(0, 255).round().to(torch.uint8)


def read(images, a_view: Framing, count: int | None = None, seed: int = 0) -> torch.Tensor:
    chunk = torch.arange(len(images) if count is None else count)
    rng = None if a_view.augment is None else lambda i: generator(seed + i)
    return next(iter(images.batches([chunk], a_view, rng)))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same 24 images, taller than wide, in memory and in files."""
    folder = tmp_path_factory.mktemp("images")
    pixels, labels = smooth_images(24, 40, 30), torch.arange(24) % 3
    paths = [folder / f"{i}.png" for i in range(24)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return TensorImages(pixels, labels), FileImages(paths, labels, workers=0)


def test_the_test_view_of_native_size_is_the_normalised_image():
    pixels = smooth_images(5, 16, 16)
    expected = (pixels / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    batch = read(TensorImages(pixels, torch.arange(5)), framing(16))
    torch.testing.assert_close(batch, expected, atol=1e-5, rtol=1e-5)
    assert batch.dtype == torch.float32
    assert batch.is_contiguous(memory_format=torch.channels_last)


VIEWS = {
    "test": framing(20),
    "test with margin": framing(24, margin=8 / 7),
    "enlarged": framing(50),
    "resized": framing(20, Augment(crop="resized")),
    "enlarged resized": framing(48, Augment(crop="resized", brightness=0.3)),
    "pad": framing(20, Augment(crop="pad", padding=3, margin=1.0)),
    "pad with margin": framing(20, Augment(crop="pad", padding=6, cutout=5)),
    "none": framing(30, Augment(crop="none", brightness=0.25, cutout=8)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_both_stores_give_the_same_pixels(both, name):
    in_memory, in_files = (read(images, VIEWS[name]) for images in both)
    assert in_files.is_contiguous(memory_format=torch.channels_last)
    assert in_memory.std() > 0.3  # the images have content to compare
    assert (in_memory - in_files).abs().max() <= GREY_LEVELS * 1.3  # 1.3: the largest brightness factor


@pytest.mark.parametrize("name", ["resized", "pad with margin", "none"])
def test_both_stores_have_the_same_statistics_under_different_draws(both, name):
    chunks = [torch.arange(24)] * 12
    memory = torch.stack(list(both[0].batches(chunks, VIEWS[name], lambda i: generator(i))))
    files = torch.stack(list(both[1].batches(chunks, VIEWS[name], lambda i: generator(1000 + i))))
    assert memory.shape == files.shape
    assert not torch.allclose(memory, files, atol=0.1)
    spread = memory.mean(dim=(2, 3, 4)).std() / 12**0.5
    assert (memory.mean() - files.mean()).abs() < 6 * spread
    assert (memory.var() / files.var() - 1).abs() < 0.05


@pytest.fixture
def cores(monkeypatch):
    """Tells this process of so many cores, and gives it as many threads if no other number is told."""

    def tell(count: int, threads: int | None = None) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(count)))
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads or count)

    return tell


@pytest.mark.parametrize(
    ("count", "threads", "workers"),
    [(1, 1, 1), (2, 2, 2), (2, 1, 2), (8, 8, 8), (8, 4, 4), (8, 1, 2), (4, 9, 4), (96, 48, 16)],
)
def test_as_many_workers_as_cores_are_this_process_s_own(both, cores, count, threads, workers):
    cores(count, threads)
    files = FileImages(both[1].paths, both[1].labels)
    assert files.workers == files.select([0, 1]).workers == files.on(torch.device("cpu")).workers == workers
    cores(1)
    assert files.joined(files).workers == 1  # processes side by side may be told of after the files were found


def test_no_warning_and_no_worker_without_a_chunk_of_its_own(both, cores, recwarn, monkeypatch):
    cores(8)
    started = []

    def loader(*args, num_workers, **more):
        started.append(num_workers)
        return DataLoader(*args, num_workers=num_workers, **more)

    monkeypatch.setattr("fscil.data.images.DataLoader", loader)
    files = FileImages(both[1].paths, both[1].labels, workers=3)
    for count in (0, 1, 2, 3, 5):
        assert len([*files.batches(torch.arange(2).repeat(count, 1), framing(8))]) == count
    assert started == [0, 1, 2, 3, 3]
    assert not [warning for warning in recwarn if "worker" in str(warning.message)]  # of torch


def test_large_chunks_are_decoded_by_fewer_workers():
    assert suited(16, 32, 224) == 16
    assert suited(16, 500, 224) == 7
    assert suited(16, 500, 600) == suited(16, 10**6, 600) == 2
    assert suited(1, 10**6, 600) == 1
    assert 7 * PREFETCH * 500 * 3 * 224**2 <= WAITING


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("view", ["resized", "pad with margin", "none"])
def test_results_do_not_depend_on_the_number_of_workers(both, cores, workers, view):
    cores(3)
    files = FileImages(both[1].paths, both[1].labels, workers=workers)
    assert files.workers == workers
    chunks = [*torch.randperm(24, generator=generator(1)).split(2), torch.tensor([5]), torch.tensor([7, 2, 9])]
    expected = list(both[1].batches(chunks, VIEWS[view], generator))
    got = list(files.batches(iter(chunks), VIEWS[view], generator))
    assert [len(batch) for batch in got] == [*[2] * 12, 1, 3]
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_a_full_height_is_no_full_image(both):
    """A box as tall as a native-size image may still be narrower; seeds are tried until one is."""
    square = both[0].pixels[:1, :, :30]
    image, native = TensorImages(square, torch.zeros(1)), framing(30, Augment(flip=False, min_area=0.8))
    tall = torch.tensor([30])
    boxes = {seed: windows(tall, tall, native, draw(1, generator(seed))) for seed in range(60)}
    narrow = [seed for seed, (down, across) in boxes.items() if down.length == 30 and across.length < 30]
    assert narrow
    for seed in narrow:
        assert not torch.allclose(read(image, native, seed=seed), read(image, framing(30)), atol=1e-3)


def test_no_store_touches_the_global_generator(both):
    before = torch.get_rng_state()
    for images in (*both, FileImages(both[1].paths, both[1].labels, workers=1)):
        first, again, other = (read(images, VIEWS["resized"], 4, seed) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_half_precision_of_the_caller_does_not_blur_images(both):
    expected = read(both[0], VIEWS["resized"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(read(both[0], VIEWS["resized"]), expected)


def coordinates(side: int) -> torch.Tensor:
    """An image whose first two channels say where a pixel comes from."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack([rows, columns, torch.full_like(rows, 9)]).to(torch.uint8)


def test_shifts_and_flips_are_uniform_and_independent_for_each_image():
    side, padding, count = 16, 2, 6000
    images = TensorImages(coordinates(side)[None], torch.zeros(1)).select(torch.zeros(count, dtype=torch.int64))
    raw = Framing(side, (0, 0, 0), (1 / 255,) * 3, Augment(crop="pad", padding=padding, margin=1.0))
    batch = read(images, raw)
    centre = batch[:, :2, side // 2, side // 2]
    flipped = batch[:, 1, 8, 8] > batch[:, 1, 8, 9]
    down = centre[:, 0] - side // 2
    across = torch.where(flipped, centre[:, 1] - (side // 2 - 1), centre[:, 1] - side // 2)
    for shift in (down, across):
        counts = torch.tensor([(shift.round() == s).sum() for s in range(-padding, padding + 1)])
        assert counts.sum() == count
        assert ((counts - count / 5).abs() < 5 * (count * 0.2 * 0.8) ** 0.5).all()
    assert abs(flipped.sum() - count / 2) < 5 * (count / 4) ** 0.5
    numbers = torch.stack([down, across, flipped.float()])
    related = torch.corrcoef(torch.cat([numbers[:, :-1], numbers[:, 1:]]))  # within an image and to the next image
    assert (related - torch.eye(6)).abs().max() < 5 / count**0.5


def test_padding_reflects_at_the_border():
    image = TensorImages(coordinates(8)[None], torch.zeros(1)).select(torch.zeros(400, dtype=torch.int64))
    raw = Framing(8, (0, 0, 0), (1 / 255,) * 3, Augment(crop="pad", padding=3, flip=False, margin=1.0))
    rows = read(image, raw)[:, 0, :, 0].round().int()
    padded = torch.nn.functional.pad(torch.arange(8.0)[None], (3, 3), mode="reflect")[0].int()
    possible = {tuple(padded[s : s + 8].tolist()) for s in range(7)}
    assert {tuple(row.tolist()) for row in rows} == possible


def test_random_boxes_are_distributed_as_in_torchvision():
    count, height, width = 20000, 60, 90
    vertical, horizontal = windows(
        torch.tensor([height]), torch.tensor([width]), framing(20, Augment()), draw(count, generator(0))
    )
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    reference = torch.tensor([RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)])
    ours = torch.stack([vertical.start, horizontal.start, vertical.length, horizontal.length], dim=1)
    error = reference.double().std(0) * (1 / len(reference) + 1 / count) ** 0.5
    assert ((ours.mean(0) - reference.double().mean(0)).abs() < 5 * error).all()
    assert (ours.std(0) / reference.double().std(0) - 1).abs().max() < 0.06


@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 10**6), st.sampled_from(["resized", "pad", "none"]))
@settings(max_examples=60)
def test_windows_stay_inside_the_image(height, width, seed, crop):
    drawn = draw(5, generator(seed))
    sides = windows(torch.tensor([height]), torch.tensor([width]), framing(20, Augment(crop=crop)), drawn)
    for window, side in zip(sides, (height, width), strict=True):
        assert (window.length > 0).all()
        assert (window.start >= 0).all()
        assert (window.start + window.length <= side + 1e-9).all()


@given(st.integers(2, 40), st.integers(1, 40), st.data())
@settings(max_examples=40)
def test_interpolation_equals_pillow(source, p, data):
    low = data.draw(st.integers(0, source - 1))
    high = data.draw(st.integers(low + 1, source))
    line = torch.randint(0, 256, (source,), generator=generator(source), dtype=torch.uint8)
    vertical = windows(torch.tensor([source]), torch.tensor([source]), framing(p), None)[0]
    limits = torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
    window = vertical._replace(start=limits[0], length=limits[1] - limits[0], low=limits[0], high=limits[1])
    ours = interpolation(window, source, p)[0] @ line.float()
    column = Image.fromarray(line.numpy()[low:high, None])
    pillow = np.asarray(column.resize((1, p), Image.Resampling.BILINEAR))[:, 0]
    assert np.abs(ours.numpy() - pillow).max() <= 1.0


def test_brightness_stays_in_its_range_and_cutout_has_its_size():
    chance = draw(2000, generator(0))
    white = torch.full((2000, 12, 12, 3), 100, dtype=torch.uint8)
    raw = Framing(12, (0, 0, 0), (1, 1, 1), Augment(brightness=0.4))
    levels = finish(white, raw, chance)[:, 0, 0, 0] * 2.55
    assert levels.min() >= 0.6 - 1e-4
    assert levels.max() <= 1.4 + 1e-4
    assert abs(levels.mean() - 1) < 5 * 0.8 / 12**0.5 / 2000**0.5
    bright = finish(torch.full((2000, 12, 12, 3), 250, dtype=torch.uint8), raw, chance)
    assert bright.max() <= 1  # clipped at white, as the brightest pixel of a file
    cut = finish(white, framing(12, Augment(cutout=4)), chance)
    holes = (cut == 0).all(dim=1).sum(dim=(1, 2))
    assert set(holes.tolist()) == {a * b for a in (2, 3, 4) for b in (2, 3, 4)}  # smaller only at the border
    assert (holes == 16).float().mean() > 0.5


def test_select_shares_pixels_and_keeps_the_order(both):
    for images in both:
        picked = images.select([5, 2, 9]).select(torch.tensor([2, 0]))
        assert picked.labels.tolist() == [images.labels[9], images.labels[5]]
        assert torch.equal(read(picked, framing(20)), read(images, framing(20))[[9, 5]])
    assert both[0].select([1])._pixels.data_ptr() == both[0]._pixels.data_ptr()


def test_files_are_upright_and_rgb(tmp_path):
    picture = Image.fromarray(coordinates(16).permute(1, 2, 0).numpy() * 15)
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90 degrees clockwise
    picture.save(tmp_path / "turned.png", exif=turned)
    upright = np.asarray(decode(tmp_path / "turned.png"))
    assert np.array_equal(upright, np.rot90(np.asarray(picture), k=-1))
    for mode in ("L", "P", "RGBA", "CMYK", "1"):
        suffix = "tif" if mode == "CMYK" else "png"
        picture.convert(mode).save(tmp_path / f"{mode}.{suffix}")
        assert decode(tmp_path / f"{mode}.{suffix}").mode == "RGB"


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_short_exif_data_do_not_cost_the_picture(tmp_path, suffix):
    Image.new("RGB", (9, 5), "red").save(tmp_path / f"photo.{suffix}", exif=b"II*\0")
    assert decode(tmp_path / f"photo.{suffix}").size == (9, 5)


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bits_in_either_order_of_the_bytes(order):
    dark = np.array([[0, 100], [200, 255]], dtype=f"{order}u2")  # of 65535
    assert not np.asarray(from_array(dark)).any()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_file_is_named_in_one_sentence(tmp_path, workers):
    Image.new("RGB", (30, 30), "red").save(tmp_path / "good.jpg")
    content = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "broken.avif").write_bytes(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + bytes(40))
    for bad in ("cut.jpg", "text.jpg", "absent.jpg", "broken.avif"):
        images = FileImages([tmp_path / "good.jpg", tmp_path / bad], torch.zeros(2), workers=workers)
        with pytest.raises(FscilError, match=bad) as caught:
            list(images.batches([torch.tensor([0]), torch.tensor([0, 1])], framing(8)))
        assert "\n" not in str(caught.value)


def test_wrong_settings_are_refused():
    with pytest.raises(FscilError, match=r"padding is 8.*8 pixels"):
        framing(8, Augment(crop="pad", padding=8))
    with pytest.raises(FscilError, match="min_area is 0"):
        Augment(min_area=0)
    with pytest.raises(FscilError, match="crop is 'centre'"):
        Augment(crop="centre")
    with pytest.raises(FscilError, match="margin"):
        framing(8, margin=0.5)
    images = TensorImages(smooth_images(1, 8, 8), torch.zeros(1))
    with pytest.raises(TypeError, match="rng"):
        next(iter(images.batches([torch.tensor([0])], framing(8, Augment()))))
