"""A run as the report sees it, and how it is read from the folder that `fscil run` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fscil import metrics
from fscil.errors import FscilError
from fscil.files import FORMAT, read_json, run_identity, run_of
from fscil.metrics import FirstSeen, Labels, RunMetrics

FACTS = "run.json"  # what makes a folder a run folder
TOTAL = "sum"  # the method's own prediction, beside those of its branches
RESULTS_KIND = "fscil results"  # marks the JSON files made from run folders
NEEDED = ("method", "dataset", "recipe", "seed", "sessions")
AGAIN = "run its command again, or leave the run out of the report"
COUNTED = {"seed": "a whole number", "sessions": "a number of sessions"}


@dataclass(frozen=True)
class Confusion:
    """Counts of the last test; classes in the order of their sessions, then of their labels."""

    counts: np.ndarray  # (classes, classes), rows are the truth
    names: tuple[str, ...]
    sessions: tuple[int, ...]  # the session of each class


@dataclass(frozen=True)
class Record:
    """One seed of one method on one data set."""

    source: Path
    facts: dict[str, Any]  # what run.json says about the run
    curves: dict[str, RunMetrics]  # TOTAL and one entry per branch
    learning: tuple[dict[str, Any], ...]  # session-NN.json of each session finished
    confusion: Confusion | None

    @property
    def complete(self) -> bool:
        return len(self.learning) >= int(self.facts["sessions"])

    @property
    def pseudo(self) -> bool:
        """Whether the sessions were cut from the base classes, for choosing settings."""
        return bool((self.facts.get("protocol") or {}).get("tune"))

    @property
    def tested_on(self) -> str:
        return "held-out training images" if self.pseudo else "test images"

    @property
    def summary(self) -> bool:
        """Whether this was read from a results file, not from the run folder itself."""
        return self.facts.get("kind") == RESULTS_KIND

    @property
    def macs(self) -> float:
        return self._sum("macs")

    @property
    def seconds(self) -> float:
        return self._sum("learn_seconds") + self._sum("test_seconds")

    @property
    def images_per_second(self) -> float:
        """Images trained on per second of learning, over all sessions."""
        trained = sum((s.get("images_per_second") or 0) * (s.get("learn_seconds") or 0) for s in self.learning)
        return trained / max(self._sum("learn_seconds"), 1e-9)

    @property
    def peak_memory(self) -> float:
        return float(max((session.get("peak_memory_bytes") or 0 for session in self.learning), default=0))

    def _sum(self, key: str) -> float:
        return float(sum(session.get(key) or 0 for session in self.learning))


def read_folder(folder: Path, last: int | None = None) -> Record:
    """The run in a folder written by `fscil run`, with the sessions it has finished, or those of them up to `last`."""
    facts = read_facts(folder / "run.json", (*NEEDED, "first_seen", "class_names"))
    first_seen, names = read_classes(facts.pop("first_seen"), facts.pop("class_names"), folder / "run.json")
    learning = read_learning(folder, facts["sessions"] if last is None else last + 1, run_identity(facts))
    tests = [read_predictions(predictions_of(folder, i), first_seen, i) for i in range(len(learning))]
    answers = [name for name in tests[0] if name != "truth"] if tests else [TOTAL]
    curves = {
        name: metrics.run_metrics([(test["truth"], test[name]) for test in tests], first_seen) for name in answers
    }
    return Record(folder, facts, curves, learning, last_confusion(tests, first_seen, names) if tests else None)


def read_facts(file: Path, needed: Sequence[str]) -> dict[str, Any]:
    """The object in run.json or in a results file, known to be of our format and to hold the needed keys."""
    content = read_json(file, f"delete it and {AGAIN}" if file.name == FACTS else "make it again with fscil results")
    missing = [key for key in needed if key not in content]
    if missing:
        raise FscilError(f"{file} was not written by fscil: it has no {missing[0]!r}; leave it out of the report")
    if content.get("format") != FORMAT:
        written = content.get("format")
        raise FscilError(f"{file} has format {written!r}, this version reads {FORMAT}: use the version that wrote it")
    for key, meaning in COUNTED.items():
        if type(content[key]) is not int:
            raise FscilError(f"{file} is broken: {key!r} is {content[key]!r}, not {meaning}")
    return content


def read_classes(first_seen: Any, names: Any, file: Path) -> tuple[dict[int, int], tuple[str, ...]]:
    try:
        sessions = {int(label): int(session) for label, session in first_seen.items()}
        return sessions, tuple(str(names[label]) for label in range(max(sessions) + 1))
    except (AttributeError, TypeError, ValueError, IndexError):
        raise FscilError(f"{file} is broken: 'first_seen' and 'class_names' do not describe the same classes") from None


def read_learning(folder: Path, planned: int, identity: str) -> tuple[dict[str, Any], ...]:
    """session-00.json, session-01.json, ... up to the first that is missing or was tested by another run."""
    files = [folder / f"session-{index:02d}.json" for index in range(planned)]
    tests = [predictions_of(folder, index) for index in range(planned)]
    finished = next((i for i in range(planned) if not files[i].is_file() or is_foreign(tests[i], identity)), planned)
    return tuple(read_json(file, AGAIN) for file in files[:finished])


def predictions_of(folder: Path, index: int) -> Path:
    return folder / f"predictions-{index:02d}.safetensors"


def is_foreign(predictions: Path, identity: str) -> bool:
    """Whether predictions were made with other settings than run.json tells; earlier versions do not say."""
    try:
        return run_of(predictions) not in (None, identity)
    except FscilError:
        return False  # `read_predictions` names them


def read_predictions(file: Path, first_seen: FirstSeen, index: int) -> dict[str, Labels]:
    """Labels (n,) under "truth", TOTAL and the names of the branches, checked against the sessions."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(file)
        found = {"truth": tensors["truth"], TOTAL: tensors["predicted"]}
    except (SafetensorError, OSError, KeyError, ValueError):
        reason = "cannot be read, or half of it is missing" if file.exists() else "is missing"
        raise FscilError(f"{file} {reason}: {AGAIN}") from None
    found |= {name.removeprefix("branch."): tensors[name] for name in sorted(tensors) if name.startswith("branch.")}
    for name, labels in found.items():
        if labels.ndim != 1 or labels.shape != found["truth"].shape:
            shapes = f"{name!r} has shape {labels.shape}, the truth {found['truth'].shape}"
            raise FscilError(f"{file} is broken, {shapes}: delete it and {AGAIN}")
        strangers = [int(label) for label in np.unique(labels) if first_seen.get(int(label), index + 1) > index]
        if strangers:
            stranger = f"{name!r} holds label {strangers[0]}, of no session up to {index}"
            raise FscilError(f"{file} is broken, {stranger}: delete it and {AGAIN}")
    return found


def last_confusion(tests: list[dict[str, Labels]], first_seen: FirstSeen, names: Sequence[str]) -> Confusion:
    seen = [label for label, session in first_seen.items() if session < len(tests)]
    order = sorted(seen, key=lambda label: (first_seen[label], label))
    counts = metrics.confusion(tests[-1]["truth"], tests[-1][TOTAL], order)
    return Confusion(counts, tuple(names[label] for label in order), tuple(first_seen[label] for label in order))


def find(path: Path) -> list[Path]:
    """Run folders and results files at or below a path, sorted; run.json stands for its folder."""
    if not path.exists():
        raise FscilError(f"there is nothing at {path}: give a run folder, a parent of run folders or a results file")
    if path.is_file() or (path / FACTS).is_file():
        return [path.parent if path.name == FACTS else path]
    folders = sorted(found.parent for found in path.rglob(FACTS))
    files = [file for file in sorted(path.rglob("*.json")) if file.parent not in folders and is_results(file)]
    if not folders and not files:
        raise FscilError(f"{path} holds no run (no run.json and no results file below it): `fscil run` makes one")
    return folders + files


def is_results(file: Path) -> bool:
    try:
        return read_json(file, AGAIN).get("kind") == RESULTS_KIND
    except FscilError:
        return False
