"""Branches and their encoders in a model file: as notes and tensors, and back; all but the photos and the journal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fscil.data.framing import Framing
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.branches import TEST_VIEWS, Branch
from fscil.nn.encoders import Encoder
from fscil.teach.knowledge.backbones import FEATURES, Features
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.storage.stored import Stored
from fscil.tensors import digest

SCALARS = ("weight", "feature_scale")


def encoders_of(model: Model) -> list[Encoder]:
    """The encoders of a model, each once."""
    return list({id(branch.encoder): branch.encoder for branch in model.branches}.values())


def encoder_notes(encoders: Sequence[Encoder], weights: Sequence[Stored]) -> list[dict[str, Any]]:
    """What tells encoders from others."""
    return [{"dim": encoder.dim, "sha256": one.sha256} for encoder, one in zip(encoders, weights, strict=True)]


def branch_notes(branch: Branch, encoder: int) -> dict[str, Any]:
    """How a branch compares; its encoder is the one at that position."""
    names = ("name", "relation", "views", "unit", "unit_means", "length", "stretched")
    return {**{name: getattr(branch, name) for name in names}, "encoder": encoder}


def branch_tensors(branch: Branch) -> dict[str, Tensor]:
    """Read-out and prototypes of a branch."""
    kept = {name: getattr(branch, name) for name in SCALARS}
    if branch.whitens:
        kept["whitening"] = branch.whitening
    if branch.centre.any():
        kept["centre"] = branch.centre
    kept |= {f"prototypes.{name}": tensor for name, tensor in branch.prototypes.state_dict().items()}
    return {f"branch.{branch.name}.{name}": tensor for name, tensor in kept.items()}


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def read_encoders(
    tensors: Mapping[str, Tensor], notes: Sequence[Mapping[str, Any]], origin: Origin, framing: Framing | None
) -> list[Encoder]:
    """The encoders with their weights from the file."""
    names = [_encoder_name(origin, i) for i in range(len(notes))]
    parts = [part_of(tensors, f"encoder.{i}.") for i in range(len(notes))]
    return [_encoder(*facts, framing) for facts in zip(parts, notes, names, strict=True)]


def _encoder_name(origin: Origin, position: int) -> str:
    """Encoders are called NAME+NAME; those of a run folder share one name."""
    names = origin.encoder.split("+")
    return names[position] if len(names) > 1 else names[0]


def _encoder(state: dict[str, Tensor], told: Mapping[str, Any], name: str, framing: Framing | None) -> Encoder:
    """The encoder with its weights from the file."""
    if (framing is None) != (name == FEATURES):
        raise FscilError("it does not say how its encoder is shown photos")
    if framing is None:
        return Features(int(told["dim"]))
    encoder = encoders.unsized(name, framing.pixels)
    encoder.load_state_dict(state)
    if digest(encoder.state_dict()) != told["sha256"]:
        raise FscilError("the weights of its encoder are not those it was saved with")
    return encoder.to(memory_format=torch.channels_last)


def read_branch(told: Mapping[str, Any], encoder: Encoder, kept: Mapping[str, Tensor]) -> Branch:
    """The branch that notes tell of, with what was kept of it."""
    unit_means, length = bool(told.get("unit_means", False)), told.get("length")  # files of before do not know them
    if length is not None and not 0 < float(length) < math.inf:
        raise FscilError(f"branch {told['name']} is not one that can be used")
    branch = Branch(
        told["name"],
        encoder,
        told["relation"],
        told["views"],
        unit=bool(told["unit"]),
        unit_means=unit_means,
        directed=length is not None,
    )
    branch.length = None if length is None else float(length)
    branch.stretched = bool(told.get("stretched", False))
    for name in (*SCALARS, *(name for name in ("whitening", "centre") if name in kept)):
        getattr(branch, name).copy_(kept[name])
    branch.prototypes.load_state_dict(part_of(kept, "prototypes."))
    comparable = branch.relation in ("cosine", "euclid") and branch.views in TEST_VIEWS
    if not comparable or not bool((branch.prototypes.counts > 0).all()):
        raise FscilError(f"branch {branch.name} is not one that can be used")
    return branch
