"""Methods whose classes are prototypes while their encoders go on learning a little in every session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.images import Images
from fscil.methods.shared.base import freeze
from fscil.methods.shared.method import PlannedStage, Taught, embed_all
from fscil.nn.branches import fused_scores
from fscil.nn.relations import mean_of_labels
from fscil.running.descent import Descent

if TYPE_CHECKING:
    from fscil.data.sessions import Session
    from fscil.running.stages import Epoch
    from fscil.running.training import Run

Gradient = Callable[[Tensor], Tensor]  # what is made of the gradient of a weight before it is used


class Finetuned(Taught):
    """A sum of Branches; each session trains some weights of their encoders, on all its images at every step."""

    def relate(self, features: list[Tensor]) -> Tensor:
        return fused_scores(self.branches, features)

    def finetuning_batches(
        self,
        images: Images,
        session: Session,
        descent: Descent,
        trained: Mapping[nn.Parameter, Gradient | None],
        run: Run,
    ) -> Iterator[tuple[Epoch, Tensor, Tensor]]:
        """All images with their labels, once per epoch; whoever takes them makes one step. Statistics stand still.

        What the weights must fulfil is enforced before each step and behind the last, not after each: a run may be
        killed between the two.
        """
        freeze(self.branches)
        opened = {parameter.requires_grad_(True): change for parameter, change in trained.items()}
        hooks = [parameter.register_hook(change) for parameter, change in opened.items() if change]
        for epoch in run.epochs("new", self, self.branches, descent, 1):
            for x, y in epoch.batches(images, self.train_framing(session), len(images)):
                yield epoch, x, y
        for hook in hooks:
            hook.remove()
        freeze(self.branches)

    def finetuning_plan(self, descent: Descent, images: int) -> PlannedStage:
        """What the encoders compute in these steps: every branch sees every image in each of its test views."""
        passes = sum(branch.passes for branch in self.branches)
        trained = descent.epochs * passes * images
        return PlannedStage("new", self.config.pixels, descent.epochs, images, trained, 0)

    def prototype_loss(self, x: Tensor, y: Tensor, relate: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Cross-entropy of images x (n, 3, p, p) of labels y (n,) against all prototypes of the first branch.

        Those of the images' own classes are the means of these images, through which gradients flow too.
        """
        f, bank = self.branches[0].embed(x), self.branches[0].prototypes
        return F.cross_entropy(relate(f, bank.with_rows(*mean_of_labels(f, y))), bank.rows(y))

    @torch.no_grad()
    def teach_again(self, images: Images, session: Session, run: Run) -> None:
        """Gives known classes the prototypes that these images have now, and no others."""
        for branch in self.branches.eval():
            f = embed_all(branch.embed, images, self.test_framing(session), run)
            for label, mean in zip(*mean_of_labels(f, images.labels), strict=True):
                branch.prototypes.set(int(label), mean)
