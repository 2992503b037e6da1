"""A bank of class prototypes that grows, forgets and renames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.tensors import sent

BUFFERS = ("sums", "counts", "labels", "bias")


class ClassSums(NamedTuple):
    """All that a bank holds of one class."""

    total: Tensor  # (dim,) float64, the sum of its features
    photos: int
    bias: float


class Prototypes(nn.Module):
    """Sum and count of the features of each class; rows are found by label, never by position.

    Sums and counts (instead of means) keep the mean exact when photos of a known class are added later. Spare rows make
    adding O(1).

    >>> bank = Prototypes(2)
    >>> bank.add(torch.tensor([7, 7]), torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    >>> bank.means().tolist()
    [[2.0, 0.0]]
    """

    sums: Tensor
    counts: Tensor
    labels: Tensor
    bias: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
        self.size = 0
        self._row: dict[int, int] = {}
        self.register_buffer("sums", torch.zeros(0, dim, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("bias", torch.zeros(0))

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels in row order."""
        return tuple(self._row)

    def means(self, rows: Tensor | None = None) -> Tensor:
        """Class means (classes, dim) in float32, of all classes or of some rows."""
        at = slice(self.size) if rows is None else rows
        return (self.sums[at] / self.counts[at, None]).float()

    def biases(self) -> Tensor:
        """What is added to the relations to each class (classes,)."""
        return self.bias[: self.size]

    def add(self, labels: Tensor, features: Tensor, bias: float = 0.0) -> None:
        """Counts features (n, dim) in; a label that is new gets the next row, and `bias` on its relations."""
        for label in dict.fromkeys(labels.tolist()):
            if label not in self._row:
                self._append(label)
                self.bias[self._row[label]] = bias
        rows = self.rows(labels)
        self.sums.index_add_(0, rows, features.detach().to(self.sums))
        self.counts.index_add_(0, rows, torch.ones_like(rows))

    def set(self, label: int, vector: Tensor) -> None:
        """Makes `vector` (dim,) the prototype of one class, as if it had been its only photo."""
        if label not in self._row:
            self._append(label)
        row = self._row[label]
        self.sums[row], self.counts[row] = vector.detach().to(self.sums), 1

    def rescale(self, factor: float) -> None:
        """Multiplies every prototype, as if all features had been `factor` times as long."""
        self.sums.mul_(factor)

    def clear(self) -> None:
        """Forgets every class."""
        self.size, self._row = 0, {}

    def remove(self, label: int) -> None:
        """Forgets one class; the rows behind it move up and nothing of it stays in memory."""
        row = self.row(label)
        for name in BUFFERS:
            buffer = getattr(self, name)
            buffer[row : self.size - 1] = buffer[row + 1 : self.size].clone()
            buffer[self.size - 1] = 0
        self.size -= 1
        self._index()

    def take(self, label: int) -> ClassSums:
        """A copy of what the bank holds of one class."""
        row = self.row(label)
        return ClassSums(self.sums[row].clone(), int(self.counts[row]), float(self.bias[row]))

    def put(self, label: int, row: ClassSums) -> None:
        """Gives one class exactly this content; a class that is missing comes in among the others by its label."""
        if label not in self._row:
            self._append(label)
            order = self.labels[: self.size].argsort(stable=True)
            if not torch.equal(order, torch.arange(self.size, device=order.device)):  # most come in at the end
                for name in BUFFERS:
                    getattr(self, name)[: self.size] = getattr(self, name)[order]
                self._index()
        at = self._row[label]
        self.sums[at], self.counts[at], self.bias[at] = row.total.to(self.sums), row.photos, row.bias

    def row(self, label: int) -> int:
        if label not in self._row:
            raise FscilError(f"there is no prototype of class {label}; known are {len(self._row)} classes")
        return self._row[label]

    def rows(self, labels: Tensor) -> Tensor:
        """Rows of labels (n,) -> (n,)."""
        rows = torch.tensor([self.row(label) for label in labels.tolist()], dtype=torch.int64)
        return sent(rows, self.sums.device)

    def with_rows(self, labels: Tensor, rows: Tensor) -> Tensor:
        """Means with the rows of `labels` (n,) replaced by `rows` (n, dim); gradients flow into the replaced rows only.

        This equals the paper's concatenation of pseudo-old and pseudo-new weights, in the order of the bank.
        """
        return self.means().index_copy(0, self.rows(labels), rows.float())

    def _append(self, label: int) -> None:
        if self.size == len(self.counts):
            for name in BUFFERS:
                buffer = getattr(self, name)
                setattr(self, name, torch.cat([buffer, buffer.new_zeros(max(64, self.size), *buffer.shape[1:])]))
        self.sums[self.size], self.counts[self.size], self.labels[self.size], self.bias[self.size] = 0, 0, label, 0
        self._row[label] = self.size
        self.size += 1

    def _index(self) -> None:
        self._row = {label: row for row, label in enumerate(self.labels[: self.size].tolist())}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name in BUFFERS:
            destination[prefix + name] = getattr(self, name)[: self.size].clone()

    def _load_from_state_dict(
        self,
        state: Mapping[str, Tensor],
        prefix: str,
        metadata: Mapping[str, Any],
        strict: bool,
        missing: list[str],
        unexpected: list[str],
        errors: list[str],
    ) -> None:
        absent = [prefix + name for name in BUFFERS if prefix + name not in state]
        if absent:
            missing.extend(absent)
            return
        if state[prefix + "sums"].shape[1] != self.dim:
            errors.append(f"{prefix}sums has {state[prefix + 'sums'].shape[1]} dimensions, expected {self.dim}")
            return
        for name in BUFFERS:
            setattr(self, name, state[prefix + name].clone().to(getattr(self, name).device))
        self.size = len(self.counts)
        self._index()
