"""MetaFSCIL: A Meta-Learning Approach for Few-Shot Class Incremental Learning (Chi et al., CVPR 2022), reconstructed.

The network learns to learn sessions: sequences of pseudo-sessions are cut from the base session, an inner loop adapts
fast weights to the support of each as if it were a real session, and the outer loop moves the slow weights so that all
classes seen in the sequence are recognised afterwards. A light auxiliary network gates the stages of the encoder; only
the outer loop trains it. Real sessions run the inner loop, starting from what was meta-learned.

paper                            here
theta, fast weights              self.encoder without gates and classifier rows; `adapt`
phi (guided modulation, BGM)     the gates of `modulated`
D_S, D_Q of a sequence           `Drawn.support`, `Drawn.query`
inner, outer loop                config.inner (and .warm_up), config.meta

No official code exists. Sampling, warm-up and step counts follow two re-implementations that agree on them; learning
rates and the number of sequences are ours. So is the form of the gates: the paper's second network is as deep as the
first, here each stage has channel gates made from its own activations and guided by its own weights. New rows start as
class means, so that without a single step the method is the prototype baseline. Gradients are of first order unless
`second_order`, and of each pseudo-session alone: what earlier ones moved counts as a constant.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fscil.data.episodes import Sampling, class_pool
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods._meta_fscil import Drawn, Parameters, Shape, adapt, modulated, sequences, ungated, with_gradient
from fscil.methods.shared.base import base_plan, fit_cosine_classifier, freeze, label_rows
from fscil.methods.shared.headed import Headed
from fscil.methods.shared.method import Common, Needs, PlannedStage, embed_all
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingCosine
from fscil.nn.relations import cosine, mean_of_labels
from fscil.running.descent import Descent
from fscil.running.training import Run
from fscil.settings.limits import within

ROWS = "rows"  # name of the classifier among the fast weights


def plain(epochs: int, lr: float) -> Descent:
    return Descent(epochs=epochs, lr=lr, momentum=0.0, weight_decay=0.0, gamma=1.0)


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the re-implementations on miniImageNet; learning rates and `meta.epochs` are ours."""

    turns = True
    meta: Descent = field(default_factory=lambda: Descent(epochs=20, lr=1e-3, weight_decay=5e-4))  # outer loop
    inner: Descent = field(default_factory=lambda: plain(5, 1e-3))  # inner loop: encoder and rows, a step per epoch
    warm_up: Descent = field(default_factory=lambda: plain(20, 0.1))  # before it: new rows alone, a step per epoch
    tasks: int = 10  # sequences per epoch
    pseudo_base: int = 20  # classes of the first pseudo-session
    pseudo_shots: int = 50  # support images of each of them
    pseudo_sessions: int = 8  # pseudo-sessions after the first
    way: int = 5  # classes of each of them
    shot: int = 5  # support images of each class
    query: int = 50  # query images of each class seen, in every pseudo-session
    second_order: bool = False  # whether the outer loop looks through the steps of the inner one
    bgm: Literal["light", "off"] = "light"  # guided modulation

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one = (1, math.inf)
        within(self, tasks=at_least_one, pseudo_base=at_least_one, pseudo_shots=at_least_one)
        within(self, pseudo_sessions=(0, math.inf), way=at_least_one, shot=at_least_one, query=at_least_one)
        for name in ("inner", "warm_up"):
            d = getattr(self, name)
            if d.optimizer != "sgd" or d.momentum or d.weight_decay or d.average:
                raise FscilError(
                    f"{name} is plain gradient descent: its optimizer must be sgd, momentum, weight_decay and average 0"
                )
        if self.second_order and self.winograd:
            raise FscilError("--winograd has no second derivatives; set --no-winograd or --no-second_order")


class Method(Headed):
    """Encoder with gates and a cosine classifier, both of which every session moves."""

    needs = Needs(exemplars="nothing", stages=True)
    reconstruction = "learning rates, number of sequences and gates"
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        several = len(encoder.stages) > 1  # `check` refuses gates on an encoder of one piece
        gated = modulated(encoder) if config.bgm == "light" and several else encoder
        super().__init__(config, gated, GrowingCosine(config.scale))
        self._plain = [encoder]  # in a list: its stages already belong to the gated encoder

    @property
    def shape(self) -> Shape:
        c = self.config
        later = c.pseudo_sessions
        return Shape((c.pseudo_base, *[c.way] * later), (c.pseudo_shots, *[c.shot] * later), c.query)

    @property
    def sampling(self) -> Sampling:
        """An episode as large as a sequence, to check what can be drawn."""
        return Sampling(self.shape.seen[-1], max(self.shape.shots), self.config.query, "none")

    def check(self, benchmark: Benchmark) -> None:
        c = self.config
        if c.bgm == "light" and len(self.encoder.stages) == 1:
            raise FscilError(
                f"guided modulation gates the stages of an encoder, but {c.encoder} is one piece; set --bgm off"
            )
        images = benchmark.base(c.held_out).train
        fewest = int(images.labels.unique(return_counts=True)[1].min())
        if fewest < c.pseudo_shots + c.query:
            raise FscilError(
                f"a sequence begins with {c.pseudo_shots} + {c.query} images of each class, but {benchmark.name} has a "
                f"base class of {fewest}; lower --pseudo-shots or --query"
            )
        class_pool(images, self.sampling)

    def learn_base(self, base: Session, run: Run) -> None:
        if self.config.query % run.world:  # now: the first sequence comes after the whole base training
            raise FscilError(
                f"{self.config.query} queries per class cannot be shared by {run.world} devices; change --query"
            )
        fit_cosine_classifier(self, self._plain[0], base, run)
        self.meta_learning(base, run)
        freeze(self)
        f = embed_all(self.encoder, base.train, self.test_framing(base), run)
        self.head.grow(base.classes, imprinted(f, label_rows(base.classes)[base.train.labels]))

    def meta_learning(self, base: Session, run: Run) -> None:
        c, pool = self.config, class_pool(base.train, self.sampling)
        self.encoder.eval().requires_grad_(True)
        for epoch in run.epochs("meta-learning", self.encoder, self.encoder, c.meta, c.tasks):
            for sequence in sequences(base.train, pool, self.train_framing(base), self.shape, c.tasks, epoch):
                epoch.step(self.outer_loss(self.share(sequence, run)))

    def share(self, sequence: Drawn, run: Run) -> Drawn:
        """The part of one of several devices: the whole support, every world-th query."""
        return Drawn(sequence.support, sequence.query[:, run.rank :: run.world])

    def outer_loss(self, sequence: Drawn) -> Tensor:
        """Mean over the pseudo-sessions of the queries' loss after each; activations of one are in memory at a time."""
        slow, trained = ungated(self.encoder), list(self.encoder.parameters())
        moved: dict[str, Tensor] = {}
        W, total = sequence.query.new_zeros(0, self.encoder.dim), 0.0
        gradients = [torch.zeros_like(p) for p in trained]
        for S in sequence.support:
            start = {name: p + moved[name] if moved else p for name, p in slow.items()}
            fast = self.adapted(S.flatten(0, 1), rows_of(S) + len(W), W, start)
            Q = sequence.query[: len(fast[ROWS])]
            loss = self.fast_loss(Q.flatten(0, 1), rows_of(Q), fast) / len(sequence.support)
            for sum_, g in zip(gradients, torch.autograd.grad(loss, trained, materialize_grads=True), strict=True):
                sum_ += g
            total, W = total + loss.item(), fast.pop(ROWS).detach()
            moved = {name: (p - slow[name]).detach() for name, p in fast.items()}
        return with_gradient(total, trained, gradients)

    def adapted(self, x: Tensor, y: Tensor, W: Tensor, start: Parameters) -> dict[str, Tensor]:
        """Fast weights after a pseudo-session of images x (n, 3, p, p) with rows y (n,), behind those of W (k, d)."""
        c = self.config
        with torch.no_grad():
            f = functional_call(self.encoder, dict(start), (x,))
        new = {ROWS: imprinted(f, y).requires_grad_()}
        new = adapt(lambda p: self.loss(f, y, torch.cat([W, p[ROWS]])), new, c.warm_up)
        rows = torch.cat([W, new[ROWS]]).detach().requires_grad_()
        return adapt(lambda p: self.fast_loss(x, y, p), {**start, ROWS: rows}, c.inner, c.second_order)

    def fast_loss(self, x: Tensor, y: Tensor, fast: Parameters) -> Tensor:
        weights = {name: p for name, p in fast.items() if name != ROWS}
        return self.loss(functional_call(self.encoder, weights, (x,)), y, fast[ROWS])

    def loss(self, f: Tensor, y: Tensor, W: Tensor) -> Tensor:
        """Cross-entropy of features (n, d) that belong to rows y (n,) of W."""
        return F.cross_entropy(self.config.scale * cosine(f, W), y)

    def learn_new(self, session: Session, run: Run) -> None:
        """The inner loop on a real session; the result are the weights to go on with."""
        x = next(session.train.batches([torch.arange(len(session.train))], self.test_framing(session)))
        with torch.no_grad():
            f = self.encoder.eval()(x)
        W, own = self.head.weight.detach(), label_rows(session.classes)[session.train.labels].to(f.device)
        y, new = own + len(W), nn.ParameterList([imprinted(f, own)])
        for epoch in run.epochs("warm-up", new, new, self.config.warm_up, 1):
            epoch.step(self.loss(f, y, torch.cat([W, new[0]])))
        self.head.grow(session.classes, new[0])
        freeze(self.net)
        for parameter in (*ungated(self.encoder).values(), *self.head.parameters()):
            parameter.requires_grad_(True)
        for epoch in run.epochs("adaptation", self.net, self.net, self.config.inner, 1):
            epoch.step(F.cross_entropy(self.net(x), y))
        freeze(self.net)

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n, shape, steps = self.config, len(base.train), self.shape, self.config.meta.epochs * self.config.tasks
        support, queries = shape.support_images, [c.query * seen for seen in shape.seen]
        trained = steps * (c.inner.epochs * support + sum(queries))
        meta = PlannedStage("meta-learning", c.pixels, steps, max(queries), trained, steps * support)
        means = PlannedStage("prototypes", c.pixels, 1, min(n, 500), 0, n)
        return [*base_plan(c.base, c.pixels, n), meta, means]

    def plan_new(self, session: Session) -> list[PlannedStage]:
        n, steps = len(session.train), self.config.inner.epochs
        return [PlannedStage("adaptation", self.config.pixels, steps, n, steps * n, n)]


def imprinted(features: Tensor, rows: Tensor) -> Tensor:
    """Directions (classes, d) of the mean features (n, d) of each class, in the order of their rows (n,)."""
    return F.normalize(mean_of_labels(features, rows)[1], dim=1)


def rows_of(images: Tensor) -> Tensor:
    """Row of each image of (classes, k, ...), flattened: 0 for the k images of the first class, and so on."""
    return torch.arange(len(images), device=images.device).repeat_interleave(images.shape[1])
