"""Ft-CNN: the net is simply trained on the images of each new session, and collapses. The floor of every table.

Reported in Tao et al., Few-Shot Class-Incremental Learning (CVPR 2020). The classifier is linear, without bias, on
features of unit length. A session appends a block of rows close to zero and trains the last residual block and all
rows by cross-entropy on its few images, without anything that would protect what was learned before.

paper                       here
theta, phi                  self.encoder, self.head
"all of S^(t) in one batch" config.new.batch at least ways * shots

The released scripts choose the epoch on test images; here it is the last one.
"""

from dataclasses import dataclass, field

from fscil.data.sessions import Session
from fscil.methods.shared.base import cross_entropy
from fscil.methods.shared.headed import Finetuning, Headed
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear
from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the released CIFAR-100 script of TOPIC."""

    feature_length: float = 1.0  # length to which features are brought before the linear classifier; 0: as they are
    new: Finetuning = field(
        default_factory=lambda: Finetuning(epochs=70, lr=0.1, weight_decay=5e-4, milestones=(60,), part="last_block")
    )  # each later session


class Method(Headed):
    """Cross-entropy on the new images and nothing else."""

    needs = Needs(exemplars="nothing", stages=True)
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingLinear(config.feature_length))

    def learn_base(self, session: Session, run: Run) -> None:
        self.fit_linear(session, run)

    def learn_new(self, session: Session, run: Run) -> None:
        c = self.config.new
        self.grow_linear(session, run)
        for epoch, x, rows in self.finetuning_batches("new", session.train, session, c, run):
            epoch.step(cross_entropy(self.logits(self.encoder(x), c), rows, c))

    def plan_new(self, session: Session) -> list[PlannedStage]:
        return self.finetuning_plan(self.config.new, len(session.train))
