"""What every method is: three verbs, settings, and what it declares about itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from fscil.data.images import Augment, Framing, Images
from fscil.nn.branches import TEST_VIEWS, Branch, Branches, Look, Views, fused_scores
from fscil.nn.encoders import Encoder
from fscil.running.descent import Training, only_upright
from fscil.running.progress import Bar
from fscil.settings.limits import within

if TYPE_CHECKING:
    from fscil.data.sessions import Benchmark, Session
    from fscil.running.training import Run

OF_F1 = "f1"  # stages made by f1: what it sees of the base images; more views hold those of fewer


@dataclass(frozen=True, kw_only=True)
class Common:
    """Settings that every method has."""

    turns: ClassVar[bool] = False  # whether the base session is `fit_cosine_classifier`, which takes `base.turned`
    encoder: str = "resnet18"  # resnet18(_small), resnet20, resnet12, fast(_large), efficientnet_lite0 … 2, timm:NAME
    weights: str | None = None  # local file, run folder, or "pretrained": from timm's hub or (Lite) from a package
    pixels: int = 224  # size of the images the encoder sees
    scale: float = 16.0  # s, the factor of the relations inside the softmax
    base: Training = field(
        default_factory=lambda: Training(epochs=150, batch=64, lr=0.1, weight_decay=5e-4, step_epochs=40)
    )  # base session
    augment: Augment = field(default_factory=lambda: Augment(brightness=63 / 255))  # variation of training images
    views: Views = "one"  # test views whose features are averaged: one, flip, flip+shift or negative
    shrinkage: float = 1.0  # of the whitening before class means: share of the identity; 1: none, 0: from the data
    unit_means: bool = False  # cosine features are centred, whitened and brought to unit length before means are taken
    new_bonus: float = 0.0  # methods that read out by class means: added to the first relation to every later class
    held_out: int = 0  # images per base class kept from training, for settings that are fitted
    winograd: bool = False  # wide convolutions the short way on a CPU: up to twice as fast, rounded otherwise

    def __post_init__(self) -> None:
        within(self, scale=(1e-3, math.inf), shrinkage=(0, 1), held_out=(0, math.inf), pixels=(1, math.inf))
        within(self, new_bonus=(-math.inf, math.inf))
        stages = {name: value for name, value in vars(self).items() if isinstance(value, Training)}
        for name, training in stages.items():
            if name != "base" or not self.turns:
                only_upright(name, training)

    @property
    def unit(self) -> bool:
        """Whether cosine features are brought to unit length, before they are averaged over views or whitened."""
        return self.views != "one" or self.shrinkage < 1


@dataclass(frozen=True)
class Needs:
    """What a method asks for beyond the images of the session; printed in every table."""

    oracle: bool = False  # all earlier training images
    exemplars: str = ""  # images kept of earlier sessions, in words: "2 images per class"
    in_all: int = 0  # most of these, of whatever classes
    per_class: int = 0  # on top, most of these of every class
    per_new_class: float = 0  # on top, most of these of every class learned after the base session; inf: all it has
    total_classes: bool = False  # the number of all classes, known in advance
    stages: bool = False  # an encoder made of several stages
    convolutions: bool = False  # an encoder whose convolutions can be masked

    def keeps(self) -> str:
        kept = "all training images" if self.oracle else self.exemplars or "class prototypes"
        return f"{kept}, the total number of classes" if self.total_classes else kept

    def of_encoder(self) -> str:
        """What the encoder has to be made of, in words."""
        asked = {"several stages": self.stages, "convolutions": self.convolutions}
        return ", ".join(words for words, wanted in asked.items() if wanted) or "nothing"


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a session as it will be computed."""

    stage: str
    pixels: int
    steps: int
    batch: int  # most images in one pass, which decide how much memory is needed
    trained: int  # images trained on, in all steps together
    encoded: int  # images only encoded
    made_by: str = ""  # what decides its result beside the base, where cells of an experiment may share it
    support: int = 0  # images of a pass that are trained on by every device; the others are shared among devices


class Method(nn.Module):
    """A way to learn sessions: three verbs, `learn_base`, `learn_new` and `scores`."""

    needs = Needs()
    reconstruction = ""  # what neither paper nor released code tells, so that it is ours; printed in every table
    config: Common

    def __init__(self, config: Any, encoder: Encoder):
        super().__init__()
        self.config = config

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels learned so far, in the order of the columns of `scores`."""
        raise NotImplementedError

    def check(self, benchmark: Benchmark) -> None:
        """Called before anything is trained: raises FscilError for what this method cannot do on this benchmark."""

    def learn_base(self, session: Session, run: Run) -> None:
        raise NotImplementedError

    def learn_new(self, session: Session, run: Run) -> None:
        raise NotImplementedError

    def scores(self, images: Tensor) -> Tensor:
        """Scores (n, classes) in float32 of images (n, 3, p, p) under the test framing."""
        raise NotImplementedError

    def plan(self, base: Session) -> list[PlannedStage]:
        """The stages of the base session: what `learn_base` is going to compute, to the image."""
        raise NotImplementedError

    def plan_new(self, session: Session) -> list[PlannedStage] | None:
        """The stages of a later session; None: the method cannot tell before it begins."""
        return None

    def train_framing(self, session: Session, pixels: int | None = None) -> Framing:
        """Augmented; never mirrored where mirrored images belong to another class."""
        augment = dataclasses.replace(self.config.augment, flip=self.config.augment.flip and session.flips)
        return Framing(pixels or self.config.pixels, session.mean, session.std, augment)

    def test_framing(self, session: Session, pixels: int | None = None) -> Framing:
        """One view in the middle; of the size that the encoder sees, or another."""
        return Framing(pixels or self.config.pixels, session.mean, session.std, margin=self.config.augment.margin)


class Taught(Method):
    """A method whose classes are taught by class means: the prototypes of its branches."""

    branches: Branches

    @property
    def encoder(self) -> Encoder:
        """That of the first branch, which most of these methods have alone."""
        return self.branches[0].encoder

    @property
    def classes(self) -> tuple[int, ...]:
        return self.branches[0].prototypes.classes

    def embed(self, images: Tensor) -> list[Tensor]:
        """Features of images, one (n, dim) per branch."""
        return [branch.embed(images) for branch in self.branches]

    def relate(self, features: list[Tensor]) -> Tensor:
        """Scores (n, classes) from the features of each branch."""
        raise NotImplementedError

    def scores(self, images: Tensor) -> Tensor:
        return self.relate(self.embed(images))

    @torch.no_grad()
    def teach_base(self, session: Session, run: Run) -> None:
        """The read-out of the base session: whitening, and class means as prototypes of every branch (Eq. 3 and 4)."""
        for branch in self.branches.eval():
            branch.prototypes.clear()
            pooled = pooled_features(branch, session.train, self.test_framing(session), run)
            branch.prototypes.add(session.train.labels, self.read(branch, pooled, session.train.labels))

    def read(self, branch: Branch, pooled: Tensor, labels: Tensor) -> Tensor:
        """Pooled features (n, dim) of the base session as they are compared; fits the whitening, where there is one."""
        shrinkage = self.config.shrinkage
        return branch.whiten(pooled, labels, shrinkage) if shrinkage < 1 else branch.whitened(pooled)

    def teaching_plan(self, images: int) -> PlannedStage:
        """What `teach_base` computes for a number of images."""
        passes = sum(branch.passes for branch in self.branches)
        return PlannedStage("prototypes", self.config.pixels, 1, min(images, 500), 0, passes * images)

    @torch.no_grad()
    def teach(self, session: Session, run: Run, bonus: float = 0.0) -> None:
        """Counts the images of a session in, as the branches embed them now."""
        for i, branch in enumerate(self.branches.eval()):
            (f,) = compared_features([branch], session.train, self.test_framing(session), run)
            branch.prototypes.add(session.train.labels, f, 0.0 if i else bonus)


class Prototypical(Taught):
    """A method whose encoders stand still after the base session.

    What it makes of features and prototypes is its own `relate`; an image is encoded once, whatever is learned later.
    """

    def learn_new(self, session: Session, run: Run) -> None:
        """Class means of the new images become prototypes; nothing else changes."""
        self.teach(session, run, self.config.new_bonus)

    def plan_new(self, session: Session) -> list[PlannedStage] | None:
        return [self.teaching_plan(len(session.train))]


class Frozen(Prototypical):
    """A prototypical method that is nothing but a sum of Branches, and can therefore be exported and served."""

    def relate(self, features: list[Tensor]) -> Tensor:
        return fused_scores(self.branches, features)


def cosine_branch(name: str, encoder: Encoder, config: Common) -> Branch:
    """The Branch that most methods have: class means by cosine, read out as the settings say."""
    return Branch(name, encoder, "cosine", config.views, unit=config.unit, unit_means=config.unit_means)


@torch.no_grad()
def embed_all(embed: Callable[[Tensor], Tensor], images: Images, framing: Framing, run: Run) -> Tensor:
    """Features (n, dim) of all images under a test framing."""
    return _encoded([embed], images, framing, run)[0]


def compared_features(branches: Iterable[Branch], images: Images, framing: Framing, run: Run) -> list[Tensor]:
    """`Branch.embed` of all images, one (n, dim) per frozen branch."""
    branches = tuple(branches)
    looks = [Look(branch.encoder, view) for branch in branches for view in TEST_VIEWS[branch.views]]
    features = iter(frozen_features(looks, images, framing, run))
    return [branch.whitened(branch.average(islice(features, branch.passes))) for branch in branches]


def pooled_features(branch: Branch, images: Images, framing: Framing, run: Run) -> Tensor:
    """`Branch.pooled` (n, dim) of all images, of a frozen branch."""
    looks = [Look(branch.encoder, view) for view in TEST_VIEWS[branch.views]]
    return branch.average(frozen_features(looks, images, framing, run))


@torch.no_grad()
def frozen_features(looks: Sequence[Look], images: Images, framing: Framing, run: Run) -> list[Tensor]:
    """Features (n, dim) of all images for each look; those that the run finds on disk are not computed again."""

    def make(missing: Sequence[Look]) -> list[Tensor]:
        return _encoded([look.at for look in missing], images, framing, run)

    return run.features(looks, images, framing, make)


def _encoded(ways: Sequence[Callable[[Tensor], Tensor]], images: Images, framing: Framing, run: Run) -> list[Tensor]:
    """What each way to embed makes of all images, which are read once."""
    features: list[list[Tensor]] = []
    with Bar(f"session {run.session}: features", len(images), run.rank == 0) as bar:
        for x in run.batches(images, framing):
            features.append([embed(x) for embed in ways])
            bar.advance(sum(len(parts[0]) for parts in features))
    return [torch.cat(parts) for parts in zip(*features, strict=True)]
