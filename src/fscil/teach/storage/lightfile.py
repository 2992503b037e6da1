"""Keeps what an answer without torch needs, whenever a model is saved; and forgets it when the model changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from fscil.files import write_bytes
from fscil.nn.branches import TEST_VIEWS, Branch, Views, fused_form, fused_query
from fscil.nn.encoders import Encoder
from fscil.teach.knowledge.model import Model
from fscil.teach.seeing import graphs, light
from fscil.teach.seeing.runtime import exported
from fscil.tensors import digest, write_tensors

PROBES = 8
SAME = 1e-4
LIGHT_VIEWS = ("one", "flip", "negative")  # that an answer without torch can make


class Head(nn.Module):
    """Features of all encoders side by side (n, dims), followed by those of the second view where there is one ->
    queries (n, all dims), the offset (n,) of every score, and what the branches make of the features, side by side,
    from which the evidence is computed.
    """

    def __init__(self, branches: Sequence[Branch], encoders: Sequence[Encoder]):
        super().__init__()
        self._branches = list(branches)
        starts = [sum(other.dim for other in encoders[:i]) for i in range(len(encoders))]
        self._start = dict(zip(encoders, starts, strict=True))
        self._dims = sum(encoder.dim for encoder in encoders)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        seen = self.embed(features)
        return *fused_query(self._branches, seen), torch.cat(seen, 1)

    def embed(self, features: Tensor) -> list[Tensor]:
        """Features of each branch (n, dim)."""
        return [branch.whitened(branch.average(self._looks(branch, features))) for branch in self._branches]

    def _looks(self, branch: Branch, features: Tensor) -> list[Tensor]:
        """What the encoder of a branch made of each of its views (n, dim)."""
        starts = [self._start[branch.encoder] + view * self._dims for view in range(branch.passes)]
        return [features[:, start : start + branch.encoder.dim] for start in starts]


def forget(revision: str | None) -> None:
    """Removes what was kept of a revision: a class may have been erased since."""
    if revision is not None:
        with suppress(OSError, RuntimeError):  # the latter where nobody has a home, and nothing was kept
            light.place(revision).unlink(missing_ok=True)


def keep(model: Model) -> None:
    """Keeps what the next answer needs, if photos are encoded by ONNX Runtime."""
    if graphs.choice() == "torch" or model.framing is None or not model.names or model.revision is None:
        return
    try:
        _keep(model, model.revision)
    except (Exception, KeyboardInterrupt):  # a shortcut must not cost a lesson, which is saved: torch will answer
        forget(model.revision)


def _keep(model: Model, revision: str) -> None:
    encoders = list({id(branch.encoder): branch.encoder for branch in model.branches}.values())
    digests = [digest(encoder.state_dict()) for encoder in encoders]
    files = [graphs.place(model.origin.encoder, d, e.pixels) for e, d in zip(encoders, digests, strict=True)]
    views = max((branch.views for branch in model.branches), key=lambda views: len(TEST_VIEWS[views]))
    alike = all(branch.views in ("one", views) for branch in model.branches)
    if views not in LIGHT_VIEWS or not alike or not all(file.is_file() and file.stat().st_size for file in files):
        return
    head = graphs.place("read-out", _settings(model, digests), 0)
    if not head.is_file():
        graph = exported(
            Head(model.branches, encoders), _probes(encoders, views)[:1], "features", ("query", "offset", "seen")
        )
        write_bytes(head, graph)
    numbers = {name: getattr(model.calibration, name) for name in ("temperature", "margin", "threshold")}
    numbers["shift"] = model.calibration.shift(len(model.names))
    used = {"encoders": [file.name for file in files], "head": head.name}
    notes = {**used, "calibration": numbers, "views": views, "program": light.PROGRAM}
    write_tensors(light.place(revision), _rows(model), notes)
    _compare(model, encoders, revision, views)


def _rows(model: Model) -> dict[str, Tensor]:
    """Keys (dims, classes) and bias (classes,) of scores, of evidence where there is any, and of photos of none
    of these.
    """
    form = fused_form(model.branches)
    rows = {"keys": form.keys.T, "bias": form.bias}
    if model.calibration.tightness is not None:
        evidence = model.evidence_form()
        rows |= {"evidence keys": evidence.keys.T, "evidence bias": evidence.bias}
    if model.negatives:
        none = model.none_form()
        rows |= {"none keys": none.keys.T, "none bias": none.bias}
    return rows


def _settings(model: Model, digests: Sequence[str]) -> str:
    """Everything that decides how features become queries."""
    plain = [{n: v for n, v in vars(b).items() if isinstance(v, str | bool | int | float)} for b in model.branches]
    tensors = {
        f"{branch.name}.{name}": tensor
        for branch in model.branches
        for name, tensor in branch.state_dict().items()
        if not name.startswith(("encoder.", "prototypes."))
    }
    return json.dumps([plain, list(digests), digest(tensors)])


def _compare(model: Model, encoders: Sequence[Encoder], revision: str, views: Views) -> None:
    """Fails unless made-up photos get the answers of the model itself."""
    kept = light.opened(light.place(revision), torch.get_num_threads())
    features = _probes(encoders, views)
    with torch.no_grad():
        seen = Head(model.branches, encoders).embed(features)
        probabilities, known = model.probabilities(model.scores(seen)), model.known(seen)
        rejected = model.rejected(seen)
    ours, sure, out = kept.judged(features.numpy())
    same = torch.allclose(torch.from_numpy(ours), probabilities, rtol=0, atol=SAME)
    if not same or (sure.tolist(), out.tolist()) != (known.tolist(), rejected.tolist()):
        raise ValueError("the answers differ")


def _probes(encoders: Sequence[Encoder], views: Views) -> Tensor:
    """Made-up features of all encoders side by side, view after view: (PROBES, views x dims).

    The draws of the caller stay as they are.
    """
    dims = len(TEST_VIEWS[views]) * sum(encoder.dim for encoder in encoders)
    return torch.rand(PROBES, dims, generator=torch.Generator().manual_seed(0))
