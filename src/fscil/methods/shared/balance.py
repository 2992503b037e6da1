"""The balance of two branches, fitted on images that were kept from training."""

from __future__ import annotations

import torch
from torch import Tensor

from fscil.data.images import Images
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.base import label_rows
from fscil.methods.shared.method import Taught, compared_features
from fscil.nn.branches import Branch
from fscil.nn.relations import mean_of_labels, relate
from fscil.running.training import Run

WEIGHTS = torch.logspace(-4, 4, 33, base=2)
PSEUDO_SESSIONS = 20  # draws of pseudo-new classes
PSEUDO_SHOTS = 5  # most images of a pseudo-new class


def check_held_out(setting: str, held_out: int) -> None:
    """Refuses a weight that is to be fitted on too few images."""
    if held_out < 2:
        raise FscilError(f"{setting} 0 is fitted on held-out base images; set --held_out to 5 or more")


def kept_from_training(base: Session) -> Images:
    """The held-out images that a fitted setting asks for."""
    if base.held_out is None:
        raise FscilError("what is fitted on held-out base images needs some; set --held_out to 5 or more")
    return base.held_out


@torch.no_grad()
def fitted_weight(method: Taught, base: Session, run: Run) -> float:
    """The weight of the second branch with the best accuracy on pseudo-sessions of held-out images.

    In each, a third of the base classes is new: their prototypes are means of a few held-out images. The other held-out
    images of all base classes are tested.
    """
    held_out = kept_from_training(base)
    y = label_rows(method.classes)[held_out.labels]
    features = [f.cpu() for f in compared_features(method.branches, held_out, method.test_framing(base), run)]
    place = torch.cat([torch.arange(count) for count in y.unique_consecutive(return_counts=True)[1].tolist()])
    support = place < min(PSEUDO_SHOTS, method.config.held_out // 2)
    right = torch.zeros(len(WEIGHTS))
    for draw in range(PSEUDO_SESSIONS):
        new = torch.randperm(len(method.classes), generator=run.rng("pseudo-session", draw))[: len(method.classes) // 3]
        shots = support & torch.isin(y, new)
        first, second = (
            pseudo_relation(branch, f, y, shots, ~support) for branch, f in zip(method.branches, features, strict=True)
        )
        first[:, new] += method.config.new_bonus
        right += torch.stack(
            [((first + weight * second).argmax(1) == y[~support]).float().mean() for weight in WEIGHTS]
        )
    return float(WEIGHTS[right.argmax()])


def pseudo_relation(branch: Branch, f: Tensor, y: Tensor, shots: Tensor, tested: Tensor) -> Tensor:
    """Relations (tested, classes) of features (n, d) of rows (n,), where the rows of `shots` are the means of these."""
    rows, means = mean_of_labels(f[shots], y[shots])
    return relate(branch.relation, f[tested], branch.prototypes.means().cpu().index_copy(0, rows, means))
