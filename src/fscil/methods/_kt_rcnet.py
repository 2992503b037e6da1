"""What KT-RCNet needs beside Algorithm 1: what is fitted on held-out images, batch statistics, checks, costs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fscil.data.episodes import Sampling, class_pool
from fscil.data.images import Framing
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.balance import check_held_out
from fscil.methods.shared.base import OWN_BASE, base_plan, label_rows
from fscil.methods.shared.method import PlannedStage
from fscil.nn.relations import losses_at_scales
from fscil.running.training import Run
from fscil.settings import to_dict

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Config, Method

SCALES = torch.logspace(-3, 6, 37, base=2)
AFTER_TRAINING = ("new_bonus", "complement_weight", "statistics", "refit_scale")  # settings that come into play then
READ_OUT = ("views", "shrinkage", "unit_means")
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


def check_base(method: Method, base: Session) -> None:
    """Refuses, before anything is trained, a base session that cannot serve the settings."""
    c = method.config
    if not c.feature_scale and base.held_out is None:
        raise FscilError("feature_scale 0 is fitted on held-out base images; set --held_out to 5 or more")
    if not c.complement_weight:
        check_held_out("complement_weight", c.held_out)
    if c.trains == "last_stage" and len(method.f2.stages) == 1:
        raise FscilError(
            f"encoder {c.encoder} is one piece and has no last stage; set --trains encoder or --trains map"
        )
    if c.complement == "resa":
        class_pool(base.train, Sampling(c.way, c.shot, c.query))


@torch.no_grad()
def fitted_scale(method: Method, f: Tensor, labels: Tensor) -> float:
    """The factor of f2's features at which softmax(s r2) best predicts features (n, d) kept from training."""
    y = label_rows(method.W2.classes)[labels].to(f.device)
    factors = SCALES.to(f.device) / method.branches[1].feature_scale
    losses = losses_at_scales(factors, f, method.W2.means(), y, method.config.scale)
    return float(factors[losses.argmin()])


@torch.no_grad()
def estimate_statistics(encoder: nn.Module, base: Session, framing: Framing, run: Run) -> None:
    """Batch norm's statistics anew, as the mean over mixed batches of the base images under a framing."""
    norms = [module for module in encoder.modules() if isinstance(module, BATCH_NORMS)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    order = torch.randperm(len(base.train), generator=run.rng("statistics"))
    for x in base.train.batches(order.tensor_split(math.ceil(len(order) / 500)), framing):
        encoder(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    encoder.eval()


def decisive(config: Config) -> dict[str, Any]:
    """The settings that decide what becomes of f2: all but those that come into play at read-out."""
    early = config.whiten_first or config.uses_W1  # W1 depends on how B reads
    late = {*AFTER_TRAINING, *(() if early else READ_OUT)}
    return {name: value for name, value in to_dict(config).items() if name not in late}


def planned(method: Method, base: Session) -> list[PlannedStage]:
    """The stages of the base session, to the image."""
    c, n, p = method.config, len(base.train), method.config.pixels
    small, batch = c.task_pixels or p, min(n, 500)
    held_out = len(base.held_out) if base.held_out else 0
    views = method.branches[1].passes

    def encoded(stage: str, pixels: int, images: int) -> list[PlannedStage]:
        return [PlannedStage(stage, pixels, 1, batch, 0, images)] if images else []

    stages = base_plan(c.base, p, n)
    if c.start == "own":
        stages += base_plan(c.base, p, n, OWN_BASE)
    stages += encoded("whitening of C", p, views * n * c.whiten_first)
    stages += encoded("W1 and W2", small, (1 + c.uses_W1) * n + held_out * (not c.feature_scale))
    mixed = c.twins if c.asks_for_twins and c.twins in ("mixup", "cutmix") else ""  # of a map, what chance decides
    key = mixed if c.trains == "map" else json.dumps(decisive(c))
    stages += [replace(stage, key=key) for stage in arm_plan(method, n, small)]
    stages += encoded("batch statistics", p, n * (c.statistics == "upright"))
    fitted = views * held_out * c.fits_scale_again + 2 * views * held_out * (not c.complement_weight)
    return [*stages, method.teaching_plan(n), *encoded("fitted on held-out images", p, fitted)]


def arm_plan(method: Method, n: int, pixels: int) -> list[PlannedStage]:
    """What complementary learning computes."""
    c, batch = method.config, min(n, 500)
    epochs, tasks, images = c.transfer.epochs, c.transfer.epochs * c.tasks, min(c.images_of_a_step, n)
    if c.complement == "tied":
        return []
    if c.trains == "map":
        return [PlannedStage("features for the map", pixels, 1, batch, 0, (1 + 3 * c.asks_for_twins) * n)]
    if c.complement == "conventional":
        passes = c.conventional.batches == "passes"
        steps = epochs * math.ceil(n / c.base.batch) if passes else tasks
        size = math.ceil(n / math.ceil(n / c.base.batch)) if passes else images
        total = epochs * n if passes else tasks * images
        return [PlannedStage("conventional", pixels, steps, size, total, total if c.uses_W1 else 0)]
    if c.complement == "resa":
        real, step = c.way * (c.shot + c.query), c.images_of_a_step
        trained = PlannedStage("RESA", pixels, tasks, step, tasks * step, tasks * real if c.uses_W1 else 0)
        return [trained, PlannedStage("W2 of each epoch", pixels, 1, batch, 0, max(epochs - 1, 0) * n)]
    turned = c.complement == "rotation"
    step = 2 * min(c.images_of_a_step // 2, n) if turned else images
    trained = PlannedStage(c.complement, pixels, tasks, step, tasks * step, 0)
    return [trained, PlannedStage("rows of each epoch", pixels, 1, batch, 0, epochs * n * (4 if turned else 1))]
