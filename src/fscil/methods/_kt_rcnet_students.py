"""What complementary learning trains in f2's place: the encoder, its last stage, or a linear map on frozen features.

A student shows the images of RESA's steps, as tasks or as batches, and says what the trained part makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fscil.data.episodes import Sampling, episodes
from fscil.data.sessions import Session
from fscil.methods._kt_rcnet_fitted import SCALES
from fscil.methods._kt_rcnet_twins import TURNS, turned_features, twin_features
from fscil.methods.shared.base import freeze, label_rows
from fscil.methods.shared.resa import Cached, dropped, map_loss, pool_of, sample
from fscil.nn.relations import losses_at_scales, mean_of_labels
from fscil.running.stages import Epoch
from fscil.running.training import Run
from fscil.tensors import sent

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method


class Batch(NamedTuple):
    """A step's images: features (n, d), rows of their classes (n,), images if there are any, weight of this share."""

    features: Tensor
    rows: Tensor
    images: Tensor | None = None
    weight: float = 1.0


class Student:
    """The part of f2 that is trained, on the images of RESA's steps."""

    def __init__(self, method: Method, base: Session, run: Run):
        self.method, self.base, self.run = method, base, run
        c = method.config
        self.sampling = Sampling(c.way, c.shot, c.query, c.twins, c.mix)
        self.device = base.train.device
        self.label_rows = label_rows(method.W2.classes)
        self.trains: nn.Module = nn.Identity()
        self.keeps: nn.Module = method.f2  # what a checkpoint has to hold of it
        self.g = 1.0  # factor of the features in training

    def begin(self) -> None:
        """What comes before the steps of an epoch."""

    def task_losses(self, epoch: Epoch) -> Iterator[Tensor]:
        """The loss of each task of an epoch, weighted by this device's share."""
        raise NotImplementedError

    def batches(self, epoch: Epoch, turned: bool) -> Iterator[Batch]:
        """As many images as a task shows, drawn at random.

        `turned`: half as many, each also turned, as an image of the class that its quarter turns make of its own.
        """
        raise NotImplementedError

    def passes(self, epoch: Epoch) -> Iterator[Batch]:
        """All base images once, in the batches of the base session."""
        raise NotImplementedError

    def rows(self, turned: bool) -> Tensor:
        """Class means (classes, d) of f2 as it is now; `turned`: behind them those of the turned images."""
        raise NotImplementedError

    def finish(self) -> None:
        """Puts what was trained in its place."""

    def draws(self, epoch: Epoch, turned: bool) -> list[Tensor]:
        """Positions (n,) of the images of each step."""
        c, n = self.method.config, len(self.base.train)
        size = c.images_of_a_step // (2 if turned else 1)
        return [torch.randperm(n, generator=epoch.rng("task", i))[:size] for i in range(epoch.start, c.tasks)]

    def share(self, chunk: Tensor) -> tuple[float, slice]:
        """Weight and part of a batch that are this device's."""
        mine = slice(self.run.rank, None, self.run.world)
        return self.run.world * len(chunk[mine]) / len(chunk), mine

    def turns(self, count: int, rng: torch.Generator) -> Tensor:
        """Quarter turns of images (n,)."""
        return torch.randint(1, 4, (count,), generator=rng)


class Encoded(Student):
    """f2 as an encoder, trained as a whole or in its last stage, on augmented images."""

    def __init__(self, method: Method, base: Session, run: Run):
        super().__init__(method, base, run)
        c = method.config
        self.framing = method.train_framing(base, c.task_pixels)
        freeze(method.f2)
        self.trains = method.f2 if c.trains == "encoder" else method.f2.stages[-1]
        self.trains.requires_grad_(True)

    def begin(self) -> None:
        self.method.f2.eval()
        self.trains.train(self.method.config.batch_norm == "train")

    def task_losses(self, epoch: Epoch) -> Iterator[Tensor]:
        for task in episodes(self.base.train, self.framing, self.sampling, self.method.config.tasks, epoch):
            share = task.share(self.run.rank, self.run.world)
            yield share.weight * self.method.loss(share)

    def batches(self, epoch: Epoch, turned: bool) -> Iterator[Batch]:
        images, chunks = self.base.train, self.draws(epoch, turned)
        shown = images.batches(chunks, self.framing, lambda i: epoch.rng("view", epoch.start + i))
        for i, (chunk, x) in enumerate(zip(chunks, shown, strict=True)):
            weight, mine = self.share(chunk)
            x, rows = x[mine], self.label_rows[images.labels[chunk[mine]]]
            if turned:
                turns = self.turns(len(chunk), epoch.rng("turns", epoch.start + i))[mine]
                again = [torch.rot90(one, int(k), (-2, -1)) for one, k in zip(x, turns, strict=True)]
                x, rows = torch.cat([x, torch.stack(again)]), torch.cat([rows, rows + turns * len(self.base.classes)])
            yield Batch(self.method.represent(x), sent(rows, x.device), x, weight)

    def rows(self, turned: bool) -> Tensor:
        method = self.method
        base = some_of_each_class(self.base, method.config.row_images, self.run.rng("rows"))
        method.weight_computing(method.branches[1], base, self.run)
        if not turned:
            return method.W2.means()
        framing, rows = method.test_framing(base, method.config.task_pixels), self.label_rows[base.train.labels]
        features = [turned_features(method, base, self.run, framing, turns) for turns in TURNS]
        return torch.cat([method.W2.means(), *(mean_of_labels(f, rows)[1] for f in features)])

    def passes(self, epoch: Epoch) -> Iterator[Batch]:
        table = sent(self.label_rows, self.device)
        for x, y in epoch.batches(self.base.train, self.framing, self.method.config.base.batch):
            yield Batch(self.method.represent(x), table[y], x)


def some_of_each_class(base: Session, count: int, rng: torch.Generator) -> Session:
    """The base session with at most `count` images of each class, drawn at random; 0: with all."""
    if not count:
        return base
    order = torch.randperm(len(base.train), generator=rng)
    chosen = torch.cat([order[base.train.labels[order] == label][:count] for label in base.classes])
    return replace(base, train=base.train.select(chosen.sort().values))


class Map(nn.Module):
    """A linear map A = 1 + change (d, d), so that weight decay leads back to the frozen features."""

    def __init__(self, dim: int):
        super().__init__()
        self.change = nn.Parameter(torch.zeros(dim, dim))

    @property
    def A(self) -> Tensor:
        return torch.eye(len(self.change), device=self.change.device) + self.change


class Mapped(Student):
    """f2 as a linear map on features of images and their twins that are computed once."""

    def __init__(self, method: Method, base: Session, run: Run):
        super().__init__(method, base, run)
        c = method.config
        freeze(method.f2)
        framing = method.test_framing(base, c.task_pixels)
        upright = turned_features(method, base, run, framing, 0)
        twins = twin_features(method, base, run, framing) if c.asks_for_twins else None
        self.cached = Cached(upright, twins, self.label_rows[base.train.labels])
        self.means = mean_of_labels(upright, self.cached.rows)[1]
        kinds = twins.unbind(1) if twins is not None else ()
        self.twin_means = [mean_of_labels(twin, self.cached.rows)[1] for twin in kinds]
        self.g = 1.0 if c.feature_scale else self.training_scale()
        self.map = self.trains = self.keeps = Map(method.f2.dim).to(self.device)

    def training_scale(self) -> float:
        """The factor at which features with hidden values are predicted best: dropout moves features apart."""
        c = self.method.config
        hidden = dropped(self.cached.upright, c.feature_dropout, self.run.rng("scale of the map"))
        losses = losses_at_scales(SCALES, hidden, self.means, self.cached.rows.to(self.device), c.scale)
        return float(SCALES[losses.argmin()])

    def task_losses(self, epoch: Epoch) -> Iterator[Tensor]:
        c = self.method.config
        pool = pool_of(self.cached.rows, c.shot + c.query)
        for i in range(epoch.start, c.tasks):
            task = sample(self.cached, self.g, pool, self.sampling, c.feature_dropout, epoch.rng("task", i))
            share = task.share(self.run.rank, self.run.world)
            yield share.weight * map_loss(share, self.map.A, self.g * self.means, c.objective)

    def batches(self, epoch: Epoch, turned: bool) -> Iterator[Batch]:
        cached, dropout = self.cached, self.method.config.feature_dropout
        for i, chunk in enumerate(self.draws(epoch, turned)):
            chosen, rows = sent(chunk, self.device), cached.rows[chunk]
            f = cached.upright[chosen]
            if turned and cached.turned is not None:
                turns = self.turns(len(chunk), epoch.rng("turns", epoch.start + i))
                f = torch.cat([f, cached.turned[chosen, sent(turns - 1, self.device)]])
                rows = torch.cat([rows, rows + turns * len(self.base.classes)])
            weight, mine = self.share(rows)
            hidden = self.g * dropped(f, dropout, epoch.rng("hidden", epoch.start + i))
            yield Batch(hidden[mine] @ self.map.A, sent(rows[mine], self.device), weight=weight)

    def rows(self, turned: bool) -> Tensor:
        frozen = [self.means, *(self.twin_means if turned else ())]
        return self.g * torch.cat(frozen) @ self.map.A

    def finish(self) -> None:
        C = self.method.branches[1]
        C.whitening.copy_(C.whitening @ self.map.A.detach())
