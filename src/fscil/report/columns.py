"""The columns of the report's tables: each with its meaning and how it is computed from a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, isnan, log10

from fscil.metrics import RunMetrics, Spread, difference
from fscil.report.reconstructions import reconstruction
from fscil.report.rows import Row

ACCURACY, FURTHER, COST = "Accuracy after each session", "Further metrics", "What it took"


@dataclass(frozen=True)
class Cell:
    """A number or a word, and the standard deviation where there is one."""

    text: str
    std: str = ""


@dataclass(frozen=True)
class Column:
    """One column; `cell` gives None where a row has nothing to say."""

    name: str
    table: str
    meaning: str
    cell: Callable[[Row, str], Cell | None]  # of (row, branch)
    words: bool = False  # text, not numbers: stands on the left and may wrap


def number(value: Spread) -> Cell | None:
    """Two decimals; None for what does not exist."""
    if isnan(value.mean):
        return None
    return Cell(f"{value.mean:.2f}", "" if isnan(value.std) else f"{value.std:.2f}")


def compute(macs: float) -> str:
    """Multiply-adds in PMAC (10^15): two decimals, or the first two digits that are not 0 for small runs."""
    pmac = macs / 1e15
    digits = 2 if pmac >= 0.1 or pmac <= 0 else 1 - floor(log10(pmac))
    return f"{pmac:.{digits}f}"


def of_run(value: Callable[[RunMetrics], float]) -> Callable[[Row, str], Cell | None]:
    """A number of the whole run: exists only when the run is complete."""
    return lambda row, branch: number(row.over_seeds(value, branch)) if row.complete else None


def of_last_session(name: str) -> Callable[[Row, str], Cell | None]:
    return of_run(lambda curve: getattr(curve.sessions[-1], name))


def fact(name: str) -> Callable[[Row, str], Cell | None]:
    """A word of run.json about the method as a whole."""
    return lambda row, branch: Cell(str(row.facts[name])) if row.facts.get(name) not in (None, "") else None


def millions_of_parameters(row: Row, branch: str) -> Cell | None:
    count = row.facts.get("parameters")
    return Cell(f"{count / 1e6:.2f}") if isinstance(count, int | float) else None


def difference_to_joint(row: Row, branch: str) -> Cell | None:
    if not row.complete or row.joint is None or row.joint.runs == row.runs:
        return None
    joint = [value.mean for value in row.joint.curve("accuracy")]
    return number(row.over_seeds(lambda curve: difference(curve.accuracies, joint), branch))


SUMMARY = (
    Column("Avg", ACCURACY, "mean accuracy over the sessions", of_run(lambda curve: curve.average)),
    Column("base", ACCURACY, "accuracy on the base classes after the last session", of_last_session("base")),
    Column("new", ACCURACY, "accuracy on all classes since session 1 after the last session", of_last_session("new")),
    Column(
        "HM", ACCURACY, "harmonic mean of base and new accuracy after the last session", of_last_session("harmonic")
    ),
    Column(
        "gain",
        ACCURACY,
        "Avg minus the Avg of a model that keeps its base accuracy and never learns a new class",
        of_run(lambda curve: curve.gain),
    ),
    Column("PD", ACCURACY, "performance drop: first minus last accuracy", of_run(lambda curve: curve.performance_drop)),
    Column("Diff", ACCURACY, "last accuracy minus that of the Joint-CNN, trained on all images", difference_to_joint),
    Column(
        "n",
        ACCURACY,
        "seeds; ± is the standard deviation over them",
        lambda row, branch: Cell(str(len(row.runs))),
    ),
    Column(
        "mean HM",
        FURTHER,
        "harmonic mean of base and new accuracy, averaged over the sessions since 1",
        of_run(lambda curve: curve.average_harmonic),
    ),
    Column(
        "per class",
        FURTHER,
        "mean of the accuracies of the classes after the last session: every class counts the same",
        of_last_session("per_class"),
    ),
    Column(
        "forgetting",
        FURTHER,
        "best accuracy of a session's classes before the last session minus that after it, mean over sessions",
        of_run(lambda curve: curve.forgetting),
    ),
    Column(
        "new as base",
        FURTHER,
        "share of the images of new classes that are called a base class after the last session",
        of_last_session("new_as_base"),
    ),
)

COSTS = (
    Column("encoder", COST, "the network that sees the images", fact("encoder"), words=True),
    Column("pixels", COST, "side of the images the encoder sees", fact("pixels")),
    Column("parameters (M)", COST, "all parameters of the method, in millions", millions_of_parameters),
    Column("pretrained", COST, "weights that training starts from", fact("pretrained"), words=True),
    Column(
        "PMAC",
        COST,
        "training compute per seed in 10^15 multiply-adds (3 x forward for images trained on)",
        lambda row, branch: Cell(compute(row.mean(lambda run: run.macs))),
    ),
    Column(
        "minutes",
        COST,
        "learning and testing, per seed",
        lambda row, branch: Cell(f"{row.mean(lambda run: run.seconds / 60):.2f}"),
    ),
    Column(
        "images/s",
        COST,
        "images trained on per second of learning",
        lambda row, branch: Cell(f"{row.mean(lambda run: run.images_per_second):.0f}"),
    ),
    Column(
        "memory (GB)",
        COST,
        "peak memory in 10^9 bytes",
        lambda row, branch: Cell(f"{row.mean(lambda run: run.peak_memory / 1e9):.2f}"),
    ),
    Column("keeps", COST, "what the method keeps of earlier sessions", fact("keeps"), words=True),
    Column("encoder needs", COST, "what the encoder has to be made of", fact("encoder_needs"), words=True),
    Column("selection", COST, "how the weights that are tested were chosen", fact("selection"), words=True),
    Column(
        "reconstructed",
        COST,
        "what neither the paper nor released code says about the method, so it is our own choice",
        lambda row, branch: Cell(told) if (told := reconstruction(row.facts)) else None,
        words=True,
    ),
)
