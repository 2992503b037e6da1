"""The pieces of MetaFSCIL: sequences of pseudo-sessions, fast weights, and gates that only the outer loop trains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from fscil.data.episodes import Steps
from fscil.data.images import Framing, Images
from fscil.nn.encoders import Encoder
from fscil.running.descent import Descent, rate

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Classes and support images per class of each pseudo-session, and query images per class."""

    classes: tuple[int, ...]
    shots: tuple[int, ...]
    query: int

    @property
    def seen(self) -> list[int]:
        """Classes seen after each pseudo-session."""
        return [sum(self.classes[: t + 1]) for t in range(len(self.classes))]

    @property
    def support_images(self) -> int:
        return sum(n * k for n, k in zip(self.classes, self.shots, strict=True))


@dataclass(frozen=True)
class Drawn:
    """A sequence: of each pseudo-session the support (classes, shots), and the queries (all classes, query).

    Row i of the sequence's classifier is its i-th class, whatever its label.
    """

    support: list[Tensor]
    query: Tensor

    @property
    def flat(self) -> Tensor:
        return torch.cat([part.flatten() for part in (*self.support, self.query)])

    def shown(self, images: Tensor) -> "Drawn":
        """The same sequence with images in place of their positions, given in the order of `flat`."""
        parts = images.split([part.numel() for part in (*self.support, self.query)])
        shapes = [part.shape for part in (*self.support, self.query)]
        *support, query = (part.unflatten(0, shape) for part, shape in zip(parts, shapes, strict=True))
        return Drawn(support, query)


def draw(pool: Mapping[int, Tensor], shape: Shape, rng: torch.Generator) -> Drawn:
    """Classes in random order; the images of each are shuffled, the first are its support, the next its queries."""
    order = torch.randperm(len(pool), generator=rng)[: shape.seen[-1]]
    images = list(pool.values())
    shots = [k for n, k in zip(shape.classes, shape.shots, strict=True) for _ in range(n)]
    own = [images[i][torch.randperm(len(images[i]), generator=rng)] for i in order.tolist()]
    support = [positions[:k] for positions, k in zip(own, shots, strict=True)]
    query = torch.stack([positions[k : k + shape.query] for positions, k in zip(own, shots, strict=True)])
    ends = [0, *shape.seen]
    return Drawn([torch.stack(support[a:b]) for a, b in pairwise(ends)], query)


def sequences(
    images: Images, pool: Mapping[int, Tensor], framing: Framing, shape: Shape, tasks: int, steps: Steps
) -> Iterator[Drawn]:
    """`tasks` independent sequences of images of one epoch, from step `steps.start` on."""
    drawn = [draw(pool, shape, steps.rng("sequence", i)) for i in range(steps.start, tasks)]
    shown = images.batches([one.flat for one in drawn], framing, lambda i: steps.rng("view", steps.start + i))
    for one, x in zip(drawn, shown, strict=True):
        yield one.shown(x)


def adapt(
    loss: Callable[[Parameters], Tensor], parameters: Parameters, descent: Descent, second_order: bool = False
) -> dict[str, Tensor]:
    """Fast weights: plain gradient descent from `parameters`, which stay as they are, one step per epoch.

    Later losses can be differentiated with respect to `parameters`, in first order as if the steps were constants.
    """
    fast = dict(parameters)
    for epoch in range(descent.epochs):
        lr = descent.lr * rate(descent, epoch / descent.epochs)
        slopes = torch.autograd.grad(loss(fast), list(fast.values()), create_graph=second_order, materialize_grads=True)
        fast = {name: p - lr * g for (name, p), g in zip(fast.items(), slopes, strict=True)}
    return fast


def with_gradient(value: float, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """A loss of this value that has these gradients, computed before."""
    slope = torch.stack([(p * g).sum() for p, g in zip(parameters, gradients, strict=True)]).sum()
    return value + slope - slope.detach()


class Gate(nn.Linear):
    """A gate that starts at zero, guided by one number `guide` per channel."""

    def __init__(self, channels: int):
        super().__init__(channels, channels)
        self.guide = nn.Parameter(torch.zeros(channels))
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Gated(nn.Module):
    """A stage and, behind it, one factor per channel: 2 sigmoid(A (z * m)), which is 1 before anything is learned.

    z are the mean activations (n, channels); m = 2 sigmoid(v * r) goes back from the weights of the stage, r being the
    length of those that make each channel.
    """

    def __init__(self, stage: nn.Module, channels: int):
        super().__init__()
        self.stage = stage
        self.gate = Gate(channels)
        makers = [m for m in stage.modules() if isinstance(m, nn.Conv2d) and m.out_channels == channels]
        self._maker = makers[-1:]  # in a list: its parameters already belong to the stage

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage(x)
        lengths = [maker.weight.detach().flatten(1).norm(dim=1) for maker in self._maker]
        guide = self.gate.guide * lengths[0] if lengths else self.gate.guide
        gates = 2 * torch.sigmoid(self.gate(x.mean((2, 3)) * 2 * torch.sigmoid(guide)))
        return x * gates[:, :, None, None]


def modulated(encoder: Encoder) -> Encoder:
    """The encoder with a gate behind each of its stages, which are shared, not copied."""
    x = torch.zeros(1, 3, encoder.pixels, encoder.pixels, device="meta")
    stages = []
    for stage, copy in zip(encoder.stages, deepcopy(encoder.stages).to("meta").eval(), strict=True):
        x = copy(x)
        stages.append(Gated(stage, x.shape[1]))
    gated = Encoder(nn.Sequential(*stages), encoder.dim, encoder.pixels, encoder.pool)
    gated.precision = encoder.precision
    gated.macs(gated.pixels)  # counted once, now: fast weights cannot be copied for it
    return gated.to(next(encoder.parameters()).device)


def ungated(encoder: Encoder) -> dict[str, nn.Parameter]:
    """The parameters of an encoder by name, without those of its gates."""
    gates = [module.gate for module in encoder.modules() if isinstance(module, Gated)]
    theirs = {id(p) for gate in gates for p in gate.parameters()}
    return {name: p for name, p in encoder.named_parameters() if id(p) not in theirs}
