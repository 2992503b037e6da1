"""What every method is: three verbs, settings, and what it declares about itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.images import Augment, Images, View
from fscil.nn.branches import Views, fused_scores
from fscil.nn.encoders import Encoder
from fscil.nn.heads import CosineHead
from fscil.progress import Bar
from fscil.settings import to_dict
from fscil.training import Training

if TYPE_CHECKING:
    from fscil.data.sessions import Session
    from fscil.training import Run


@dataclass(frozen=True, kw_only=True)
class Common:
    """Settings that every method has."""

    encoder: str = "resnet18"  # resnet18, resnet18_small, resnet20, resnet12, fast or timm:NAME
    weights: str | None = None  # local file with pretrained weights, or "pretrained" for a timm model from the hub
    pixels: int = 224  # size of the images the encoder sees
    scale: float = 16.0  # s, the factor of the relations inside the softmax
    base: Training = field(default_factory=lambda: Training(epochs=150, batch=64, lr=0.1, weight_decay=5e-4, step_epochs=40))  # base session
    augment: Augment = field(default_factory=lambda: Augment(brightness=63 / 255))  # variation of training images
    views: Views = "one"  # test views whose features are averaged: one, flip or flip+shift
    held_out: int = 0  # images per base class kept from training, for settings that are fitted


@dataclass(frozen=True)
class Needs:
    """What a method asks for beyond the images of the session; printed in every table."""

    oracle: bool = False  # all earlier training images

    def keeps(self) -> str:
        return "all training images" if self.oracle else "class prototypes"


@dataclass(frozen=True)
class Plan:
    """One stage of the base session as it will be computed: images trained on and images only encoded, per step."""

    stage: str
    steps: int
    trained: int
    encoded: int
    pixels: int


class Method(nn.Module):
    """A way to learn sessions: three verbs, `learn_base`, `learn_new` and `scores`."""

    needs = Needs()
    config: Common

    def __init__(self, config: Any, encoder: Encoder):
        super().__init__()
        self.config = config

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels learned so far, in the order of the columns of `scores`."""
        raise NotImplementedError

    def learn_base(self, session: Session, run: Run) -> None:
        raise NotImplementedError

    def learn_new(self, session: Session, run: Run) -> None:
        raise NotImplementedError

    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) in float32 of images (n, 3, p, p) under the test view."""
        raise NotImplementedError

    def plan(self, base_images: int) -> list[Plan]:
        """The stages of the base session, for estimates before anything is computed."""
        raise NotImplementedError

    def train_view(self, session: Session, pixels: int | None = None) -> View:
        """Augmented; never mirrored where mirrored images belong to another class."""
        augment = dataclasses.replace(self.config.augment, flip=self.config.augment.flip and session.flips)
        return View(pixels or self.config.pixels, session.mean, session.std, augment)

    def test_view(self, session: Session) -> View:
        return View(self.config.pixels, session.mean, session.std, margin=self.config.augment.margin)


class Frozen(Method):
    """A method whose encoders stand still after the base session: a sum of Branches, taught by class means."""

    branches: nn.ModuleList

    @property
    def classes(self) -> tuple[int, ...]:
        return self.branches[0].prototypes.classes

    def embed(self, images: Tensor) -> list[Tensor]:
        """Features of images, one (n, dim) per branch."""
        return [branch.embed(images) for branch in self.branches]

    def relate(self, features: list[Tensor]) -> Tensor:
        """Scores (n, classes) from the features of each branch."""
        return fused_scores(self.branches, features)

    def scores(self, images: Tensor) -> Tensor:
        return self.relate(self.embed(images))

    @torch.no_grad()
    def teach(self, session: Session, run: Run) -> None:
        """Class means of the session's images become prototypes of every branch (Eq. 3 and 4)."""
        self.eval()
        for branch in self.branches:
            branch.prototypes.add(session.train.labels, embed_all(branch.embed, session.train, self.test_view(session), run))

    def learn_new(self, session: Session, run: Run) -> None:
        self.teach(session, run)


@torch.no_grad()
def embed_all(embed: Callable[[Tensor], Tensor], images: Images, view: View, run: Run) -> Tensor:
    """Features (n, dim) of all images under a test view."""
    with Bar(f"session {run.session}: features", len(images), run.rank == 0) as bar:
        features = []
        for x in run.batches(images, view):
            features.append(embed(x))
            bar.advance(sum(map(len, features)))
    return torch.cat(features)


PREPARED = 1000  # images an encoder sees before training, where it takes anything from them


class CosineNet(nn.Module):
    """Encoder and cosine classifier of the base session; row i of the head belongs to the i-th base class."""

    def __init__(self, encoder: Encoder, head: CosineHead):
        super().__init__()
        self.encoder, self.head = encoder, head


def fit_cosine_classifier(method: Method, encoder: Encoder, session: Session, run: Run) -> Tensor:
    """Base session of most methods: cross-entropy on s * cos(f(x), W) (Eq. 1 and 2); gives the learned W (classes, dim).

    Methods that share encoder, data and these settings share the result.
    """
    c = method.config
    net = CosineNet(encoder, CosineHead(encoder.dim, len(session.classes), c.scale, run.rng("head")))
    settings = to_dict(c)
    key = {name: settings[name] for name in ("encoder", "weights", "pixels", "scale", "base", "augment", "held_out")}

    def fit() -> None:
        row = label_rows(session.classes)
        steps = math.ceil(len(session.train) / c.base.batch)
        some = torch.randperm(len(session.train), generator=run.rng("prepare"))[:PREPARED]
        encoder.prepare(next(session.train.batches([some], method.test_view(session))))
        net.train()
        for epoch in run.epochs("base", net, net, c.base, steps):
            view = method.train_view(session, training_pixels(c.base, c.pixels, epoch.progress))
            for x, y in epoch.batches(session.train, view, c.base.batch):
                epoch.step(F.cross_entropy(net.head(net.encoder(x)), row[y], label_smoothing=c.base.label_smoothing))

    run.cached("base", key, net, fit)
    freeze(encoder)
    return net.head.weight.detach()


def label_rows(classes: tuple[int, ...]) -> Tensor:
    """Lookup table label -> position in `classes`; labels that do not occur give -1."""
    table = torch.full((max(classes) + 1,), -1)
    table[list(classes)] = torch.arange(len(classes))
    return table


def training_pixels(training: Training, pixels: int, progress: float) -> int:
    """Image size after the share `progress` of the epochs."""
    sizes = training.pixels or (pixels,)
    return sizes[min(int(progress * len(sizes)), len(sizes) - 1)]


def freeze(module: nn.Module) -> None:
    """No gradient and no moving statistics from now on."""
    module.eval().requires_grad_(False)


def base_plan(training: Training, pixels: int, images: int) -> list[Plan]:
    """The base session of `fit_cosine_classifier` as stages."""
    steps = math.ceil(images / training.batch)
    sizes = [training_pixels(training, pixels, epoch / training.epochs) for epoch in range(training.epochs)]
    return [Plan(f"base at {size} px", sizes.count(size) * steps, min(training.batch, images), 0, size) for size in dict.fromkeys(sizes)]
