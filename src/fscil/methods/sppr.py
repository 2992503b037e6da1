"""SPPR: Self-Promoted Prototype Refinement for Few-Shot Class-Incremental Learning (Zhu et al., CVPR 2021).

Encoder, base prototypes and everything else are trained in one go by random episode selection: in every step some base
classes play new ones, their learned prototypes are replaced by the means of a few support images, and all prototypes
are refined by attending to each other. A small network learns to tell how related an image and a refined prototype are.
Nothing is trained later; the means of new classes join the base prototypes and are refined together with them.

paper                            here
theta_p (base prototypes)        P, afterwards the first rows of self.branches[0].prototypes
random episode selection (RESS)  self.episode_selection, `replaced`
dynamic relation projection      self.attention        queries C, keys and values [C; old prototypes]
relation metric                  self.relation

The paper describes relation coefficients in an embedding space; its code is an attention with residual, as here. Also
from the code: no momentum, unrefined prototypes as long as there are no new classes, and on CUB-200 for ever for base
classes (`refine`). Here zeroed rows are no keys, in training as in sessions. The authors' code draws new shots of all
new classes in every session, which no method can do in this protocol; the setting `shot_view` has their augmentation.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from fscil.data.episodes import Sampling, Task, class_pool, episodes
from fscil.data.sessions import Benchmark, Session
from fscil.methods._sppr import RelationNetwork, Support, replaced, subsets
from fscil.methods.shared.base import (
    base_plan,
    cross_entropy,
    fit_cosine_classifier,
    freeze,
    label_rows,
    prepare,
    training_pixels,
)
from fscil.methods.shared.method import Common, PlannedStage, Prototypical
from fscil.nn.attention import SetAttention
from fscil.nn.branches import Branch, Branches
from fscil.nn.encoders import Encoder
from fscil.nn.relations import class_means
from fscil.running.descent import Training, only_upright
from fscil.running.stages import Epoch
from fscil.running.training import Run
from fscil.settings.limits import within
from fscil.tensors import sent

QUERIES = 500  # related at a time


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' code on CIFAR-100. Without `pretrain` the settings `base` are not used."""

    turns = True
    transfer: Training = field(
        default_factory=lambda: Training(
            epochs=56, batch=128, lr=0.1, momentum=0.0, weight_decay=5e-4, schedule="cosine"
        )
    )  # random episode selection
    pretrain: bool = False  # starts from the base session that others share and its class means (paper: from nothing)
    way: int = 5  # pseudo-new classes of a task
    spare: int = 3  # classes drawn beyond `way`, so that the tasks of a step differ
    shot: int = 5  # support images per class
    pseudo_tasks: int = 3  # tasks per step
    hidden: int = 64  # width of the relation network
    dropout: float = 0.5  # in the relation network
    attention_dropout: float = 0.1  # in the refinement
    refine: Literal["all", "new", "always"] = "all"  # prototypes refined in sessions; always: in the base session too
    shot_view: Literal["test", "train"] = "test"  # view of the shots (the authors' code: augmented, as in training)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one = (1, math.inf)
        within(self, way=at_least_one, spare=(0, math.inf), shot=at_least_one, pseudo_tasks=at_least_one)
        if not self.pretrain:
            only_upright("base", self.base)


class Method(Prototypical):
    """One Branch, the refinement of its prototypes, and the relation network."""

    config: Config
    base_classes: Tensor

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([Branch("B", encoder, "cosine", config.views)])
        self.attention = SetAttention(encoder.dim, config.attention_dropout)
        self.relation = RelationNetwork(encoder.dim, config.hidden, config.dropout)
        self.register_buffer("base_classes", torch.tensor(0))

    @property
    def sampling(self) -> Sampling:
        c = self.config
        return Sampling(c.way + c.spare, c.shot, 0, "none")

    def check(self, benchmark: Benchmark) -> None:
        class_pool(benchmark.base(self.config.held_out).train, self.sampling)

    def learn_base(self, base: Session, run: Run) -> None:
        bank, device = self.branches[0].prototypes, base.train.device
        P = torch.zeros(len(base.classes), self.encoder.dim, device=device)
        if self.config.pretrain:
            fit_cosine_classifier(self, self.encoder, base, run)
            self.teach(base, run)
            P = bank.means()[bank.rows(torch.tensor(base.classes))]
            bank.clear()
        else:
            prepare(self, self.encoder, base, run)
        P = self.episode_selection(base, P, run)
        freeze(self)
        for label, row in zip(base.classes, P, strict=True):
            bank.set(label, row)
        self.base_classes.fill_(len(P))

    def episode_selection(self, base: Session, P: Tensor, run: Run) -> Tensor:
        """Trains everything; P (classes, d) are the prototypes before and, given back, after it."""
        c, row = self.config, label_rows(base.classes).to(base.train.device)
        rows = nn.ParameterList([P])
        trained = nn.ModuleList([self, rows]).requires_grad_(True)
        steps = math.ceil(len(base.train) / c.transfer.batch)
        for epoch in run.epochs("RES", trained, trained, c.transfer, steps):
            trained.train()
            for x, y, support in self.batches(base, epoch, steps):
                chosen = subsets(c.pseudo_tasks, len(support.classes), c.way, epoch.rng("pseudo-new", epoch.next))
                own = row[sent(support.classes, x.device)]
                epoch.step(self.loss(rows[0], x, row[y], support.S, own, [some.to(x.device) for some in chosen]))
        after: Tensor = rows[0].detach()
        return after

    def batches(self, base: Session, epoch: Epoch, steps: int) -> Iterator[tuple[Tensor, Tensor, Task]]:
        """Images of all base classes with their labels, and the support of the pseudo-new ones."""
        c = self.config
        framing = self.train_framing(base, training_pixels(c.transfer, c.pixels, epoch.progress))
        support = episodes(base.train, framing, self.sampling, steps, Support(epoch))
        for (x, y), task in zip(epoch.batches(base.train, framing, c.transfer.batch), support, strict=True):
            yield x, y, task

    def loss(self, P: Tensor, x: Tensor, y: Tensor, S: Tensor, rows: Tensor, chosen: list[Tensor]) -> Tensor:
        """Cross-entropy over all base classes, in each task with other pseudo-new ones.

        Images x (n, ...) of rows y (n,); support S (k, shot, ...) of rows (k,); the classes of each task among the k.
        """
        means = class_means(self.encoder(S.flatten(0, 1)).unflatten(0, S.shape[:2]))
        refined = torch.stack([self.refine(*replaced(P, rows[own], means[own])) for own in chosen])
        logits = self.relation(self.encoder(x), refined)
        return cross_entropy(logits.flatten(0, 1), y.repeat(len(chosen)), self.config.transfer)

    def refine(self, prototypes: Tensor, old: Tensor) -> Tensor:
        """Prototypes (c, d) after they have attended to each other and to the learned ones among them (k, d)."""
        refined: Tensor = self.attention(prototypes, torch.cat([prototypes, old]))
        return refined

    @torch.no_grad()
    def learn_new(self, session: Session, run: Run) -> None:
        if self.config.shot_view == "test":
            super().learn_new(session, run)
        else:
            shots = [torch.arange(len(session.train))]
            x = next(session.train.batches(shots, self.train_framing(session), lambda i: run.rng("shots")))
            self.branches[0].prototypes.add(session.train.labels, self.encoder.eval()(x), self.config.new_bonus)

    def prototypes(self) -> Tensor:
        """All prototypes (classes, d) as images are related to them."""
        C, n, which = self.branches[0].prototypes.means(), int(self.base_classes), self.config.refine
        if len(C) == n and which != "always":
            return C
        refined = self.refine(C, C[:n])
        return torch.cat([C[:n], refined[n:]]) if which == "new" else refined

    def relate(self, features: list[Tensor]) -> Tensor:
        W = self.prototypes()
        scores = torch.cat([self.relation(f, W) for f in features[0].split(QUERIES)])
        return scores + self.branches[0].prototypes.biases()

    def plan_new(self, session: Session) -> list[PlannedStage] | None:
        n = len(session.train)
        seen = PlannedStage("prototypes", self.config.pixels, 1, n, 0, n)
        return super().plan_new(session) if self.config.shot_view == "test" else [seen]

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n = self.config, len(base.train)
        support = (c.way + c.spare) * c.shot
        before = [*base_plan(c.base, c.pixels, n), self.teaching_plan(n)] if c.pretrain else []
        stages = [
            replace(
                s,
                stage=s.stage.replace("base", "RES"),
                batch=s.batch + support,
                trained=s.trained + s.steps * support,
                support=support,
            )
            for s in base_plan(c.transfer, c.pixels, n)
        ]
        return [*before, *stages]
