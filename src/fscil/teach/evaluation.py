"""How good a model is on a folder of test photos: classes it knows, and photos it should not claim to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fscil.errors import FscilError
from fscil.metrics import SessionMetrics, session_metrics
from fscil.teach.calibration import auroc
from fscil.teach.journal import Name, count, few
from fscil.teach.looking import glance
from fscil.teach.model import Model
from fscil.teach.photos import Unreadable


@dataclass(frozen=True)
class Evaluation:
    """What test photos say; shares are between 0 and 1, the metrics in percent."""

    metrics: SessionMetrics
    confidence: float  # mean probability of the class that is answered
    accepted: float  # share of the photos of known classes that count as known
    unknown: tuple[str, ...]  # folders of classes that the model does not know
    unknown_photos: int  # 0: unknown photos are imitated by hiding the class of each photo
    false_acceptance: float  # share of the unknown photos that count as known
    auroc: float  # probability that a known photo fits better than an unknown one; nan: one class, nothing to imitate
    weakest: tuple[tuple[Name, float], ...]  # classes with the lowest accuracy in percent
    unreadable: tuple[Unreadable, ...]

    def lines(self) -> Iterator[str]:
        m = self.metrics
        yield f"{count(m.images, 'photo')} of {count(m.classes, 'class', 'classes')}: {m.accuracy:.1f} % right"
        if m.base_images < m.images:
            parts = [("base", m.base), ("taught later", m.new), ("harmonic mean", m.harmonic)]
            yield ", ".join(f"{name} {value:.1f} %" for name, value in parts if not np.isnan(value))
        yield f"mean probability of the answers {self.confidence:.2f} (calibrated if near {m.accuracy / 100:.2f})"
        if self.weakest:
            yield "hardest: " + ", ".join(f"{name} {share:.0f} %" for name, share in self.weakest)
        real = f"{count(self.unknown_photos, 'photo')} of {few(self.unknown)}"
        who = real if self.unknown_photos else "photos whose class was hidden"
        if not np.isnan(self.auroc):
            yield f"unknown photos ({who}): AUROC {self.auroc:.3f}, {100 * self.false_acceptance:.1f} % taken for known"
        yield f"photos of known classes that are not sure: {100 * (1 - self.accepted):.1f} %"


@torch.no_grad()
def evaluate(model: Model, folders: Mapping[str, Sequence[Path]]) -> Evaluation:
    """Tests a model on photos by class; classes it does not know are its unknown photos."""
    labels = {str(name): label for label, name in model.names.items()}
    sources = [photo for found in folders.values() for photo in found]
    names = [name for name, found in folders.items() for _ in found]
    seen = glance(model, sources, "looking at test photos")
    truth = np.array([labels.get(names[p], -1) for p in seen.positions], dtype=np.int64)
    if not (truth >= 0).any():
        some = few([str(name) for name in model.classes])
        raise FscilError(
            f"no readable photo belongs to a class of the model; name the folders like its classes ({some})"
        )
    known = torch.from_numpy(truth >= 0)
    scores = model.scores(seen.features)
    column = {label: i for i, label in enumerate(model.names)}
    own, columns = scores[known], torch.tensor([column[label] for label in truth[truth >= 0].tolist()])
    hidden = own.scatter(1, columns[:, None], -torch.inf) if len(model.names) > 1 else own[:0]
    stranger = hidden if known.all() else scores[~known]
    predicted = np.array(list(model.names))[own.argmax(1).numpy()]
    fit, strange = model.calibration.fit_of(own), model.calibration.fit_of(stranger)
    return Evaluation(
        metrics=session_metrics(truth[truth >= 0], predicted, {k: int(k >= model.base) for k in model.names}),
        confidence=float(model.probabilities(own).amax(1).mean()),
        accepted=float(model.calibration.known(own).float().mean()),
        unknown=tuple(name for name in folders if name not in labels and folders[name]),
        unknown_photos=int((~known).sum()),
        false_acceptance=float(model.calibration.known(stranger).float().mean()),
        auroc=auroc(fit, strange),
        weakest=_weakest(model, truth[truth >= 0], predicted),
        unreadable=tuple(seen.unreadable),
    )


def _weakest(model: Model, truth: np.ndarray, predicted: np.ndarray, most: int = 3) -> tuple[tuple[Name, float], ...]:
    shares = {model.names[int(c)]: 100 * float((predicted[truth == c] == c).mean()) for c in np.unique(truth)}
    return tuple(sorted(((n, s) for n, s in shares.items() if s < 100), key=lambda pair: pair[1])[:most])
