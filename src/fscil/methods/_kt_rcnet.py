"""What KT-RCNet needs beside Algorithm 1: a control's settings, what held-out images fit, statistics, checks, costs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from fscil.data.episodes import Sampling, class_pool
from fscil.data.images import Framing
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.balance import check_held_out
from fscil.methods.shared.base import OWN_BASE, base_plan, check_another, label_rows
from fscil.methods.shared.method import OF_F1, PlannedStage
from fscil.nn.encoders import portion_of
from fscil.nn.relations import losses_at_scales
from fscil.running.training import Run
from fscil.settings import to_dict
from fscil.settings.limits import within

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Config, Method

SCALES = torch.logspace(-3, 6, 37, base=2)
AFTER_TRAINING = ("new_bonus", "statistics", "refit_scale", "complement_weight")  # settings that come into play then
READ_OUT = ("views", "shrinkage", "unit_means")
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


@dataclass(frozen=True, kw_only=True)
class Conventional:
    """The C-model that is trained by batches with a learned W2."""

    rows: Literal["means", "random"] = "means"  # W2 at the start: class means, or random as in the authors' code
    relation: float = 0.0  # factor of cos(f1, W1)/d in its logits (the authors' code: 1)
    batches: Literal["passes", "tasks"] = "passes"  # passes over the base session, or the steps and images of RESA

    def __post_init__(self) -> None:
        within(self, relation=(0, math.inf))


def decides_f2(c: Config) -> dict[str, Any]:
    """The settings with which complementary learning is made; those of the read-out come later."""
    early = c.whiten_first or c.uses_W1  # W1 depends on how B reads
    late = {*AFTER_TRAINING, *(() if early else READ_OUT)}
    return {name: value for name, value in to_dict(c).items() if name not in late}


def check_choices(c: Config) -> None:
    """Refuses settings that contradict each other."""
    if c.W1 == "learned" and c.shrinkage < 1:
        raise FscilError("W1 learned has no whitened rows; set --shrinkage 1, or --W1 means")
    if c.whiten_first and c.shrinkage == 1:
        raise FscilError("whiten_first whitens by --shrinkage, which is 1 (none): lower it, or omit --whiten_first")
    if c.start == "weights" and not (c.start_weights or c.weights):
        raise FscilError("start weights begins f2 with --weights, which are not given: give them, or set --start f1")
    if c.distil and c.start != "own":
        raise FscilError("distil is for a base session of f2, which has none; set --start own or --distil 0")
    if c.complement == "resa" and not (c.global_weight or c.local_weight):
        raise FscilError("global_weight and local_weight are both 0: RESA has no loss; raise one of them")


def check_base(method: Method, base: Session) -> None:
    """Refuses, before anything is trained, a base session that cannot serve the settings."""
    c = method.config
    check_start(c)
    check_length(c)
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


def check_start(c: Config) -> None:
    """Refuses a start that would make f2 another than it says."""
    of_run = c.weights is not None and Path(c.weights).is_dir()
    if c.start == "weights" and of_run and not c.start_weights:
        raise FscilError(
            f"f1 is taken from the run folder {c.weights}, so start weights would begin f2 as f1; name the weights of "
            "f2 by --start_weights, or set --start f1"
        )
    if c.start == "own" and c.start_weights and not c.weights:
        raise FscilError("with --start own, --start_weights is for an f1 that has --weights too: give them, or omit it")
    if c.start in ("own", "weights"):
        check_another(c, c.start_weights)


def check_length(c: Config) -> None:
    """Refuses means over the last steps of a training that another run may go on with."""
    if c.stop_after and c.transfer.average:
        raise FscilError(
            "--transfer.average means the last steps of the whole training, of which --stop_after makes the first; "
            "set one of them to 0"
        )


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
        norm.train()
    order = torch.randperm(len(base.train), generator=run.rng("statistics"))
    most = min(500, portion_of(framing.pixels, framing.pixels))  # an encoder makes one portion of them: all count alike
    for i, x in enumerate(base.train.batches(order.tensor_split(math.ceil(len(order) / most)), framing)):
        for norm in norms:
            norm.momentum = 1 / (i + 1)  # the plain mean; with None torch asks the device how many batches there were
        encoder(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    encoder.eval()


def some_of_each_class(base: Session, count: int, rng: torch.Generator) -> Session:
    """The base session with at most `count` images of each class, drawn at random; 0: with all."""
    if not count:
        return base
    order = torch.randperm(len(base.train), generator=rng)
    chosen = torch.cat([order[base.train.labels[order] == label][:count] for label in base.classes])
    return replace(base, train=base.train.select(chosen.sort().values))


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
    made_by = mixed if c.trains == "map" else whole
    return [replace(stage, made_by=made_by) for stage in _arm_stages(method, base, pixels)]


def _arm_stages(method: Method, base: Session, pixels: int) -> list[PlannedStage]:
    c, n = method.config, len(base.train)
    batch = min(n, 500)
    epochs, tasks, images = c.trained_epochs, c.trained_epochs * c.tasks, min(c.images_of_a_step, n)
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
    means = epochs * (4 if turned else 1) * len(some_of_each_class(base, c.row_images, torch.Generator()).train)
    return [trained, PlannedStage("rows of each epoch", pixels, 1, batch, 0, means)]
