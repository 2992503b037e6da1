"""How good a model is on a folder of test photos: classes it knows, and photos it should not claim to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fscil.errors import FscilError
from fscil.metrics import SessionMetrics, interval, session_metrics
from fscil.teach.knowledge.calibration import auroc
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import answers, glance, require_classes
from fscil.teach.names import Name
from fscil.teach.replies import Answer
from fscil.teach.seeing.photos import Unreadable
from fscil.text import count, few

SHOWN = 10  # wrong photos that are named in the terminal


@dataclass(frozen=True)
class Tested:
    """One test photo, what it shows, and what the model says."""

    photo: Path
    truth: str  # name of its folder
    stranger: bool  # the model does not know this class
    answer: Answer

    @property
    def said(self) -> str:
        return str(self.answer.best[0][0])

    @property
    def right(self) -> bool:
        """Of a class that is known: whether it comes first, sure or not; of a stranger: whether it was refused."""
        return not self.answer.known if self.stranger else self.said == self.truth

    def text(self) -> str:
        unsure = "" if self.answer.known else ", not sure"
        return f"{self.photo} ({self.truth}) was taken for {self.said} {self.answer.best[0][1]:.2f}{unsure}"


class Pair(NamedTuple):
    """Two classes that are confused: `photos` of the first were taken for the second."""

    truth: str
    said: str
    photos: int


@dataclass(frozen=True)
class Tally:
    """Test photos counted."""

    tested: tuple[Tested, ...]

    @property
    def wrong(self) -> list[Tested]:
        """Photos of known classes that were taken for another, and unknown ones that were taken for known."""
        return [one for one in self.tested if not one.right]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy, in percent."""
        known = [one.right for one in self.tested if not one.stranger]
        return interval(sum(known), len(known))

    @property
    def refused(self) -> int:
        """How many of the unknown photos are "not sure"."""
        return sum(one.right for one in self.tested if one.stranger)

    @property
    def false_acceptance_interval(self) -> tuple[float, float]:
        """The 95 % interval of the share of unknown photos that are taken for known."""
        strangers = sum(one.stranger for one in self.tested)
        low, high = interval(strangers - self.refused, strangers)
        return low / 100, high / 100

    @property
    def confused(self) -> list[Pair]:
        """The pairs of known classes that are confused, most often first."""
        counts = Counter((one.truth, one.said) for one in self.wrong if not one.stranger)
        return [Pair(*pair, photos) for pair, photos in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


@dataclass(frozen=True)
class Evaluation(Tally):
    """What test photos say; shares are between 0 and 1, the metrics in percent."""

    metrics: SessionMetrics | None  # None: no photo belongs to a class of the model
    confidence: float  # mean probability of the class that is answered
    accepted: float  # share of the photos of known classes that count as known
    unknown: tuple[str, ...]  # folders of classes that the model does not know
    unknown_photos: int  # 0: unknown photos are imitated by hiding the class of each photo
    false_acceptance: float  # share of the unknown photos that count as known
    auroc: float  # probability that a known photo fits better than an unknown one; nan: there are not both
    weakest: tuple[tuple[Name, float], ...]  # classes with the lowest accuracy in percent
    unreadable: tuple[Unreadable, ...]
    unreadable_of: tuple[str, ...]  # the folder of each
    untested: tuple[str, ...]  # folders that hold no photo that could be read

    def lines(self) -> Iterator[str]:
        """The numbers, and the first of the wrong photos."""
        yield from self.summary_lines()
        yield from (f"wrong: {one.text()}" for one in self.wrong[:SHOWN])
        if len(self.wrong) > SHOWN:
            yield f"and {len(self.wrong) - SHOWN} more wrong photos; --csv lists them all, --html FILE shows them"

    def summary_lines(self) -> Iterator[str]:
        if self.metrics:
            yield from self._known_lines(self.metrics)
        if self.unknown_photos:
            low, high = (100 * bound for bound in self.false_acceptance_interval)
            who = f"{count(self.unknown_photos, 'photo')} of {few(self.unknown)}"
            taken = f"{100 * self.false_acceptance:.1f} % taken for known (95 % interval {low:.1f} to {high:.1f} %)"
            yield f"unknown photos ({who}): {self.refused} refused as not sure, {taken}"
        if not np.isnan(self.auroc):
            hidden = f"those whose class was hidden, {100 * self.false_acceptance:.1f} % of which are taken for known"
            yield f"known photos against {'unknown ones' if self.unknown_photos else hidden}: AUROC {self.auroc:.3f}"

    def _known_lines(self, m: SessionMetrics) -> Iterator[str]:
        low, high = self.interval
        photos = f"{count(m.images, 'photo')} of {count(m.classes, 'class', 'classes')}"
        yield f"{photos}: {m.accuracy:.1f} % right (95 % interval {low:.1f} to {high:.1f} %)"
        if m.base_images < m.images:
            parts = [("base", m.base), ("taught later", m.new), ("harmonic mean", m.harmonic)]
            yield ", ".join(f"{name} {value:.1f} %" for name, value in parts if not np.isnan(value))
        yield f"mean probability of the answers {self.confidence:.2f} (calibrated if near {m.accuracy / 100:.2f})"
        yield f"photos of known classes that are not sure: {100 * (1 - self.accepted):.1f} %"
        if self.weakest:
            yield "hardest: " + ", ".join(f"{name} {share:.0f} %" for name, share in self.weakest)
        if self.confused:
            yield "most confused: " + ", ".join(f"{p.truth} taken for {p.said} ({p.photos})" for p in self.confused[:5])


@torch.no_grad()
def evaluate(model: Model, folders: Mapping[str, Sequence[Path]]) -> Evaluation:
    """Tests a model on photos by class; classes it does not know are its unknown photos."""
    require_classes(model)
    labels = {str(name): label for label, name in model.names.items()}
    sources = [photo for found in folders.values() for photo in found]
    names = [name for name, found in folders.items() for _ in found]
    seen = glance(model, sources, "looking at test photos")
    if not seen.positions:
        raise FscilError(f"none of the {count(len(sources), 'photo')} could be read, the first {seen.unreadable[0]}")
    tested, folder = {names[p] for p in seen.positions}, dict(zip(map(str, sources), names, strict=True))
    truth = np.array([labels.get(names[p], -1) for p in seen.positions], dtype=np.int64)
    scores, known = model.scores(seen.features), torch.from_numpy(truth >= 0)
    own, evidence = scores[known], model.evidence(seen.features)
    familiar, stranger = evidence[known], evidence[~known]
    predicted = np.array(list(model.names))[own.argmax(1).numpy()]
    sessions = {label: int(label >= model.base) for label in model.names}
    calibration, of_known, said = model.calibration, truth[truth >= 0], answers(model, seen.features)
    sure = torch.tensor([answer.known for answer in said])
    believed = sure[~known]
    if known.all():
        stranger = _hidden(model, familiar, truth)
        refused = model.rejected_with([f[: len(stranger)] for f in seen.features], _hidden(model, own, truth))
        believed = calibration.known(stranger) & ~refused
    return Evaluation(
        tested=tuple(
            Tested(sources[p], names[p], names[p] not in labels, answer)
            for p, answer in zip(seen.positions, said, strict=True)
        ),
        metrics=session_metrics(of_known, predicted, sessions) if len(own) else None,
        confidence=float(model.probabilities(own).amax(1).mean()),
        accepted=float(sure[known].float().mean()),
        unknown=tuple(name for name in folders if name in tested and name not in labels),
        unknown_photos=int((~known).sum()),
        false_acceptance=float(believed.float().mean()),
        auroc=auroc(calibration.fit_of(familiar), calibration.fit_of(stranger)),
        weakest=_weakest(model, of_known, predicted),
        unreadable=tuple(seen.unreadable),
        unreadable_of=tuple(folder[problem.name] for problem in seen.unreadable),
        untested=tuple(name for name in folders if name not in tested),
    )


def _hidden(model: Model, scores: Tensor, truth: np.ndarray) -> Tensor:
    """Scores (n, classes) of photos whose own class is hidden; none where there is no other class."""
    if len(model.names) < 2:
        return scores[:0]
    column = {label: i for i, label in enumerate(model.names)}
    return scores.scatter(1, torch.tensor([column[label] for label in truth.tolist()])[:, None], -torch.inf)


def _weakest(model: Model, truth: np.ndarray, predicted: np.ndarray, most: int = 3) -> tuple[tuple[Name, float], ...]:
    shares = {model.names[int(c)]: 100 * float((predicted[truth == c] == c).mean()) for c in np.unique(truth)}
    return tuple(sorted(((n, s) for n, s in shares.items() if s < 100), key=lambda pair: pair[1])[:most])
