"""A tiny benchmark and a tiny encoder: what every test that learns something needs."""

import torch
from torch import Tensor, nn

from fscil.data.images import Ingredients, TensorImages
from fscil.data.sessions import Benchmark
from fscil.methods.shared.method import Method
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.running.training import Run

CLASSES = 12


def tiny_images(per_class: int, generator: torch.Generator, patterns: Tensor) -> TensorImages:
    """Noisy copies of one colour pattern per class, 16 x 16 pixels."""
    labels = torch.arange(len(patterns)).repeat_interleave(per_class)
    clean = torch.nn.functional.interpolate(patterns, size=16)[labels]
    noisy = clean + 0.4 * torch.randn(clean.shape, generator=generator)
    return TensorImages((noisy.clamp(0, 1) * 255).byte(), labels)


def tiny_ingredients() -> Ingredients:
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(CLASSES, 3, 8, 8, generator=generator)
    train, test = tiny_images(30, generator, patterns), tiny_images(10, generator, patterns)
    names = tuple(f"pattern {i}" for i in range(CLASSES))
    return Ingredients(train, test, names, 16, (0.5,) * 3, (0.3,) * 3, True, 6, 2)


def tiny_encoder(pixels: int = 16, weights: str | None = None) -> Encoder:
    """Two smooth stages with batch norm (16-d), always the same at the start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = nn.Conv2d(3, 8, 4, 4, bias=False), nn.Conv2d(8, 16, 3, 1, 1, bias=False)
        stages = [nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), nn.GELU()) for conv in (first, second)]
    return Encoder(nn.Sequential(*stages), 16, pixels)


encoders.BUILDERS["tiny"] = tiny_encoder  # under a name, so that settings can ask for it


def random(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, always the same for a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def learn_two(method: Method, tiny: Benchmark, run: Run) -> dict[str, Tensor]:
    """Learns the base session and the next one; gives the state between the two."""
    base, new, *_ = tiny.sessions()
    with run.learning(0):
        method.learn_base(base, run)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with run.learning(1):
        method.learn_new(new, run)
    return before


# Settings with which every method learns the tiny benchmark in a second or two.
TINY = {
    "encoder": "tiny",
    "pixels": 16,
    "base.epochs": 3,
    "base.batch": 30,
    "augment.crop": "pad",
    "augment.padding": 1,
    "augment.margin": 1.0,
}
TINY_RESA = {"transfer.epochs": 2, "tasks": 4, "way": 4, "shot": 5, "query": 6, "held_out": 5}
