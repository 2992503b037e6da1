"""KT-RCNet as small as it can be, for the tiny images."""

from fscil.data.images import Augment
from fscil.methods import kt_rcnet
from fscil.running.descent import Descent, Training

TINY_RESA = kt_rcnet.Config(
    pixels=16,
    scale=4.0,
    base=Training(epochs=2, batch=50, lr=0.05),
    transfer=Descent(epochs=2, lr=0.05),
    augment=Augment(crop="pad", padding=1, margin=1.0),
    tasks=2,
    way=4,
    shot=2,
    query=3,
    held_out=5,
)
