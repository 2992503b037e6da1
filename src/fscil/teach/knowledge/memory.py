"""The feature of each photo that a model was taught from, by the photo's digest; needed to take single photos back."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.branches import Branch
from fscil.teach.seeing.photos import DIGEST_BYTES

Features = Sequence[Tensor]  # of each branch (n, dim)


class Memory:
    """Features in float32, as they are compared: one table (photos, dim) per branch."""

    def __init__(self, keep: bool = True, photos: Sequence[bytes] = (), tables: Features = ()):
        self.keep = keep  # whether photos of classes are kept; those of "none of these" always are
        self._rows = {photo: row for row, photo in enumerate(photos)}  # in ascending order
        self._tables = list(tables)

    def __deepcopy__(self, _: object) -> Memory:
        return copy.copy(self)  # tables and rows are never written to, others take their place

    def __contains__(self, photo: bytes) -> bool:
        return photo in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    @property
    def tables(self) -> list[Tensor]:
        """The features of all photos in the order of iteration, one (n, dim) per branch."""
        return self._tables

    def add(self, photos: Sequence[bytes], features: Features) -> None:
        """Keeps the features (one (n, dim) per branch) of photos (n,) that are not remembered yet."""
        fresh = {photo: i for i, photo in enumerate(photos) if photo not in self._rows}
        if not fresh:
            return
        added = [f[list(fresh.values())].float() for f in features]
        together = [*self._rows, *fresh]
        order = sorted(range(len(together)), key=together.__getitem__)
        tables = self._tables or [f[:0] for f in added]
        self._tables = [torch.cat([table, f])[order] for table, f in zip(tables, added, strict=True)]
        self._rows = {together[i]: row for row, i in enumerate(order)}

    def features(self, photos: Sequence[bytes]) -> list[Tensor]:
        """The features of some photos, one (n, dim) per branch."""
        missing = [photo for photo in photos if photo not in self._rows]
        if missing:
            raise FscilError(
                f"the model keeps no feature of photo {short(missing[0])}: it was taught with --keep-features none, "
                "or by an older version; give the photo itself"
            )
        return [table[[self._rows[photo] for photo in photos]] for table in self._tables]

    def sums(self, photos: Sequence[bytes], branches: Sequence[Branch]) -> list[Tensor]:
        """The sum (dim,) of the features of some photos as each branch counts them, added up in the order given."""
        one = torch.zeros(len(photos), dtype=torch.int64)
        return [
            torch.zeros(1, f.shape[1], dtype=torch.float64).index_add_(0, one, branch.counted(f).double())[0]
            for branch, f in zip(branches, self.features(photos), strict=True)
        ]

    def instead_of(self, photos: Sequence[bytes], features: Features) -> list[Tensor]:
        """The features of photos: those kept, else those given (one (n, dim) per branch); the last bit may differ."""
        known = [i for i, photo in enumerate(photos) if photo in self._rows]
        if not known:
            return list(features)
        kept, places = self.features([photos[i] for i in known]), torch.tensor(known)
        return [f.float().index_copy(0, places, rows) for f, rows in zip(features, kept, strict=True)]

    def keep_only(self, photos: Collection[bytes]) -> None:
        """Forgets the features of all other photos; nothing of them stays in memory."""
        wanted = set(photos)
        left = [photo for photo in self._rows if photo in wanted]
        if len(left) < len(self._rows):
            self._tables = self.features(left)
            self._rows = {photo: row for row, photo in enumerate(left)}


def short(photo: bytes) -> str:
    """The beginning of a digest, by which people name a photo."""
    return photo.hex()[:8]


def meant(text: str, photos: Collection[bytes]) -> bytes:
    """The one photo whose digest begins with a text."""
    fitting = [photo for photo in photos if photo.hex().startswith(text.lower())]
    if len(fitting) != 1:
        many = f"{len(fitting)} photos begin with it; give more of its digits"
        raise FscilError(f"{text!r} names no photo: {many if fitting else 'see fscil photos MODEL'}")
    return fitting[0]


def memory_tensors(memory: Memory, branches: Sequence[Branch]) -> dict[str, Tensor]:
    """Digests (n, bytes) in ascending order and features (n, dim) of each branch.

    A branch whose features are those of the first at another scale is not written: half the file, and no bit is lost.
    """
    if not len(memory):
        return {}
    digests = torch.frombuffer(bytearray(b"".join(memory)), dtype=torch.uint8).view(-1, DIGEST_BYTES)
    first, *others = memory.tables
    tensors = {"features.digests": digests, f"features.{branches[0].name}": first}
    for branch, rows in zip(branches[1:], others, strict=True):
        same_size = rows.shape == first.shape
        if not (same_size and torch.equal(rows, _rescaled(first, branches[0], branch))):
            tensors[f"features.{branch.name}"] = rows
    return tensors


def read_memory(tensors: Mapping[str, Tensor], branches: Sequence[Branch], keep: bool) -> Memory:
    """The features that `memory_tensors` wrote."""
    if "features.digests" not in tensors:
        return Memory(keep)
    photos = [row.tobytes() for row in tensors["features.digests"].numpy()]
    first = tensors[f"features.{branches[0].name}"]
    tables = [
        tensors[name] if (name := f"features.{branch.name}") in tensors else _rescaled(first, branches[0], branch)
        for branch in branches
    ]
    fits = all(f.shape == (len(photos), b.encoder.dim) for f, b in zip(tables, branches, strict=True))
    if not fits or photos != sorted(set(photos)):
        raise FscilError("the features of its photos do not fit its branches")
    return Memory(keep, photos, tables)


def _rescaled(first: Tensor, of: Branch, to: Branch) -> Tensor:
    return to.feature_scale / of.feature_scale * first
