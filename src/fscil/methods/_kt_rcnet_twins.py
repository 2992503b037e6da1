"""Twins for a map in place of f2: three kinds of every class, encoded once.

Rotation has three kinds by nature. MixUp and CutMix draw anew in every task; here three mixtures stand for all, which
makes RESA-M and RESA-C at `trains = "map"` approximate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fscil.data.episodes import derangement, mixing_share, mixture
from fscil.data.images import Framing
from fscil.data.sessions import Session
from fscil.methods.shared.method import embed_all
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
    return embed_all(lambda x: method.represent(torch.rot90(x, turns, (-2, -1))), base.train, framing, run)


@torch.no_grad()
def mixed_features(method: Method, base: Session, run: Run, framing: Framing, kind: int) -> Tensor:
    """Features (n, d) of f2 of all base images, each mixed with a partner: one share and one box for the kind."""
    synthesis, lam = method.config.synthesis, mixing_share(run.rng("share of the twins", kind))
    partners = partners_of(base.train.labels, method.config.mix == "inter", run.rng("partners of the twins", kind))
    pairs = zip(run.batches(base.train, framing), run.batches(base.train.select(partners), framing), strict=True)
    box = ("box of the twins", kind)
    return torch.cat([method.represent(mixture(x, other, synthesis, lam, run.rng(*box))) for x, other in pairs])


def partners_of(labels: Tensor, of_another_class: bool, rng: torch.Generator) -> Tensor:
    """For each of n images the position of its partner: in the class that a derangement gives, or in its own."""
    positions = [(labels == label).nonzero()[:, 0] for label in labels.unique()]
    partners = torch.empty_like(labels)
    order = derangement(len(positions), rng).tolist()
    for own, other in zip(positions, order, strict=True):
        there = positions[other] if of_another_class else own[derangement(len(own), rng)]
        partners[own] = there[torch.arange(len(own)) % len(there)]
    return partners
