"""What base images fit to f2 beside its weights: the scale of its features, and the statistics of batch norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fscil.data.images import Framing
from fscil.data.sessions import Session
from fscil.methods.shared.base import label_rows
from fscil.nn.encoders import portion_of
from fscil.nn.relations import losses_at_scales
from fscil.running.training import Run

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method

SCALES = torch.logspace(-3, 6, 37, base=2)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


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
