"""Pseudo-incremental tasks: sampling of classes and images, and synthesis of classes nobody has seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from fscil.data.images import Framing, Images
from fscil.errors import FscilError
from fscil.tensors import sent

Synthesis = Literal["none", "rotate", "mixup", "cutmix"]
Mix = Literal["inter", "intra"]


class SmallClass(FscilError):
    """A class has fewer images than an episode takes of it; `named` says so by its name, unknown to sampling."""

    def __init__(self, label: int, problem: str):
        super().__init__(f"class {label} {problem}")
        self.label, self.problem = label, problem

    def named(self, class_names: Sequence[str]) -> FscilError:
        """The same with the name of the class; `class_names` are in the order of the labels."""
        return FscilError(f"class {class_names[self.label]} {self.problem}")


class Steps(Protocol):
    """The part of an epoch that sampling needs: a generator per purpose and the first step to make."""

    @property
    def start(self) -> int: ...

    def rng(self, *purpose: object) -> torch.Generator: ...


@dataclass(frozen=True)
class Sampling:
    """Size of a task and how its new classes are synthesised."""

    way: int
    shot: int
    query: int
    synthesis: Synthesis = "rotate"
    mix: Mix = "inter"


@dataclass(frozen=True)
class Task:
    """One pseudo-incremental task: images (way, shot + query, 3, p, p), twins of synthesised classes, labels (way,).

    The images are where the nets are, the labels in main memory.
    """

    images: Tensor
    twins: Tensor | None
    classes: Tensor
    shot: int
    weight: float = 1.0  # of the mean over its queries, where the task is one device's share and shares differ in size

    @property
    def way(self) -> int:
        return len(self.classes)

    @property
    def S(self) -> Tensor:
        """Support images (way, shot, ...)."""
        return self.images[:, : self.shot]

    @property
    def Q(self) -> Tensor:
        """Query images (way, query, ...)."""
        return self.images[:, self.shot :]

    @property
    def support(self) -> Tensor:
        """S, followed by S^a: the support of all local classes (way or 2 way, shot, ...)."""
        return self.S if self.twins is None else torch.cat([self.S, self.twins[:, : self.shot]])

    @property
    def query(self) -> Tensor:
        """Q, followed by Q^a: the queries of all local classes (way or 2 way, query, ...)."""
        return self.Q if self.twins is None else torch.cat([self.Q, self.twins[:, self.shot :]])

    def share(self, rank: int, world: int) -> "Task":
        """The part of one of several devices: the whole support, every world-th query.

        The mean over the devices of `weight` times a mean over their queries is the mean over all queries.
        """
        queries, mine = self.images.shape[1] - self.shot, range(self.shot + rank, self.images.shape[1], world)
        check_share(queries, world)
        kept = sent(torch.tensor([*range(self.shot), *mine]), self.images.device)
        twins = None if self.twins is None else self.twins[:, kept]
        return Task(self.images[:, kept], twins, self.classes, self.shot, world * len(mine) / queries)


def check_share(queries: int, world: int) -> None:
    """Refuses episodes that leave a device without a query."""
    if queries < world:
        raise FscilError(
            f"{queries} queries per class cannot be shared by {world} devices; raise --query or lower --devices"
        )


def episodes(images: Images, framing: Framing, sampling: Sampling, tasks: int, steps: Steps) -> Iterator[Task]:
    """`tasks` independent tasks of one epoch, from step `steps.start` on."""
    pool = class_pool(images, sampling)
    drawn = [draw(pool, sampling, steps.rng("task", i)) for i in range(steps.start, tasks)]
    chunks = [chunk.flatten() for _, chunk in drawn]
    shown = images.batches(chunks, framing, lambda i: steps.rng("view", steps.start + i))
    for i, ((classes, chunk), x) in enumerate(zip(drawn, shown, strict=True)):
        x = x.unflatten(0, tuple(chunk.shape))
        yield Task(x, synthesise(x, sampling, steps.rng("twins", steps.start + i)), classes, sampling.shot)


def class_pool(images: Images, sampling: Sampling) -> dict[int, Tensor]:
    """Label -> positions of its images; every class must be able to fill an episode."""
    pool = {int(label): (images.labels == label).nonzero()[:, 0] for label in images.labels.unique()}
    if len(pool) < sampling.way:
        raise FscilError(
            f"an episode of {sampling.way} classes cannot be drawn from {len(pool)} base classes; lower --way"
        )
    smallest = min(pool, key=lambda label: len(pool[label]))
    if len(pool[smallest]) < sampling.shot + sampling.query:
        raise SmallClass(
            smallest,
            f"has {len(pool[smallest])} training images, but an episode takes "
            f"{sampling.shot} + {sampling.query} of each class; lower --shot or --query",
        )
    return pool


def draw(pool: dict[int, Tensor], sampling: Sampling, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Classes (way,) without replacement and, for each, distinct images (way, shot + query)."""
    labels = torch.tensor(list(pool))
    classes = labels[torch.randperm(len(labels), generator=rng)[: sampling.way]]
    count = sampling.shot + sampling.query
    chosen = [pool[int(c)][torch.randperm(len(pool[int(c)]), generator=rng)[:count]] for c in classes]
    return classes, torch.stack(chosen)


def synthesise(images: Tensor, sampling: Sampling, rng: torch.Generator) -> Tensor | None:
    """Twins of images (way, k, 3, p, p) that form `way` new classes; None where nothing is synthesised."""
    if sampling.synthesis == "none":
        return None
    if sampling.synthesis == "rotate":
        turns = torch.randint(1, 4, (len(images),), generator=rng).tolist()
        return rotate(images, turns)
    lam = mixing_share(rng)
    partners = inter_class(images, rng) if sampling.mix == "inter" else intra_class(images, rng)
    return mixture(images, partners, sampling.synthesis, lam, rng)


def mixture(images: Tensor, partners: Tensor, synthesis: Synthesis, lam: float, rng: torch.Generator) -> Tensor:
    """Images (..., p, p) whose share 1 - lam is their partner's: of every pixel (mixup) or of the pixels (cutmix)."""
    return lam * images + (1 - lam) * partners if synthesis == "mixup" else cutmix(images, partners, lam, rng)


def mixing_share(rng: torch.Generator) -> float:
    """lam of a mixture, from Beta(1/2, 1/2)."""
    return float(torch._sample_dirichlet(torch.tensor([0.5, 0.5]), generator=rng)[0])


def rotate(images: Tensor, turns: list[int]) -> Tensor:
    """Each class of (way, k, 3, p, p) turned by its own number of quarter turns, the same for support and queries."""
    return torch.stack([torch.rot90(x, k, (-2, -1)) for x, k in zip(images, turns, strict=True)])


def derangement(n: int, rng: torch.Generator) -> Tensor:
    """A permutation (n,) without fixed point; for n = 1 the only permutation there is."""
    while True:
        order = torch.randperm(n, generator=rng)
        if n == 1 or not bool((order == torch.arange(n)).any()):
            return order


def inter_class(images: Tensor, rng: torch.Generator) -> Tensor:
    """Partners (way, k, 3, p, p) from another class: class i meets class pi(i), image by image."""
    return images[sent(derangement(len(images), rng), images.device)]


def intra_class(images: Tensor, rng: torch.Generator) -> Tensor:
    """Partners (way, k, 3, p, p) from the same class, the same shuffle in every class."""
    return images[:, sent(derangement(images.shape[1], rng), images.device)]


def cutmix(images: Tensor, partners: Tensor, lam: float, rng: torch.Generator) -> Tensor:
    """A square of the share 1 - lam, at one random place inside the images (..., p, p), is taken from the partner."""
    p = images.shape[-1]
    side = min(p, round(p * (1 - lam) ** 0.5))
    top, left = (int(torch.randint(0, p - side + 1, (1,), generator=rng)) for _ in range(2))
    mixed = images.clone()
    mixed[..., top : top + side, left : left + side] = partners[..., top : top + side, left : left + side]
    return mixed
