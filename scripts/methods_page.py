"""The page docs/methods.md: a short table, then a paragraph for each method, then the sessions."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fscil import report
from fscil.command import choices
from fscil.report.captions import DAGGER
from fscil.report.published import published
from fscil.report.rows import sections
from fscil.running.experiment import RunSpec, build

if TYPE_CHECKING:
    from fscil.methods.shared.method import Method
    from fscil.report.rows import Row

DATASET, RECIPE = "cifar100", "compare"
COLUMNS = ("method", "paper", "keeps", "measured Avg", "published Avg", "verdict")
VERDICTS = {"": "open", "reproduced": "reproduced", "partly": "partly reproduced", "not": "not reproduced"}
INTRODUCTION = f"""\
# The methods

Sixteen systems under one protocol. They get the same sessions, the same encoder and, where the method allows it, the
same base session. The last epoch counts; nothing is chosen on test images.

All numbers are accuracies on CIFAR-100 in percent. *Avg* is the mean over the nine sessions.

- **Measured**: `fscil run all {DATASET} --recipe {RECIPE}`, a small wide net at 32 px with six epochs of base session.
- **Published**: the rows of KT-RCNet's Table 2, unless the text names another source. They come from other encoders,
  often from larger images, and mostly from checkpoints that were chosen on test images.
- **Verdict**: whether the published order of the methods shows here too, on equal terms: *reproduced*, *partly* or
  *not* reproduced. It does not compare the height of the numbers.
- **†**: in part a reconstruction, because no full description or code was released; its paragraph says what is ours.

`python scripts/methods_page.py` writes this page. The words about each method are in `scripts/verdicts.toml`.
"""


def verdicts() -> dict[str, dict[str, Any]]:
    """What a person has to say about each method, in the order of the page."""
    return tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))


def page(results: Path) -> str:
    """The page in Markdown; `results` is a folder of results files, which may be missing."""
    rows, methods = measured(results), verdicts()
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(line(name, words, rows.get(name)) for name, words in methods.items())]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    paragraphs = "".join(f"\n{paragraph(name, words, rows.get(name))}" for name, words in methods.items())
    below = report.table([results], "md").strip().replace("## ", "### ", 1) if rows else ""  # the data set, as a part
    sessions = f"\n## Session by session\n\n{below}\n" if rows else ""
    return f"{INTRODUCTION}\n{table}{paragraphs}{sessions}"


def measured(results: Path) -> dict[str, Row]:
    """The finished row of each method."""
    runs = report.load([results]) if results.exists() else []
    matches = [section for section in sections(runs) if section.dataset == DATASET and not section.pseudo]
    rows = [row for section in matches for row in section.rows]
    return {row.facts["method"]: row for row in rows if row.complete}


def line(name: str, words: Mapping[str, Any], row: Row | None) -> tuple[str, ...]:
    """The cells of one method."""
    curve = published_curve(name, words)
    published_average = f"{sum(curve) / len(curve):.2f}" if curve else "none"
    measured_average = f"{average(row):.2f}" if row else "–"
    method = method_of(name)
    keeps, mark = method.needs.keeps(), DAGGER if method.reconstruction else ""
    return (f"`{name}`{mark}", words["paper"], keeps, measured_average, published_average, verdict(words, row))


def paragraph(name: str, words: Mapping[str, Any], row: Row | None) -> str:
    """A heading and a few sentences: what the method keeps, trains and needs, its numbers, the verdict and why."""
    method = method_of(name)
    encoder = method.needs.of_encoder()
    facts = [
        f"Keeps: {method.needs.keeps()}.",
        f"Trains after the base session: {words['trains']}.",
        *([f"Needs an encoder with {encoder}."] if encoder != "nothing" else []),
        *([f"A reconstruction: {method.reconstruction}."] if method.reconstruction else []),
        f"Published: {published_text(name, words)}.",
        f"Measured: {measured_text(row) if row else 'not yet'}.",
    ]
    return (
        f"## {words['title']} (`{name}`)\n\n{' '.join(facts)}\n\nVerdict: **{verdict(words, row)}**. {words['why']}\n"
    )


def verdict(words: Mapping[str, Any], row: Row | None) -> str:
    return VERDICTS[words["verdict"]] if row else "not measured"


@functools.cache
def method_of(name: str) -> Method:
    """The untrained method with the settings of the comparison."""
    config = choices.config(name, DATASET, RECIPE, {})
    spec = RunSpec(method=name, dataset=DATASET, recipe=RECIPE, config=config)
    return build(spec, "float32", torch.device("cpu"))


def published_curve(name: str, words: Mapping[str, Any]) -> Sequence[float]:
    """The published accuracy of each session; empty where nobody published any."""
    paper = published(DATASET)
    rows = [row.sessions for row in paper.rows if row.method == name] if paper else []
    return rows[0] if rows else words.get("published", ())


def published_text(name: str, words: Mapping[str, Any]) -> str:
    curve = published_curve(name, words)
    if not curve:
        return "nothing"
    return f"{curve[0]:.2f} → {curve[-1]:.2f} from the first to the last session, Avg {sum(curve) / len(curve):.2f}"


def average(row: Row) -> float:
    return row.over_seeds(lambda curve: curve.average).mean


def measured_text(row: Row) -> str:
    accuracy, new = row.curve("accuracy"), row.curve("new")
    ends = f"{accuracy[0].mean:.2f} → {accuracy[-1].mean:.2f}, Avg {average(row):.2f}"
    return f"{ends}; {new[-1].mean:.2f} on the classes learned from five images"


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    (root / "docs" / "methods.md").write_text(page(root / "results" / "compare"), encoding="utf-8")
