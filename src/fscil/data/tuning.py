"""Pseudo-sessions: a benchmark cut from the base classes alone, for choosing settings without looking at a test image.

Two thirds of the base classes stay base, the others arrive as pseudo-new classes; every class is tested on training
images that are kept aside. An encoder trained on these sessions has never seen a pseudo-new class, so it tells how
settings treat classes that are really new.
"""

from dataclasses import replace

import torch

from fscil.data import Protocol
from fscil.data.images import Ingredients
from fscil.errors import FscilError

TEST_SHARE = 0.2


def pseudo_sessions(real: Ingredients, protocol: Protocol) -> Ingredients:
    """The ingredients of the benchmark that `Protocol.tune` asks for; the test images of `real` are not in it."""
    if protocol.order_seed is not None:
        raise FscilError(
            "--tune cuts its sessions from the first classes of the data set's own order; omit --order-seed"
        )
    base = real.base_classes if protocol.base_classes is None else protocol.base_classes
    count = len(real.class_names)
    if not 1 <= base <= count:
        raise FscilError(f"--tune cannot cut its sessions from {base} classes; set --base-classes from 1 to {count}")
    train, test = [], []
    for label in range(base):
        indices = (real.train.labels == label).nonzero()[:, 0]
        kept = max(1, round(TEST_SHARE * len(indices)))
        train.append(indices[:-kept])
        test.append(indices[-kept:])
    return replace(
        real,
        train=real.train.select(torch.cat(train)),
        test=real.train.select(torch.cat(test)),
        class_names=real.class_names[:base],
        base_classes=round(base * 2 / 3),
        train_names=(),
    )
