"""Decoupled cosine: base training with a cosine classifier, then class means. The baseline every method has to beat.

Described as "decoupled" training in Zhang et al., Few-Shot Incremental Learning with Continually Evolved Classifiers
(CVPR 2021). The encoder is frozen after the base session; every class, old or new, is the mean of its features; an
image belongs to the nearest mean by cosine. It is KT-RCNet's base model alone.
"""

from dataclasses import dataclass

from fscil.data.sessions import Session
from fscil.methods.shared.base import base_plan, fit_cosine_classifier
from fscil.methods.shared.method import Common, Frozen, PlannedStage, cosine_branch
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Nothing beyond what every method has."""


class Method(Frozen):
    """One Branch."""

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([cosine_branch("B", encoder, config)])

    def learn_base(self, session: Session, run: Run) -> None:
        fit_cosine_classifier(self, self.branches[0].encoder, session, run)
        self.teach_base(session, run)

    def plan(self, base: Session) -> list[PlannedStage]:
        n = len(base.train)
        return [*base_plan(self.config.base, self.config.pixels, n), self.teaching_plan(n)]
