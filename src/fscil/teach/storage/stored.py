"""Weights of encoders as a model file holds them; made once for as long as the weights stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import Tensor

from fscil.nn.encoders import Encoder
from fscil.tensors import Part, digest, part


@dataclass(frozen=True)
class Stored:
    """The tensors of an encoder as they lie in a file, and the digest of them all."""

    state: tuple[tuple[int, int], ...]  # where each tensor lay and how often it had been written to
    parts: dict[str, Part]
    sha256: str


_ENCODERS: WeakKeyDictionary[Encoder, Stored] = WeakKeyDictionary()


def stored(encoder: Encoder) -> Stored:
    """The weights of an encoder, and their digest."""
    state = tuple((tensor.data_ptr(), tensor._version) for tensor in _parts(encoder))
    known = _ENCODERS.get(encoder)
    if known is None or known.state != state:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.state_dict().items()}
        parts = {name: part(tensor) for name, tensor in plain.items()}
        known = _ENCODERS[encoder] = Stored(state, parts, digest(plain))
    return known


def _parts(encoder: Encoder) -> Iterator[Tensor]:
    """All that is in its `state_dict`, and perhaps more, in a third of the time."""
    for module in encoder.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                yield tensor
