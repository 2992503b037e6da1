"""Knowledge transfer on frozen features: RESA trains a linear map instead of an encoder, in seconds.

The complementary branch sees g * A f, where f is the frozen feature of a photo, g a feature scale and A a square map
that starts as the identity. Its tasks are those of KT-RCNet (global: against all base classes; local: among themselves
and their rotated twins) on features that were computed once, of the photos and of the photos turned by 90, 180 and 270
degrees. Because A is linear, the prototypes of all base classes are exact in every step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.episodes import Sampling, Task, draw
from fscil.nn.relations import class_means, euclid, losses_at_scales
from fscil.running.descent import Descent, optimiser, rate
from fscil.running.progress import Bar

FEWEST = 4  # photos a class needs to take part in a task
ADAMW = Descent(epochs=1, optimizer="adamw", lr=1e-3, weight_decay=1e-2, schedule="cosine")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the map is trained; tuned on base classes held out as pseudo-new."""

    tasks: int = 1000  # episodes
    way: int = 10  # pseudo-new classes of an episode
    photos: int = 15  # most photos per class in an episode, a third of them support
    dropout: float = 0.5  # share of the feature values that is hidden in each step
    scale: float = 16.0  # s, the factor of the relations inside the softmax
    global_weight: float = 1.0  # lambda_1
    local_weight: float = 1.0  # lambda_2
    descent: Descent = ADAMW  # of A - 1


@dataclass(frozen=True)
class Cached:
    """Frozen features of base photos: upright (n, d), turned (n, 3, d) or None, and the rows of their classes (n,)."""

    upright: Tensor
    turned: Tensor | None
    rows: Tensor


def enough(counts: Sequence[int]) -> bool:
    """Whether tasks can be drawn from classes with so many photos each."""
    return sum(number >= FEWEST for number in counts) >= 5


def sampling_for(counts: Sequence[int], settings: Settings, twins: bool) -> Sampling:
    """The largest tasks that three quarters of the classes can fill."""
    usual = sorted(counts)[len(counts) // 4]
    photos = max(FEWEST, min(settings.photos, usual))
    way = min(settings.way, sum(number >= photos for number in counts))
    return Sampling(way, photos // 3, photos - photos // 3, "rotate" if twins else "none")


class Fitted(NamedTuple):
    """A feature scale, and the cross-entropy of held-out photos at it."""

    g: float
    loss: float


def fitted_scale(W: Tensor, held: Tensor, rows: Tensor, scale: float) -> Fitted:
    """The feature scale at which softmax(s * euclid) to the means W (classes, d) predicts held-out features best."""
    distance = (held - W[rows]).square().mean().clamp(min=1e-12)
    scales = torch.logspace(-4, 4, 33, base=2) / distance.sqrt()
    losses = losses_at_scales(scales, held, W, rows, scale)
    return Fitted(float(scales[losses.argmin()]), float(losses.min()))


@torch.enable_grad()
def train(cached: Cached, means: Tensor, g: float, settings: Settings, rng: torch.Generator, bar: Bar) -> Tensor:
    """The map A (d, d), applied from the right; `means` (classes, d) are the frozen means of all base classes.

    `g` is the feature scale of training: dropout moves features apart, so it is not the one of inference.
    """
    sampling = sampling_for(cached.rows.bincount().tolist(), settings, cached.turned is not None)
    needed = sampling.shot + sampling.query
    pool = {row: photos for row, photos in _by_row(cached.rows).items() if len(photos) >= needed}
    one = torch.eye(means.shape[1])
    change = nn.Parameter(torch.zeros_like(one))  # A - 1, so that weight decay leads back to the frozen features
    descent = optimiser([change], settings.descent)
    for i in range(settings.tasks):
        task = sample(cached, g, pool, sampling, settings.dropout, rng)
        loss = task_loss(task, one + change, g * means, settings)
        for group in descent.param_groups:
            group["lr"] = settings.descent.lr * rate(settings.descent, i / settings.tasks)
        descent.zero_grad()
        torch.autograd.backward(loss)
        descent.step()
        bar.advance(i + 1, loss.item())
    return (one + change).detach()


def seconds(dim: int, settings: Settings) -> float:
    """About how long training will take, from two timed tasks on random features."""
    rng = torch.Generator().manual_seed(0)
    features = torch.rand(settings.way * settings.photos, 4, dim, generator=rng)
    cached = Cached(features[:, 0], features[:, 1:], torch.arange(settings.way).repeat_interleave(settings.photos))
    began = time.perf_counter()
    train(cached, features[: settings.way, 0], 1.0, replace(settings, tasks=2), rng, Bar("", 2, shown=False))
    return (time.perf_counter() - began) / 2 * settings.tasks


def sample(
    cached: Cached, g: float, pool: dict[int, Tensor], sampling: Sampling, dropout: float, rng: torch.Generator
) -> Task:
    """One task on features (way, shot + query, d); the twin of a class is the class turned by one of three angles."""

    def shown(features: Tensor) -> Tensor:
        return g * dropped(features, dropout, rng)

    classes, chosen = draw(pool, sampling, rng)
    if cached.turned is None:
        return Task(shown(cached.upright[chosen]), None, classes, sampling.shot)
    turns = torch.randint(0, 3, (len(classes), 1), generator=rng)
    return Task(shown(cached.upright[chosen]), shown(cached.turned[chosen, turns]), classes, sampling.shot)


def dropped(features: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Features with a share of their values hidden and the others enlarged, so that their mean stays."""
    return features * (torch.rand(features.shape, generator=rng) >= share) / (1 - share)


def task_loss(task: Task, A: Tensor, means: Tensor, settings: Settings) -> Tensor:
    """L = lambda_1 L_global + lambda_2 L_local of Algorithm 1 for f2 = A f, without r1/d, which is at most 1/d."""
    fS, fQ = task.support @ A, task.query @ A
    W2l = class_means(fS)  # W2^pn, followed by W2^sa
    old = (means @ A).detach()  # pseudo-old rows get no gradient
    W2 = old.index_copy(0, task.classes, W2l[: task.way])
    real = fQ[: task.way]
    y_global = task.classes.repeat_interleave(real.shape[1])
    y_local = torch.arange(len(fQ)).repeat_interleave(fQ.shape[1])
    L_global = F.cross_entropy(settings.scale * euclid(real.flatten(0, 1), W2), y_global)
    L_local = F.cross_entropy(settings.scale * euclid(fQ.flatten(0, 1), W2l), y_local)
    return settings.global_weight * L_global + settings.local_weight * L_local


def _by_row(rows: Tensor) -> dict[int, Tensor]:
    """Row -> positions of its photos."""
    return {row: (rows == row).nonzero()[:, 0] for row in sorted(set(rows.tolist()))}
