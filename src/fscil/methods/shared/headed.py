"""Methods that go on training an encoder and a growing classifier in every session."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from fscil.data.images import Images, TensorImages
from fscil.errors import FscilError
from fscil.methods.shared.base import Loss, Net, base_plan, fit_linear_classifier, freeze, training_pixels
from fscil.methods.shared.method import Method, PlannedStage, embed_all
from fscil.nn.branches import test_views
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingHead, random_rows
from fscil.nn.memory import ExemplarMemory, herded, stored
from fscil.running.descent import Training

if TYPE_CHECKING:
    from fscil.data.sessions import Benchmark, Session
    from fscil.running.stages import Epoch
    from fscil.running.training import Run

NEW_STD = 0.001  # of the rows with which new classes start in a linear classifier


@dataclass(frozen=True, kw_only=True)
class Finetuning(Training):
    """How a session of new classes is trained."""

    part: Literal["all", "last_block"] = "all"  # what is trained of the encoder
    batch_norm: Literal["train", "frozen"] = "train"  # statistics of the trained part: of the batch, or those of before
    old_rows: Literal["trained", "frozen", "detached"] = "trained"  # rows of old classes; detached: nor gradients


class Headed(Method):
    """Encoder and growing head, trained in every session; the scores are the logits."""

    config: Any  # that of the method, whose `new` has a type of its own

    def __init__(self, config: Any, encoder: Encoder, head: GrowingHead):
        super().__init__(config, encoder)
        self.net: Net[GrowingHead] = Net(encoder, head)

    @property
    def encoder(self) -> Encoder:
        return self.net.encoder

    @property
    def head(self) -> GrowingHead:
        return self.net.head

    @property
    def classes(self) -> tuple[int, ...]:
        return self.head.classes

    def check(self, benchmark: Benchmark) -> None:
        if getattr(self.config.new, "part", "all") == "last_block" and len(self.encoder.stages) == 1:
            name = self.config.encoder
            raise FscilError(f"the last block is trained alone, but encoder {name} is one piece; set --new.part all")

    def scores(self, images: Tensor) -> Tensor:
        return self.averaged(self.net, images)

    def averaged(self, score: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Mean (n, classes) of what `score` gives for each test view of images (n, 3, p, p)."""
        return torch.stack([score(view) for view in test_views(images, self.config.views)]).mean(0)

    def fit_linear(self, session: Session, run: Run, kind: str = "cross-entropy", loss: Loss | None = None) -> None:
        """Base session with a linear classifier, shared by the methods that have one of this kind."""
        fit_linear_classifier(self, self.net, session, run, kind, loss)

    def grow_linear(self, session: Session, run: Run) -> None:
        """Rows for the classes of a session, close to zero."""
        rows = random_rows(len(session.classes), self.encoder.dim, NEW_STD, run.rng("new rows"))
        self.head.grow(session.classes, rows)

    def logits(self, features: Tensor, tuning: Finetuning) -> Tensor:
        """Logits (n, classes) for the cross-entropy of a session."""
        return self.head.through_newest(features) if tuning.old_rows == "detached" else self.head(features)

    def snapshot(self) -> Net[GrowingHead]:
        """The net as it is now, which stays so."""
        now = deepcopy(self.net)
        freeze(now)
        return now

    def finetuning_batches(
        self,
        stage: str,
        images: Images,
        session: Session,
        tuning: Finetuning,
        run: Run,
        trains: nn.Module | None = None,
    ) -> Iterator[tuple[Epoch, Tensor, Tensor]]:
        """All batches of a stage that trains the net, or `trains` around it: epoch, images, rows of their classes.

        Whoever takes a batch makes one step of its epoch.
        """
        self._open(tuning)
        trains, steps = trains or self.net, math.ceil(len(images) / tuning.batch)
        for epoch in run.epochs(stage, trains, trains, tuning, steps):
            framing = self.train_framing(session, training_pixels(tuning, self.config.pixels, epoch.progress))
            for x, y in epoch.batches(images, framing, tuning.batch):
                yield epoch, x, self.head.rows(y)
        freeze(self.net)

    def finetuning_plan(
        self, tuning: Finetuning, images: int, stage: str = "new", beside: int = 0, taught: bool = False
    ) -> list[PlannedStage]:
        """What the encoder computes in these batches.

        Every step also trains on the same images `beside` them, as a test shows them; where it is `taught`, another net
        encodes the images of the batch.
        """
        size, steps = self.config.pixels, tuning.epochs * math.ceil(images / tuning.batch)
        others = [PlannedStage(f"{stage}, exemplars", size, steps, beside, steps * beside, 0)] if beside else []
        return [*base_plan(tuning, size, images, stage, taught), *others]

    def _open(self, tuning: Finetuning) -> None:
        """Exactly what `tuning` trains gets gradients and, where asked for, the statistics of its batches."""
        freeze(self.encoder)
        part = self.encoder if tuning.part == "all" else self.encoder.last_block
        part.requires_grad_(True).train(tuning.batch_norm == "train")
        self.head.train_rows(old=tuning.old_rows == "trained")

    def plan(self, base: Session) -> list[PlannedStage]:
        return base_plan(self.config.base, self.config.pixels, len(base.train))


class Rehearsing(Headed):
    """A method that keeps exemplars and trains on them beside the new images."""

    def __init__(self, config: Any, encoder: Encoder, head: GrowingHead):
        super().__init__(config, encoder, head)
        self.memory = ExemplarMemory()

    def rehearsal(self, session: Session) -> TensorImages:
        """The exemplars, followed by the images of a session."""
        return self.memory.images.joined(stored(session.train, self.test_framing(session)))

    def anchors(self, session: Session, run: Run) -> Tensor:
        """All exemplars under the test framing (n, 3, p, p)."""
        return torch.cat(list(run.batches(self.memory.images, self.test_framing(session))))

    def features(self, images: Images, session: Session, run: Run) -> Tensor:
        """Features (n, dim) of all images under the test framing."""
        freeze(self.net)
        return embed_all(self.encoder, images, self.test_framing(session), run)

    def herd(self, session: Session, per_class: int, run: Run) -> None:
        """Keeps at most `per_class` exemplars of each class, herding those of the session's classes."""
        self.memory.limit(per_class)
        chosen = herded(session.train.labels, self.features(session.train, session, run), per_class)
        self.memory.add(stored(session.train.select(chosen), self.test_framing(session)))

    def plan(self, base: Session) -> list[PlannedStage]:
        return [*super().plan(base), self.encoding_plan(len(base.train))]

    def encoding_plan(self, images: int) -> PlannedStage:
        """A pass over images from which exemplars are chosen."""
        return PlannedStage("exemplars", self.config.pixels, 1, min(images, 500), 0, images)
