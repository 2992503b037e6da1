"""Image stores: small images in memory, larger ones in files. Both give the same views of their images."""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fscil.data.framing import Augment, Draw, Framing, draw, finish, interpolation, keeps_pixels, rearrangement, windows
from fscil.data.pictures import centre, damage, upright_rgb
from fscil.errors import FscilError
from fscil.running.devices import own_cores
from fscil.tensors import sent

__all__ = ["Augment", "FileImages", "Framing", "Images", "Ingredients", "TensorImages", "cut_picture", "decode"]

ChunkRandom = Callable[[int], torch.Generator]
HASHED = 1000  # images whose bytes are copied at a time
ROOM = 0.5  # share of a device's free memory that images may take; the rest is for the nets
CPU = torch.device("cpu")
WORKERS = 16  # at most: each takes its time to start, in every epoch anew
WAITING = 2**30  # bytes of main memory in which decoded images may wait for their step, if more than two workers decode
PREFETCH = 2  # chunks that are under way for each worker


class Images(ABC):
    """Labelled images that can be read in any framing."""

    labels: Tensor  # (n,) int64, the data set's own labels; always in main memory, where sessions and tasks are drawn
    device: torch.device  # where batches are made

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def select(self, indices: Tensor | Sequence[int]) -> "Images":
        """The images at these indices, in this order; the pixels are shared, not copied."""

    @abstractmethod
    def on(self, device: torch.device) -> Self:
        """The same images, whose batches are made on a device."""

    def taken(self, device: torch.device, free: float) -> int:
        """Bytes that `on` takes of a device, of which so many are free; batches come and go."""
        return 0

    @abstractmethod
    def joined(self, other: Self) -> Self:
        """These images followed by others of the same kind of store (in memory: of the same size)."""

    @abstractmethod
    def _crops(self, chunks: Iterable[tuple[Tensor, Draw | None]], framing: Framing) -> Iterator[Tensor]:
        """Each chunk as (len, p, p, 3), values 0..255, cut out and rearranged but not yet finished."""

    @abstractmethod
    def fingerprint(self) -> bytes:
        """A digest of what the images are, apart from their labels: equal for a copy of the data set elsewhere."""

    def batches(self, chunks: Iterable[Tensor], framing: Framing, rng: ChunkRandom | None = None) -> Iterator[Tensor]:
        """For each chunk of indices float32 (len, 3, p, p), normalised, channels last; `rng(i)` draws for chunk i.

        >>> dots = TensorImages(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(4))
        >>> [batch.shape for batch in dots.batches([torch.arange(3)], Framing(8, (0.5,) * 3, (0.5,) * 3, margin=1.0))]
        [torch.Size([3, 3, 8, 8])]
        """
        if (rng is None) == (framing.augment is not None):
            raise TypeError("batches() needs rng exactly when the framing is augmented")
        pending: deque[Draw | None] = deque()

        def drawn() -> Iterator[tuple[Tensor, Draw | None]]:
            for i, chunk in enumerate(chunks):
                pending.append(None if rng is None else draw(len(chunk), rng(i)))
                yield torch.as_tensor(chunk), pending[-1]

        for crops in self._crops(drawn(), framing):
            chance = pending.popleft()
            yield finish(crops, framing, chance and chance.on(self.device))


class TensorImages(Images):
    """Images in memory: uint8 (N, 3, H, W), augmented in batches with an independent draw per image."""

    def __init__(self, pixels: Tensor, labels: Tensor, rows: Tensor | None = None, device: torch.device | None = None):
        self._pixels = pixels.to(memory_format=torch.channels_last)
        self.labels = labels.long()
        self._rows = torch.arange(len(labels)) if rows is None else rows
        self.device = device or pixels.device

    def select(self, indices: Tensor | Sequence[int]) -> "TensorImages":
        indices = torch.as_tensor(indices, dtype=torch.int64)
        return TensorImages(self._pixels, self.labels[indices], self._rows[indices], self.device)

    def on(self, device: torch.device) -> "TensorImages":
        """All stored pixels move there once, if they fit; else those of each batch do."""
        moves = self.taken(device, free_memory(device))
        return TensorImages(self._pixels.to(device) if moves else self._pixels, self.labels, self._rows, device)

    def taken(self, device: torch.device, free: float) -> int:
        size = self._pixels.numel()
        return size if self._pixels.device.type != device.type and size <= ROOM * free else 0

    @property
    def pixels(self) -> Tensor:
        """The stored pixels of these images, uint8 (n, 3, H, W)."""
        return self._pixels[self._rows.to(self._pixels.device)]

    def joined(self, other: "TensorImages") -> "TensorImages":
        labels = torch.cat([self.labels, other.labels])
        if self._pixels is other._pixels:
            return TensorImages(self._pixels, labels, torch.cat([self._rows, other._rows]), self.device)
        return TensorImages(torch.cat([self.pixels, other.pixels]), labels, device=self.device)

    def fingerprint(self) -> bytes:
        stored = self._pixels.permute(0, 2, 3, 1)
        digest = hashlib.blake2b(repr(tuple(stored.shape[1:])).encode())
        for rows in self._rows.split(HASHED):
            digest.update(stored[rows.to(stored.device)].cpu().contiguous().numpy().tobytes())
        return digest.digest()

    def _crops(self, chunks: Iterable[tuple[Tensor, Draw | None]], framing: Framing) -> Iterator[Tensor]:
        stored = self._pixels.permute(0, 2, 3, 1)
        for chunk, chance in chunks:
            images = sent(stored[sent(self._rows[chunk], stored.device)], self.device)
            with torch.autocast(self.device.type, enabled=False):  # half precision is for networks, not for pixels
                crops = _cut(images, framing, chance and chance.on(self.device))
            yield crops


def free_memory(device: torch.device) -> float:
    """Bytes of a GPU that are free; no limit elsewhere: main memory holds images already."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


def _cut(images: Tensor, framing: Framing, chance: Draw | None) -> Tensor:
    """The framing's crops (n, p, p, 3) of uint8 images (n, H, W, 3)."""
    _, height, width, _ = images.shape
    p = framing.pixels
    moved = rearrangement(framing, chance) if chance else None
    if keeps_pixels(framing, height, width):
        return images if moved is None else _taken(images, *moved)
    heights, widths = (torch.full((1,), side, device=images.device) for side in (height, width))
    sides = windows(heights, widths, framing, chance)
    vertical, horizontal = interpolation(sides[0], height, p), interpolation(sides[1], width, p)
    if moved is not None:
        vertical, horizontal = _rearranged(vertical, moved[0]), _rearranged(horizontal, moved[1])
    # One matrix product per axis. The middle dimension of the operand has to be the one that is resized.
    across = horizontal @ images.transpose(1, 2).float().flatten(2)
    across = across.unflatten(2, (height, 3)).transpose(1, 2).flatten(2)
    crops: Tensor = (vertical @ across).unflatten(2, (p, 3))
    return crops


def _rearranged(matrices: Tensor, at: Tensor) -> Tensor:
    """Rows `at` (n, p) of one or n interpolation matrices (., p, source)."""
    n, source = len(at), matrices.shape[2]
    return matrices.expand(n, -1, -1).gather(1, at[..., None].expand(-1, -1, source))


def _taken(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels at rows and columns (n, p) of square images (n, p, p, 3)."""
    n, p, _, _ = images.shape
    pixels = (torch.arange(n, device=rows.device)[:, None] * p + rows)[:, :, None] * p + columns[:, None, :]
    return images.reshape(-1, 3).index_select(0, pixels.flatten()).view(images.shape)


class FileImages(Images):
    """Images in files, decoded by worker processes (0: in this process), at most one for each core there is to use.

    Their number changes no image: chunks come back in order, and all that is random is drawn in this process.
    """

    def __init__(self, paths: Sequence[str | Path], labels: Tensor, workers: int = WORKERS, device: torch.device = CPU):
        self.paths = tuple(map(str, paths))
        self.labels = labels.long()
        self.workers, self.device = min(workers, own_cores()), device

    def select(self, indices: Tensor | Sequence[int]) -> "FileImages":
        indices = torch.as_tensor(indices, dtype=torch.int64)
        return FileImages([self.paths[i] for i in indices.tolist()], self.labels[indices], self.workers, self.device)

    def on(self, device: torch.device) -> "FileImages":
        return FileImages(self.paths, self.labels, self.workers, device)

    def joined(self, other: "FileImages") -> "FileImages":
        return FileImages(self.paths + other.paths, torch.cat([self.labels, other.labels]), self.workers, self.device)

    def fingerprint(self) -> bytes:
        """Names below the common folder and sizes: times would tell a copy apart, contents take minutes to read."""
        folder = os.path.commonpath(self.paths) if self.paths else ""
        files = [(os.path.relpath(path, folder), _size(path)) for path in self.paths]
        return hashlib.blake2b(repr(files).encode()).digest()

    def _crops(self, chunks: Iterable[tuple[Tensor, Draw | None]], framing: Framing) -> Iterator[Tensor]:
        rest = iter(chunks)
        ahead = list(islice(rest, self.workers))  # fewer than the loader takes at once
        workers = suited(len(ahead), max((len(chunk) for chunk, _ in ahead), default=0), framing.pixels)
        loader: DataLoader[np.ndarray | FscilError] = DataLoader(
            _Decoder(self.paths, framing),
            sampler=chain(ahead, rest),  # iterated in this process, in order
            batch_size=None,
            collate_fn=_unchanged,
            num_workers=workers,
            prefetch_factor=PREFETCH if workers else None,
            generator=torch.Generator(),  # else the loader draws a seed from the global generator
        )
        for crops in loader:
            if isinstance(crops, FscilError):
                raise crops
            yield sent(torch.from_numpy(crops), self.device)


def suited(workers: int, images: int, pixels: int) -> int:
    """As many of the workers, but two in any case, as leave room for chunks of `images` of this size that wait."""
    chunk = 3 * pixels**2 * max(images, 1)
    return min(workers, max(2, WAITING // (PREFETCH * chunk)))


def _size(path: str) -> int:
    """Bytes of a file; -1 where there is none, of which reading it will tell."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return -1


def _unchanged(crops: object) -> object:
    return crops


class _Decoder(Dataset[np.ndarray | FscilError]):
    """What a worker process does: decode the files of a chunk and cut out what was drawn for them."""

    def __init__(self, paths: Sequence[str], framing: Framing):
        self.paths, self.framing = paths, framing

    def __getitem__(self, drawn: tuple[Tensor, Draw | None]) -> np.ndarray | FscilError:
        chunk, chance = drawn
        crops = np.empty((len(chunk), self.framing.pixels, self.framing.pixels, 3), dtype=np.uint8)
        try:
            for i, index in enumerate(chunk.tolist()):
                own = Draw(*(numbers[i : i + 1] for numbers in chance)) if chance else None
                crops[i] = cut_picture(decode(self.paths[index]), self.framing, own)
        except FscilError as error:  # returned, because a raised one arrives wrapped in the worker's traceback
            return error
        return crops


def decode(path: str | Path) -> Image.Image:
    """The picture in a file: RGB, upright."""
    try:
        with Image.open(path) as picture:
            return upright_rgb(picture)
    except Exception as error:  # decoders of damaged files fail in any way
        reason = "does not exist" if isinstance(error, FileNotFoundError) else damage(error)
        raise FscilError(f"{path} {reason}; replace or remove the file") from error


def cut_picture(picture: Image.Image, framing: Framing, chance: Draw | None) -> np.ndarray:
    """The framing's crop (p, p, 3) of a picture."""
    p = framing.pixels
    if chance is None:
        return centre(picture, p, framing.short_side, framing.resampling)
    sides = windows(torch.tensor([picture.height]), torch.tensor([picture.width]), framing, chance)
    (top, tall, upper, lower), (left, wide, first, last) = ([number.item() for number in side] for side in sides)
    limited = picture.crop((int(first), int(upper), int(last), int(lower)))
    left, top = left - first, top - upper
    box = (left, top, min(left + wide, limited.width), min(top + tall, limited.height))
    crop = np.asarray(limited.resize((p, p), Image.Resampling[framing.resampling.upper()], box=box))
    rows, columns = (at[0].numpy() for at in rearrangement(framing, chance))
    rearranged: np.ndarray = crop[rows][:, columns]
    return rearranged


@dataclass(frozen=True)
class Ingredients:
    """What a data set module loads and a `Benchmark` is made of."""

    train: Images
    test: Images
    class_names: tuple[str, ...]  # index = label
    pixels: int  # native size
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flips: bool  # False: a mirrored image may belong to another class
    base_classes: int
    ways: int  # classes per session
    train_names: tuple[str, ...] = ()  # how the published session lists call each training image
    squeeze: bool = False  # images in files are to be decoded into memory once, squeezed to squares of the native size
