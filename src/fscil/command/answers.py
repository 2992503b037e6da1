"""Answers about photos as people and programs want them: plain lines, JSON or CSV."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fscil.command import show
from fscil.text import printable

if TYPE_CHECKING:
    from fscil.teach.outputs.evaluation import Evaluation
    from fscil.teach.replies import Answer, Reply

HIDDEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # characters that can drive a terminal
BEST = 3  # classes that a table names
COLUMNS = (
    "photo",
    "known",
    "like none",
    *(f"{what} {place}" for place in range(1, BEST + 1) for what in ("class", "probability")),
)


def say(replies: Iterable[Reply]) -> None:
    """One line per photo that could be read."""
    for reply in replies:
        if reply.answer is not None:
            show.say(f"{reply.photo}: {reply.answer.text()}")


def print_json(replies: Iterable[Reply]) -> None:
    """One JSON object per photo."""
    for reply in replies:
        said = {"error": reply.problem} if reply.answer is None else _facts(reply.answer)
        _put_json({"photo": str(reply.photo), **said})


def print_csv(replies: Iterable[Reply]) -> None:
    """One row per photo; empty cells where there are fewer classes, or none because it could not be read."""
    _put_csv([*COLUMNS, "error"], ([*_cells(reply), reply.problem] for reply in replies))


def say_test(result: Evaluation) -> None:
    """The numbers in words, and the first of the wrong photos."""
    for line in result.lines():
        show.say(line)


def print_test_as_json(result: Evaluation) -> None:
    """One JSON object: the numbers, the confused pairs and the wrong photos."""
    facts: dict[str, Any] = {
        "photos": len(result.tested),
        "metrics": None if result.metrics is None else asdict(result.metrics),
        "accuracy_interval_95": result.interval,
        "mean_probability": result.confidence,
        "known_photos_accepted": result.accepted,
        "unknown": {
            "classes": result.unknown,
            "photos": result.unknown_photos,
            "refused": result.refused,
            "imitated": not result.unknown_photos,
            "taken_for_known": result.false_acceptance,
            "taken_for_known_interval_95": result.false_acceptance_interval,
            "auroc": result.auroc,
        },
        "confused": [pair._asdict() for pair in result.confused],
        "wrong": [{"photo": str(one.photo), "truth": one.truth, **_facts(one.answer)} for one in result.wrong],
        "unreadable": [{"photo": problem.name, "error": problem.reason} for problem in result.unreadable],
    }
    _put_json(facts)


def print_test_as_csv(result: Evaluation) -> None:
    """One row per test photo; those that could not be read come last, with empty cells."""
    columns = ("class is known", "right", *COLUMNS[1:])
    rows: list[list[object]] = [
        [one.photo, one.truth, "no" if one.stranger else "yes", "yes" if one.right else "no", *_best(one.answer), ""]
        for one in result.tested
    ]
    for problem, truth in zip(result.unreadable, result.unreadable_of, strict=True):
        rows.append([problem.name, truth, *[""] * len(columns), problem.reason])
    _put_csv(["photo", "truth", *columns, "error"], rows)


def _facts(answer: Answer) -> dict[str, Any]:
    best = [{"class": name, "probability": round(p, 6)} for name, p in answer.best]
    return {"class": best[0]["class"], "known": answer.known, "like_none": answer.rejected, "best": best}


def _cells(reply: Reply) -> list[object]:
    return [reply.photo, *([""] * len(COLUMNS[1:]) if reply.answer is None else _best(reply.answer))]


def _best(answer: Answer) -> list[object]:
    """Whether the answer is sure, whether a photo of none of these is closer, and its classes with probabilities."""
    cells: list[object] = ["yes" if answer.known else "no", "yes" if answer.rejected else "no"]
    for name, probability in answer.best[:BEST]:
        cells += [name, f"{probability:.6f}"]
    return cells + [""] * (len(COLUMNS) - 1 - len(cells))


def _put_json(facts: dict[str, Any]) -> None:
    text = json.dumps(_without_nan(facts), ensure_ascii=False)
    print(HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))  # JSON itself escapes only what is below a space


def _without_nan(value: Any) -> Any:
    """The same value with null for what does not exist: JSON knows no nan."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _put_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(columns)
    table.writerows([printable(str(cell)) for cell in row] for row in rows)
