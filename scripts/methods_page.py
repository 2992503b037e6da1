"""The page docs/methods.md: a short table, then a paragraph for each method, then the sessions."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import comparison
from fscil import report
from fscil.command import choices
from fscil.experiments.differences import spread_text
from fscil.report.captions import DAGGER
from fscil.report.published import published
from fscil.report.rows import sections
from fscil.running.experiment import RunSpec, build

if TYPE_CHECKING:
    from fscil.methods.shared.method import Method
    from fscil.metrics import Interval
    from fscil.report.rows import Row

Order = Mapping[str, comparison.Seeds]  # the runs of each row of the comparison
NOTHING: Order = {}
SIDES = (comparison.ABOVE, comparison.BELOW)
DATASET, RECIPE = "cifar100", "compare"
COLUMNS = ("method", "paper", "keeps", "measured Avg", "published Avg", "verdict")
VERDICTS = {"reproduced": "reproduced", "partly": "partly reproduced", "not": "not reproduced"}
VERDICTS |= {"open": "cannot be told", "none": "nothing to reproduce"}
BY_ORDER = "order"  # instead of a verdict: that of the orders which the words name
NUMBER = re.compile(r"\{(\w+)\.(\w+)\}")  # in the words, such as {icarl.new}: mean over the seeds
ROWS = {"two_nets": "cosine, two nets", "linear": comparison.LINEAR}
INTRODUCTION = f"""\
# The methods

Sixteen systems under one protocol. They get the same sessions, the same encoder and, where the method allows it, the
same base session. The last epoch counts; nothing is chosen on test images.

All numbers are accuracies on CIFAR-100 in percent. *Avg* is the mean over the nine sessions.

- **Measured**: `fscil experiment compare {DATASET}`, a small wide net at 32 px with six epochs of base session; ± is
  one standard deviation over n seeds.
- **Published**: the rows of KT-RCNet's Table 2, unless the text names another source. They come from other encoders,
  often from larger images, and mostly from checkpoints that were chosen on test images.
- **Above**, **below**: the 95 % interval of the paired differences in Avg excludes zero. Brackets hold the interval and
  the number of pairs; many were looked at, so some exclude zero by chance. *The same base*: class means on the very net
  that the method started from. In seed 0 [not all rows share theirs](results.md#all-sixteen-methods-on-cifar-100).
- **Verdict**: whether the published order shows here too, on equal terms, of the methods that the paragraph names:
  *reproduced* if all of it does, *partly* if a part does, *not* if none does and some of it is the reverse, and else it
  *cannot be told*. The order beside `cosine`, which Table 2 lacks, is that of CEC's paper, or what a later method
  claims. A verdict does not compare the height of the numbers. That on Joint-CNN is ours.
- **†**: in part a reconstruction, because no full description or code was released; its paragraph says what is ours.

`python scripts/methods_page.py` writes this page. The words about each method are in `scripts/verdicts.toml`; numbers
in them and verdicts on orders are computed.
"""


def verdicts() -> dict[str, dict[str, Any]]:
    """What a person has to say about each method, in the order of the page."""
    return tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))


def page(results: Path) -> str:
    """The page in Markdown; `results` is a folder of results files, which may be missing."""
    rows, methods = measured(results), verdicts()
    order = comparison.rows(results / DATASET) if rows else {}
    lines = [
        COLUMNS,
        ("---",) * len(COLUMNS),
        *(line(name, words, rows.get(name), order) for name, words in methods.items()),
    ]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    paragraphs = "".join(f"\n{paragraph(name, words, rows.get(name), order)}" for name, words in methods.items())
    below = report.table([results], "md").strip().replace("## ", "### ", 1) if rows else ""  # the data set, as a part
    sessions = f"\n## Session by session\n\n{below}\n" if rows else ""
    return f"{INTRODUCTION}\n{table}{paragraphs}{sessions}"


def measured(results: Path) -> dict[str, Row]:
    """The finished row of each method, with the settings of the recipe."""
    runs = report.load([results]) if results.exists() else []
    matches = [section for section in sections(runs) if section.dataset == DATASET and not section.pseudo]
    rows = [row for section in matches for row in section.rows]
    return {row.facts["method"]: row for row in rows if row.complete and not row.facts.get("changed")}


def line(name: str, words: Mapping[str, Any], row: Row | None, order: Order = NOTHING) -> tuple[str, ...]:
    """The cells of one method."""
    curve = published_curve(name, words)
    published_average = f"{sum(curve) / len(curve):.2f}" if curve else "none"
    measured_average = average_text(row) if row else "–"
    method = method_of(name)
    keeps, mark = method.needs.keeps(), DAGGER if method.reconstruction else ""
    return (
        f"`{name}`{mark}",
        words["paper"],
        keeps,
        measured_average,
        published_average,
        verdict(name, words, row, order),
    )


def paragraph(name: str, words: Mapping[str, Any], row: Row | None, order: Order = NOTHING) -> str:
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
        *order_sentences(name, words, order),
    ]
    judged = f"Verdict: **{verdict(name, words, row, order)}**. {filled(words['why'], order)}"
    return f"## {words['title']} (`{name}`)\n\n{' '.join(facts)}\n\n{judged}\n"


def relations(words: Mapping[str, Any]) -> dict[str, str]:
    """The rows that a method was published above or below."""
    return {comparison.row_name(other): side for side in SIDES for other in words.get(side, ())}


def order_sentences(name: str, words: Mapping[str, Any], order: Order) -> list[str]:
    """What was published about the order, and the measured differences from those methods and from class means."""
    expected = relations(words)
    sides = {side: ", ".join(f"`{other}`" for other in words.get(side, ())) for side in SIDES}
    published_order = "; ".join(f"{side} {others}" for side, others in sides.items() if others)
    own = comparison.row_name(name)
    if own not in order:
        return []
    others = dict.fromkeys([*([] if name == "cosine" else ["`cosine`"]), *expected, *words.get("beside", ())])
    told = [(other, *comparison.minus(order, own, other)) for other in others]
    bases = comparison.on_the_same_base(order)
    told += [("class means on the same base", *bases[own])] if own in bases else []
    return [
        *([f"Published {published_order}."] if published_order else []),
        *(f"Minus {other}: {gap_text(pairs, gap)}, {comparison.word(gap)}." for other, pairs, gap in told),
    ]


def gap_text(pairs: int, gap: Interval) -> str:
    ends = "" if isnan(gap.low) else f"{gap.low:+.2f} to {gap.high:+.2f}, "
    return f"{gap.mean:+.2f} ({ends}n = {pairs})".replace("-", "−")


def filled(text: str, order: Order) -> str:
    """Words with the measured numbers in the places of their names."""

    def number(found: re.Match[str]) -> str:
        seeds = order.get(ROWS.get(found[1], comparison.row_name(found[1])))
        return f"{comparison.mean_of(seeds, found[2]):.1f}".replace("-", "−") if seeds else "–"

    return NUMBER.sub(number, text)


def verdict(name: str, words: Mapping[str, Any], row: Row | None, order: Order = NOTHING) -> str:
    if not row:
        return "not measured"
    return VERDICTS[order_verdict(name, words, order) if words["verdict"] == BY_ORDER else words["verdict"]]


def order_verdict(name: str, words: Mapping[str, Any], order: Order) -> str:
    """How much of the published order intervals show."""
    own, expected = comparison.row_name(name), relations(words)
    told = {other: comparison.word(comparison.minus(order, own, other)[1]) for other in expected}
    shown = sum(told[other] == side for other, side in expected.items())
    reverse = any(told[other] not in (side, comparison.UNTOLD) for other, side in expected.items())
    if not shown:
        return "not" if reverse else "open"
    return "reproduced" if shown == len(expected) else "partly"


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


def average_text(row: Row) -> str:
    return spread_text(row.over_seeds(lambda curve: curve.average))


def measured_text(row: Row) -> str:
    accuracy, new = row.curve("accuracy"), row.curve("new")
    ends = f"{accuracy[0].mean:.2f} → {accuracy[-1].mean:.2f}, Avg {average_text(row)}"
    return f"{ends}; {new[-1].mean:.2f} on the classes learned from five images (n = {len(row.runs)})"


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    (root / "docs" / "methods.md").write_text(page(root / "results" / "compare"), encoding="utf-8")
