"""SoftNet: On the Soft-Subnetwork for Few-Shot Class Incremental Learning (Kang, Yoon, Madjid, Hwang, Yoo; ICLR 2023).

Every convolution learns, beside its weights, which of them matter: the share c of the largest scores are major and
pass unchanged, the others are minor and are damped by random numbers (SoftNet) or removed (HardNet). After the base
session the masks stand still for ever. A later session trains the minor weights of the last block alone, by a
prototype classifier, so that the major ones keep what the base session taught.

paper                       here
s, c                        SoftMask.scores, config.capacity
m_major, m_minor            SoftMask.major(), SoftMask.minor()
theta * m_soft              weights behind SoftMask
beta                        config.new.lr
p_o, cosine distance        prototypes of the Branch, config.scale * cosine (the paper: no factor)

The masks' last random numbers are drawn before training, which changes nothing: training draws its own at every pass.
In the released code the session's gradient is multiplied by two masks that do not overlap, so nothing but batch norm
learns (`tuned` "statistics", recipe `official`; its weight decay is left out). Only the images of the session are
trained on; the paper may add those of earlier ones.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.base import Net, base_plan, fit_base
from fscil.methods.shared.finetuned import Finetuned, Gradient
from fscil.methods.shared.method import Common, Needs, PlannedStage, cosine_branch
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.nn.heads import ROW_STD, LinearHead
from fscil.nn.masks import SoftMask, masked, masks
from fscil.nn.relations import cosine
from fscil.running.descent import Descent
from fscil.running.training import Run
from fscil.settings.limits import within


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the paper's for CIFAR-100 and miniImageNet."""

    scale: float = 1.0  # s, the factor of the cosines in the loss of a session
    feature_length: float = 0.0  # length to which features are brought before the linear classifier; 0: as they are
    row_std: float = ROW_STD  # of the rows with which it starts (other linear methods: 1/sqrt(d))
    capacity: float = 0.8  # c, share of major weights in each convolution
    minor: Literal["soft", "zero"] = "soft"  # masks of minor weights: random numbers (SoftNet) or nothing (HardNet)
    tuned: Literal["minor", "statistics"] = "minor"  # what sessions train: minor weights, or batch norm (released code)
    new: Descent = field(
        default_factory=lambda: Descent(epochs=6, lr=0.02, weight_decay=0.0)
    )  # each later session; a step per epoch

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, row_std=(0, math.inf))
        if not 0 <= self.capacity <= 1:
            raise FscilError(f"the setting capacity is {self.capacity}, but must lie between 0 and 1")
        if self.new.weight_decay or self.new.optimizer == "muon":
            raise FscilError(
                "sessions leave major weights alone, so new.weight_decay must be 0 and new.optimizer not muon"
            )


class Method(Finetuned):
    """One Branch, every convolution of it behind a mask."""

    needs = Needs(stages=True, convolutions=True)
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        masked(encoder, config.capacity, config.minor == "soft")
        self.branches = Branches([cosine_branch("B", encoder, config)])

    def check(self, benchmark: Benchmark) -> None:
        if len(self.encoder.stages) == 1 or not masks(self.encoder.last_block):
            raise FscilError(
                f"SoftNet masks convolutions and tunes the last block, but encoder {self.config.encoder} has no such "
                "block; take resnet18, resnet18_small, resnet20, resnet12, fast or fast_large"
            )

    def learn_base(self, session: Session, run: Run) -> None:
        c = self.config
        head = LinearHead(self.encoder.dim, len(session.classes), run.rng("head"), c.feature_length, c.row_std)
        net = Net(self.encoder, head)
        kind = {"head": "linear with bias", "length": c.feature_length, "capacity": c.capacity, "minor": c.minor}
        fit_base(self, net, session, run, kind)
        self.teach_base(session, run)

    def learn_new(self, session: Session, run: Run) -> None:
        self.teach(session, run, self.config.new_bonus)
        if self.config.tuned == "statistics":
            self.tune_statistics(session, run)
        elif self.config.minor == "soft":
            self.tune_minor(session, run)
        self.teach_again(session.train, session, run)

    def tune_minor(self, session: Session, run: Run) -> None:
        """theta <- theta - beta * gradient * m_minor, in the last block."""
        trained = {weight: only_minor(mask) for weight, mask in masks(self.encoder.last_block)}
        for epoch, x, y in self.finetuning_batches(session.train, session, self.config.new, trained, run):
            epoch.step(self.prototype_loss(x, y, self.relation))

    def tune_statistics(self, session: Session, run: Run) -> None:
        """Batch norm sees the batches of the session; its factors and shifts in the last block are trained."""
        norms = [part for part in self.encoder.modules() if isinstance(part, nn.BatchNorm2d)]
        last = [part for part in self.encoder.last_block.modules() if isinstance(part, nn.BatchNorm2d)]
        trained = {parameter: None for norm in last for parameter in norm.parameters()}
        for epoch, x, y in self.finetuning_batches(session.train, session, self.config.new, trained, run):
            for norm in norms:
                norm.train()
            epoch.step(self.prototype_loss(x, y, self.relation))

    def relation(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return self.config.scale * cosine(features, prototypes)

    def plan(self, base: Session) -> list[PlannedStage]:
        n = len(base.train)
        return [*base_plan(self.config.base, self.config.pixels, n), self.teaching_plan(n)]

    def plan_new(self, session: Session) -> list[PlannedStage]:
        c, n = self.config, len(session.train)
        trains = c.tuned == "statistics" or c.minor == "soft"
        return [self.teaching_plan(2 * n), *([self.finetuning_plan(c.new, n)] if trains else [])]


def only_minor(mask: SoftMask) -> Gradient:
    """Lets through the gradient of minor weights, as far as they count."""
    minor = mask.minor()
    return lambda gradient: gradient * minor
