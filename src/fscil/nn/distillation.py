"""Losses that keep a net close to what it was: on its outputs, on its features, and on the margins between classes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def distillation(logits: Tensor, before: Tensor, temperature: float) -> Tensor:
    """KL(softmax(before / T) || softmax(logits / T)), mean over images; (n, classes) both.

    The cross-entropy form differs by the teacher's entropy, which has no gradient; this one is zero if nothing changed.
    """
    student = F.log_softmax(logits / temperature, 1)
    return F.kl_div(student, F.log_softmax(before / temperature, 1), reduction="batchmean", log_target=True)


def blockwise_distillation(logits: Tensor, before: Tensor, widths: Sequence[int], temperature: float) -> Tensor:
    """Sum of the distillation inside each block of columns of logits (n, classes); those behind the last stay alone."""
    covered = sum(widths)
    blocks = zip(logits[:, :covered].split(list(widths), 1), before[:, :covered].split(list(widths), 1), strict=True)
    return torch.stack([distillation(new, old, temperature) for new, old in blocks]).sum()


def one_vs_all(logits: Tensor, rows: Tensor, before: Tensor | None = None) -> Tensor:
    """Sigmoid cross-entropy of logits (n, classes) of images of rows (n,), summed over classes, mean over images.

    Targets are one-hot; those of the classes that `before` (n, old classes) knows are its sigmoid outputs instead.
    """
    targets = F.one_hot(rows, logits.shape[1]).to(logits.dtype)
    if before is not None:
        targets = torch.cat([before.sigmoid(), targets[:, before.shape[1] :]], 1)
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()


def less_forget(features: Tensor, before: Tensor) -> Tensor:
    """1 - cos(f, f_before), mean over images; (n, d) both."""
    return (1 - F.cosine_similarity(features, before, dim=1)).mean()


def margin_ranking(cosines: Tensor, rows: Tensor, old: int, margin: float, hardest: int) -> Tensor:
    """max(0, m - cos_true + cos_new) over the `hardest` new classes of each image of an old class, mean; else zero.

    Columns from `old` on belong to the new classes.
    """
    mine = rows < old
    if not bool(mine.any()) or cosines.shape[1] == old:
        return cosines.new_zeros(())
    true = cosines[mine].gather(1, rows[mine, None])
    rivals = cosines[mine, old:]
    return F.relu(margin - true + rivals.topk(min(hardest, rivals.shape[1]), 1).values).mean()


def anchoring(features: Tensor, anchors: Tensor, weights: Tensor | None = None) -> Tensor:
    """Squared distance of features (n, d) to where they belong, mean over images and dimensions, each weighted."""
    squares = (features - anchors).square()
    return (squares if weights is None else weights * squares).mean()
