"""FACT: Forward Compatible Few-Shot Class-Incremental Learning (Zhou, Wang, Ye, Ma, Pu, Zhan; CVPR 2022).

The base session keeps room for the classes to come: as many virtual prototypes as there will be new classes lie among
the base classes, and every image also has to be close to one of them. Mixtures of two images, made in the middle of
the network, play the new classes: they belong to a virtual prototype first and to a base class second. Afterwards the
encoder is frozen, new classes are class means, and an image is compared to a class also by way of the virtual ones.

paper                       here
phi                         self.encoder
W, P_v                      rows of `Reserved.weight`: of the base classes, then the virtual ones
l(f_v(x), y)                cross-entropy over the base rows
Mask(f_v(x), y), y^         `Reserved.reserve`        the true class hidden, the nearest virtual class the target
z = h(lam g(x)+...)         `Encoder.mixed`           pairs of different classes, behind config.mix_after stages
l(f_v(z), y^), Mask         `Reserved.forecast`
gamma                       config.reserve
eta                         config.eta                weight of the way through the virtual prototypes

The losses are weighed as in the authors' code, L1 + gamma (L2 + L3 + L4), which also ties each virtual class to three
base classes at random (the paper has no such ties), and hides the true class from a copy of the virtual rows that is
never trained. It normalises the features' dimensions instead of the class vectors at inference (`axis`), reports the
better of two classifiers in session 0 and uses AutoAugment; here it is class vectors, prototypes, and the variation
that all methods share.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods._fact import Reserved
from fscil.methods.shared.base import Net, base_plan, cross_entropy, freeze, label_rows, prepare, training_pixels
from fscil.methods.shared.method import Common, Needs, PlannedStage, Prototypical, cosine_branch
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.nn.noise import beta
from fscil.nn.prototypes import Prototypes
from fscil.running.descent import Training
from fscil.running.stages import Epoch
from fscil.running.training import Run
from fscil.tensors import sent


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' settings that most of their data sets share."""

    total_classes: int = 0  # how many classes there will be in the end, which has to be known in advance
    reserve: float = 0.01  # gamma, weight of the losses that keep room for new classes
    start: float = 0.0  # share of the epochs after which these losses begin
    alpha: float = 0.5  # the share of an image in a mixture is drawn from Beta(alpha, alpha)
    mix_after: int = 3  # stages of the encoder before images are mixed; 3: behind layer2 of a ResNet
    tied: int = 3  # base classes to which a virtual class is tied; 0: to all
    eta: float = 0.1  # weight of the virtual prototypes at inference, from session 1 on
    neighbours: int = 40  # virtual prototypes, the nearest ones, by way of which an image is compared
    axis: Literal["class", "dimension"] = "class"  # what is normalised there: class vectors (released code: dimension)


class Method(Prototypical):
    """One Branch, compared to directly and through virtual prototypes."""

    needs = Needs(total_classes=True, stages=True)
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([cosine_branch("B", encoder, config)])
        self.virtual = Prototypes(encoder.dim)

    def check(self, benchmark: Benchmark) -> None:
        c, classes, stages = self.config, len(benchmark.class_names), len(self.encoder.stages)
        if c.total_classes < classes:
            raise FscilError(
                f"FACT has to know the number of all classes in advance: {benchmark.name} will have {classes}, "
                f"total_classes is {c.total_classes}; set --total-classes {classes}"
            )
        if c.total_classes == benchmark.base_classes:
            raise FscilError("all classes are base classes, so FACT has none to keep room for; lower --base-classes")
        if not 1 <= c.mix_after < stages:
            what = "is one piece" if stages == 1 else f"has {stages} stages"
            raise FscilError(
                f"FACT mixes images behind stage {c.mix_after}, but encoder {c.encoder} {what}; "
                "change --mix-after or --encoder"
            )

    def learn_base(self, session: Session, run: Run) -> None:
        c, base = self.config, len(session.classes)
        head = Reserved(self.encoder.dim, base, c.total_classes, c.scale, c.tied, run.rng("head"))
        prepare(self, self.encoder, session, run)
        net = Net(self.encoder, head)
        self.train_base(net, session, run)
        freeze(net)
        self.virtual.clear()
        self.virtual.add(torch.arange(c.total_classes - base), head.weight[base:])
        self.teach_base(session, run)

    def train_base(self, net: Net[Reserved], session: Session, run: Run) -> None:
        c, row = self.config, label_rows(session.classes).to(session.train.device)
        steps = math.ceil(len(session.train) / c.base.batch)
        net.train()
        for epoch in run.epochs("base", net, net, c.base, steps):
            framing = self.train_framing(session, training_pixels(c.base, c.pixels, epoch.progress))
            for x, y in epoch.batches(session.train, framing, c.base.batch):
                if c.reserve and epoch.progress >= c.start:
                    epoch.step(self.loss(net, x, row[y], epoch))
                else:
                    epoch.step(cross_entropy(net(x), row[y], c.base))

    def loss(self, net: Net[Reserved], x: Tensor, rows: Tensor, epoch: Epoch) -> Tensor:
        """L1 + gamma (L2 + L3 + L4) of a batch of images (n, 3, p, p) of rows (n,)."""
        c, rng = self.config, epoch.rng("mixture", epoch.next)
        lam = beta(c.alpha, c.alpha, rng)
        partner = sent(torch.randperm(len(x), generator=rng), x.device)
        f, mixtures = net.encoder.mixed(x, c.mix_after, lambda h: lam * h + (1 - lam) * h[partner])
        room = net.head.reserve(f, rows)
        different = rows != rows[partner]
        if bool(different.any()):
            room = room + net.head.forecast(mixtures[different])
        return cross_entropy(net.head(f), rows, c.base) + c.reserve * room

    def relate(self, features: list[Tensor]) -> Tensor:
        """Cosines and, from session 1 on, the mean of two softmaxes: of cosines and of the way through virtual ones."""
        c, relations = self.config, self.branches[0].relate(features[0])
        if not c.eta or len(self.classes) + self.virtual.size == c.total_classes:
            return relations
        return c.eta * self.by_way(features[0]).softmax(1) + (1 - c.eta) * (c.scale * relations).softmax(1)

    def by_way(self, features: Tensor) -> Tensor:
        """Cosine to the nearest virtual prototypes times the cosine of these to each class, summed: (n, classes)."""
        W = self.branches[0].prototypes.means()
        V = F.normalize(self.branches[0].whitened(self.virtual.means()), dim=1)
        near = F.normalize(features, dim=1) @ V.T
        nearest = near.topk(min(self.config.neighbours, len(V)), 1)
        kept = torch.zeros_like(near).scatter(1, nearest.indices, nearest.values)
        return kept @ V @ F.normalize(W, dim=1 if self.config.axis == "class" else 0).T

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n = self.config, len(base.train)
        return [*base_plan(c.base, c.pixels, n), *self.mixing_plan(c.base, n), self.teaching_plan(n)]

    def mixing_plan(self, training: Training, images: int) -> list[PlannedStage]:
        """The second pass of mixed images, through the later stages only, as a number of whole passes."""
        c, steps = self.config, math.ceil(images / training.batch)
        shares = [epoch / training.epochs for epoch in range(training.epochs) if c.reserve]
        epochs = Counter(training_pixels(training, c.pixels, share) for share in shares if share >= c.start)
        stages = []
        for size, k in epochs.items():
            later = 1 - self.encoder.macs(size, c.mix_after) / self.encoder.macs(size)
            trained = round(k * images * later)
            stages.append(
                PlannedStage(f"mixtures at {size} px", size, k * steps, math.ceil(images / steps), trained, 0)
            )
        return stages
