"""TOPIC: Few-Shot Class-Incremental Learning by a TOpology-Preserving knowledge InCrementer (Tao et al.; CVPR 2020).

A neural gas spreads nodes over the features of the base classes; each node keeps the image that is most like it. A
session trains the last block so that these images stay where their nodes are (anchor loss), that new images move to the
node of their class and that new nodes keep away from neighbours of other classes (min-max loss). Classification is by a
linear layer; the gas only guards the features.

paper                       here
V, m_j, Lambda_j, c_j       self.gas                        nodes: centroids, variances, labels
e_ij                        self.gas.ages                   edges, by competitive Hebbian learning
z_j                         self.memory                     one image per node, in the order of the nodes
L_AL, lambda_1              anchoring, config.anchor
L_MML, lambda_2, xi         min_loss, max_loss; config.pull, config.push, config.margin

A reconstruction: the losses and the gas were never released. Equations follow the paper, weights and schedules the call
sites of its scripts; rate, reach and lifetime of the gas and the floor of the variances are ours. The inverse variances
are divided by their mean, so that the released weight 350 keeps its meaning. The scripts anchor to the features of the
net before instead of the centroids and without variances (`anchored_to`, recipe official), stop the gradient through
logits of old classes (`new.old_rows` "detached") and choose the epoch on test images, which is not repeated here.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.sessions import Session
from fscil.methods.shared.base import cross_entropy
from fscil.methods.shared.foreseen import told
from fscil.methods.shared.headed import Finetuning, Rehearsing
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.nn.distillation import anchoring
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear
from fscil.nn.memory import stored
from fscil.nn.neural_gas import NeuralGas
from fscil.nn.relations import mean_of_labels, squared_distance
from fscil.running.training import Run
from fscil.settings.limits import within


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the paper's equations; weights, schedule and `new.old_rows` are those of the CIFAR-100 script."""

    feature_length: float = 1.0  # length to which features are brought before the linear classifier; 0: as they are
    nodes: int = 400  # nodes of the base session, each with one image; a new class adds one
    gas_rate: float = 0.02  # eta, the step of the nearest node towards a feature
    gas_reach: float = 1.0  # alpha, how fast the step falls with the rank of a node
    gas_lifetime: int = 200  # T, the age at which an edge is removed; no effect above ways * shots + 1
    anchor: float = 350.0  # weight of the anchor loss
    anchored_to: Literal["centroid", "previous"] = "centroid"  # centroid by inverse variance, or the net before
    variance_floor: float = 0.1  # smallest variance in the anchor loss, as share of the mean variance
    pull: float = 0.3  # weight of the distance of new images to the node of their class
    push: float = 1e-4  # weight of new nodes being close to neighbours of other classes
    margin: float = 0.5  # xi, the distance from which neighbours no longer push
    centre_lr: float = 0.1  # learning rate of the new nodes
    new: Finetuning = field(
        default_factory=lambda: Finetuning(
            epochs=70,
            lr=0.1,
            weight_decay=5e-4,
            milestones=(60,),
            part="last_block",
            batch_norm="frozen",
            old_rows="detached",
        )
    )  # each later session

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, nodes=(1, math.inf), gas_reach=(1e-6, math.inf))


class Method(Rehearsing):
    """Anchor loss and min-max loss on the nodes of a neural gas."""

    reconstruction = "losses and neural gas"
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingLinear(config.feature_length))
        self.gas = NeuralGas(encoder.dim)
        self.needs = Needs(
            exemplars=f"{config.nodes} base images, 1 per new class", in_all=config.nodes, per_new_class=1, stages=True
        )

    def learn_base(self, session: Session, run: Run) -> None:
        c = self.config
        self.fit_linear(session, run)
        f = self.shown(self.features(session.train, session, run))
        spread = (c.nodes, c.gas_rate, c.gas_reach, c.gas_lifetime)
        chosen = self.gas.fit(f, session.train.labels, *spread, run.rng("gas"))
        self.memory.add(stored(session.train.select(chosen), self.test_framing(session)))

    def learn_new(self, session: Session, run: Run) -> None:
        c = self.config
        z, (places, weights) = self.anchors(session, run), self.moorings(session, run)
        nodes = self.insert(session, run)
        centres = Centres(self.gas.centroids[nodes], c.centre_lr / c.new.lr if c.new.lr else 0.0)
        self.grow_linear(session, run)
        classes, trained = self.gas.labels[nodes], nn.ModuleList([self.net, centres])
        for epoch, x, rows in self.finetuning_batches("new", session.train, session, c.new, run, trained):
            f = self.encoder(x)
            loss = cross_entropy(self.logits(f, c.new), rows, c.new)
            if c.anchor:
                loss = loss + c.anchor * anchoring(self.shown(self.encoder(z)), places, weights)
            if c.pull:
                loss = loss + c.pull * min_loss(self.shown(f), self.head.labels[rows], centres.points, classes)
            if c.push:
                loss = loss + c.push * max_loss(centres.points, self.gas, nodes, c.margin)
            epoch.step(loss)
        self.gas.centroids[nodes] = centres.points.detach()
        self.keep_nearest(session, nodes, run)

    def moorings(self, session: Session, run: Run) -> tuple[Tensor, Tensor | None]:
        """The points (n, dim) where the features of the z_j are to stay, and how firmly (n, dim)."""
        if self.config.anchored_to == "centroid":
            return self.gas.centroids.clone(), self.gas.precisions(self.config.variance_floor)
        return self.shown(self.features(self.memory.images, session, run)), None

    def insert(self, session: Session, run: Run) -> Tensor:
        """A node at the mean of each new class, with edges to the nodes near its images -> positions (ways,)."""
        f = self.shown(self.features(session.train, session, run))
        labels, means = mean_of_labels(f, session.train.labels.to(f.device))
        nodes = self.gas.insert(labels, means)
        self.gas.join(f, self.config.gas_lifetime)
        return nodes

    def keep_nearest(self, session: Session, nodes: Tensor, run: Run) -> None:
        """Of each new class the image closest to its node, in the order of the nodes."""
        f = self.shown(self.features(session.train, session, run))
        away = squared_distance(f, self.gas.centroids[nodes])
        other = session.train.labels.to(f.device)[:, None] != self.gas.labels[nodes]
        chosen = away.masked_fill(other, float("inf")).argmin(0).cpu()
        self.memory.add(stored(session.train.select(chosen), self.test_framing(session)))

    def shown(self, features: Tensor) -> Tensor:
        """Features as the gas sees them: of unit length, unless the classifier takes them as they are."""
        return F.normalize(features, dim=1) if self.config.feature_length else features

    def plan_new(self, session: Session) -> list[PlannedStage]:
        """The most it can be: which nodes win no base image, wherever they are put, and are removed, features tell."""
        c, past, new = self.config, told(session), len(session.train)
        nodes = min(c.nodes, len(past.of_base)) + len(past.of_later.unique())
        moored = nodes if c.anchored_to == "previous" else 0
        steps = self.finetuning_plan(c.new, new, beside=nodes if c.anchor else 0)
        return [*steps, self.encoding_plan(2 * new + moored)]


class Centres(nn.Module):
    """New nodes (n, dim) while they are trained, with a learning rate that is `speed` times that of the net."""

    def __init__(self, points: Tensor, speed: float):
        super().__init__()
        self.points = nn.Parameter(points.clone())
        self.points.register_hook(lambda gradient: speed * gradient)


def min_loss(features: Tensor, labels: Tensor, points: Tensor, classes: Tensor) -> Tensor:
    """Squared distance of each feature (n, d) to the nearest node of its class, mean; zero iff every one sits on it."""
    away = squared_distance(features, points)
    return away.masked_fill(labels[:, None] != classes, float("inf")).amin(1).clamp(min=0).mean()


def max_loss(points: Tensor, gas: NeuralGas, nodes: Tensor, margin: float) -> Tensor:
    """How much closer than `margin` the points (k, d) of new nodes are to neighbours of other classes, summed."""
    everywhere = gas.centroids.index_copy(0, nodes.to(gas.centroids.device), points)
    gaps = margin - torch.cdist(points, everywhere)
    rivals = gas.neighbours(nodes) & (gas.labels[nodes][:, None] != gas.labels)
    return gaps[rivals].clamp(min=0).sum()
