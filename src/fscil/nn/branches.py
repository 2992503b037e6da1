"""Branch = encoder + prototypes + relation + weight. A sum of Branches can be taught, exported and served."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.nn.encoders import Encoder
from fscil.nn.prototypes import Prototypes
from fscil.nn.relations import LinearForm, Relation, linear_form, query_form, relate
from fscil.nn.whitening import Whitening, spread, whitening

Views = Literal["one", "flip", "flip+shift", "negative"]


class View(NamedTuple):
    """One way to look at images (n, 3, p, p)."""

    shift: int = 0  # by -1 or 1 pixel along the diagonal
    mirrored: bool = False
    turns: int = 0  # quarters
    negative: bool = False  # dark is bright: a drawing is the same, whatever its colours

    def of(self, images: Tensor) -> Tensor:
        if self.shift:
            p, q = images.shape[-2:]
            start = 1 + self.shift
            images = F.pad(images, (1, 1, 1, 1), mode="reflect")[..., start : start + p, start : start + q]
        if self.mirrored:
            images = images.flip(-1)
        if self.negative:
            images = -images  # normalised: about the mean colour
        return torch.rot90(images, self.turns, (-2, -1)) if self.turns else images


UPRIGHT = View()
SHIFTED = (UPRIGHT, View(shift=-1), View(shift=1))
TEST_VIEWS: Mapping[Views, tuple[View, ...]] = MappingProxyType(
    {
        "one": (UPRIGHT,),
        "flip": (UPRIGHT, View(mirrored=True)),
        "flip+shift": (*SHIFTED, *(view._replace(mirrored=True) for view in SHIFTED)),
        "negative": (UPRIGHT, View(negative=True)),
    }
)

SEEN_BESIDE: Mapping[Views, str] = MappingProxyType(  # in words
    {"one": "", "flip": "mirror images", "flip+shift": "mirror images and shifts", "negative": "negatives"}
)


def test_views(images: Tensor, views: Views) -> list[Tensor]:
    """The views of images (n, 3, p, p) whose features are averaged: as they are, shifted, mirrored, as negatives."""
    return [view.of(images) for view in TEST_VIEWS[views]]


class Look(NamedTuple):
    """A view of images through an encoder."""

    encoder: Encoder
    view: View

    def at(self, images: Tensor) -> Tensor:
        """Features (n, dim) of images (n, 3, p, p)."""
        features: Tensor = self.encoder(self.view.of(images))
        return features


class Branch(nn.Module):
    """weight * relation(encoder(x), prototypes) + a bias per class (zero unless asked for)."""

    weight: Tensor
    feature_scale: Tensor
    centre: Tensor
    whitening: Tensor

    def __init__(
        self,
        name: str,
        encoder: Encoder,
        relation: Relation,
        views: Views = "one",
        weight: float = 1.0,
        unit: bool = False,
        unit_means: bool = False,
        directed: bool = False,
    ):
        super().__init__()
        self.name, self.relation, self.views, self.unit, self.unit_means = name, relation, views, unit, unit_means
        self.directed = directed  # directions of features are averaged and whitened, apart from their lengths
        self.stretched = directed  # which they then get back: a short feature shows little of any class
        self.length: float | None = None  # of most features as the encoder makes them; None until `whiten` finds it
        self.encoder = encoder
        self.prototypes = Prototypes(encoder.dim)
        self.register_buffer("weight", torch.tensor(weight))
        self.register_buffer("feature_scale", torch.tensor(1.0))
        self.register_buffer("centre", torch.zeros(encoder.dim))
        self.register_buffer("whitening", torch.eye(encoder.dim))

    def encode(self, images: Tensor, encoder: Encoder | None = None) -> Tensor:
        """Features (n, dim) of the images as they are, on the scale at which relations are measured.

        `encoder` is one that computes the same as the branch's own, faster.
        """
        return self.scaled((encoder or self.encoder)(images))

    def scaled(self, f: Tensor) -> Tensor:
        """The encoder's features (n, dim) on the scale at which relations are measured."""
        return self.feature_scale * (F.normalize(f, dim=1) if self.unit and not self.directed else f)

    def looks(self, images: Tensor, encoder: Encoder | None = None) -> list[Tensor]:
        """What the encoder makes of each test view, (n, dim)."""
        return [(encoder or self.encoder)(view) for view in test_views(images, self.views)]

    def pooled(self, images: Tensor, encoder: Encoder | None = None) -> Tensor:
        """Features (n, dim) averaged over the test views."""
        return self.average(self.looks(images, encoder))

    def average(self, features: Iterable[Tensor]) -> Tensor:
        """The encoder's features of the test views, each (n, dim), as one.

        Where directions are averaged all views count alike, and the feature gets their mean length.
        """
        seen = torch.stack([self.scaled(f) for f in features])
        if not self.directed or len(seen) == 1:
            return seen.mean(0)
        lengths: Tensor = seen.norm(dim=2, keepdim=True).mean(0)
        return F.normalize(F.normalize(seen, dim=2).mean(0), dim=1) * lengths

    def embed(self, images: Tensor) -> Tensor:
        """Features (n, dim) as they are compared: averaged over the test views and whitened."""
        return self.whitened(self.pooled(images))

    def whitened(self, pooled: Tensor) -> Tensor:
        """Pooled features (n, dim) centred and whitened and, for `unit_means`, of length 1 before means are taken.

        A stretched feature gets its length back, as a share of the usual one. Before that is known, features whose
        directions are to be whitened stay as they are.
        """
        if self.directed and self.length is None:
            return pooled
        f = (self._to_whiten(pooled) - self.centre) @ self.whitening
        f = F.normalize(f, dim=1) if self.unit_means else f
        return f * pooled.norm(dim=1, keepdim=True) / self.length if self.stretched and self.length else f

    def _to_whiten(self, pooled: Tensor) -> Tensor:
        return F.normalize(pooled, dim=1) if self.directed else pooled

    def counted(self, features: Tensor) -> Tensor:
        """Features (n, dim) as class means are taken of them: a long one counts no more than a short one."""
        return F.normalize(features, dim=1) if self.stretched else features

    @property
    def whitens(self) -> bool:
        """Whether features are whitened by any matrix but the identity; the first row of most others tells at once."""
        matrix = self.whitening
        if matrix[0, 0] != 1 or matrix[0, 1:].any():
            return True
        return not torch.equal(matrix, torch.eye(len(matrix), device=matrix.device))

    @torch.no_grad()
    def whiten(self, pooled: Tensor, labels: Tensor, shrinkage: float = 0.0) -> Tensor:
        """Fits the whitening to pooled features (n, dim) and gives them whitened; shrinkage 0: what the data ask for.

        Only `unit_means` are centred as well: other relations were defined without.
        """
        if self.directed:
            self.length = float(pooled.norm(dim=1).mean()) or 1.0
        found = spread(self._to_whiten(pooled), labels, shrinkage)
        made = whitening(found, found.shrinkage)
        self.see_through(made if self.unit_means else made._replace(centre=torch.zeros_like(made.centre)))
        return self.whitened(pooled)

    def see_through(self, made: Whitening) -> None:
        """From now on features are centred and whitened like this."""
        self.centre.copy_(made.centre)
        self.whitening.copy_(made.matrix)

    @property
    def passes(self) -> int:
        """Encoder passes that `embed` makes per image."""
        return len(TEST_VIEWS[self.views])

    def relate(self, features: Tensor) -> Tensor:
        """Weighted relations (n, classes) of features (n, dim)."""
        return self.weight * relate(self.relation, features, self.prototypes.means()) + self.prototypes.biases()

    def forward(self, images: Tensor) -> Tensor:
        return self.relate(self.embed(images))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        state.setdefault(f"{prefix}centre", torch.zeros_like(self.centre))  # states of before there was one
        super()._load_from_state_dict(state, prefix, *rest)


class Branches(nn.ModuleList):
    """Branches in the order in which their relations are added."""

    def __init__(self, branches: Iterable[Branch]):
        super().__init__(branches)

    def __getitem__(self, position: int) -> Branch:  # type: ignore[override]  # slices are not needed
        return cast(Branch, super().__getitem__(position))

    def __iter__(self) -> Iterator[Branch]:
        return cast(Iterator[Branch], super().__iter__())


def embed_shared(
    branches: Iterable[Branch], images: Tensor, instead: Mapping[Encoder, Encoder] = MappingProxyType({})
) -> list[Tensor]:
    """Features of each branch (n, dim); branches that look at images alike run their common encoder once.

    `instead` names encoders that compute the same as those of the branches, faster.
    """
    looks: dict[tuple[int, Views], list[Tensor]] = {}
    pooled: dict[tuple[int, Views, bool, bool], tuple[Tensor, Tensor]] = {}
    features = []
    for branch in branches:
        look = id(branch.encoder), branch.views
        if look not in looks:
            looks[look] = branch.looks(images, instead.get(branch.encoder))
        way = *look, branch.unit, branch.directed
        if way not in pooled:
            pooled[way] = branch.average(looks[look]), branch.feature_scale
        f, scale = pooled[way]
        features.append(branch.whitened(branch.feature_scale / scale * f))
    return features


def fused_form(branches: Iterable[Branch], rows: Tensor | None = None) -> LinearForm:
    """The sum of the relations as keys (classes, all dims) and bias (classes,), of all classes or of some rows."""
    keys: list[Tensor] = []
    bias = torch.zeros(())
    for branch in branches:
        form = linear_form(branch.relation, branch.prototypes.means(rows))
        added = branch.prototypes.biases() if rows is None else branch.prototypes.biases()[rows]
        keys.append(branch.weight * form.keys)
        bias = bias + branch.weight * form.bias + added
    return LinearForm(torch.cat(keys, 1), bias)


def fused_query(branches: Iterable[Branch], features: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """What the fused keys are multiplied with: queries (n, all dims) and the offset (n,) of every score."""
    queries: list[Tensor] = []
    offset = torch.zeros(())
    for branch, f in zip(branches, features, strict=True):
        query, shift = query_form(branch.relation, f)
        queries.append(query)
        offset = offset + branch.weight * shift
    return torch.cat(queries, 1), offset


def fused_scores(branches: Iterable[Branch], features: Iterable[Tensor]) -> Tensor:
    """Sum of the branches' relations as one product, float32: features of each branch (n, d_b) -> (n, classes)."""
    branches = tuple(branches)
    form = fused_form(branches)
    query, offset = fused_query(branches, features)
    return query @ form.keys.T + form.bias + offset.unsqueeze(1)
