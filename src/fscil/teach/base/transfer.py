"""Knowledge transfer on frozen features: RESA trains a linear map instead of an encoder, in seconds.

The complementary branch sees g * A f, where f is the frozen feature of a photo, g a feature scale and A a square map
that starts as the identity. Tasks and loss are those of KT-RCNet, on features that were computed once, of the photos
and of the photos turned by 90, 180 and 270 degrees.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fscil.data.episodes import Sampling, Task
from fscil.methods.shared.resa import Cached, Objective, dropped, map_loss, pool_of, sample
from fscil.nn.relations import losses_at_scales
from fscil.running.descent import Descent, optimiser, rate
from fscil.running.progress import Bar

__all__ = ["Cached", "Settings", "dropped", "enough", "fitted_scale", "sample", "seconds", "task_loss", "train"]

FEWEST = 4  # photos a class needs to take part in a task
TRIED = 3  # tasks that are timed; the first takes longer
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

    @property
    def objective(self) -> Objective:
        return Objective(scale=self.scale, global_weight=self.global_weight, local_weight=self.local_weight)


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
    pool = pool_of(cached.rows, sampling.shot + sampling.query)
    one = torch.eye(means.shape[1])
    change = nn.Parameter(torch.zeros_like(one))  # A - 1, so that weight decay leads back to the frozen features
    descent = optimiser([change], settings.descent, "float32")
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


def seconds(dim: int, counts: Sequence[int], twins: bool, settings: Settings) -> float:
    """About how long training takes with so many photos of each class, from a few tasks on random features.

    The optimiser is not asked: it takes little, but long at its first step.
    """
    rng = torch.Generator().manual_seed(0)
    sampling = sampling_for(counts, settings, twins)
    photos = sampling.shot + sampling.query
    rows = torch.arange(sampling.way).repeat_interleave(photos)
    features = torch.rand(len(rows), 4, dim, generator=rng)
    cached = Cached(features[:, 0], features[:, 1:] if twins else None, rows)
    A, means = torch.eye(dim, requires_grad=True), torch.rand(len(counts), dim, generator=rng)
    pool, spent = pool_of(rows, photos), []
    for _ in range(TRIED):
        began = time.perf_counter()
        task = sample(cached, 1.0, pool, sampling, settings.dropout, rng)
        torch.autograd.backward(task_loss(task, A, means, settings))
        spent.append(time.perf_counter() - began)
    return median(spent) * settings.tasks


def task_loss(task: Task, A: Tensor, means: Tensor, settings: Settings) -> Tensor:
    """L of one task on features for f2 = A f."""
    return map_loss(task, A, means, settings.objective)
