"""Weights of encoders as a model file holds them; made once for as long as the weights stay what they are."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import Tensor

from fscil.nn.encoders import Encoder
from fscil.tensors import digest


@dataclass(frozen=True)
class Stored:
    """Contiguous tensors of an encoder, and the digest of them all."""

    state: tuple[tuple[int, int], ...]  # where each tensor lay and how often it had been written to
    tensors: dict[str, Tensor]
    sha256: str


_ENCODERS: WeakKeyDictionary[Encoder, Stored] = WeakKeyDictionary()


def stored(encoder: Encoder) -> Stored:
    """The weights of an encoder, and their digest."""
    tensors = encoder.state_dict()
    state = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors.values())
    known = _ENCODERS.get(encoder)
    if known is None or known.state != state:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        known = _ENCODERS[encoder] = Stored(state, plain, digest(plain))
    return known
