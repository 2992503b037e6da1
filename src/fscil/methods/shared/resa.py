"""RESA, Random Episode Sampling and Augmentation: the loss of a task, and tasks on features that were computed once.

f2 is an encoder, or a linear map A on the features of a frozen one. The loss is the same (Algorithm 1); for a map the
features of images and of their twins, turned or mixed, are computed once, and a task takes milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.episodes import Sampling, Task, draw
from fscil.nn.relations import class_means, euclid
from fscil.tensors import sent


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The settings of a task's loss."""

    scale: float = 16.0  # s
    global_weight: float = 1.0  # lambda_1
    local_weight: float = 1.0  # lambda_2
    smoothing: float = 0.0  # label smoothing of the local loss over the wrong classes
    sessions: int = 1  # in which the classes of the local task arrive


@dataclass(frozen=True)
class Seen:
    """A task as f2 sees it: features of its support and queries (way or 2 way, k, d), twins behind the real classes.

    `rows` (way,) are those of its real classes in W2, `base_relation` r1/d (way * query, classes) times its factor.
    """

    support: Tensor
    query: Tensor
    rows: Tensor
    base_relation: Tensor | None = None

    @property
    def way(self) -> int:
        return len(self.rows)


def task_loss(task: Seen, W2: Tensor, o: Objective) -> Tensor:
    """L = lambda_1 L_global + lambda_2 L_local of one task, Algorithm 1 line by line; W2 (classes, d) are all rows."""
    fQ, W2l = task.query, class_means(task.support)  # W2^pn, followed by W2^sa
    L = fQ.new_zeros(())
    if o.global_weight:
        L = L + o.global_weight * global_loss(task, W2.index_copy(0, task.rows, W2l[: task.way].float()), o.scale)
    if o.local_weight:
        r_local = euclid(fQ.flatten(0, 1), W2l)
        y_local = torch.arange(len(fQ), device=fQ.device).repeat_interleave(fQ.shape[1])
        L = L + o.local_weight * local_loss(o.scale * r_local, y_local, o.sessions, o.smoothing)
    return L


def global_loss(task: Seen, W2pg: Tensor, scale: float) -> Tensor:
    """Queries against the pseudo-new and all other, pseudo-old rows W2^pg (classes, d), Eq. 6 to 8."""
    fQ = task.query[: task.way]
    r = euclid(fQ.flatten(0, 1), W2pg)  # r2
    if task.base_relation is not None:
        r = r + task.base_relation
    return F.cross_entropy(scale * r, task.rows.repeat_interleave(fQ.shape[1]))


def local_loss(logits: Tensor, y: Tensor, sessions: int, smoothing: float) -> Tensor:
    """Cross-entropy over all local classes, Eq. 9 and 10, of logits (n, classes) of queries of classes y (n,).

    The queries come class by class, and each class has as many.

    In a sequence of several sessions, as in meta-learning: after each of them, over the classes seen so far, mean.
    """
    classes = logits.shape[1]
    seen = [math.ceil(classes * (t + 1) / sessions) for t in range(sessions)]
    first = [(k, k * len(y) // classes) for k in seen]  # classes, and queries of these
    return torch.stack([smooth_cross_entropy(logits[:n, :k], y[:n], smoothing) for k, n in first]).mean()


def smooth_cross_entropy(logits: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy of logits (n, k) with 1 - smoothing on the true class y (n,), the rest on the wrong ones.

    That of torch smooths over all classes.
    """
    k = logits.shape[1]
    return F.cross_entropy(logits, y, label_smoothing=smoothing * k / (k - 1) if k > 1 else 0.0)


@dataclass(frozen=True)
class Cached:
    """Frozen features of base images: upright (n, d), twins (n, 3, d) or None, and the rows of their classes (n,).

    The rows are in main memory, where tasks are drawn.
    """

    upright: Tensor
    turned: Tensor | None
    rows: Tensor


def pool_of(rows: Tensor, fewest: int) -> dict[int, Tensor]:
    """Row -> positions of its images among rows (n,), for classes with as many images as a task takes."""
    positions = {row: (rows == row).nonzero()[:, 0] for row in sorted(set(rows.tolist()))}
    return {row: images for row, images in positions.items() if len(images) >= fewest}


def sample(
    cached: Cached, g: float, pool: dict[int, Tensor], sampling: Sampling, dropout: float, rng: torch.Generator
) -> Task:
    """One task on features (way, shot + query, d), g times as long; the twins of a class are one of its three kinds."""

    def shown(features: Tensor) -> Tensor:
        return g * dropped(features, dropout, rng)

    device = cached.upright.device
    classes, chosen = draw(pool, sampling, rng)
    chosen = sent(chosen, device)
    if cached.turned is None:
        return Task(shown(cached.upright[chosen]), None, classes, sampling.shot)
    turns = sent(torch.randint(0, 3, (len(classes), 1), generator=rng), device)
    return Task(shown(cached.upright[chosen]), shown(cached.turned[chosen, turns]), classes, sampling.shot)


def dropped(features: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Features (..., d) with a share of their values hidden and the others enlarged, so that their mean stays."""
    shown = torch.rand(features.shape, generator=rng) >= share
    return features * sent(shown, features.device) / (1 - share)


def map_loss(task: Task, A: Tensor, means: Tensor, o: Objective) -> Tensor:
    """The loss of a task on features for f2 = A f, without r1/d, which is at most 1/d.

    `means` (classes, d) are those of the frozen features: A is linear, so W2 is exact in every step.
    """
    pseudo_old = (means @ A).detach()  # gets no gradient
    rows = sent(task.classes, A.device)
    return task_loss(Seen(task.support @ A, task.query @ A, rows), pseudo_old, o)
