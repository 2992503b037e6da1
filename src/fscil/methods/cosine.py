"""Decoupled cosine: base training with a cosine classifier, then class means. The baseline every method has to beat.

Described as "decoupled" training in Zhang et al., Few-Shot Incremental Learning with Continually Evolved Classifiers
(CVPR 2021). The encoder is frozen after the base session; every class, old or new, is the mean of its features; an
image belongs to the nearest mean by cosine. It is KT-RCNet's base model alone. With `nets` 2 a second net has a base
session of its own and the cosines are added: the rival of KT-RCNet at equal size. With `head` "linear" the base session
is that of iCaRL and other linear methods: class means on the linear base.
"""

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.base import (
    OWN_BASE,
    Net,
    Teacher,
    base_plan,
    check_another,
    fit_another,
    fit_cosine_net,
    fit_linear_classifier,
)
from fscil.methods.shared.method import Common, Frozen, PlannedStage, cosine_branch
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear
from fscil.running.descent import only_upright
from fscil.running.training import Run
from fscil.settings.limits import within


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """What the base session trains."""

    turns = True
    nets: int = 1  # 2: a second one, from a base session of its own
    distil: float = 0.0  # second net: share of its loss that compares it with the first
    head: Literal["cosine", "linear"] = "cosine"  # classifier of the base session; linear: that of iCaRL, EEIL, TOPIC
    feature_length: float = 0.0  # linear: length to which features are brought before it; 0: as they are

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, nets=(1, 2), distil=(0, 1), feature_length=(0, math.inf))
        if self.distil and self.nets == 1:
            raise FscilError("distil compares a second net with the first, but nets is 1; set --nets 2 or --distil 0")
        if self.head == "linear":
            only_upright("base", self.base)
        if self.nets == 2 and self.head == "linear":
            raise FscilError("a second net has a cosine classifier; set --nets 1 or --head cosine")


class Method(Frozen):
    """One Branch for each net."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        nets = {"B": encoder, "B2": deepcopy(encoder)} if config.nets == 2 else {"B": encoder}
        self.branches = Branches([cosine_branch(name, net, config) for name, net in nets.items()])

    def check(self, benchmark: Benchmark) -> None:
        if self.config.nets == 2:
            check_another(self.config)

    def learn_base(self, session: Session, run: Run) -> None:
        first, *others = self.branches
        if self.config.head == "linear":
            fit_linear_classifier(self, Net(first.encoder, GrowingLinear(self.config.feature_length)), session, run)
        else:
            net = fit_cosine_net(self, first.encoder, session, run)
            teacher = Teacher(net, self.config.distil) if self.config.distil else None
            for branch in others:
                fit_another(self, branch.encoder, session, run, teacher)
        self.teach_base(session, run)

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n = self.config, len(base.train)
        second = base_plan(c.base, c.pixels, n, OWN_BASE, c.distil > 0) if c.nets == 2 else []
        return [*base_plan(c.base, c.pixels, n), *second, self.teaching_plan(n)]
