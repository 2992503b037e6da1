"""Twins for a map in place of f2: three kinds of every class, encoded once.

Rotation has three kinds by nature. MixUp and CutMix draw anew in every task; here three mixtures stand for all, which
makes RESA-M and RESA-C at `trains = "map"` approximate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fscil.data.episodes import Mix, Synthesis, derangement, mixing_share, mixture
from fscil.data.images import Framing
from fscil.data.sessions import Session
from fscil.methods.shared.method import frozen_features
from fscil.nn.branches import Look, View
from fscil.nn.encoders import Encoder
from fscil.running.training import Run

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method

TURNS = (1, 2, 3)  # quarter turns, each of which makes another class of a class


def twin_features(method: Method, base: Session, run: Run, framing: Framing) -> Tensor:
    """Features (n, 3, d) of the three twins of every base image."""
    if method.config.complement == "rotation" or method.config.synthesis == "rotate":
        return torch.stack([turned_features(method, base, run, framing, k) for k in TURNS], 1)
    return torch.stack([mixed_features(method, base, run, framing, k) for k in TURNS], 1)


def turned_features(method: Method, base: Session, run: Run, framing: Framing, turns: int) -> Tensor:
    """Features (n, d) of f2 of all base images after some quarter turns."""
    (f,) = frozen_features([Look(method.f2, View(turns=turns))], base.train, framing, run)
    return method.represented(f)


class Mixed(NamedTuple):
    """f2's look at base images, each mixed with a partner: one share and one box for all, the same for every seed."""

    encoder: Encoder
    view: tuple[Synthesis, Mix, int]  # the last: which of the kinds

    def features(self, base: Session, framing: Framing, run: Run) -> Tensor:
        """Features (n, d) of all mixtures."""
        synthesis, mix, kind = self.view
        rng = torch.Generator().manual_seed(kind)
        lam, partners = mixing_share(rng), partners_of(base.train.labels, mix == "inter", rng)
        pairs = zip(run.batches(base.train, framing), run.batches(base.train.select(partners), framing), strict=True)
        mixtures = (mixture(x, other, synthesis, lam, torch.Generator().manual_seed(kind)) for x, other in pairs)
        return torch.cat([self.encoder(x) for x in mixtures])


@torch.no_grad()
def mixed_features(method: Method, base: Session, run: Run, framing: Framing, kind: int) -> Tensor:
    """Features (n, d) of f2 of all base images, each mixed with a partner."""
    look = Mixed(method.f2, (method.config.synthesis, method.config.mix, kind))
    (f,) = run.features([look], base.train, framing, lambda _: [look.features(base, framing, run)])
    return method.represented(f)


def partners_of(labels: Tensor, of_another_class: bool, rng: torch.Generator) -> Tensor:
    """For each of n images the position of its partner: in the class that a derangement gives, or in its own."""
    positions = [(labels == label).nonzero()[:, 0] for label in labels.unique()]
    partners = torch.empty_like(labels)
    order = derangement(len(positions), rng).tolist()
    for own, other in zip(positions, order, strict=True):
        there = positions[other] if of_another_class else own[derangement(len(own), rng)]
        partners[own] = there[torch.arange(len(own)) % len(there)]
    return partners
