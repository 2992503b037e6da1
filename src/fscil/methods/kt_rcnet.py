"""KT-RCNet: Knowledge Transfer-driven Relation Complementation Network (Wang, Wang, Zhao, Qian; arXiv 2306.10942).

A base model with a cosine classifier is trained as usual. A complementary model with a squared-Euclidean classifier is
trained by RESA, Random Episode Sampling and Augmentation: pseudo-incremental tasks drawn from the base session, global
ones (against the prototypes of all base classes) and local ones (among themselves and their rotated twins). Both
encoders are then frozen, new classes are taught by their class means, and the two relations are added.

paper                     here
f_1, f_2                  self.f1, self.f2            encoders of the base and the complementary model
W_1, W_2                  self.W1, self.W2            prototypes; columns of the two relations
S, Q, S^a, Q^a            task.S, .Q, .support, .query  (the last two with the synthesised classes behind the real ones)
Phi_1, Phi_2              cosine, euclid              relations
s, d                      config.scale, self.f2.dim
lambda_1, lambda_2        config.global_weight, config.local_weight
"""

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil.data.episodes import Mix, Synthesis, Task, check_share
from fscil.data.sessions import Benchmark, Session
from fscil.methods._kt_rcnet_arms import Conventional, complement
from fscil.methods._kt_rcnet_checks import check_base, check_choices
from fscil.methods._kt_rcnet_fitted import estimate_statistics, fitted_scale
from fscil.methods._kt_rcnet_plan import planned
from fscil.methods._kt_rcnet_steps import step_seconds
from fscil.methods.shared.balance import fitted_weight, kept_from_training
from fscil.methods.shared.base import Teacher, another_start, fit_another, fit_cosine_net, freeze, upright_rows
from fscil.methods.shared.method import (
    Common,
    Frozen,
    PlannedStage,
    compared_features,
    cosine_branch,
    frozen_features,
    pooled_features,
)
from fscil.methods.shared.resa import Objective, Seen, task_loss
from fscil.nn.branches import UPRIGHT, Branch, Branches, Look
from fscil.nn.encoders import Encoder
from fscil.nn.prototypes import Prototypes
from fscil.nn.relations import class_means, cosine
from fscil.running.descent import Descent
from fscil.running.training import Run
from fscil.settings.limits import within

Complement = Literal["resa", "conventional", "tied", "means", "rotation"]


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the paper's text; where it is silent, the authors' code."""

    turns = True
    transfer: Descent = field(default_factory=Descent)  # complementary learning
    stop_after: int = 0  # epochs of transfer after which it stops, in the middle of its schedule; 0: at its end
    start: Literal["f1", "own", "weights"] = "f1"  # f2 starts as f1, from a base session of its own, or as given
    distil: float = 0.0  # start own: share of the loss of f2's base session that compares it with f1
    start_weights: str | None = None  # start own and weights: what f2 begins with, like --weights; omit it for these
    complement: Complement = "resa"  # f2 by RESA, or a control: conventional, means, rotation; tied: as it starts
    trains: Literal["encoder", "last_stage", "map"] = "encoder"  # of f2; map: a linear map on features computed once
    conventional: Conventional = field(default_factory=Conventional)  # the C-model without RESA
    row_images: int = 0  # means, rotation: images of each class in the class means of an epoch; 0: all (map: always)
    tasks: int = 200  # episodes per epoch
    way: int = 25  # pseudo-new classes of an episode
    shot: int = 10  # support images per class
    query: int = 15  # query images per class
    task_pixels: int = 0  # size of the images in complementary learning; 0: that of the encoder
    synthesis: Synthesis = "rotate"  # how the twins are made: none, rotate, mixup, cutmix
    mix: Mix = "inter"  # partners of mixup and cutmix: another class, or images of the same class
    global_weight: float = 1.0  # lambda_1
    local_weight: float = 1.0  # lambda_2
    pseudo_sessions: int = 1  # in which classes of the local task arrive, a loss after each (meta-learning: several)
    local_smoothing: float = 0.0  # label smoothing of the local loss over the wrong classes (the authors' code: 0.1)
    base_relation: float = 1.0  # factor of r1/d in the global task (Eq. 7); 0 leaves f1 out of it
    W1: Literal["means", "learned"] = "means"  # base rows of the cosine classifier: class means (Eq. 3) or learned
    batch_norm: Literal["train", "frozen"] = "train"  # f2's batch statistics in complementary learning
    statistics: Literal["trained", "upright"] = "trained"  # f2's at read-out: of training, or anew on upright images
    feature_scale: float = 1.0  # factor of f2's features; 0: fitted on held-out base images
    refit_scale: bool = False  # feature_scale 0 is fitted again after complementary learning (map: always)
    feature_dropout: float = 0.5  # map: share of the feature values that is hidden in each step
    whiten_first: bool = False  # C is whitened before complementary learning, and trained so, instead of at read-out
    unit_features: bool = False  # f2's features are brought to unit length first, in RESA and at inference
    complement_weight: float = 1.0  # weight of the complementary relation at inference; 0: fitted on held-out images

    @property
    def uses_W1(self) -> bool:
        """Whether the base relation takes part in complementary learning; a map does without."""
        resa = self.complement == "resa" and self.global_weight > 0 and self.base_relation > 0
        return self.trains != "map" and (resa or (self.complement == "conventional" and self.conventional.relation > 0))

    @property
    def images_of_a_step(self) -> int:
        """Images that a step of RESA shows to f2, twins included; its controls show as many."""
        return self.way * (self.shot + self.query) * (1 if self.twins == "none" else 2)

    @property
    def trained_epochs(self) -> int:
        """Epochs of complementary learning that are made."""
        return self.stop_after or self.transfer.epochs

    @property
    def asks_for_twins(self) -> bool:
        """Whether a map needs the features of twins."""
        return self.complement == "rotation" or (self.complement == "resa" and self.twins != "none")

    @property
    def fits_scale_again(self) -> bool:
        """Whether the feature scale is fitted once more, at read-out."""
        changed = self.complement != "tied" and (self.refit_scale or self.trains == "map")
        return not self.feature_scale and changed

    @property
    def twins(self) -> Synthesis:
        """How the synthesised classes are made; only the local loss asks for them."""
        return self.synthesis if self.local_weight else "none"

    @property
    def objective(self) -> Objective:
        """The loss of a task."""
        return Objective(
            scale=self.scale,
            global_weight=self.global_weight,
            local_weight=self.local_weight,
            smoothing=self.local_smoothing,
            sessions=self.pseudo_sessions,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one = (1, math.inf)
        within(self, tasks=at_least_one, way=at_least_one, shot=at_least_one, query=at_least_one)
        within(self, pseudo_sessions=(1, self.way), task_pixels=(0, math.inf), feature_scale=(0, math.inf))
        within(self, global_weight=(0, math.inf), local_weight=(0, math.inf), base_relation=(0, math.inf))
        within(self, complement_weight=(0, math.inf), feature_dropout=(0, 0.99), row_images=(0, math.inf))
        within(self, stop_after=(0, self.transfer.epochs), distil=(0, 1))
        within(self, local_smoothing=(0, 0.5))  # of two classes, the true one must not get less than the wrong one
        check_choices(self)


class Method(Frozen):
    """B, the base model: a cosine classifier on f1; C, the complementary model: a Euclidean one on f2."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        c, f2 = config, deepcopy(encoder)
        B = cosine_branch("B", encoder, c)
        C = Branch("C", f2, "euclid", c.views, unit=c.unit_features)  # its weight comes with the read-out
        self.branches = Branches([B, C])
        if c.complement == "resa" and c.pseudo_sessions > 1:  # Table 5 names it; how it is done, nobody tells
            self.reconstruction = "meta-learning as a sequence of local tasks"

    @property
    def f1(self) -> Encoder:
        return self.branches[0].encoder

    @property
    def f2(self) -> Encoder:
        return self.branches[1].encoder

    @property
    def W1(self) -> Prototypes:
        return self.branches[0].prototypes

    @property
    def W2(self) -> Prototypes:
        return self.branches[1].prototypes

    def check(self, benchmark: Benchmark) -> None:
        check_base(self, benchmark.base(self.config.held_out))

    def learn_base(self, base: Session, run: Run) -> None:
        """The base model, the start of f2, complementary learning, and the read-out of both."""
        if self.config.complement == "resa":
            check_share(self.config.query, run.world)  # now: the first episode comes after the whole base training
        first = fit_cosine_net(self, self.f1, base, run)  # Eq. 1 and 2
        learned = upright_rows(first, base)
        self.start_f2(base, run, Teacher(first, self.config.distil) if self.config.distil else None)
        self.complementary_learning(base, run, learned)
        self.read_out(base, run, learned)

    def start_f2(self, base: Session, run: Run, teacher: Teacher | None = None) -> None:
        """f2 as a copy of f1, from a base session of its own, or with the weights that f1 had before its own."""
        if self.config.start == "f1":
            self.f2.load_state_dict(self.f1.state_dict())
        elif self.config.start == "weights":
            another_start(self, self.f2, run, self.config.start_weights)
        else:
            fit_another(self, self.f2, base, run, teacher, self.config.start_weights)

    def complementary_learning(self, base: Session, run: Run, learned: Tensor) -> None:
        """Trains f2 with f1 frozen; `learned` (classes, d) are the rows that the base model has learned.

        RESA, Algorithm 1, is `resa` among the arms (_kt_rcnet_arms.py); the other arms are its controls.
        """
        c, (B, C) = self.config, self.branches
        if c.whiten_first:
            pooled = pooled_features(C.eval(), base.train, self.test_framing(base), run)
            C.whiten(pooled, base.train.labels, c.shrinkage)
        if c.uses_W1:
            self.weight_computing(B, base, run)  # Eq. 3
        if c.uses_W1 and c.W1 == "learned":
            self.take_learned(base, learned)
        self.weight_computing(C, base, run)  # Eq. 4
        self.multiply_features(c.feature_scale or self.first_scale(base, run))
        if c.complement != "tied":
            complement(self, base, run)

    def first_scale(self, base: Session, run: Run) -> float:
        """The feature scale with which complementary learning begins."""
        held_out, framing = kept_from_training(base), self.test_framing(base, self.config.task_pixels)
        (f,) = frozen_features([Look(self.f2, UPRIGHT)], held_out, framing, run)
        return fitted_scale(self, self.represented(f), held_out.labels)

    def read_out(self, base: Session, run: Run, learned: Tensor) -> None:
        """W1 and W2 of the base classes with which new classes will be compared, and what is fitted to them."""
        c, C = self.config, self.branches[1]
        freeze(self.f2)
        if c.statistics == "upright":
            estimate_statistics(self.f2, base, self.test_framing(base), run)
        self.teach_base(base, run)
        if c.W1 == "learned":
            self.take_learned(base, learned)
        if c.fits_scale_again:
            held_out = kept_from_training(base)
            (f,) = compared_features([C], held_out, self.test_framing(base), run)
            self.multiply_features(fitted_scale(self, f, held_out.labels))
        C.weight.fill_(c.complement_weight or fitted_weight(self, base, run))

    def read(self, branch: Branch, pooled: Tensor, labels: Tensor) -> Tensor:
        """Pooled features (n, d) as they are compared; C is whitened behind its trained map, if not before."""
        if branch is not self.branches[1]:
            return super().read(branch, pooled, labels)
        if self.config.whiten_first:
            return branch.whitened(pooled)
        A = branch.whitening.clone()
        branch.whitening.copy_(torch.eye(len(A)))
        f = super().read(branch, pooled @ A, labels)
        branch.whitening.copy_(A @ branch.whitening)
        return f

    def weight_computing(self, branch: Branch, base: Session, run: Run) -> None:
        """Class means of all base images, with the batch statistics of inference, in the size of the tasks."""
        branch.eval()
        branch.prototypes.clear()
        framing = self.test_framing(base, self.config.task_pixels)
        (f,) = frozen_features([Look(branch.encoder, UPRIGHT)], base.train, framing, run)
        branch.prototypes.add(base.train.labels, branch.scaled(f) @ branch.whitening)

    def take_learned(self, base: Session, learned: Tensor) -> None:
        """The learned weights (classes, d) as W1 of the base classes, as in the authors' code."""
        for label, row in zip(base.classes, learned, strict=True):
            self.W1.set(label, row)

    def multiply_features(self, factor: float) -> None:
        """From now on f2's features are `factor` times as long; W2 follows."""
        self.branches[1].feature_scale.mul_(factor)
        self.W2.rescale(factor)

    def loss(self, task: Task) -> Tensor:
        """L of one task (Eq. 5 to 11)."""
        c = self.config
        fS, fQ = self.encode(task.support), self.encode(task.query)  # apart, as batch norm must see them
        r1 = c.base_relation * self.base_relation(task) / self.f2.dim if c.uses_W1 else None
        rows = self.W2.rows(task.classes) if c.global_weight else task.classes  # the local task has no pseudo-old rows
        return task_loss(Seen(fS, fQ, rows, r1), self.W2.means(), c.objective)

    @torch.no_grad()
    def base_relation(self, task: Task) -> Tensor:
        """r1 of the queries (way * query, base classes): the frozen f1 against W1^pg (Eq. 5)."""
        f1 = self.branches[0].encode
        W1pn = class_means(f1(task.S.flatten(0, 1)).unflatten(0, task.S.shape[:2]))
        return cosine(f1(task.Q.flatten(0, 1)), self.W1.with_rows(task.classes, W1pn))

    def encode(self, images: Tensor) -> Tensor:
        """f2 of images (way, k, 3, p, p) -> (way, k, d), on the scale at which relations are measured."""
        f: Tensor = self.represent(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        return f

    def represent(self, images: Tensor) -> Tensor:
        """f2 of images (n, 3, p, p) -> (n, d), whitened where C already is."""
        return self.represented(self.f2(images))

    def represented(self, f: Tensor) -> Tensor:
        """Features (n, d) of f2 on the scale at which relations are measured, whitened where C already is."""
        return self.branches[1].scaled(f) @ self.branches[1].whitening

    def plan(self, base: Session) -> list[PlannedStage]:
        return planned(self, base)

    def step_seconds(self, base: Session, run: Run) -> float:
        return step_seconds(self, base, run)
