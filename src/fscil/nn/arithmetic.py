"""How the convolutions of an encoder are computed: the precision, and the short way that suits it."""

import torch

from fscil.nn.encoders import Encoder
from fscil.nn.side_by_side import use_side_by_side
from fscil.nn.winograd import use_winograd


def set_arithmetic(encoder: Encoder, precision: torch.dtype, winograd: bool) -> None:
    """Has a new encoder compute in `precision`: float32, where wished by Winograd's algorithm, or bfloat16."""
    encoder.precision = precision
    if precision == torch.bfloat16:
        use_side_by_side(encoder)
    elif winograd:
        use_winograd(encoder)
