"""The base session that methods share: a classifier trained on all base images, once for all who ask for the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.method import Common, Method, PlannedStage
from fscil.nn import encoders
from fscil.nn.distillation import distillation
from fscil.nn.encoders import Encoder
from fscil.nn.heads import CosineHead, random_rows
from fscil.running.descent import Training
from fscil.running.training import Run
from fscil.settings import to_dict
from fscil.tensors import digest, sent

Head = TypeVar("Head", bound=nn.Module)
Loss = Callable[[Tensor, Tensor], Tensor]  # of logits (n, classes) and rows (n,)
OWN_BASE = "base of f2"  # the stage in which a second encoder is trained like the first
# settings that make a base
DECIDED_BY = ("encoder", "weights", "pixels", "scale", "base", "augment", "held_out", "winograd")
TEMPERATURE = 2.0  # T, of both nets where one is compared with the other
TURNS = 4  # by no, one, two and three quarters: with `turned` a classifier has as many rows for each class
PREPARED = 1000  # images an encoder sees before training, where it takes anything from them


class Net(nn.Module, Generic[Head]):
    """Encoder and classifier, which goes where the encoder is: images (n, 3, p, p) -> logits (n, classes)."""

    def __init__(self, encoder: Encoder, head: Head):
        super().__init__()
        self.encoder, self.head = encoder, head.to(next(encoder.parameters()).device)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(images))
        return logits


@dataclass(frozen=True)
class Teacher:
    """A frozen net with which another one of the same classes is compared while it is trained."""

    net: Net[CosineHead]
    share: float  # of the loss, above 0

    def described(self) -> dict[str, Any]:
        """What makes a net that was taught differ from one that was not."""
        return {"distil": self.share, "teacher": digest(self.net.state_dict())}

    def mixed(self, plain: Tensor, logits: Tensor, images: Tensor) -> Tensor:
        """(1 - a) plain + a T^2 KL(teacher || net) of one batch: a is the share, logits (n, classes) those of the net.

        T^2 keeps gradients as large as those of the cross-entropy (Hinton et al., 2015).
        """
        with torch.no_grad():
            told = self.net(images)
        return (1 - self.share) * plain + self.share * TEMPERATURE**2 * distillation(logits, told, TEMPERATURE)


def fit_cosine_classifier(method: Method, encoder: Encoder, session: Session, run: Run) -> Tensor:
    """Base session of most methods; gives the learned W (classes, dim)."""
    return upright_rows(fit_cosine_net(method, encoder, session, run), session)


def fit_cosine_net(method: Method, encoder: Encoder, session: Session, run: Run) -> Net[CosineHead]:
    """Cross-entropy on s * cos(f(x), W), Eq. 1 and 2; gives the whole net, whose W may have rows for turned images too.

    Methods that share encoder, data and these settings share the result.
    """
    net = cosine_net(method, encoder, session, run.rng("head"))
    fit_base(method, net, session, run, {})
    return net


def upright_rows(net: Net[CosineHead], session: Session) -> Tensor:
    """The learned W (classes, dim) of images as they are."""
    return net.head.weight.detach()[: len(session.classes)]


def cosine_net(method: Method, encoder: Encoder, session: Session, rng: torch.Generator) -> Net[CosineHead]:
    """An encoder under a new cosine classifier: a row for each class and, behind them, for each turn of each class."""
    rows = len(session.classes) * (TURNS if method.config.base.turned else 1)
    return Net(encoder, CosineHead(encoder.dim, rows, method.config.scale, rng))


def fit_linear_classifier(
    method: Method, net: Net[Any], session: Session, run: Run, kind: str = "cross-entropy", loss: Loss | None = None
) -> None:
    """Base session of the methods with a linear classifier, an empty growing head of `net`; they share the result."""
    dim = net.encoder.dim
    net.head.grow(session.classes, random_rows(len(session.classes), dim, dim**-0.5, run.rng("head")))
    fit_base(method, net, session, run, {"head": "linear", "length": net.head.length, "loss": kind}, loss)


def another_start(method: Method, encoder: Encoder, run: Run, weights: str | None = None) -> None:
    """Gives a second encoder other random weights than the first, or given ones: `weights`, else those of the first."""
    c = method.config
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.rng("f2").initial_seed())
        encoder.load_state_dict(encoders.build(c.encoder, c.pixels, weights or c.weights).state_dict())


def check_another(config: Common, weights: str | None = None) -> None:
    """Refuses a second base session that would leave its encoder what the first is."""
    if config.weights and weights in (None, config.weights) and not config.base.epochs:
        raise FscilError(
            "a second net begins with --weights too and is trained for --base.epochs, which is 0: it would be the "
            "first again; raise --base.epochs, or (kt_rcnet) name other weights by --start_weights, or do without it"
        )


def fit_another(
    method: Method,
    encoder: Encoder,
    session: Session,
    run: Run,
    teacher: Teacher | None = None,
    weights: str | None = None,
) -> None:
    """A second base session like that of `fit_cosine_classifier`: another start, other batches, perhaps a teacher."""
    another_start(method, encoder, run, weights)
    net = cosine_net(method, encoder, session, run.rng("head of f2"))
    begun = {"weights": weights} if weights else {}
    fit_base(method, net, session, run, {"for": "f2", **begun}, stage=OWN_BASE, teacher=teacher)


def fit_base(
    method: Method,
    net: Net[Any],
    session: Session,
    run: Run,
    kind: dict[str, Any],
    loss: Loss | None = None,
    stage: str = "base",
    training: Training | None = None,
    teacher: Teacher | None = None,
    built_anew: bool = False,
) -> None:
    """Trains a classifier on the base session; row i of its head belongs to the i-th base class.

    Methods with the same settings of the base session and the same `kind`, what else makes the classifier, share it.
    A method that trains several gives each further one a stage of its own and, in `kind`, what makes it differ; one
    that never had the weights of the first is `built_anew`.
    """
    c, settings = method.config, to_dict(method.config)
    taught = teacher.described() if teacher else {}

    def fit() -> None:
        (fit_stems if built_anew else prepare)(method, net.encoder, session, run)
        train_classifier(method, stage, net, session, training or c.base, run, loss, teacher)

    run.cached(stage, {**{name: settings[name] for name in DECIDED_BY}, **kind, **taught}, net, fit)
    freeze(net)
    if stage == "base":
        run.keep_features_of(net.encoder)


def prepare(method: Method, encoder: Encoder, session: Session, run: Run) -> None:
    """Fits what an untrained encoder takes from images; one that was given weights stays as it is."""
    if not method.config.weights:
        fit_stems(method, encoder, session, run)


def fit_stems(method: Method, encoder: Encoder, session: Session, run: Run) -> None:
    """Fits the whitening of the first stage to images, where there is one."""
    if encoder.stems:
        some = torch.randperm(len(session.train), generator=run.rng("prepare"))[:PREPARED]
        images = next(session.train.batches([some], method.test_framing(session)))
        for stem in encoder.stems:
            stem.fit(images)


def train_classifier(
    method: Method,
    stage: str,
    net: Net[Any],
    session: Session,
    training: Training,
    run: Run,
    loss: Loss | None = None,
    teacher: Teacher | None = None,
) -> None:
    """Trains encoder and head on a session's images, by cross-entropy or another loss; row i is the i-th class.

    With `turned` there are as many rows again for each of three turns, and a part of every batch is turned.
    """
    row = sent(label_rows(session.classes), session.train.device)
    steps = math.ceil(len(session.train) / training.batch)
    net.train()
    for epoch in run.epochs(stage, net, net, training, steps):
        framing = method.train_framing(session, training_pixels(training, method.config.pixels, epoch.progress))
        for x, y in epoch.batches(session.train, framing, training.batch):
            images, rows = turned(x, row[y], training.turned, len(session.classes))
            logits = net(images)
            plain = loss(logits, rows) if loss else cross_entropy(logits, rows, training)
            epoch.step(teacher.mixed(plain, logits, images) if teacher else plain)


def turned(images: Tensor, rows: Tensor, share: float, classes: int) -> tuple[Tensor, Tensor]:
    """The last `share` of images (n, 3, p, p) turned, in three equal parts, by one to three quarters; rows follow.

    By position, because batches are shuffled already: nothing is drawn, and a device need not be waited for.
    """
    if not share:
        return images, rows
    upright = len(images) - round(share * len(images))
    parts = [images[:upright], *images[upright:].tensor_split(TURNS - 1)]
    turns = torch.cat([torch.rot90(part, k, (2, 3)) for k, part in enumerate(parts)])
    moved = [part + k * classes for k, part in enumerate([rows[:upright], *rows[upright:].tensor_split(TURNS - 1)])]
    return turns.contiguous(memory_format=torch.channels_last), torch.cat(moved)


def cross_entropy(logits: Tensor, rows: Tensor, training: Training) -> Tensor:
    return F.cross_entropy(logits, rows, label_smoothing=training.label_smoothing)


def label_rows(classes: tuple[int, ...]) -> Tensor:
    """Lookup table (largest label + 1,) label -> position in `classes`; labels that do not occur give -1."""
    table = torch.full((max(classes) + 1,), -1)
    table[list(classes)] = torch.arange(len(classes))
    return table


def training_pixels(training: Training, pixels: int, progress: float) -> int:
    """Image size after the share `progress` of the epochs."""
    sizes = training.pixels or (pixels,)
    return sizes[min(int(progress * len(sizes)), len(sizes) - 1)]


def freeze(module: nn.Module) -> None:
    """No gradient and no moving statistics from now on."""
    module.eval().requires_grad_(False)


def base_plan(
    training: Training, pixels: int, images: int, stage: str = "base", taught: bool = False
) -> list[PlannedStage]:
    """The base session of `fit_cosine_classifier`, or another like it, as stages; a teacher encodes every image."""
    steps = math.ceil(images / training.batch)
    sizes = [training_pixels(training, pixels, epoch / training.epochs) for epoch in range(training.epochs)]
    counts = {size: sizes.count(size) for size in sizes}
    batch = math.ceil(images / steps)
    return [
        PlannedStage(f"{stage} at {size} px", size, n * steps, batch, n * images, n * images * taught)
        for size, n in counts.items()
    ]
