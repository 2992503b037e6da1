"""MCNet: Memorizing Complementation Network for Few-Shot Class-Incremental Learning (Ji et al., TIP 2023).

Two different networks remember different things of the same images, so their scores are added. Both are trained on the
base session by the usual cosine classifier. A session tunes the last block of each by a triplet loss: an image comes
closer to the farthest image of its class than to the nearest of anything else, which may be an image of another new
class or a smoothed prototype of an old one; then new classes become class means.

paper                       here
embedding networks          encoders of the Branches A and B
PSHT                        psht, smoothed                prototype-smoothing hard-mining triplet loss
margin                      config.margin

This is a reconstruction from the abstract; there is no code. The form of the smoothing, margin, rates and steps are
ours. The paper pairs a CNN with a Transformer; a Transformer trained from nothing on small images is weak, so the
second network is by default a small CNN of another kind (`second`; timm:NAME gives a Transformer,
which is one piece and cannot be tuned). Two networks cost more than the one of most other methods. With
`--new.epochs 0` it is the plain ensemble of two prototype classifiers, the row to compare with.
"""

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.balance import check_held_out, fitted_weight
from fscil.methods.shared.base import Net, base_plan, fit_base, fit_cosine_classifier
from fscil.methods.shared.finetuned import Finetuned
from fscil.methods.shared.method import Common, Needs, PlannedStage, cosine_branch
from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.branches import Branch, Branches
from fscil.nn.encoders import Encoder
from fscil.nn.heads import CosineHead
from fscil.nn.relations import squared_distance
from fscil.running.descent import Descent, Training
from fscil.running.training import Run


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults of what MCNet adds are ours."""

    second: str = "resnet20"  # encoder of the second network, trained from nothing like the first
    second_share: float = 1.0  # epochs of its base session, as a share of those of the first
    second_weight: float = 1.0  # weight of its cosines in the sum; 0: fitted on held-out base images
    margin: float = 0.5  # by which a triplet is to be right, between unit features
    smoothing: float = 0.2  # r, share of its neighbours in a smoothed prototype
    neighbours: int = 5  # nearest prototypes that smooth a prototype
    new: Descent = field(
        default_factory=lambda: Descent(epochs=10, lr=1e-3, weight_decay=0.0)
    )  # each later session; a step per epoch


class Method(Finetuned):
    """Two Branches, A and B, with different encoders."""

    needs = Needs(stages=True)
    reconstruction = "triplet loss, rates and steps"
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        second = encoders.build(config.second, config.pixels).to(memory_format=torch.channels_last)
        set_arithmetic(second, encoder.precision, config.winograd)
        first, other = cosine_branch("A", encoder, config), cosine_branch("B", second, config)
        other.weight.fill_(config.second_weight)
        self.branches = Branches([first, other])

    @property
    def second_training(self) -> Training:
        """How the second network is trained on the base session."""
        return replace(self.config.base, epochs=round(self.config.second_share * self.config.base.epochs))

    def check(self, benchmark: Benchmark) -> None:
        c = self.config
        if not c.second_weight:
            check_held_out("second_weight", c.held_out)
        for option, name, branch in zip(("encoder", "second"), (c.encoder, c.second), self.branches, strict=True):
            if c.new.epochs and len(branch.encoder.stages) == 1:
                raise FscilError(
                    f"a session tunes the last block, but encoder {name} is one piece; "
                    f"take another --{option} or set --new.epochs 0"
                )

    def learn_base(self, session: Session, run: Run) -> None:
        c, (first, second) = self.config, (branch.encoder for branch in self.branches)
        fit_cosine_classifier(self, first, session, run)
        net = Net(second, CosineHead(second.dim, len(session.classes), c.scale, run.rng("second head")))
        kind = {"second": c.second, "epochs": self.second_training.epochs}
        fit_base(self, net, session, run, kind, stage="second", training=self.second_training, built_anew=True)
        self.teach_base(session, run)
        if not c.second_weight:
            self.branches[1].weight.fill_(fitted_weight(self, session, run))

    def learn_new(self, session: Session, run: Run) -> None:
        old = [self.old_prototypes(branch) for branch in self.branches]
        trained = {p: None for branch in self.branches for p in branch.encoder.last_block.parameters()}
        for epoch, x, y in self.finetuning_batches(session.train, session, self.config.new, trained, run):
            epoch.step(self.loss(x, y, old))
        self.teach(session, run, self.config.new_bonus)

    def old_prototypes(self, branch: Branch) -> Tensor:
        """Smoothed unit prototypes of the classes known so far (classes, dim)."""
        prototypes = F.normalize(branch.prototypes.means(), dim=1)
        return smoothed(prototypes, self.config.smoothing, self.config.neighbours)

    def loss(self, x: Tensor, y: Tensor, old: list[Tensor]) -> Tensor:
        """The triplet loss of both networks, images x (n, 3, p, p) of labels y (n,); `old` (classes, dim) of each."""
        features = [F.normalize(f, dim=1) for f in self.embed(x)]
        losses = [psht(f, y, p, self.config.margin).mean() for f, p in zip(features, old, strict=True)]
        return torch.stack(losses).sum()

    def plan(self, base: Session) -> list[PlannedStage]:
        """What the second network computes is told in passes of the first."""
        c, n = self.config, len(base.train)
        other = [
            replace(row, stage=f"second {row.stage}", trained=round(row.trained * self.ratio(row.pixels)))
            for row in base_plan(self.second_training, c.pixels, n)
        ]
        fitted = len(base.held_out) if base.held_out and not c.second_weight else 0
        return [*base_plan(c.base, c.pixels, n), *other, self.of_both(self.teaching_plan(n + fitted))]

    def plan_new(self, session: Session) -> list[PlannedStage]:
        n = len(session.train)
        return [self.of_both(stage) for stage in (self.finetuning_plan(self.config.new, n), self.teaching_plan(n))]

    def of_both(self, stage: PlannedStage) -> PlannedStage:
        """A stage in which every image passes both networks, told in passes of the first, to the nearest."""
        share = (1 + self.ratio(stage.pixels)) / len(self.branches)
        return replace(stage, trained=round(share * stage.trained), encoded=round(share * stage.encoded))

    def ratio(self, pixels: int) -> float:
        """The compute of a pass of the second network, as a share of one of the first."""
        first, second = (branch.encoder.macs(pixels) for branch in self.branches)
        return second / first


def psht(features: Tensor, labels: Tensor, old: Tensor, margin: float) -> Tensor:
    """max(0, d(a, farthest of its class) - d(a, nearest of other classes or `old` prototypes) + margin), each anchor a.

    Features (n, d), labels (n,), old (c, d) -> (n,).
    """
    among, same = distance(features, features), labels[:, None] == labels
    positive = among.masked_fill(~same, 0.0).amax(1)
    negative = torch.cat([among.masked_fill(same, torch.inf), distance(features, old)], 1).amin(1)
    return F.relu(positive - negative + margin)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """||a - b|| of all rows (n, d), (c, d) -> (n, c), with a gradient also where it is zero."""
    return squared_distance(a, b).clamp_min(1e-12).sqrt()


def smoothed(prototypes: Tensor, share: float, neighbours: int) -> Tensor:
    """Each prototype (c, d) moved by `share` of the way to the mean of its nearest others."""
    apart = distance(prototypes, prototypes).fill_diagonal_(torch.inf)
    count = min(neighbours, len(prototypes) - 1)
    if not count:
        return prototypes
    nearest = apart.topk(count, largest=False).indices
    return (1 - share) * prototypes + share * prototypes[nearest].mean(1)
