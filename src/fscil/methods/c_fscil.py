"""C-FSCIL: Constrained Few-shot Class-incremental Learning (Hersche et al., CVPR 2022).

A projection behind the encoder maps features into a space of so many dimensions that the prototypes of all classes can
be nearly orthogonal; meta-learning by episodes over all base classes makes them so. Of every class only the mean
activation in front of the projection is kept. A session adds means and either stops (mode 1), or trains the projection
alone to bring all prototypes to their own signs (mode 2) or to nudged, less similar prototypes (mode 3).

paper                            here
f_theta1, f_theta2 (FCL)         self.encoder, self.projection
GAAM (averaged activations)      self.branches[0].prototypes        g
EM (explicit memory), p          self.prototypes()                  p = projection(g)
softabs sharpening               `softabs`, `sharpened`
nudged prototypes k              self.nudged

The authors' code sums where the paper averages: support vectors in episodes, and base activations over mini-batches of
128, which saturates base prototypes and not new ones; `sums` brings this back. It also normalises episodes over the
columns of classes that do not exist yet (`unused`), and its projection's optimiser outlives the sessions; here it does
not. Without `pretrain` "shared" the base session is not the one of the other methods.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.episodes import Sampling, Task, check_share, class_pool, episodes
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods._c_fscil import alignment, repulsion, sharpened, similarity
from fscil.methods.shared.base import Net, base_plan, fit_base, fit_cosine_classifier, freeze
from fscil.methods.shared.method import Common, PlannedStage, Prototypical
from fscil.nn.branches import Branch, Branches
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingLinear, random_rows
from fscil.nn.memory import first_of_each
from fscil.running.descent import Descent, only_upright
from fscil.running.training import Run
from fscil.settings.limits import within

GAAM_BATCH = 128  # images per mini-batch of the authors' code


def constant(epochs: int, lr: float) -> Descent:
    return Descent(epochs=epochs, lr=lr, weight_decay=0.0, gamma=1.0)


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the paper's on the common encoder, else the authors' code; their base schedule is in the recipes."""

    turns = True
    dim: int = 512  # dimensions in which prototypes are to be orthogonal
    mode: Literal[1, 2, 3] = 3  # what a session trains: nothing, the projection to signs, or to nudged prototypes
    pretrain: Literal["linear", "shared"] = "linear"  # base session: own, with a linear classifier, or that of others
    meta: Descent = field(
        default_factory=lambda: Descent(epochs=70, lr=0.01, weight_decay=5e-4, step_epochs=30)
    )  # meta-learning
    tasks: int = 1000  # episodes per epoch
    way: int | None = None  # classes of an episode (none: all base classes)
    shot: int = 5  # support images per class
    query: int = 10  # query images per class
    nudge: Descent = field(default_factory=lambda: constant(100, 0.1))  # mode 3: the prototypes, one step per epoch
    align: Descent = field(
        default_factory=lambda: constant(50, 0.01)
    )  # modes 2 and 3: the projection (mode 2: epochs 10)
    base_shots: int | None = None  # images per base class that are averaged (none: all)
    sums: bool = False  # sums instead of means, as in the authors' code
    unused: int = 0  # classes without prototype that episodes are normalised over (the authors' code: 40)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one = (1, math.inf)
        within(self, tasks=at_least_one, shot=at_least_one, query=at_least_one, unused=(0, math.inf))
        chosen = [name for name in ("way", "base_shots") if getattr(self, name) is not None]
        within(self, **dict.fromkeys(chosen, at_least_one))
        if self.pretrain == "linear":
            only_upright("base", self.base)


class Method(Prototypical):
    """One Branch with the activations, and the projection behind it."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([Branch("B", encoder, "cosine", config.views)])
        self.projection = nn.Linear(encoder.dim, config.dim)
        nn.init.orthogonal_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)

    def sampling(self, base: Session) -> Sampling:
        c = self.config
        return Sampling(c.way or len(base.classes), c.shot, c.query, "none")

    def check(self, benchmark: Benchmark) -> None:
        classes, dim = len(benchmark.order), self.config.dim
        if dim < classes:
            raise FscilError(
                f"{classes} classes cannot be orthogonal in {dim} dimensions; set --dim to {classes} or more"
            )
        base = benchmark.base(self.config.held_out)
        class_pool(base.train, self.sampling(base))

    def learn_base(self, base: Session, run: Run) -> None:
        check_share(self.config.query, run.world)  # now: the first episode comes after the whole base training
        if self.config.pretrain == "linear":
            self.fit_linear(base, run)
        else:
            fit_cosine_classifier(self, self.encoder, base, run)
        self.meta_learning(base, run)
        freeze(self)
        self.average_activations(base, run)

    def fit_linear(self, base: Session, run: Run) -> None:
        """Encoder and projection under a linear classifier without bias."""
        c, head = self.config, GrowingLinear()
        head.grow(base.classes, random_rows(len(base.classes), c.dim, c.dim**-0.5, run.rng("head")))
        net = Net(self.encoder, nn.Sequential(self.projection, head))
        fit_base(self, net, base, run, {"head": "projected", "dim": c.dim})

    def meta_learning(self, base: Session, run: Run) -> None:
        c, sampling = self.config, self.sampling(base)
        trained = nn.ModuleList([self.encoder, self.projection]).requires_grad_(True)
        for epoch in run.epochs("meta-learning", trained, trained, c.meta, c.tasks):
            for task in episodes(base.train, self.train_framing(base), sampling, c.tasks, epoch):
                share = task.share(run.rank, run.world)
                epoch.step(share.weight * self.loss(share))

    def loss(self, task: Task) -> Tensor:
        """Binary cross-entropy of the sharpened, normalised similarities; the prototypes get no gradient."""
        with torch.no_grad():
            self.encoder.eval()
            v = self.project(task.S)
            p = v.sum(1) if self.config.sums else v.mean(1)
        self.encoder.train()
        q = self.project(task.Q)
        weights = sharpened(similarity(q.flatten(0, 1), p), self.config.unused)
        target = torch.eye(len(q), device=q.device).repeat_interleave(q.shape[1], 0)
        return F.binary_cross_entropy(weights, target)

    def project(self, images: Tensor) -> Tensor:
        """Images (way, k, 3, p, p) -> (way, k, dim)."""
        projected: Tensor = self.projection(self.encoder(images.flatten(0, 1))).unflatten(0, images.shape[:2])
        return projected

    def average_activations(self, base: Session, run: Run) -> None:
        """Fills the memory of mean activations of the base classes."""
        c, bank = self.config, self.branches[0].prototypes
        if c.base_shots is not None:
            base = replace(base, train=base.train.select(first_of_each(base.train.labels, c.base_shots)))
        bank.clear()
        self.teach(base, run)
        if c.sums:
            bank.rescale(math.ceil(len(base.train) / GAAM_BATCH))

    def learn_new(self, session: Session, run: Run) -> None:
        super().learn_new(session, run)
        if self.config.mode > 1:
            p = self.prototypes().detach()
            self.align(p.sign() if self.config.mode == 2 else self.nudged(p, run), run)

    def prototypes(self) -> Tensor:
        """p (classes, dim) of all classes so far."""
        p: Tensor = self.projection(self.branches[0].prototypes.means())
        return p

    def nudged(self, p: Tensor, run: Run) -> Tensor:
        """Prototypes close to p (classes, dim) but less similar to each other."""
        k = nn.ParameterList([p.clone()])
        for epoch in run.epochs("nudging", k, k, self.config.nudge, 1):
            epoch.step(repulsion(k[0]) + (1 - alignment(k[0], p)))
        moved: Tensor = k[0].detach()
        return moved

    def align(self, target: Tensor, run: Run) -> None:
        """Trains the projection alone, until it maps the mean activations to the targets (classes, dim)."""
        self.projection.requires_grad_(True)
        for epoch in run.epochs("alignment", self.projection, self.projection, self.config.align, 1):
            epoch.step(-alignment(self.prototypes(), target))
        freeze(self.projection)

    def relate(self, features: list[Tensor]) -> Tensor:
        relations = similarity(self.projection(features[0]), self.prototypes()).abs()
        return relations + self.branches[0].prototypes.biases()

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n, steps = self.config, len(base.train), self.config.meta.epochs * self.config.tasks
        way, shown = self.sampling(base).way, base.train.labels.bincount()
        averaged = n if c.base_shots is None else int(shown.clamp(max=c.base_shots).sum())
        trained, encoded = steps * way * c.query, steps * way * c.shot
        meta = PlannedStage("meta-learning", c.pixels, steps, way * c.query, trained, encoded)
        return [*base_plan(c.base, c.pixels, n), meta, self.teaching_plan(averaged)]
