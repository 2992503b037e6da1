"""What taught classes say about "not sure": each is left out and plays the unknown, each of its photos a new one.

Nothing was fitted to them, unlike to base classes: of these the rehearsals know more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fscil.nn.relations import evidence_form
from fscil.teach.knowledge.calibration import Taught
from fscil.teach.knowledge.recogniser import Recogniser

SHOTS = 5  # photos of a class that are asked about, the first
MOST = 500  # photos that are asked about in all; more only take longer


@torch.no_grad()
def taught_fits(model: Recogniser, photos: Mapping[int, Sequence[bytes]]) -> Taught | None:
    """How photos of taught classes, their digests by label, fit; None: the model cannot be measured again.

    It keeps no features of them, or an earlier version made it: such a model stays as it is.
    """
    c, labels = model.calibration, model.branches[0].prototypes.classes
    kept = {label: [photo for photo in known if photo in model.memory] for label, known in photos.items()}
    asked = [(label, photo) for label, known in kept.items() for photo in known[:SHOTS]]
    if not asked or not model.memory.keep or not c.counted or c.tightness is None or len(labels) < 2:
        return None
    asked = asked[:: math.ceil(len(asked) / MOST)]
    features = model.memory.features([photo for _, photo in asked])
    column = {label: i for i, label in enumerate(labels)}
    own = torch.tensor([column[label] for label, _ in asked])
    others = model.evidence(features).scatter(1, own[:, None], -torch.inf).amax(1)
    several = model.branches[0].prototypes.counts[own] > 1
    without = _without_itself(model, [f[several] for f in features], own[several], c.tightness)
    known = torch.maximum(others[several], without) - c.shift(len(labels))
    unknown = others - c.shift(len(labels) - 1)
    classes = sum(bool(known) for known in kept.values())
    return Taught(classes, _rounded(unknown), _rounded(known), c.shift(len(labels)))


def _without_itself(model: Recogniser, features: Sequence[Tensor], rows: Tensor, typical: float) -> Tensor:
    """The evidence (n,) of features (one (n, dim) per branch) for classes at rows (n,) that were not taught them."""
    evidence = torch.zeros(len(rows))
    for branch, f in zip(model.branches, features, strict=True):
        if branch.unit_means:
            bank, counts = branch.prototypes, branch.prototypes.counts[rows] - 1
            means = (bank.sums[rows] - branch.counted(f).double()) / counts[:, None]
            form = evidence_form(means.float(), counts, typical)
            evidence += (f * form.keys).sum(1) + form.bias
    return evidence


def _rounded(fits: Tensor) -> np.ndarray:
    """Without the digits in which two ways of computing the same differ."""
    return np.array([float(f"{fit:.5g}") for fit in fits.tolist()])
