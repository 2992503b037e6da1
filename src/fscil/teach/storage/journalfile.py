"""Photos and journal inside a model file: lines as JSON, digests and what was known before each step as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fscil.nn.prototypes import ClassSums
from fscil.teach.knowledge.journal import Journal, Known, NotSure, Step
from fscil.teach.seeing.photos import DIGEST_BYTES


def step_notes(journal: Journal) -> list[dict[str, Any]]:
    """The steps as JSON; of what was known before, only names and digests of photos."""
    return [
        {
            "kind": step.kind,
            "when": step.when,
            "labels": step.labels,
            "names": step.names,
            "photos": step.photos,
            "renamed": step.renamed,
            "before": None if step.before is None else [_known_notes(known) for known in step.before],
            **({} if step.negatives is None else {"negatives": [photo.hex() for photo in step.negatives]}),
            **({} if step.not_sure is None else {"not_sure": asdict(step.not_sure)}),
            **({} if step.share is None else {"share": step.share}),
        }
        for step in journal.steps
    ]


def _known_notes(known: Known | None) -> dict[str, Any] | None:
    return None if known is None else {"name": known.name, "photos": [photo.hex() for photo in known.photos]}


def known_tensors(journal: Journal, branches: Sequence[str]) -> dict[str, Tensor]:
    """The prototypes known before each step, one row per class and step, in the order of the steps."""
    rows = [known.rows for known in _all_known(journal.steps)]
    if not rows:
        return {}
    tensors: dict[str, Tensor] = {}
    for branch, of_branch in zip(branches, zip(*rows, strict=True), strict=True):
        tensors[f"undo.{branch}.sums"] = torch.stack([row.total for row in of_branch])
        tensors[f"undo.{branch}.counts"] = torch.tensor([row.photos for row in of_branch])
        tensors[f"undo.{branch}.bias"] = torch.tensor([row.bias for row in of_branch])
    return tensors


def _all_known(steps: Sequence[Step]) -> Iterator[Known]:
    return (known for step in steps for known in step.before or () if known is not None)


def read_steps(
    notes: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], branches: Sequence[str]
) -> list[Step]:
    """The steps that `step_notes` and `known_tensors` wrote."""
    rows = zip(*(_rows(tensors, branch) for branch in branches), strict=True)
    steps = [_step(told, rows) for told in notes]
    if next(rows, None) is not None:
        raise ValueError("the journal is shorter than what it remembers")
    return steps


def _step(told: Mapping[str, Any], rows: Iterator[tuple[ClassSums, ...]]) -> Step:
    before = told["before"]
    if before is not None:
        before = tuple(None if known is None else _known(known, next(rows)) for known in before)
        if len(before) != len(told["labels"]):
            raise ValueError("a step of the journal is incomplete")
    labels, names = tuple(map(int, told["labels"])), tuple(told["names"])
    negatives = None if told.get("negatives") is None else tuple(map(bytes.fromhex, told["negatives"]))
    not_sure = None if told.get("not_sure") is None else NotSure(**told["not_sure"])
    return Step(
        told["kind"],
        labels,
        names,
        int(told["photos"]),
        told["renamed"],
        before,
        negatives,
        not_sure,
        told.get("share"),
        str(told["when"]),
    )


def _known(told: Mapping[str, Any], rows: tuple[ClassSums, ...]) -> Known:
    return Known(told["name"], rows, tuple(bytes.fromhex(photo) for photo in told["photos"]))


def _rows(tensors: Mapping[str, Tensor], branch: str) -> Iterator[ClassSums]:
    if f"undo.{branch}.sums" not in tensors:
        return
    columns = (tensors[f"undo.{branch}.{name}"] for name in ("sums", "counts", "bias"))
    for total, count, bias in zip(*columns, strict=True):
        yield ClassSums(total.clone(), int(count), float(bias))


def photo_tensors(photos: Mapping[int, tuple[bytes, ...]]) -> dict[str, Tensor]:
    """The digests of all photos (n, bytes) and their labels (n,)."""
    pairs = [(label, photo) for label in sorted(photos) for photo in photos[label]]
    joined, labels = b"".join(photo for _, photo in pairs), [label for label, _ in pairs]
    digests = torch.frombuffer(bytearray(joined), dtype=torch.uint8) if joined else torch.empty(0, dtype=torch.uint8)
    return {"photos.digests": digests.view(-1, DIGEST_BYTES), "photos.labels": torch.tensor(labels, dtype=torch.int64)}


def read_photos(tensors: Mapping[str, Tensor]) -> dict[int, tuple[bytes, ...]]:
    """The digests that `photo_tensors` wrote, by label."""
    found: dict[int, list[bytes]] = {}
    for photo, label in zip(tensors["photos.digests"].numpy(), tensors["photos.labels"].tolist(), strict=True):
        found.setdefault(label, []).append(photo.tobytes())
    return {label: tuple(photos) for label, photos in found.items()}
