"""What the base session of KT-RCNet will compute, to the image, and what runs will share of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fscil.data.sessions import Session
from fscil.methods._kt_rcnet_arms import STAGES, decides_f2
from fscil.methods._kt_rcnet_students import some_of_each_class
from fscil.methods.shared.base import OWN_BASE, base_plan
from fscil.methods.shared.method import OF_F1, PlannedStage

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method


def planned(method: Method, base: Session) -> list[PlannedStage]:
    """The stages of the base session, to the image."""
    c, n, p = method.config, len(base.train), method.config.pixels
    small, batch = c.task_pixels or p, min(n, 500)
    held_out = len(base.held_out) if base.held_out else 0
    views = method.branches[1].passes

    def encoded(stage: str, pixels: int, images: int, made_by: str = "") -> list[PlannedStage]:
        return [PlannedStage(stage, pixels, 1, batch, 0, images, made_by)] if images else []

    stages = base_plan(c.base, p, n)
    if c.start == "own":
        stages += base_plan(c.base, p, n, OWN_BASE, c.distil > 0)
    as_start = OF_F1 if c.start == "f1" else ""
    stages += encoded("whitening of C", p, views * n * c.whiten_first, as_start)
    stages += encoded("W1 and W2", small, (1 + c.uses_W1) * n, as_start)
    stages += encoded("scale", small, held_out * (not c.feature_scale))
    stages += arm_plan(method, base, small)
    stages += encoded("batch statistics", p, n * (c.statistics == "upright"))
    stages += encoded("prototypes of B", p, method.branches[0].passes * n, OF_F1)
    stands = c.statistics == "trained" and (c.complement == "tied" or c.trains == "map")
    stages += encoded("prototypes of C", p, views * n, as_start if stands else "")
    fitted = views * held_out * c.fits_scale_again + 2 * views * held_out * (not c.complement_weight)
    return stages + encoded("fitted on held-out images", p, fitted)


def arm_plan(method: Method, base: Session, pixels: int) -> list[PlannedStage]:
    """What complementary learning computes; one that stops early is the beginning of one that does not."""
    c = method.config
    mixed = f"{c.twins} {c.mix}" if c.asks_for_twins and c.twins in ("mixup", "cutmix") else ""  # drawn by chance
    whole = json.dumps({**decides_f2(c), "stop_after": 0}, sort_keys=True)
    features = c.trains == "map"  # those of a map are the same whatever it learns of them
    stages = _arm_stages(method, base, pixels)
    return [replace(stage, made_by=mixed if features and stage.encoded else whole) for stage in stages]


def _arm_stages(method: Method, base: Session, pixels: int) -> list[PlannedStage]:
    c, n = method.config, len(base.train)
    batch = min(n, 500)
    epochs, tasks, images = c.trained_epochs, c.trained_epochs * c.tasks, min(c.images_of_a_step, n)
    if c.complement == "tied":
        return []
    if c.trains == "map":
        seen = PlannedStage("features for the map", pixels, 1, batch, 0, (1 + 3 * c.asks_for_twins) * n)
        return [seen, PlannedStage(STAGES.get(c.complement, c.complement), pixels, tasks, 0, 0, 0)]
    if c.complement == "conventional":
        passes = c.conventional.batches == "passes"
        steps = epochs * math.ceil(n / c.base.batch) if passes else tasks
        size = math.ceil(n / math.ceil(n / c.base.batch)) if passes else images
        total = epochs * n if passes else tasks * images
        return [PlannedStage("conventional", pixels, steps, size, total, total if c.uses_W1 else 0)]
    if c.complement == "resa":
        real, step = c.way * (c.shot + c.query), c.images_of_a_step
        support = step * c.shot // (c.shot + c.query)
        encoded = tasks * real if c.uses_W1 else 0
        trained = PlannedStage("RESA", pixels, tasks, step, tasks * step, encoded, support=support)
        return [trained, PlannedStage("W2 of each epoch", pixels, 1, batch, 0, max(epochs - 1, 0) * n)]
    turned = c.complement == "rotation"
    step = 2 * min(c.images_of_a_step // 2, n) if turned else images
    trained = PlannedStage(c.complement, pixels, tasks, step, tasks * step, 0)
    means = epochs * (4 if turned else 1) * len(some_of_each_class(base, c.row_images, torch.Generator()).train)
    return [trained, PlannedStage("rows of each epoch", pixels, 1, batch, 0, means)]
