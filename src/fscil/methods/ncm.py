"""NCM, by its own name LUCIR: Learning a Unified Classifier Incrementally via Rebalancing (Hou et al.; CVPR 2019).

Cosine classification makes old and new classes equal in magnitude. A session trains on new images and exemplars with
cross-entropy, with a penalty on every turn of a feature against the net of before, and with a margin that keeps old
classes apart from the new ones most like them. Rows of old classes stand still, those of new ones start at their
class means. Tables of this field call it NCM; it is tested by the largest cosine, not by the nearest class mean.

paper                       here
eta                         self.head.scale                 learned, one for all rows
theta_i                     rows of self.head
L_dis^G, lambda             less_forget, less_forget_weight
L_mr, K, m                  margin_ranking, config.hardest, config.margin
R_s                         config.exemplars                herded

As in the authors' code: imprinted rows, frozen old rows, no ReLU behind the last block (`base_session` "lucir"). With
`base_session` "shared" the base session is trained like that of the other cosine methods (it is the very same if
`scale` is theirs) and eta is learned from session 1 on; features are then hardly ever negative and close to each
other, so that imprinted rows beat learned ones: set `imprint` to false, as F2M's port does. The recipe topic_reduction
is the row "NCM" that TOPIC and those after it print: see _topic_reduction.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.base import cross_entropy, fit_base, fit_cosine_classifier
from fscil.methods.shared.foreseen import kept_of_each, told
from fscil.methods.shared.headed import Finetuning
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.methods.shared.topic_reduction import Reducible, Reduction
from fscil.nn.distillation import less_forget, margin_ranking
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingCosine, imprinted_rows, random_rows
from fscil.nn.relations import cosine
from fscil.running.descent import only_upright
from fscil.running.training import Run
from fscil.settings.limits import within

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU)
PASSIVE = (nn.Identity, nn.MaxPool2d, nn.AvgPool2d)


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' settings for CIFAR-100; their base schedule is in the recipes."""

    turns = True
    scale: float = 1.0  # eta at the start of training
    base_session: Literal["lucir", "shared"] = "lucir"  # lucir: learned eta, signed features; shared: neither
    exemplars: int = 20  # exemplars per class
    less_forget: float = 5.0  # lambda_base; lambda = lambda_base * sqrt(old classes / new classes)
    margin: float = 0.5  # m of the margin ranking
    hardest: int = 2  # K, new classes that an exemplar of an old class is ranked against
    rank: float = 1.0  # weight of the margin ranking
    imprint: bool = True  # whether new rows start at the class means of their features
    new: Finetuning = field(
        default_factory=lambda: Finetuning(
            epochs=160, batch=128, lr=0.1, weight_decay=5e-4, milestones=(80, 120), old_rows="frozen"
        )
    )  # each later session
    reduction: Reduction = field(default_factory=Reduction)  # the method as TOPIC reduced it

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, exemplars=(0, math.inf), hardest=(1, math.inf))
        if self.base_session == "lucir" or self.reduction.on:
            only_upright("base", self.base)


class Method(Reducible):
    """Cosine classifier, less-forget constraint, inter-class separation."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingCosine(config.scale, learned=True))
        self.needs = Needs(exemplars=f"{config.exemplars} images per class", per_class=config.exemplars)
        self.signed = config.base_session == "lucir" and remove_last_activation(encoder)

    def check(self, benchmark: Benchmark) -> None:
        super().check(benchmark)
        if self.config.base_session == "lucir" and not self.signed:
            name = self.config.encoder
            raise FscilError(f"encoder {name} has no activation to remove from its top; set --base-session shared")

    def learn_base(self, session: Session, run: Run) -> None:
        c, dim = self.config, self.encoder.dim
        if c.base_session == "shared":
            self.head.grow(session.classes, fit_cosine_classifier(self, self.encoder, session, run))
        else:
            self.head.grow(session.classes, random_rows(len(session.classes), dim, dim**-0.5, run.rng("head")))
            fit_base(self, self.net, session, run, {"head": "cosine, learned scale, no last activation"})
        self.herd(session, c.exemplars, run)

    def learn_new(self, session: Session, run: Run) -> None:
        c = self.config
        before, images, old = self.snapshot(), self.rehearsal(session), len(self.classes)
        weight = less_forget_weight(c.less_forget, old, len(session.classes))
        self.grow_imprinted(session, run)
        self.head.scale.requires_grad_(True)
        for epoch, x, rows in self.finetuning_batches("new", images, session, c.new, run):
            with torch.no_grad():
                f_before = before.encoder(x)
            f = self.encoder(x)
            loss = cross_entropy(self.logits(f, c.new), rows, c.new) + weight * less_forget(f, f_before)
            ranking = margin_ranking(cosine(f, self.head.weight), rows, old, c.margin, c.hardest)
            epoch.step(loss + c.rank * ranking)
        self.herd(session, c.exemplars, run)

    def grow_imprinted(self, session: Session, run: Run) -> None:
        """Rows for the new classes, at the means of their features or at random."""
        if self.config.imprint:
            f = self.features(session.train, session, run)
            rows = imprinted_rows(session.train.labels, f, session.classes, self.head.weight)
        else:
            rows = random_rows(len(session.classes), self.encoder.dim, self.encoder.dim**-0.5, run.rng("new rows"))
        self.head.grow(session.classes, rows)

    def plan_new(self, session: Session) -> list[PlannedStage]:
        c, new = self.config, len(session.train)
        kept = len(kept_of_each(told(session).before, c.exemplars))
        return [*self.finetuning_plan(c.new, kept + new, taught=True), self.encoding_plan((1 + c.imprint) * new)]


def less_forget_weight(base: float, old: int, new: int) -> float:
    """lambda: the more old classes there are for each new one, the more is to be kept."""
    return base * math.sqrt(old / new)


def remove_last_activation(encoder: Encoder) -> bool:
    """Lets features be negative; False where something else than an activation comes last."""
    modules = encoder.stages.named_modules(remove_duplicate=False)
    leaves = [(name, module) for name, module in modules if not list(module.children())]
    name, last = next((name, leaf) for name, leaf in reversed(leaves) if not isinstance(leaf, PASSIVE))
    if not isinstance(last, ACTIVATIONS):
        return False
    owner, _, child = name.rpartition(".")
    setattr(encoder.stages.get_submodule(owner), child, nn.Identity())
    return True
