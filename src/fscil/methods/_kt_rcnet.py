"""What KT-RCNet needs beside Algorithm 1: the fitted scale, the conventionally trained C, what is checked, costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from fscil.data.episodes import Sampling, class_pool
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.base import Net, base_plan, fit_base, label_rows
from fscil.methods.shared.method import PlannedStage, embed_all
from fscil.nn import encoders
from fscil.nn.heads import CosineHead, EuclidHead
from fscil.nn.relations import losses_at_scales
from fscil.running.training import Run

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method

SCALES = torch.logspace(-3, 6, 37, base=2)
OWN_BASE = "base of f2"  # the stage in which f2 is trained where it does not start as f1


def own_base(method: Method, base: Session, run: Run) -> None:
    """f2 by a base session like that of f1, from other random weights and with other batches."""
    c = method.config
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.rng("f2").initial_seed())
        method.f2.load_state_dict(encoders.build(c.encoder, c.pixels, c.weights).state_dict())
    net = Net(method.f2, CosineHead(method.f2.dim, len(base.classes), c.scale, run.rng("head of f2")))
    fit_base(method, net, base, run, {"for": "f2"}, stage=OWN_BASE)


def check_base(method: Method, base: Session) -> None:
    """Refuses, before anything is trained, a base session that cannot serve the settings."""
    c = method.config
    if not c.feature_scale and base.held_out is None:
        raise FscilError("feature_scale 0 is fitted on held-out base images; set --held_out to 5 or more")
    if c.complement == "resa":
        class_pool(base.train, Sampling(c.way, c.shot, c.query))


@torch.no_grad()
def fitted_scale(method: Method, base: Session, run: Run) -> float:
    """The feature scale at which softmax(s r2) best predicts images that were kept from training."""
    f = embed_all(method.branches[1].encode, base.held_out, method.test_framing(base), run)
    y = label_rows(method.W2.classes)[base.held_out.labels]
    losses = losses_at_scales(SCALES, f, method.W2.means(), y, method.config.scale)
    return float(SCALES[losses.argmin()])


def conventional_learning(method: Method, base: Session, run: Run) -> None:
    """The C-model without RESA (ablation, rows 2 and 3): batches, and a learned W2 that class means replace."""
    c, C, row = method.config, method.branches[1], label_rows(method.W2.classes)
    net = nn.ModuleList([method.f2.requires_grad_(True), EuclidHead(method.W2.means(), c.scale)])
    steps, framing = math.ceil(len(base.train) / c.base.batch), method.train_framing(base, c.task_pixels)
    for epoch in run.epochs("conventional", net, net, c.transfer, steps):
        method.f2.train(c.batch_norm == "train")
        for x, y in epoch.batches(base.train, framing, c.base.batch):
            epoch.step(F.cross_entropy(net[1](C.encode(x)), row[y]))


def planned(method: Method, base: Session) -> list[PlannedStage]:
    """The stages of the base session, to the image."""
    c, n, p = method.config, len(base.train), method.config.pixels
    held_out = len(base.held_out) if base.held_out and not c.feature_scale else 0
    bases = base_plan(c.base, p, n)
    own = [replace(row, stage=row.stage.replace("base", OWN_BASE)) for row in bases if c.start == "own"]
    stages = [*bases, *own, PlannedStage("W1 and W2", p, 1, min(n, 500), 0, (1 + c.uses_W1) * n + held_out)]
    epochs, small = c.transfer.epochs, c.task_pixels or p
    if c.complement == "resa":
        images, tasks = c.way * (c.shot + c.query), epochs * c.tasks
        both = images if c.twins == "none" else 2 * images
        stages.append(PlannedStage("RESA", small, tasks, both, tasks * both, tasks * images if c.uses_W1 else 0))
        stages.append(PlannedStage("W2 of each epoch", p, 1, min(n, 500), 0, max(epochs - 1, 0) * n))
    elif c.complement == "conventional":
        steps = math.ceil(n / c.base.batch)
        stages.append(PlannedStage("conventional", small, epochs * steps, math.ceil(n / steps), epochs * n, 0))
    return [*stages, method.teaching_plan(n)]
