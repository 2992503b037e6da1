"""Muon for convolutional nets: orthogonalised momentum for the convolutions, SGD with momentum for everything else.

Needs about 2.5 times less compute than SGD for the same accuracy on the small nets used here.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def orthogonalise(matrix: Tensor, steps: int = 3, precision: torch.dtype = torch.float32) -> Tensor:
    """Newton-Schulz iteration: pushes the singular values of (rows, columns) towards 1 without computing them.

    It only has to come close, so the digits of bfloat16 are enough where the nets compute in it (Jordan, 2024).
    """
    a, b, c = 3.4445, -4.7750, 2.0315  # quintic with the steepest slope at zero that stays bounded
    x: Tensor = (matrix / (matrix.norm() + 1e-7)).to(precision)
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x if wide else x.T).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Convolutions larger than 1x1 by Muon with `lr`; classifiers by SGD with 2 `rest_lr`, the rest with `rest_lr`."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        rest_lr: float,
        momentum: float,
        rest_momentum: float,
        weight_decay: float,
        precision: torch.dtype,
    ):
        parameters = list(parameters)
        kernels = [p for p in parameters if is_kernel(p)]
        heads = [p for p in parameters if p.ndim == 2]
        rest = [p for p in parameters if not is_kernel(p) and p.ndim != 2]
        sgd = {"momentum": rest_momentum, "orthogonal": False, "weight_decay": weight_decay}
        moves = lr > 0  # the rate of the settings, not of a step: with 0 even the norm of a kernel stays
        groups = [
            {"params": kernels, "lr": lr, "momentum": momentum, "orthogonal": moves, "weight_decay": 0.0},
            {"params": heads, "lr": 2 * rest_lr, **sgd},
            {"params": rest, "lr": rest_lr, **sgd},
        ]
        super().__init__([group for group in groups if group["params"]], {})
        self.precision = precision  # of the orthogonalisation

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure, which nobody here gives
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                gradient = p.grad if not group["weight_decay"] else p.grad + group["weight_decay"] * p
                buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(gradient)
                update = gradient + group["momentum"] * buffer  # Nesterov
                if group["orthogonal"]:
                    # a fixed norm makes the step size relative; the direction of the weight is what is learned
                    p.mul_(len(p) ** 0.5 / p.norm())
                    update = orthogonalise(update.reshape(len(update), -1), precision=self.precision).reshape(p.shape)
                p.add_(update, alpha=-group["lr"])


def is_kernel(parameter: Tensor) -> bool:
    """Whether Muon takes this parameter: a convolution larger than 1x1 that mixes many channels."""
    return parameter.ndim == 4 and parameter.shape[-1] > 1 and parameter.shape[1] > 3
