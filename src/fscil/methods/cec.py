"""CEC: Few-Shot Incremental Learning with Continually Evolved Classifiers (Zhang et al., CVPR 2021).

After the usual base training, a graph attention module learns to adapt all classifier rows to each other and to the
query. It is trained by pseudo-incremental learning: episodes of base classes and of their rotated copies, which play
the new classes. Nothing is trained later; a new class is the mean of its features, and the module adapts the rows anew
for every query.

paper                       here
R (backbone)                self.encoder
w (classifier weights)      self.branches[0].prototypes
G (graph attention)         self.attention                tokens: all prototypes and, as one more node, the query
PIL                         self.pseudo_incremental_learning
alpha_1, alpha_2            config.transfer.lr, and config.encoder_rate times it

The base session is the one all methods share. Rates of encoder and attention differ by a factor on the gradient, so
that weight decay takes its rate from the attention. The authors' code names a drop-out of 0.5 but keeps the network
in test mode, shows augmented episodes in the first epoch only (recipe `official`), and chooses the epoch on the test
images of the last session; here drop-out is off, all episodes are augmented, and the last epoch counts.
"""

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.episodes import Sampling, Task, check_share, class_pool, episodes
from fscil.data.images import Augment, Framing
from fscil.data.sessions import Benchmark, Session
from fscil.methods.shared.base import base_plan, fit_cosine_classifier, freeze
from fscil.methods.shared.method import Common, PlannedStage, Prototypical, cosine_branch
from fscil.nn.attention import SetAttention
from fscil.nn.branches import Branches
from fscil.nn.encoders import Encoder
from fscil.nn.relations import class_means
from fscil.running.descent import Descent
from fscil.running.training import Run
from fscil.settings.limits import within

QUERIES = 100  # related at a time: each has its own copy of all prototypes


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' code on miniImageNet; paper and code agree on them."""

    turns = True
    transfer: Descent = field(
        default_factory=lambda: Descent(epochs=100, lr=2e-4, weight_decay=5e-4, step_epochs=20, gamma=0.5)
    )  # pseudo-incremental learning; its lr is that of the attention
    encoder_rate: float = 1.0  # learning rate of the encoder, in multiples of the attention's
    tasks: int = 50  # episodes per epoch
    way: int = 15  # base classes of an episode; as many rotated ones come on top
    shot: int = 1  # support images per class
    query: int = 15  # query images per class
    dropout: float = 0.0  # in the attention
    start: float = 1.0  # factor of the random weights with which the attention's output starts (0: no attention yet)
    augmented_epochs: int | None = None  # epochs whose episodes are augmented (none: all; the authors' code: 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one = (1, math.inf)
        within(self, tasks=at_least_one, way=at_least_one, shot=at_least_one, query=at_least_one)


class Method(Prototypical):
    """One Branch, and an attention between its features and their relations."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder)
        self.branches = Branches([cosine_branch("B", encoder, config)])
        self.attention = SetAttention(encoder.dim, config.dropout, layer_norm=True)
        for parameter in self.attention.output.parameters():
            parameter.data.mul_(config.start)

    @property
    def sampling(self) -> Sampling:
        c = self.config
        return Sampling(c.way, c.shot, c.query, "rotate")

    def check(self, benchmark: Benchmark) -> None:
        class_pool(benchmark.base(self.config.held_out).train, self.sampling)

    def learn_base(self, base: Session, run: Run) -> None:
        check_share(self.config.query, run.world)  # now: the first episode comes after the whole base training
        fit_cosine_classifier(self, self.encoder, base, run)
        if self.config.shrinkage < 1:
            self.teach_base(base, run)  # for its whitening, behind which the attention is trained
        self.pseudo_incremental_learning(base, run)
        freeze(self)
        self.branches[0].prototypes.clear()
        self.teach(base, run)

    def pseudo_incremental_learning(self, base: Session, run: Run) -> None:
        """Encoder and attention are trained on episodes; batch norm stays as it is."""
        c = self.config
        self.encoder.eval().requires_grad_(True)
        self.attention.train().requires_grad_(True)
        for epoch in run.epochs("PIL", self, self, c.transfer, c.tasks):
            augmented = c.augmented_epochs is None or epoch.number < c.augmented_epochs
            framing = self.train_framing(base) if augmented else self.plain_framing(base)
            for task in episodes(base.train, framing, self.sampling, c.tasks, epoch):
                share = task.share(run.rank, run.world)
                epoch.step(share.weight * self.loss(share))

    def plain_framing(self, session: Session) -> Framing:
        """The test framing, in the form of an augmentation that does nothing."""
        framing = self.test_framing(session)
        return replace(framing, augment=Augment(crop="none", flip=False, margin=framing.margin))

    def loss(self, task: Task) -> Tensor:
        """Cross-entropy of all queries, real and rotated, against the prototypes (2 way, d) of the episode."""
        images = torch.cat([task.support, task.query], 1)
        f = self.encode(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        relations = self.relations(f[:, task.shot :].flatten(0, 1), class_means(f[:, : task.shot]))
        y = torch.arange(len(f), device=f.device).repeat_interleave(f.shape[1] - task.shot)
        return F.cross_entropy(self.config.scale * relations, y)

    def encode(self, images: Tensor) -> Tensor:
        """Features (n, d) whose gradient is scaled by the encoder's rate."""
        f = self.branches[0].encode(images)
        f = f.detach() + self.config.encoder_rate * (f - f.detach())
        return self.branches[0].whitened(f)

    def relations(self, queries: Tensor, prototypes: Tensor) -> Tensor:
        """Cosine (n, c) of each query (n, d) and the prototypes (c, d), after they have attended to each other."""
        tokens = torch.cat([prototypes.expand(len(queries), -1, -1), queries.unsqueeze(1)], 1)
        tokens = F.normalize(self.attention(tokens, tokens), dim=-1)
        return (tokens[:, :-1] @ tokens[:, -1:].mT).squeeze(-1)

    def relate(self, features: list[Tensor]) -> Tensor:
        bank = self.branches[0].prototypes
        W = bank.means()
        return torch.cat([self.relations(f, W) for f in features[0].split(QUERIES)]) + bank.biases()

    def plan(self, base: Session) -> list[PlannedStage]:
        c, n, steps = self.config, len(base.train), self.config.transfer.epochs * self.config.tasks
        images = 2 * c.way * (c.shot + c.query)
        whitening = [self.teaching_plan(n)] if c.shrinkage < 1 else []
        learning = PlannedStage("PIL", c.pixels, steps, images, steps * images, 0, support=2 * c.way * c.shot)
        return [*base_plan(c.base, c.pixels, n), *whitening, learning, self.teaching_plan(n)]
