"""How much of a training step is not the encoder, and how fast the loop is beside a plain one. Run by `make bench`.

The plain way is the one that is usually written: a DataLoader, Pillow transforms image by image, contiguous float32,
and in every session all test images encoded anew. Both ways train the same net on the images of the benchmark glyphs,
with the batches and the optimiser of its recipe `small`, and take turns. A minute or two on two cores.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from fscil import methods, settings
from fscil.command import show
from fscil.data import PUBLISHED, benchmark
from fscil.data.images import Framing, TensorImages
from fscil.data.sessions import Benchmark, Session
from fscil.methods._kt_rcnet_arms import Encoded, resa
from fscil.methods.shared.base import Net, label_rows, train_classifier
from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.encoders import Encoder
from fscil.nn.heads import CosineHead
from fscil.running.descent import optimiser
from fscil.running.planning import choose_precision
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run

STEPS = 2  # of training that are timed at once
TESTED = 500  # test images that are timed
ROUNDS = 4
PATIENCE = 40.0  # seconds of one comparison after which no new round begins
WORKERS = 2  # of the plain DataLoader


def fastest(*works: Callable[[], object]) -> list[float]:
    """Seconds of the fastest try of each, the first one not counted; they take turns, to meet the same noise."""
    rounds: list[list[float]] = []
    began = time.perf_counter()
    while len(rounds) < 2 or (len(rounds) <= ROUNDS and time.perf_counter() - began < PATIENCE):
        rounds.append([seconds(work) for work in works])
    return [min(taken) for taken in zip(*rounds[1:], strict=True)]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Speed(NamedTuple):
    """Seconds for one image that is trained on, and for one test image that is encoded."""

    trained: float
    tested: float


class Bench:
    """KT-RCNet, as `small` has it, on a part of the base session; nothing is written."""

    def __init__(self, sessions: Benchmark, config: Any, precision: str, place: Path):
        self.sessions, self.config = sessions, config
        self.run = Run(RunFolder(place, writable=False), 0, place, precision=precision)
        self.base = part(sessions.base(config.held_out), STEPS * config.base.batch)
        self.precision = getattr(torch, precision)

    def encoder(self) -> Encoder:
        built = encoders.build(self.config.encoder, self.config.pixels).to(memory_format=torch.channels_last)
        set_arithmetic(built, self.precision, winograd=False)
        return built

    def method(self) -> Any:
        return methods.load("kt_rcnet").Method(self.config, self.encoder())

    def net(self) -> Net[CosineHead]:
        encoder = self.encoder()
        return Net(encoder, CosineHead(encoder.dim, len(self.base.classes), self.config.scale, self.run.rng("head")))

    def outside_base(self) -> float:
        """Share of the steps of the base session that the encoder does not need."""
        method, net, training = self.method(), self.net(), replace(self.config.base, epochs=1, pixels=())
        batch = noise(len(self.base.train) // STEPS, self.config.pixels)
        alone, whole = fastest(
            lambda: [passes(net.encoder, batch) for _ in range(STEPS)],
            lambda: train_classifier(method, "base", net, self.base, training, self.run),
        )
        return 1 - alone / whole

    def outside_resa(self) -> float:
        """Share of the steps of RESA that the encoder does not need; f1 takes no part in `small`."""
        c = replace(self.config, tasks=STEPS, transfer=replace(self.config.transfer, epochs=1), feature_scale=1.0)
        whole_base = self.sessions.base(c.held_out)
        method = methods.load("kt_rcnet").Method(c, self.encoder())
        for branch in method.branches:
            branch.prototypes.add(whole_base.train.labels, torch.rand(len(whole_base.train), branch.encoder.dim))
        local, pixels = c.way * (2 if c.twins != "none" else 1), c.task_pixels or c.pixels
        support, query = noise(local * c.shot, pixels), noise(local * c.query, pixels)
        student = Encoded(method, whole_base, self.run)
        student.begin()
        alone, whole = fastest(
            lambda: [passes(method.f2, support, query) for _ in range(STEPS)],
            lambda: resa(student),
        )
        return 1 - alone / whole

    def against_plain(self) -> tuple["Speed", "Speed"]:
        """The library's way and the plain one."""
        method, ours, training = self.method(), self.net(), replace(self.config.base, epochs=1, pixels=())
        plain = PlainWay(self.net().to(memory_format=torch.contiguous_format), self.base, training, self.config)
        tests = self.sessions.test(self.sessions.session_count - 1)
        tests = tests.select(torch.arange(min(TESTED, len(tests))))
        fast, slow = fastest(
            lambda: train_classifier(method, "base", ours, self.base, training, self.run),
            lambda: plain.train(),
        )
        framing = method.test_framing(self.base)
        quick, tedious = fastest(lambda: encoded(ours.encoder, tests, framing), lambda: plain.encode(tests))
        n, m = len(self.base.train), len(tests)
        return Speed(fast / n, quick / m), Speed(slow / n, tedious / m)


def part(session: Session, images: int) -> Session:
    """Some images of a session, of all its classes."""
    some = torch.randperm(len(session.train), generator=torch.Generator().manual_seed(0))[:images]
    return replace(session, train=session.train.select(some))


def noise(count: int, pixels: int) -> Tensor:
    return torch.rand(count, 3, pixels, pixels).to(memory_format=torch.channels_last)


def passes(encoder: Encoder, *batches: Tensor) -> None:
    """Forward and backward through the encoder alone, for batches that share a backward pass."""
    encoder.train().requires_grad_(True)
    features = [encoder(x) for x in batches]
    torch.autograd.backward(features, [torch.ones_like(f) for f in features])
    encoder.zero_grad()


@torch.no_grad()
def encoded(encoder: Encoder, images: TensorImages, framing: Framing) -> Tensor:
    chunks = torch.arange(len(images)).split(TESTED)
    return torch.cat([encoder.eval()(x) for x in images.batches(chunks, framing)])


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images as Pillow pictures, transformed one by one."""

    def __init__(self, images: TensorImages, transform: Callable[[Image.Image], Tensor]):
        self.pictures = [Image.fromarray(pixels.permute(1, 2, 0).numpy()) for pixels in images.pixels]
        self.labels, self.transform = images.labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.pictures[index]), self.labels[index]


class PlainWay:
    """Training and testing as they are usually written, without anything of the library's loop."""

    def __init__(self, net: nn.Module, base: Session, training: Any, config: Any):
        self.net, self.training, self.rows = net, training, label_rows(base.classes)
        self.net.encoder.precision = torch.float32
        self.optimiser = optimiser(list(net.parameters()), training, "float32")
        finish = [transforms.ToTensor(), transforms.Normalize(base.mean, base.std)]
        crop = transforms.RandomCrop(config.pixels, padding=config.augment.padding, padding_mode="reflect")
        self.finish = transforms.Compose(finish)
        self.loader = loader(Pictures(base.train, transforms.Compose([crop, *finish])), training.batch, True)

    def train(self) -> None:
        self.net.train()
        for x, y in self.loader:
            loss = F.cross_entropy(self.net(x), self.rows[y], label_smoothing=self.training.label_smoothing)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()

    @torch.no_grad()
    def encode(self, images: TensorImages) -> Tensor:
        self.net.eval()
        return torch.cat([self.net.encoder(x) for x, _ in loader(Pictures(images, self.finish), TESTED, False)])


def loader(pictures: Pictures, batch: int, training: bool) -> DataLoader[tuple[Tensor, int]]:
    """Workers of the training loader stay alive between epochs."""
    return DataLoader(
        pictures, batch, shuffle=training, num_workers=WORKERS, persistent_workers=training and WORKERS > 0
    )


def whole_run(sessions: Benchmark, config: Any, ours: Speed, plain: Speed) -> float:
    """How many times as long the base session and all tests would take in the plain way, by their images."""
    sizes = [len(sessions.test_indices(t)) for t in range(sessions.session_count)]
    trained = config.base.epochs * len(sessions.base(config.held_out).train)
    again = sum(sum(sizes[: t + 1]) for t in range(len(sizes)))  # every session tests all classes so far
    return (trained * plain.trained + again * plain.tested) / (trained * ours.trained + sum(sizes) * ours.tested)


def lines(bench: Bench) -> Iterator[str]:
    """What is measured, as it comes."""
    base, task = bench.outside_base(), bench.outside_resa()
    yield f"of a training step, not the encoder: {100 * base:.0f} % (base session), {100 * task:.0f} % (RESA)"
    ours, plain = bench.against_plain()
    training, testing = plain.trained / ours.trained, plain.tested / ours.tested
    whole = whole_run(bench.sessions, bench.config, ours, plain)
    yield (
        f"the plain way takes {whole:.2f} times as long for base session and tests: {training:.2f} times for an image "
        f"that is trained on ({1000 * ours.trained:.1f} ms here), {testing:.2f} times for a test image, each encoded "
        "anew in every session"
    )


def gain(precision: torch.dtype, images: int = 250) -> float:
    """How many times as long a training step of `fast_large` takes without the short way of its convolutions."""
    ordinary, short = (encoders.build("fast_large", 32).to(memory_format=torch.channels_last) for _ in range(2))
    set_arithmetic(short, precision, winograd=True)
    ordinary.precision = precision
    batch = noise(images, 32)
    slow, fast = fastest(lambda: passes(ordinary, batch), lambda: passes(short, batch))
    return slow / fast


def main() -> None:
    config = settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "glyphs", settings.SMALL)
    precision = choose_precision("auto", torch.device("cpu"))["used"]
    sessions = benchmark("glyphs", None, PUBLISHED)
    show.say(f"training on {torch.get_num_threads()} threads in {precision}, recipe small on glyphs")
    with tempfile.TemporaryDirectory() as place:
        for line in lines(Bench(sessions, config, precision, Path(place))):
            show.say(line)
    if precision == "bfloat16":
        side_by_side = gain(torch.bfloat16)
        show.say(f"a step of fast_large in bfloat16 takes {side_by_side:.2f} times as long with images one by one")
    # last: from here on the process keeps the memory it frees, which is faster for both ways
    winograd = gain(torch.float32)
    show.say(f"a step of fast_large in float32 takes {winograd:.2f} times as long without Winograd's algorithm")


if __name__ == "__main__":
    main()
