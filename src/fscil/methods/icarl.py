"""iCaRL: Incremental Classifier and Representation Learning (Rebuffi, Kolesnikov, Sperl, Lampert; CVPR 2017).

The net is a row of independent yes-or-no questions, one per class, trained by sigmoid cross-entropy. A session trains
it on the new images and on exemplars of the old classes, where the answers of the net of before replace the labels of
the old classes. Images are classified by the nearest mean of exemplars, which herding has chosen so that their mean
is close to that of all images of their class.

paper                       here
phi, w_y                    self.encoder, self.head         linear, without bias, on unit features
K, m = K/t                  config.memory, divided by the number of classes
P_y                         self.memory                     exemplars, best first
mu_y                        self.means                      mean of the unit features of P_y
g_y, q_i^y                  sigmoid of the logits, now and of the net before
l(Theta)                    one_vs_all

The authors' code divides the loss by the number of classes too and has a learning rate of 2; here it is the paper's
sum, with a rate of 0.1. Ports train the base session by cross-entropy (`base_loss`), which is then shared with other
methods. With 5 shots a class cannot fill a larger quota. The recipe topic_reduction is the row "iCaRL" that TOPIC and
those after it print: see _topic_reduction.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.foreseen import kept_in_all, told
from fscil.methods.shared.headed import Finetuning
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.methods.shared.topic_reduction import Reducible, Reduction
from fscil.nn.distillation import one_vs_all
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear
from fscil.nn.memory import quota, require_room
from fscil.nn.prototypes import Prototypes
from fscil.nn.relations import cosine
from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the paper's; epochs and rates of its CIFAR-100 code."""

    base_loss: Literal["one-vs-all", "cross-entropy"] = "one-vs-all"  # of the base session
    feature_length: float = 1.0  # length to which features are brought before the linear classifier; 0: as they are
    memory: int = 2000  # K, exemplars of all classes together
    new: Finetuning = field(
        default_factory=lambda: Finetuning(
            epochs=70, batch=128, lr=0.1, weight_decay=1e-5, milestones=(49, 63), gamma=0.2
        )
    )  # each later session
    reduction: Reduction = field(default_factory=Reduction)  # the method as TOPIC reduced it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.new.old_rows == "detached" and not self.reduction.on:
            raise FscilError(
                "new.old_rows detached would leave nothing of iCaRL's distillation, which is the loss of the old rows; "
                "set --new.old_rows frozen or trained"
            )


class Method(Reducible):
    """Sigmoid distillation, herding, nearest mean of exemplars."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingLinear(config.feature_length))
        self.means = Prototypes(encoder.dim)
        self.needs = Needs(exemplars=f"{config.memory} images in all", in_all=config.memory)

    def check(self, benchmark: Benchmark) -> None:
        super().check(benchmark)
        require_room(self.config.memory, len(benchmark.order))

    def learn_base(self, session: Session, run: Run) -> None:
        plain = self.config.base_loss == "cross-entropy"
        self.fit_linear(session, run, self.config.base_loss, None if plain else one_vs_all)
        self.remember(session, run)

    def learn_new(self, session: Session, run: Run) -> None:
        before, images = self.snapshot(), self.rehearsal(session)
        self.grow_linear(session, run)
        for epoch, x, rows in self.finetuning_batches("new", images, session, self.config.new, run):
            with torch.no_grad():
                q = before(x)
            epoch.step(one_vs_all(self.net(x), rows, q))
        self.remember(session, run)

    def remember(self, session: Session, run: Run) -> None:
        """Exemplars of all classes and their means, in the order of the classifier's rows."""
        self.herd(session, quota(self.config.memory, len(self.classes)), run)
        images = self.memory.images
        images = images.select(self.head.rows(images.labels).argsort(stable=True).cpu())
        self.means.clear()
        self.means.add(images.labels, F.normalize(self.features(images, session, run), dim=1))

    def scores(self, images: Tensor) -> Tensor:
        """Cosine to the means of exemplars: the nearest of unit means to unit features is the one of largest cosine."""
        return self.averaged(lambda view: cosine(self.encoder(view), self.means.means()), images)

    def plan(self, base: Session) -> list[PlannedStage]:
        return [*super().plan(base), self.encoding_plan(len(kept_in_all(base.train.labels, self.config.memory)))]

    def plan_new(self, session: Session) -> list[PlannedStage]:
        past, new, memory = told(session), len(session.train), self.config.memory
        before, after = (len(kept_in_all(labels, memory)) for labels in (past.before, past.after))
        return [*self.finetuning_plan(self.config.new, before + new, taught=True), self.encoding_plan(new + after)]
