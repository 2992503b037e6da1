"""How parameters are optimised: the settings, the optimiser they ask for, and the course of the learning rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from fscil.errors import FscilError
from fscil.nn.muon import Muon
from fscil.settings.limits import within

REST_MOMENTUM = 0.85  # with muon, of everything that is no convolution


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How parameters are optimised."""

    epochs: int = 80  # passes
    optimizer: Literal["sgd", "muon", "adamw"] = "sgd"  # muon: orthogonalised steps for convolutions, SGD for the rest
    lr: float = 0.03  # learning rate (muon: of the convolutions)
    rest_lr: float = 0.05  # muon only: learning rate of everything that is no convolution
    momentum: float = 0.9  # momentum, with Nesterov (muon: of the convolutions, the rest has 0.85; adamw ignores it)
    weight_decay: float = 1e-4  # L2 penalty (muon: not on convolutions, whose norm is fixed)
    schedule: Literal["step", "cosine", "linear"] = "step"  # how the rate falls; cosine and linear end at zero
    step_epochs: int = 20  # schedule step: epochs between two decays
    milestones: tuple[int, ...] = ()  # schedule step: the epochs of the decays, instead of one every step_epochs
    gamma: float = 0.1  # schedule step: factor of a decay
    warmup: float = 0.0  # share of all steps in which the rate rises from zero
    average: float = 0.0  # share of the steps, the last ones, over whose weights the mean is taken

    def __post_init__(self) -> None:
        within(self, epochs=(0, math.inf), lr=(0, math.inf), rest_lr=(0, math.inf), momentum=(0, 1))
        within(self, weight_decay=(0, math.inf), step_epochs=(1, math.inf), gamma=(0, 1), warmup=(0, 0.99))
        within(self, average=(0, 0.9))


@dataclass(frozen=True, kw_only=True)
class Training(Descent):
    """How a classifier is trained on batches of images."""

    batch: int = 128  # most images per step, over all devices; an epoch is cut into equal batches
    label_smoothing: float = 0.0  # share of the target spread over all classes
    pixels: tuple[int, ...] = ()  # training image sizes, each for an equal part of the epochs; empty: the encoder's
    turned: float = 0.0  # base only: share of a batch turned by quarters, each turn of a class a class of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, batch=(1, math.inf), label_smoothing=(0, 1), turned=(0, 0.9))
        if min(self.pixels, default=1) < 1:
            raise FscilError(f"the setting pixels holds {min(self.pixels)}, but an image has at least 1")


def only_upright(name: str, training: Training) -> None:
    """Refuses turned images in a stage of training, the setting `name`, whose classifier has no rows for them."""
    if training.turned:
        raise FscilError(
            f"{name}.turned is {training.turned}, but rotation classes are for the cosine classifier of a shared base "
            f"session, which this stage does not train; set --{name}.turned 0"
        )


def optimiser(parameters: Sequence[nn.Parameter], descent: Descent, precision: str) -> torch.optim.Optimizer:
    """The optimiser that `descent` names, of nets that compute in `precision`."""
    d = descent
    if d.optimizer == "muon":
        return Muon(parameters, d.lr, d.rest_lr, d.momentum, REST_MOMENTUM, d.weight_decay, getattr(torch, precision))
    if d.optimizer == "adamw":
        return torch.optim.AdamW(parameters, d.lr, weight_decay=d.weight_decay, fused=True)
    return torch.optim.SGD(parameters, d.lr, d.momentum, weight_decay=d.weight_decay, nesterov=d.momentum > 0)


def rate(descent: Descent, done: float) -> float:
    """Factor of the learning rate after the share `done` (0..1) of all steps."""
    if done < descent.warmup:
        return done / descent.warmup
    if descent.schedule == "step":
        epoch = int(done * descent.epochs + 1e-9)
        decays = sum(epoch >= m for m in descent.milestones) if descent.milestones else epoch // descent.step_epochs
        return descent.gamma**decays
    left = 1 - (done - descent.warmup) / (1 - descent.warmup)
    return left if descent.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))
