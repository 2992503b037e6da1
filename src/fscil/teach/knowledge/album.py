"""Small pictures of the photos that a model was taught from, by digest; kept only where somebody asked for it."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from PIL import Image
from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.seeing.photos import DIGEST_BYTES

SIDE = 160  # pixels of a small picture
QUALITY = 75  # of WebP; 2 to 6 kB a picture


@dataclass
class Album:
    """Digest -> WebP file."""

    keep: bool = False  # whether pictures of photos to come are kept
    pictures: dict[bytes, bytes] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> Album:
        return Album(self.keep, dict(self.pictures))

    def switch(self, keep: bool) -> None:
        """Keeps pictures from now on, or none, and then none of those kept before."""
        self.keep = keep
        self.pictures = self.pictures if keep else {}

    def add(self, pictures: Mapping[bytes, bytes]) -> None:
        if self.keep:
            self.pictures |= pictures

    def keep_only(self, photos: Collection[bytes]) -> None:
        """Lets go of the pictures of all other photos."""
        self.pictures = {photo: picture for photo, picture in self.pictures.items() if photo in photos}


def small_picture(crop: Tensor) -> bytes:
    """A small picture of a photo as the encoder is shown it: uint8 (p, p, 3)."""
    picture = Image.fromarray(crop.numpy())
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=QUALITY)
    return file.getvalue()


def album_tensors(album: Album) -> dict[str, Tensor]:
    """Digests (n, bytes) in ascending order, where each picture ends (n,), and all pictures one after the other."""
    if not album.pictures:
        return {}
    ordered = sorted(album.pictures)
    sizes = torch.tensor([len(album.pictures[photo]) for photo in ordered])
    return {
        "thumbnails.digests": _bytes(b"".join(ordered)).view(-1, DIGEST_BYTES),
        "thumbnails.ends": sizes.cumsum(0),
        "thumbnails.data": _bytes(b"".join(album.pictures[photo] for photo in ordered)),
    }


def read_album(tensors: Mapping[str, Tensor], keep: bool) -> Album:
    """The pictures that `album_tensors` wrote."""
    if "thumbnails.digests" not in tensors:
        return Album(keep)
    photos = [row.tobytes() for row in tensors["thumbnails.digests"].numpy()]
    ends, data = tensors["thumbnails.ends"].tolist(), tensors["thumbnails.data"].numpy().tobytes()
    if len(ends) != len(photos) or ends != sorted(ends) or ends[-1] != len(data):
        raise FscilError("its small pictures do not fit its photos")
    return Album(keep, {photo: data[a:b] for photo, a, b in zip(photos, [0, *ends], ends, strict=False)})


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
