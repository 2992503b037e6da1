"""Recogniser: a sum of Branches that makes scores, evidence and probabilities of photos; it knows classes by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fscil.data.framing import Framing
from fscil.nn.branches import Branch, embed_shared
from fscil.nn.encoders import Encoder
from fscil.nn.readout import Evidence, Readout
from fscil.nn.relations import LinearForm, linear_form, relate
from fscil.teach.knowledge.calibration import Calibration
from fscil.teach.knowledge.memory import Memory
from fscil.teach.seeing.runtime import quick

AT_ONCE = 8  # images encoded together: the activations of more leave the processor's cache


@dataclass(frozen=True)
class Origin:
    """Where the features come from; told by `fscil card` and stored in the model file."""

    encoder: str  # a name that `encoders.build` knows, or "features"
    weights: str  # in words
    licence: str  # of the weights
    strength: str = ""  # how the base classes were learned
    seed: int = 0  # of everything that was drawn


@dataclass(eq=False)
class Recogniser:
    """Branches, what makes answers of their scores, and the features of single photos."""

    branches: Sequence[Branch]
    framing: Framing | None  # how photos are shown to the encoder; None: it is given features
    origin: Origin
    calibration: Calibration = field(default_factory=Calibration)
    memory: Memory = field(default_factory=Memory)
    negatives: tuple[bytes, ...] = ()  # digests of photos of none of these; each is a prototype whose win is "not sure"

    def __post_init__(self) -> None:
        for branch in self.branches:
            branch.eval().requires_grad_(False)
        self._quick: dict[Encoder, Encoder] = {}
        self._read()

    def _read(self) -> None:
        self._readout = Readout(self.branches)
        self._evidence: Evidence | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_quick": {}}  # made again where the copy is used

    @property
    def paired(self) -> bool:
        """Whether it is pairs of relations, each on one frozen encoder, whose read-out is fitted to base photos."""
        first, second = self.branches[::2], self.branches[1::2]
        return len(first) == len(second) and all(a.encoder is b.encoder for a, b in zip(first, second, strict=True))

    @property
    def complementary(self) -> bool:
        """Whether it is two relations on one frozen encoder, the second of which can be given a map of its own."""
        return len(self.branches) == 2 and self.branches[0].encoder is self.branches[1].encoder

    def drop_silent(self) -> None:
        """Lets branches go that have no say in the answer: nothing of any photo is computed or kept for them."""
        self.branches = [branch for branch in self.branches if branch.weight]
        self._read()

    @torch.no_grad()
    def embed(self, images: Tensor) -> list[Tensor]:
        """Features of images (n, 3, p, p), or of features (n, d): one (n, dim) per branch."""
        if images.dim() == 2:
            return embed_shared(self.branches, images)
        if not self._quick:
            name = self.origin.encoder
            self._quick = {encoder: quick(encoder, name) for encoder in {branch.encoder for branch in self.branches}}
        parts = [embed_shared(self.branches, some, self._quick) for some in torch.split(images, AT_ONCE)]
        return [torch.cat(features) for features in zip(*parts, strict=True)]

    @torch.no_grad()
    def scores(self, features: Sequence[Tensor]) -> Tensor:
        """How close features (one (n, dim) per branch) are to each class: (n, classes) in float32."""
        return self._readout.scores(features)

    @torch.no_grad()
    def scores_to(self, photos: Sequence[bytes], features: Sequence[Tensor]) -> Tensor:
        """How close features (one (n, dim) per branch) are to single photos that are remembered: (n, photos)."""
        remembered = self.memory.features(photos)
        parts = zip(self.branches, features, remembered, strict=True)
        return torch.stack([branch.weight * relate(branch.relation, f, rows) for branch, f, rows in parts]).sum(0)

    def none_form(self) -> LinearForm:
        """The relations to photos of none of these as keys and biases for the query of `fused_query`."""
        parts = zip(self.branches, self.memory.features(self.negatives), strict=True)
        forms = [(branch.weight, linear_form(branch.relation, rows)) for branch, rows in parts]
        bias = torch.stack([weight * form.bias for weight, form in forms]).sum(0)
        return LinearForm(torch.cat([weight * form.keys for weight, form in forms], 1), bias)

    def rejected(self, features: Sequence[Tensor]) -> Tensor:
        """Whether a photo of none of these is closer to features (one (n, dim) per branch) than every class (n,)."""
        return self.rejected_with(features, self.scores(features))

    def rejected_with(self, features: Sequence[Tensor], scores: Tensor) -> Tensor:
        """As `rejected`, with scores (n, classes) that are known already."""
        if not self.negatives:
            return torch.zeros(len(scores), dtype=torch.bool)
        return self.scores_to(self.negatives, features).amax(1) >= scores.amax(1)

    @torch.no_grad()
    def evidence(self, features: Sequence[Tensor]) -> Tensor:
        """What decides whether photos are known (n, classes); in models of before there was any, the scores."""
        read = self._evidence_readout()
        if read is None:
            return self.scores(features)
        return read.scores([f for branch, f in zip(self.branches, features, strict=True) if branch.unit_means])

    def _evidence_readout(self) -> Evidence | None:
        typical = self.calibration.tightness
        if typical is not None and (self._evidence is None or self._evidence.typical != typical):
            self._evidence = Evidence([branch for branch in self.branches if branch.unit_means], typical)
        return None if typical is None else self._evidence

    def evidence_form(self) -> LinearForm:
        """The evidence as keys and biases for the features of all branches side by side; zero for those not asked."""
        read = self._evidence_readout()
        if read is None:
            raise ValueError("the scores are all the evidence that this model has")
        form = read.form()
        parts = iter(form.keys.split([branch.encoder.dim for branch in self.branches if branch.unit_means], 1))
        rows = len(form.bias)
        keys = [next(parts) if b.unit_means else form.keys.new_zeros(rows, b.encoder.dim) for b in self.branches]
        return LinearForm(torch.cat(keys, 1), form.bias)

    def known(self, features: Sequence[Tensor]) -> Tensor:
        """Whether photos with features (one (n, dim) per branch) belong to a class of the model (n,)."""
        return self.calibration.known(self.evidence(features)) & ~self.rejected(features)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Calibrated probabilities (n, classes) of scores."""
        return torch.softmax(self.calibration.temperature * scores, 1)

    def changed(self, labels: Iterable[int]) -> None:
        """Says that classes with these labels have other prototypes than before."""
        self._readout.changed(labels)
        if self._evidence is not None:
            self._evidence.changed(labels)
