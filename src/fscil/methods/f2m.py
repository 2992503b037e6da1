"""F2M: Overcoming Catastrophic Forgetting by Finding Flat Minima (Shi, Chen, Zhang, Zhan, Wu; NeurIPS 2021).

The base session looks for a minimum that is flat: the loss is that of weights with random noise on the last layers,
and the class means of the noisy network must not move away from those of the clean one. Later sessions fine-tune these
layers by a prototype classifier, but never leave the cube of the noise, within which the old classes are known to be
safe. An image belongs to the nearest prototype; base prototypes are kept, those of new classes made anew from their
images.

paper                       here
f(x; phi, psi)              self.encoder, and a linear classifier that is dropped after the base session
epsilon, b                  weight_noise, config.bound      on the last config.layers convolutions larger than 1x1
M, lambda                   config.draws, config.prototype_weight
p_c, p_c^*                  clean, moved                    class means of a batch, without and with noise
theta^*, clamp              self.box                        theta stays within +-b/2 of theta^*

The gradient is that of the noisy weights (`call_with_noise`), and only the clean pass moves running statistics. The
released code differs from the paper: its prototype term has no gradient, its noise has a mean of +0.15 b, the weights
are restored before the backward pass, two standard deviations over the draws are added, gradients of sessions are
rounded. All but the third are settings (recipe `official`). On miniImageNet and CUB-200 it does not fine-tune at all.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil.data.episodes import Sampling, episodes
from fscil.data.images import Framing
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.base import Net, cross_entropy, freeze, label_rows, prepare, training_pixels
from fscil.methods.shared.finetuned import Finetuned, Gradient
from fscil.methods.shared.foreseen import told
from fscil.methods.shared.method import Common, Needs, PlannedStage, cosine_branch
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.nn.heads import ROW_STD, LinearHead
from fscil.nn.memory import ExemplarMemory, stored
from fscil.nn.noise import Box, call_with_noise, last_kernels, weight_noise
from fscil.nn.relations import cosine, mean_of_labels, squared_distance
from fscil.running.descent import Descent
from fscil.running.stages import Epoch
from fscil.running.training import Run
from fscil.settings.limits import within
from fscil.tensors import sent


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' settings for CIFAR-100."""

    bound: float = 0.01  # b: noise and later changes of a weight stay within +-b/2
    layers: int = 4  # convolutions, the last ones, that get noise and are fine-tuned
    draws: int = 2  # M, draws of noise per step
    prototype_weight: float = 1.0  # lambda, weight of the distance between clean and noisy class means
    noise_from: float = 0.0  # share of the epochs, by plain cross-entropy, after which the noise begins
    per_class: int = 16  # images of each class in a batch of the base session; 0: as they come
    feature_length: float = 0.0  # length to which features are brought before the linear classifier; 0: as they are
    row_std: float = ROW_STD  # of the rows with which it starts (other linear methods: 1/sqrt(d))
    head_rate: float = 1.0  # factor of the classifier's learning rate in the base session (the authors on CUB-200: 10)
    relation: Literal["euclid", "cosine"] = "euclid"  # of the prototype classifier that sessions are trained by
    new: Descent = field(
        default_factory=lambda: Descent(epochs=6, lr=0.01, weight_decay=0.0)
    )  # each later session; a step per epoch
    spread: float = 0.0  # weight of the standard deviation of the loss over the draws (released code: 2)
    prototype_gradient: bool = True  # whether the distance of class means has a gradient (released code: no)
    skewed_noise: bool = False  # whether the noise has the slip of the released code
    round_gradient: bool = False  # whether gradients of sessions are multiples of b/4 (released code: yes)

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, draws=(1, math.inf), row_std=(0, math.inf), head_rate=(0, math.inf))
        if self.spread and self.draws < 2:
            raise FscilError(
                "spread is a standard deviation over draws of noise, but draws is 1; set --draws 2 or --spread 0"
            )


class Method(Finetuned):
    """One Branch, a cube around its last layers, and the images of new classes."""

    needs = Needs(exemplars="all images of new classes", per_new_class=math.inf, convolutions=True)
    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([cosine_branch("B", encoder, config)])
        self.box = Box(encoder, last_kernels(encoder, config.layers), config.bound)
        self.memory = ExemplarMemory()

    @property
    def sampling(self) -> Sampling:
        c = self.config
        return Sampling(max(1, c.base.batch // c.per_class), 0, c.per_class, "none")

    def check(self, benchmark: Benchmark) -> None:
        c, found = self.config, len(self.box.names)
        if found < max(1, c.layers):
            raise FscilError(
                f"F2M needs {max(1, c.layers)} convolutions larger than 1x1 at the end of the encoder, "
                f"{c.encoder} has {found}; change --layers or --encoder"
            )
        counts = benchmark.base(c.held_out).train.labels.unique(return_counts=True)[1]
        if c.per_class and (len(counts) < self.sampling.way or int(counts.min()) < c.per_class):
            raise FscilError(
                f"a batch takes {c.per_class} images each of {self.sampling.way} classes, but {benchmark.name} has "
                f"{len(counts)} base classes of at least {int(counts.min())}; lower --base.batch or set --per-class 0"
            )

    def learn_base(self, session: Session, run: Run) -> None:
        c = self.config
        head = LinearHead(self.encoder.dim, len(session.classes), run.rng("head"), c.feature_length, c.row_std)
        net = Net(self.encoder, head)
        prepare(self, self.encoder, session, run)
        self.train_base(net, session, run)
        freeze(net)
        self.box.centre(self.encoder)
        self.teach_base(session, run)

    def train_base(self, net: Net[LinearHead], session: Session, run: Run) -> None:
        c = self.config
        net.train()
        for parameter in net.head.parameters():
            parameter.register_hook(lambda gradient: c.head_rate * gradient)  # for SGD: a rate of its own
        for epoch in run.epochs("base", net, net, c.base, self.steps(session)):
            framing = self.train_framing(session, training_pixels(c.base, c.pixels, epoch.progress))
            for x, rows, weight in self.batches(session, framing, epoch, run):
                noisy = epoch.progress >= c.noise_from
                epoch.step(weight * (self.loss(net, x, rows, epoch) if noisy else cross_entropy(net(x), rows, c.base)))

    def steps(self, session: Session) -> int:
        return math.ceil(len(session.train) / self.config.base.batch)

    def batches(
        self, session: Session, framing: Framing, epoch: Epoch, run: Run
    ) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Images, rows of their classes and the weight of their mean, some classes at a time or all mixed."""
        c, row = self.config, label_rows(session.classes)
        if c.per_class:
            for task in episodes(session.train, framing, self.sampling, self.steps(session), epoch):
                task = task.share(run.rank, run.world)
                rows = row[task.classes].repeat_interleave(task.Q.shape[1])
                yield task.Q.flatten(0, 1), sent(rows, session.train.device), task.weight
        else:
            row = row.to(session.train.device)
            for x, y in epoch.batches(session.train, framing, c.base.batch):
                yield x, row[y], 1.0  # `epoch` weighs these itself

    def loss(self, net: Net[LinearHead], x: Tensor, rows: Tensor, epoch: Epoch) -> Tensor:
        """Mean over draws of noise: cross-entropy of images x (n, 3, p, p), and how far their class means move."""
        c, losses = self.config, []
        clean = mean_of_labels(net.encoder(x), rows)[1]
        for m in range(c.draws):
            rng = epoch.rng("noise", epoch.next, m)
            shapes = {name: self.encoder.get_parameter(name).shape for name in self.box.names}
            noise = {name: weight_noise(shape, c.bound, rng, c.skewed_noise) for name, shape in shapes.items()}
            f = call_with_noise(net.encoder, noise, x)
            moved = (mean_of_labels(f, rows)[1] - clean).square().sum(1).mean()
            moved = moved if c.prototype_gradient else moved.detach()
            losses.append(cross_entropy(net.head(f), rows, c.base) + c.prototype_weight * moved)
        every = torch.stack(losses)
        return every.mean() + c.spread * every.std() if c.spread else every.mean()

    def learn_new(self, session: Session, run: Run) -> None:
        c = self.config
        self.teach(session, run, c.new_bonus)
        self.memory.add(stored(session.train, self.test_framing(session)))
        images = self.memory.images
        change = rounding(c.bound / 4) if c.round_gradient else None
        weights = {self.encoder.get_parameter(name): change for name in self.box.names}
        for epoch, x, y in self.finetuning_batches(images, session, c.new, weights, run):
            self.box.project(self.encoder)
            epoch.step(self.prototype_loss(x, y, self.relation))
        self.box.project(self.encoder)
        self.teach_again(images, session, run)

    def relation(self, features: Tensor, prototypes: Tensor) -> Tensor:
        if self.config.relation == "cosine":
            return self.config.scale * cosine(features, prototypes)
        return -squared_distance(features, prototypes)

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n, steps = self.config, len(base.train), self.steps(base)
        images = self.sampling.way * c.per_class * steps if c.per_class else n
        shares = [epoch / c.base.epochs for epoch in range(c.base.epochs)]
        epochs = Counter((training_pixels(c.base, c.pixels, share), share >= c.noise_from) for share in shares)
        stages = []
        for (size, noisy), k in epochs.items():
            name, passes = (f"base at {size} px, noise", 1 + c.draws) if noisy else (f"base at {size} px", 1)
            stages.append(
                PlannedStage(name, size, k * steps, passes * math.ceil(images / steps), k * passes * images, 0)
            )
        return [*stages, self.teaching_plan(n)]

    def plan_new(self, session: Session) -> list[PlannedStage]:
        new = len(session.train)
        images = len(told(session).of_later) + new
        return [self.teaching_plan(new), self.finetuning_plan(self.config.new, images), self.teaching_plan(images)]


def rounding(step: float) -> Gradient:
    """Makes of a gradient the nearest multiple of `step`; without `step` there is but one, zero."""
    return lambda gradient: (gradient / step).round() * step if step else torch.zeros_like(gradient)
