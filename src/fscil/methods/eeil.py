"""EEIL: End-to-End Incremental Learning (Castro, Marin-Jimenez, Guil, Schmid, Alahari; ECCV 2018).

Classifier and features are learned together, from the new images and from exemplars: cross-entropy over all classes,
and softmax distillation inside the block of rows of each earlier session. A second, shorter stage trains on the same
number of images of every class, now distilling every block from the net after the first stage. Noise on the gradients
keeps the few images from being learned by heart.

paper                       here
"classification layers"     blocks of self.head, one per session; their logits are concatenated
L_C                         cross_entropy
L_D, T = 2                  blockwise_distillation, config.temperature
"balanced fine-tuning"      stage "balanced"
"representative memory"     self.memory, herded; config.memory images in all
sigma of the noise          gradient_noise

The noise N(0, 0.3 / (1 + epoch)^0.55) is added to the gradient summed over the batch, as in the authors' code; ports
add it to the mean, where it is a batch size larger and destroys what was learned (`noise_on`). The twelve fixed
copies of each image are replaced by the random variation of all methods here. The recipe topic_reduction is the row
"EEIL" that TOPIC and those after it print: see _topic_reduction.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from fscil.data.images import TensorImages
from fscil.data.sessions import Benchmark, Session
from fscil.methods.shared.base import Net, cross_entropy
from fscil.methods.shared.foreseen import kept_in_all, kept_of_each, told
from fscil.methods.shared.headed import Finetuning
from fscil.methods.shared.method import Common, Needs, PlannedStage
from fscil.methods.shared.topic_reduction import Reducible, Reduction
from fscil.nn.distillation import blockwise_distillation
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingHead, GrowingLinear
from fscil.nn.memory import first_of_each, herded, quota, require_room
from fscil.running.training import Run
from fscil.settings.limits import within


@dataclass(frozen=True, kw_only=True)
class Config(Common):
    """Defaults are the authors' code."""

    feature_length: float = 0.0  # length to which features are brought before the linear classifier; 0: as they are
    memory: int = 2000  # exemplars of all classes together
    temperature: float = 2.0  # T of the distillation
    distill: float = 1.0  # weight of the distillation
    noise: float = 0.3  # size of the gradient noise in the first epoch; 0: none
    noise_on: Literal["sum", "mean"] = "sum"  # the gradient that gets the noise: the batch's sum, or its mean
    new: Finetuning = field(
        default_factory=lambda: Finetuning(epochs=40, batch=128, lr=0.1, weight_decay=1e-4, step_epochs=10)
    )  # each later session: all images
    balanced: Finetuning = field(
        default_factory=lambda: Finetuning(epochs=30, batch=128, lr=0.01, weight_decay=1e-4, step_epochs=10)
    )  # each later session: as many images of every class
    reduction: Reduction = field(default_factory=Reduction)  # the method as TOPIC reduced it

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, temperature=(1e-3, math.inf), distill=(0, math.inf), noise=(0, math.inf))


class Method(Reducible):
    """Distillation per block, then balanced fine-tuning."""

    config: Config

    def __init__(self, config: Config, encoder: Encoder):
        super().__init__(config, encoder, GrowingLinear(config.feature_length))
        self.needs = Needs(exemplars=f"{config.memory} images in all", in_all=config.memory)

    def check(self, benchmark: Benchmark) -> None:
        super().check(benchmark)
        require_room(self.config.memory, len(benchmark.order))

    @property
    def quota(self) -> int:
        return quota(self.config.memory, len(self.classes))

    def learn_base(self, session: Session, run: Run) -> None:
        self.fit_linear(session, run)
        self.herd(session, self.quota, run)

    def learn_new(self, session: Session, run: Run) -> None:
        c = self.config
        images, before = self.rehearsal(session), self.snapshot()
        self.grow_linear(session, run)
        self.train_stage("new", images, before, session, c.new, run)
        self.train_stage("balanced", self.balanced(images, session, run), self.snapshot(), session, c.balanced, run)
        self.herd(session, self.quota, run)

    def train_stage(
        self, stage: str, images: TensorImages, before: Net[GrowingHead], session: Session, tuning: Finetuning, run: Run
    ) -> None:
        """Cross-entropy, and distillation of every block of rows that the net of before has."""
        c = self.config
        for epoch, x, rows in self.finetuning_batches(stage, images, session, tuning, run):
            with torch.no_grad():
                old = before(x)
            f = self.encoder(x)
            kept = blockwise_distillation(self.head(f), old, before.head.widths, c.temperature)
            batch = run.world * len(x)  # x is the share of one device, and all of them draw the same noise
            std = gradient_noise(c.noise, epoch.number, batch if c.noise_on == "sum" else 1)
            with noisy_gradients(self.net.parameters(), std, epoch.rng("noise", epoch.next)):
                epoch.step(cross_entropy(self.logits(f, tuning), rows, tuning) + c.distill * kept)

    def balanced(self, images: TensorImages, session: Session, run: Run) -> TensorImages:
        """The same number of each class: exemplars of old classes, herded images of the new ones."""
        old = len(self.memory)
        new = images.select(torch.arange(old, len(images)))
        order = herded(new.labels, self.features(new, session, run), len(new))
        images = images.select(torch.cat([torch.arange(old), old + order]))
        fewest = int(torch.unique(images.labels, return_counts=True)[1].min())
        return images.select(first_of_each(images.labels, min(fewest, self.quota)))

    def plan_new(self, session: Session) -> list[PlannedStage]:
        c, past, new = self.config, told(session), session.train.labels
        seen = torch.cat([kept_in_all(past.before, c.memory), new])
        counts = torch.unique(seen, return_counts=True)[1]
        balanced = len(kept_of_each(seen, min(int(counts.min()), quota(c.memory, len(counts)))))
        return [
            *self.finetuning_plan(c.new, len(seen), taught=True),
            *self.finetuning_plan(c.balanced, balanced, "balanced", taught=True),
            self.encoding_plan(2 * len(new)),  # herded twice: for the balanced stage, and as it has left the net
        ]


def gradient_noise(size: float, epoch: int, images: int) -> float:
    """Standard deviation of the noise on a gradient that is the mean over `images`."""
    return size / math.pow(1 + epoch, 0.55) / images


@contextmanager
def noisy_gradients(parameters: Iterable[nn.Parameter], std: float, generator: torch.Generator) -> Iterator[None]:
    """Adds Gaussian noise to every gradient that is computed inside the block."""
    trained = [p for p in parameters if p.requires_grad] if std else []
    noise = [std * torch.randn(p.shape, generator=generator).to(p.device) for p in trained]
    hooks = [p.register_hook(_plus(n)) for p, n in zip(trained, noise, strict=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _plus(noise: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda gradient: gradient + noise
