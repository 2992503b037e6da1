"""Branch = encoder + prototypes + relation + weight. A sum of Branches can be taught, exported and served."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.nn.encoders import Encoder
from fscil.nn.prototypes import Prototypes
from fscil.nn.relations import LinearForm, Relation, linear_form, mean_of_labels, query_form, relate

Views = Literal["one", "flip", "flip+shift"]


def test_views(images: Tensor, views: Views) -> list[Tensor]:
    """The views of images (n, 3, p, p) whose features are averaged: as they are, shifted by a pixel, mirrored."""
    shown = [images]
    if views == "flip+shift":
        padded = F.pad(images, (1, 1, 1, 1), mode="reflect")
        p, q = images.shape[-2:]
        shown += [padded[..., :p, :q], padded[..., 2 : p + 2, 2 : q + 2]]
    if views != "one":
        shown += [view.flip(-1) for view in shown]
    return shown


class Branch(nn.Module):
    """weight * relation(encoder(x), prototypes) + a bias per class (zero unless asked for)."""

    weight: Tensor
    feature_scale: Tensor
    whitening: Tensor

    def __init__(
        self,
        name: str,
        encoder: Encoder,
        relation: Relation,
        views: Views = "one",
        weight: float = 1.0,
        unit: bool = False,
    ):
        super().__init__()
        self.name, self.relation, self.views, self.unit = name, relation, views, unit
        self.encoder = encoder
        self.prototypes = Prototypes(encoder.dim)
        self.register_buffer("weight", torch.tensor(weight))
        self.register_buffer("feature_scale", torch.tensor(1.0))
        self.register_buffer("whitening", torch.eye(encoder.dim))

    def encode(self, images: Tensor, encoder: Encoder | None = None) -> Tensor:
        """Features (n, dim) of the images as they are, on the scale at which relations are measured.

        `encoder` is one that computes the same as the branch's own, faster.
        """
        f: Tensor = (self.encoder if encoder is None else encoder)(images)
        return self.feature_scale * (F.normalize(f, dim=1) if self.unit else f)

    def pooled(self, images: Tensor, encoder: Encoder | None = None) -> Tensor:
        """Features (n, dim) averaged over the test views."""
        return torch.stack([self.encode(view, encoder) for view in test_views(images, self.views)]).mean(0)

    def embed(self, images: Tensor) -> Tensor:
        """Features (n, dim) averaged over the test views and whitened."""
        return self.pooled(images) @ self.whitening

    @torch.no_grad()
    def whiten(self, features: Tensor, labels: Tensor, shrinkage: float) -> Tensor:
        """Fits the whitening to features (n, dim) that were embedded without it, and gives them whitened.

        Directions in which images of one class differ count less: S^-1/2 of the within-class covariance S, shrunk
        towards a multiple of the identity by the share `shrinkage` (1: no whitening); the mean variance stays.
        """
        _, means = mean_of_labels(features, labels)
        rest = (features - means[torch.unique(labels, return_inverse=True)[1]]).double()
        S = rest.T @ rest / len(rest)
        level = S.trace() / len(S)
        if level == 0:  # one image of each class tells nothing about how images of a class differ
            return features
        variances, directions = torch.linalg.eigh((1 - shrinkage) * S + shrinkage * level * torch.eye(len(S)))
        self.whitening.copy_(directions @ torch.diag((level / variances).sqrt()) @ directions.T)
        return features @ self.whitening

    @property
    def passes(self) -> int:
        """Encoder passes that `embed` makes per image."""
        return len(test_views(torch.zeros(1, 3, 4, 4), self.views))

    def relate(self, features: Tensor) -> Tensor:
        """Weighted relations (n, classes) of features (n, dim)."""
        return self.weight * relate(self.relation, features, self.prototypes.means()) + self.prototypes.biases()

    def forward(self, images: Tensor) -> Tensor:
        return self.relate(self.embed(images))


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
    """Features of each branch; branches that look at images in the same way run their common encoder once.

    `instead` names encoders that compute the same as those of the branches, faster.
    """
    pooled: dict[tuple[int, Views, bool], tuple[Tensor, Tensor]] = {}
    features = []
    for branch in branches:
        way = id(branch.encoder), branch.views, branch.unit
        if way not in pooled:
            pooled[way] = branch.pooled(images, instead.get(branch.encoder)), branch.feature_scale
        f, scale = pooled[way]
        features.append((branch.feature_scale / scale * f) @ branch.whitening)
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
