"""The classifier part of a sum of branches, kept between questions: only classes that changed are computed anew."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fscil.nn.branches import Branch, fused_form, fused_query
from fscil.nn.relations import LinearForm, evidence_form

MANY = 1000  # classes per thread from which it pays to share them out


class Readout:
    """Keys and biases of all classes of some branches with equal classes."""

    def __init__(self, branches: Sequence[Branch]):
        self.branches = branches
        self._labels: tuple[int, ...] = ()
        self._form: LinearForm | None = None
        self._changed: set[int] = set()

    def changed(self, labels: Iterable[int]) -> None:
        """Has to be told which classes came, went or got another prototype."""
        self._changed |= set(labels)

    def scores(self, features: Sequence[Tensor]) -> Tensor:
        """As `fused_scores`: features of each branch (n, d_b) -> (n, classes)."""
        form = self.form()
        seen = [f for branch, f in zip(self.branches, features, strict=True) if branch.weight]
        query, offset = fused_query(self._heard(), seen)
        return _product(query[:, : form.keys.shape[1]], form.keys) + form.bias + offset.unsqueeze(1)

    def _heard(self) -> list[Branch]:
        """The branches that have a say in the sum."""
        return [branch for branch in self.branches if branch.weight]

    def form(self) -> LinearForm:
        """Keys and biases of all classes."""
        if self._form is not None and not self._changed:
            return self._form
        labels = self.branches[0].prototypes.classes
        before = {label: row for row, label in enumerate(self._labels) if label not in self._changed}
        kept = [(row, before[label]) for row, label in enumerate(labels) if label in before]
        fresh = torch.tensor([row for row, label in enumerate(labels) if label not in before], dtype=torch.int64)
        new = self._form_of(fresh)
        form = LinearForm(new.keys.new_empty(len(labels), new.keys.shape[1]), new.bias.new_empty(len(labels)))
        form.keys[fresh], form.bias[fresh] = new.keys, new.bias
        if kept and self._form is not None:
            to, origin = torch.tensor(kept).T
            form.keys[to], form.bias[to] = self._form.keys[origin], self._form.bias[origin]
        self._labels, self._form, self._changed = labels, form, set()
        return form

    def _form_of(self, rows: Tensor) -> LinearForm:
        """The form of some rows; relations to one and the same unit feature are added up, which halves the product."""
        heard = self._heard()
        form = fused_form(heard, rows)
        if not _same_query(heard):
            return form
        parts = form.keys.split([branch.encoder.dim for branch in heard], 1)
        maps = [branch.feature_scale * branch.whitening.T for branch in heard]
        keys = torch.stack([part @ A for part, A in zip(parts, maps, strict=True)]).sum(0)
        return LinearForm(keys, form.bias)


class Evidence(Readout):
    """For each class how far features lie beyond the midpoint between it and the centre, summed over branches."""

    def __init__(self, branches: Sequence[Branch], typical: float):
        super().__init__(branches)
        self.typical = typical

    def scores(self, features: Sequence[Tensor]) -> Tensor:
        form = self.form()
        return _product(torch.cat(list(features), 1).float(), form.keys) + form.bias

    def _form_of(self, rows: Tensor) -> LinearForm:
        banks = [branch.prototypes for branch in self.branches]
        forms = [evidence_form(bank.means(rows), bank.counts[rows], self.typical) for bank in banks]
        return LinearForm(torch.cat([f.keys for f in forms], 1), torch.stack([f.bias for f in forms]).sum(0))


def _same_query(branches: Sequence[Branch]) -> bool:
    """Whether all branches see the first one's feature, of length 1, through a map of their own."""
    first, *others = branches
    same = all(b.encoder is first.encoder and b.unit and b.views == "one" for b in branches)
    related = first.relation == "cosine" and all(b.relation == "euclid" for b in others)
    if not same or not related or any(b.unit_means or b.centre.any() for b in branches):
        return False
    return float(first.feature_scale) == 1 and not first.whitens


def _product(query: Tensor, keys: Tensor) -> Tensor:
    """query (n, d) @ keys.T (d, classes).

    One question to many classes takes as long as memory takes to give the keys, and some libraries read them with one
    thread alone; a part of the keys for each thread makes all of them read.
    """
    parts = torch.get_num_threads()
    share = len(keys) // parts
    if len(query) != 1 or share < MANY:
        return query @ keys.T
    shared, rest = keys[: parts * share].view(parts, share, -1), keys[parts * share :]
    products = torch.bmm(shared, query.contiguous().T.expand(parts, -1, 1)).view(1, -1)
    return torch.cat([products, query @ rest.T], 1) if len(rest) else products
