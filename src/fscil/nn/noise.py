"""Random numbers that torch draws from no generator by name, and noise on weights with exact gradients."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

LEVELS = (-0.5, -0.25, 0.0, 0.25, 0.5)  # of the noise, in units of the bound
SHAPES = (0.3, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)  # parameters of the Beta distributions it is drawn from


def beta(a: float, b: float, generator: torch.Generator) -> float:
    """One number from Beta(a, b)."""
    return float(torch._sample_dirichlet(torch.tensor([a, b]), generator=generator)[0])


def level_shares(a: float, b: float) -> Tensor:
    """How often Beta(a, b) falls into each fifth of [0, 1].

    >>> [round(share, 3) for share in level_shares(1.0, 1.0).tolist()]
    [0.2, 0.2, 0.2, 0.2, 0.2]
    """
    from scipy.special import betainc

    below = torch.tensor([float(betainc(a, b, edge / len(LEVELS))) for edge in range(len(LEVELS) + 1)])
    return below.diff()


def weight_noise(shape: Sequence[int], bound: float, generator: torch.Generator, skewed: bool = False) -> Tensor:
    """Noise of five levels within +-bound/2, distributed like a Beta whose shape is drawn anew at every call.

    `skewed` repeats a slip of the code released with F2M: the second level counts as the last, so the mean is not zero.
    """
    a, b = (SHAPES[i] for i in torch.randint(len(SHAPES), (2,), generator=generator).tolist())
    shares, levels = level_shares(a, b), torch.tensor(LEVELS)
    if skewed:
        levels[1] = LEVELS[-1]
    # a uniform number finds its level as a draw from the Beta would, at a fraction of the cost
    fifth = torch.bucketize(torch.rand(tuple(shape), generator=generator), shares.cumsum(0)[:-1], right=True)
    return bound * levels[fifth]


def last_kernels(module: nn.Module, count: int) -> list[str]:
    """Names of the weights of the last `count` convolutions larger than 1x1, in the order of the module."""
    found = [f"{name}.weight" for name, part in module.named_modules() if is_spatial(part)]
    return found[max(0, len(found) - count) :]


def is_spatial(module: nn.Module) -> bool:
    """A convolution that looks at more than one pixel; shortcuts of residual blocks do not."""
    return isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1


def call_with_noise(module: nn.Module, noise: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """`module(images)` with noise added to some weights: gradients are those of the noisy weights and reach the weights
    themselves; running statistics stay as they are.
    """
    parameters = dict(module.named_parameters())
    noisy = {name: parameters[name] + shift.to(parameters[name]) for name, shift in noise.items()}
    untouched = {name: buffer.clone() for name, buffer in module.named_buffers()}
    outputs: Tensor = functional_call(module, {**noisy, **untouched}, (images,))
    return outputs


class Box(nn.Module):
    """A cube of side `bound` around weights, which later training does not leave."""

    def __init__(self, module: nn.Module, names: Sequence[str], bound: float):
        super().__init__()
        self.names, self.bound = tuple(names), bound
        for i, name in enumerate(self.names):
            self.register_buffer(f"centre{i}", module.get_parameter(name).detach().clone())

    def _pairs(self, module: nn.Module) -> Iterator[tuple[nn.Parameter, Tensor]]:
        for i, name in enumerate(self.names):
            yield module.get_parameter(name), self.get_buffer(f"centre{i}")

    @torch.no_grad()
    def centre(self, module: nn.Module) -> None:
        """Puts the cube around the weights of `module` as they are now."""
        for weight, centre in self._pairs(module):
            centre.copy_(weight)

    @torch.no_grad()
    def project(self, module: nn.Module) -> None:
        """Takes the weights of `module` back into the cube."""
        for weight, centre in self._pairs(module):
            weight.clamp_(centre - self.bound / 2, centre + self.bound / 2)
