"""Joint-CNN: trained again on everything seen so far. Called an upper bound, which 500 images against 5 prevent.

The oracle row of Tao et al. (CVPR 2020) and of KT-RCNet (arXiv 2306.10942). It keeps all training images; each
session goes on from the net of the last one (or starts from nothing) and trains a cosine classifier on the union.
Plain cross-entropy learns old classes and hardly any new ones, so that the accuracy of session t is about that of the
base session * base classes / classes; `balanced` corrects this by the balanced softmax (Ren et al., NeurIPS 2020),
one of the corrections that Joint_FSCIL (Kim et al., ICCV workshops 2025) proposes for this setting.

paper                       here
D^(0) u ... u D^(t)         session.past joined with session.train
s cos(f(x), W)              self.head(self.encoder(x))
log n_c                     the shift of `balanced_softmax`

KT-RCNet's code reports the best epoch on test images; here it is the last one.
"""

import dataclasses
from copy import deepcopy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.sessions import Session
from fscil.methods.shared.base import Loss, base_plan, fit_cosine_classifier, freeze, prepare, train_classifier
from fscil.methods.shared.headed import Headed
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingCosine, random_rows
from fscil.running.descent import Training
from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are KT-RCNet's code: every session trains as the base session did."""

    turns = True
    new: Training = field(
        default_factory=lambda: Training(epochs=150, batch=64, lr=0.1, weight_decay=5e-4, step_epochs=40)
    )  # each later session
    restart: bool = False  # whether a session starts from an untrained net instead of the last session's
    balanced: bool = False  # whether the softmax is shifted by the logarithm of the images per class


class Method(Headed):
    """Cosine cross-entropy on the union of all sessions."""

    needs = Needs(oracle=True)
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingCosine(config.scale))
        self._untrained = deepcopy(encoder.state_dict()) if config.restart else None

    def learn_base(self, session: Session, run: Run) -> None:
        self.head.grow(session.classes, fit_cosine_classifier(self, self.encoder, session, run))

    def learn_new(self, session: Session, run: Run) -> None:
        classes = (*self.classes, *session.classes)
        assert session.past is not None  # the oracle it needs
        everything = dataclasses.replace(session, classes=classes, train=session.past.joined(session.train))
        self.retrain("joint", everything, run)

    def retrain(self, stage: str, everything: Session, run: Run) -> None:
        """Trains on all images of a session that holds everything; rows of classes that are new start at random."""
        if self._untrained is not None:
            self.encoder.load_state_dict(self._untrained)
            self.net.head = GrowingCosine(self.config.scale).to(everything.train.device)
            prepare(self, self.encoder, everything, run)
        fresh = everything.classes[len(self.classes) :]
        self.head.grow(fresh, random_rows(len(fresh), self.encoder.dim, self.encoder.dim**-0.5, run.rng("head")))
        self.net.requires_grad_(True)
        train_classifier(self, stage, self.net, everything, self.config.new, run, self.loss(everything))
        freeze(self.net)

    def plan_new(self, session: Session) -> list[PlannedStage] | None:
        images = len(session.train) + len(session.past or ())
        return base_plan(self.config.new, self.config.pixels, images, "joint")

    def loss(self, everything: Session) -> Loss | None:
        if not self.config.balanced:
            return None
        counts = torch.bincount(everything.train.labels)[list(everything.classes)]
        smoothing = self.config.new.label_smoothing
        return lambda logits, rows: balanced_softmax(logits, rows, counts.to(logits), smoothing)


def balanced_softmax(logits: Tensor, rows: Tensor, counts: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of softmax(logits + log counts), of logits (n, classes) of rows (n,) and counts (classes,).

    The share of each class is not left to the logits to learn.
    """
    return F.cross_entropy(logits + counts.log(), rows, label_smoothing=smoothing)
