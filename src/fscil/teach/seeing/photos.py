"""Photos as people have them: files, folders, pictures, arrays, tensors. Each is read, or named with a reason."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np
from PIL import Image

from fscil.data.pictures import centre, damage, from_array, upright_rgb
from fscil.errors import FscilError

if TYPE_CHECKING:  # reading a photo needs no torch, whose import takes longer
    from torch import Tensor

    from fscil.data.framing import Framing

Source: TypeAlias = "str | Path | Upload | Image.Image | np.ndarray | Tensor"

HEIC = {".heic", ".heif", ".hif"}
HEIC_BRANDS = {b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"}
FORMATS = (
    "JPEG",
    "MPO",
    "PNG",
    "WEBP",
    "BMP",
    "GIF",
    "TIFF",
    "PPM",
    "AVIF",
    "HEIF",
)  # Pillow's others may run programs
MOST_PIXELS = 80_000_000  # of a picture that has to be decoded completely; JPEG files are decoded at a smaller size
MOST_OPENED = 2 * (Image.MAX_IMAGE_PIXELS or MOST_PIXELS)  # of any picture: Pillow refuses larger ones
TOO_LARGE = (
    f"at most {MOST_PIXELS // 1_000_000} can be read ({MOST_OPENED // 1_000_000} of a plain JPEG file), make it smaller"
)
EMPTY = "is empty (0 bytes)"
BATCH = 32
DIGEST_BYTES = 16


class Unreadable(FscilError):
    """A photo that cannot be read, and why."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"{name} {reason}")
        self.name, self.reason = name, reason


@dataclass(frozen=True)
class Upload:
    """A photo that came as the bytes of a file, and what it is called."""

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Batch:
    """Of some photos the readable ones: positions among the sources and crops uint8 (n, p, p, 3); and the others."""

    positions: list[int]
    crops: Tensor
    unreadable: list[Unreadable]


def name_of(source: Source, position: int = 0) -> str:
    """What a photo is called when it is talked about."""
    if isinstance(source, Upload):
        return source.name
    return str(source) if isinstance(source, str | Path) else getattr(source, "filename", "") or f"photo {position + 1}"


def read(source: Source, pixels: int | None = None, position: int = 0) -> Image.Image:
    """The photo as upright RGB; `pixels` is the size at which it will be used: large JPEG files are then read fast."""
    name = name_of(source, position)
    try:
        if isinstance(source, str | Path):
            _check_file(Path(source))
            with Path(source).open("rb") as file:
                return _decoded(file, name, pixels)
        if isinstance(source, Upload):
            if not source.content:
                raise Unreadable(name, EMPTY)
            return _decoded(io.BytesIO(source.content), name, pixels)
        if isinstance(source, Image.Image):
            return upright_rgb(source)
        if _is_tensor(source):
            values = source.detach().cpu()
            return from_array((values.float() if values.is_floating_point() else values).numpy(), channels_first=True)
        if isinstance(source, np.ndarray):
            return from_array(source)
    except Unreadable:
        raise
    except ValueError as problem:
        raise Unreadable(name, str(problem)) from problem
    except Exception as problem:
        raise Unreadable(name, _reason(problem)) from problem
    raise Unreadable(name, f"is a {type(source).__name__}; a photo is a path, a PIL image, an array or a tensor")


def size(photo: Upload, pixels: int) -> int:
    """How many pixels of a photo have to be decoded to use it at a size; 0 if it cannot be opened."""
    try:
        with _open(io.BytesIO(photo.content), photo.name) as picture:
            return _drafted(picture, pixels)
    except Exception:  # whoever reads it says what is wrong
        return 0


def _drafted(picture: Image.Image, pixels: int) -> int:
    """Has a JPEG file decoded at a smaller size that is enough; gives how many pixels are then held in memory.

    Of a progressive one it is all: it holds the whole picture several times before any of it can be made smaller.
    """
    whole = picture.width * picture.height
    picture.draft(picture.mode, (2 * pixels, 2 * pixels))
    return whole if picture.info.get("progressive") else picture.width * picture.height


def _is_tensor(source: Source) -> TypeGuard[Tensor]:
    """Without an import: who has a tensor has torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.Tensor)


def _decoded(file: IO[bytes], name: str, pixels: int | None) -> Image.Image:
    try:
        with _open(file, name) as picture:
            whole = _drafted(picture, pixels) if pixels else picture.width * picture.height
            if whole > MOST_PIXELS:
                raise Unreadable(name, f"has {whole / 1e6:.0f} megapixels; {TOO_LARGE}")
            return upright_rgb(picture)
    except Unreadable:
        raise
    except Exception as problem:
        raise Unreadable(name, _reason(problem)) from problem


def _reason(problem: Exception) -> str:
    if isinstance(problem, Image.DecompressionBombError):
        return f"has more than {MOST_OPENED // 1_000_000} megapixels; {TOO_LARGE}"
    return damage(problem)


def _check_file(path: Path) -> None:
    """Names what is wrong with a path before anything is decoded; a pipe, for instance, would never end."""
    try:
        found = path.stat()
    except OSError as problem:
        reasons = {errno.ENOENT: "does not exist", errno.ELOOP: "is a link that leads back to itself"}
        broken = "is a link to a file that does not exist" if path.is_symlink() else None
        reason = reasons.get(problem.errno or 0, f"cannot be opened ({problem.strerror})")
        raise Unreadable(str(path), broken if broken and problem.errno == errno.ENOENT else reason) from problem
    if stat.S_ISDIR(found.st_mode):
        raise Unreadable(str(path), "is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(str(path), "is no file")
    if found.st_size == 0:
        raise Unreadable(str(path), EMPTY)
    if not os.access(path, os.R_OK):
        raise Unreadable(str(path), "may not be read (permissions)")


def _open(file: IO[bytes], name: str) -> Image.Image:
    if _is_heic(file.read(12), name):
        try:
            from pillow_heif import register_heif_opener
        except ImportError as problem:
            raise Unreadable(name, "is a HEIC photo: pip install 'fscil[heic]' reads them") from problem
        register_heif_opener()
    file.seek(0)
    Image.init()
    return Image.open(file, formats=[known for known in FORMATS if known in Image.OPEN])


def _is_heic(start: bytes, name: str) -> bool:
    """By content: phones and messengers also call such photos .jpg, and a JPEG .heic."""
    return start[4:8] == b"ftyp" and (start[8:12] in HEIC_BRANDS or Path(name).suffix.lower() in HEIC)


def batches(sources: Sequence[Source], framing: Framing, size: int = BATCH) -> Iterator[Batch]:
    """The photos as crops, batch by batch; the next batch is decoded while the caller works on this one."""
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MOST_PIXELS decides
        pending: deque[dict[int, Future[np.ndarray]]] = deque()
        times = Counter(id(source) for source in sources if isinstance(source, Image.Image))
        repeated: dict[int, Future[np.ndarray]] = {}  # a PIL image that comes twice must not be read by two threads
        for start in range(0, len(sources), size):
            positions = range(start, min(start + size, len(sources)))
            pending.append({})
            for i in positions:
                crop = repeated.get(id(sources[i])) or pool.submit(_crop, sources[i], framing, i)
                if times[id(sources[i])] > 1:
                    repeated[id(sources[i])] = crop
                pending[-1][i] = crop
            if len(pending) > 1:
                yield _gathered(pending.popleft())
        if pending:
            yield _gathered(pending.popleft())


def _crop(source: Source, framing: Framing, position: int) -> np.ndarray:
    picture = read(source, framing.pixels, position)
    return centre(picture, framing.pixels, framing.margin, framing.resampling).copy()  # writable, as torch wants it


def _gathered(futures: dict[int, Future[np.ndarray]]) -> Batch:
    import torch

    positions, crops, unreadable = [], [], []
    for position, future in futures.items():
        try:
            crops.append(torch.from_numpy(future.result()))
            positions.append(position)
        except Unreadable as problem:
            unreadable.append(problem)
    return Batch(positions, torch.stack(crops) if crops else torch.empty(0, 1, 1, 3, dtype=torch.uint8), unreadable)


def digests(crops: Tensor) -> list[bytes]:
    """A short digest of each crop (n, ...): equal for the same photo under another name."""
    return [hashlib.blake2b(crop.numpy().tobytes(), digest_size=DIGEST_BYTES).digest() for crop in crops]


def summary(unreadable: Sequence[Unreadable], total: int) -> str:
    """Which photos were skipped and why, in one line."""
    named = "; ".join(str(problem) for problem in unreadable[:5])
    more = f"; and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
    return f"{len(unreadable)} of {total} photos skipped: {named}{more}"
