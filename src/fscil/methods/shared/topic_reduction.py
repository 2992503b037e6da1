"""iCaRL*, EEIL* and NCM*: what TOPIC's authors left of three methods, the rows that most tables of the field print.

Tao et al., Few-Shot Class-Incremental Learning (CVPR 2020): one training script with terms that are switched on and
off, reconstructed from its call sites. All three have a linear classifier without bias on unit features,
cross-entropy on the new images, and terms on 400 random images of the base session, the anchors:

row      distill   classify              less_forget       what is missing against the published method
iCaRL*   1                                                 sigmoid outputs, herding, nearest mean of exemplars
EEIL*    1 (CUB 0.8)  0.004 (mini 0.01)                    balanced fine-tuning, gradient noise, herding
NCM*                                     50 (CIFAR), 1     cosine classifier, imprinting, margin ranking

All are tested by the largest logit, in contrast to their names. The file of the distillation loss was never released;
it carries the name of GluonCV's, which multiplies by T^2, so the recipes write 4 for 1. TOPIC's text keeps one image
of each new class, its scripts none. Their numbers also come from choosing the epoch on test images, which trades old
classes for new ones and is not repeated here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fscil.methods.shared.base import cross_entropy
from fscil.methods.shared.foreseen import kept_of_each, told
from fscil.methods.shared.headed import Headed, Rehearsing
from fscil.methods.shared.method import Needs, PlannedStage
from fscil.nn.distillation import distillation, less_forget
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear
from fscil.nn.memory import drawn, stored
from fscil.settings.limits import within

if TYPE_CHECKING:
    from fscil.data.sessions import Session
    from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The terms of the reduced loss."""

    on: bool = False  # whether the method is replaced by its reduction (recipe topic_reduction)
    distill: float = 0.0  # weight of the softmax distillation of old classes on the anchors
    classify: float = 0.0  # weight of the cross-entropy on the anchors
    less_forget: float = 0.0  # weight of 1 - cos(f, f of the net before) on the anchors
    temperature: float = 2.0  # T of the distillation
    anchors: int = 400  # base images kept, chosen at random
    per_new_class: int = 1  # images kept of each new class (TOPIC's scripts: 0)

    def __post_init__(self) -> None:
        within(self, temperature=(1e-3, math.inf), anchors=(1, math.inf), per_new_class=(0, math.inf))


class Reducible(Rehearsing):
    """A method that its setting `reduction.on` replaces by its reduction."""

    def __new__(  # type: ignore[misc]  # the reduction is no Reducible, so that its __init__ is not called twice
        cls, config: Any = None, encoder: Any = None
    ) -> Rehearsing:
        return Reduced(config, encoder) if config and config.reduction.on else super().__new__(cls)


class Reduced(Rehearsing):
    """Cross-entropy on the new images, terms on the anchors, the largest logit."""

    reconstruction = "loss on the anchors"

    def __init__(self, config: Any, encoder: Encoder):
        super().__init__(config, encoder, GrowingLinear(length=1.0))
        r = config.reduction
        words = f"{r.anchors} base images, {r.per_new_class} per new class"
        self.needs = Needs(exemplars=words, in_all=r.anchors, per_new_class=r.per_new_class, stages=True)

    def learn_base(self, session: Session, run: Run) -> None:
        """Cross-entropy; anchors are drawn from all base images."""
        self.fit_linear(session, run)
        chosen = torch.randperm(len(session.train), generator=run.rng("anchors"))[: self.config.reduction.anchors]
        self.memory.add(stored(session.train.select(chosen), self.test_framing(session)))

    def learn_new(self, session: Session, run: Run) -> None:
        """Every step sees all new images and all anchors."""
        tuning, r = self.config.new, self.config.reduction
        z, z_rows = self.anchors(session, run), self.head.rows(self.memory.labels)
        f_before = self.features(self.memory.images, session, run)
        logits_before = self.head(f_before)
        self.grow_linear(session, run)
        for epoch, x, rows in self.finetuning_batches("new", session.train, session, tuning, run):
            loss = cross_entropy(self.logits(self.encoder(x), tuning), rows, tuning)
            epoch.step(loss + self.anchor_terms(self.encoder(z), z_rows, f_before, logits_before))
        kept = drawn(session.train.labels, r.per_new_class, run.rng("exemplars"))
        self.memory.add(stored(session.train.select(kept), self.test_framing(session)))

    def anchor_terms(self, f: Tensor, rows: Tensor, f_before: Tensor, logits_before: Tensor) -> Tensor:
        """The weighted terms for features (n, dim) of the anchors."""
        r, logits = self.config.reduction, self.logits(f, self.config.new)
        loss = f.new_zeros(())
        if r.distill:
            loss = loss + r.distill * distillation(logits[:, : logits_before.shape[1]], logits_before, r.temperature)
        if r.classify:
            loss = loss + r.classify * cross_entropy(logits, rows, self.config.new)
        if r.less_forget:
            loss = loss + r.less_forget * less_forget(f, f_before)
        return loss

    def plan(self, base: Session) -> list[PlannedStage]:
        return Headed.plan(self, base)

    def plan_new(self, session: Session) -> list[PlannedStage]:
        r, past = self.config.reduction, told(session)
        anchors = min(r.anchors, len(past.of_base)) + len(kept_of_each(past.of_later, r.per_new_class))
        steps = self.finetuning_plan(self.config.new, len(session.train), beside=anchors)
        return [self.encoding_plan(anchors), *steps]
