"""The page docs/methods.md: what each method keeps, trains and needs, its published row, ours, and the verdict."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fscil import report
from fscil.command import choices
from fscil.report.published import published
from fscil.report.rows import sections
from fscil.running.experiment import RunSpec, build

if TYPE_CHECKING:
    from fscil.methods.shared.method import Needs
    from fscil.report.rows import Row

DATASET, RECIPE = "cifar100", "compare"
COLUMNS = ("method", "keeps", "trains after the base session", "encoder needs", "published", "measured", "verdict")
INTRODUCTION = f"""\
# The methods

Sixteen systems under one protocol: the same sessions, the same encoder, the same base session wherever a method
allows it, and the last epoch instead of a choice on test images. Rows are CIFAR-100: accuracy after the first and the
last session, and Avg over all nine. **Published** rows are those of KT-RCNet's Table 2 unless a row says otherwise;
they have other encoders, often other image sizes, and mostly checkpoints chosen on test images. **Measured** rows are
`fscil run all {DATASET} --recipe {RECIPE}`: a small wide net at 32 px and six epochs of base session; *new* is the
final accuracy on all classes learned from five images. A verdict is about the order of the methods at equal encoder,
not about the height of the numbers.

This page is written by `python scripts/methods_page.py`; what is said about each method stands in
`scripts/verdicts.toml`.
"""


def verdicts() -> dict[str, dict[str, Any]]:
    """What a person has to say about each method, in the order of the page."""
    return tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))


def page(results: Path) -> str:
    """The page in Markdown; `results` is a folder of results files, which may be missing."""
    rows = measured(results)
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(line(name, told, rows.get(name)) for name, told in verdicts().items())]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    sessions = f"\n## Session by session\n\n{report.table([results], 'md').strip()}\n" if rows else ""
    return f"{INTRODUCTION}\n{table}{sessions}"


def measured(results: Path) -> dict[str, Row]:
    """The finished row of each method."""
    runs = report.load([results]) if results.exists() else []
    found = [section for section in sections(runs) if section.dataset == DATASET and not section.pseudo]
    rows = [row for section in found for row in section.rows]
    return {row.facts["method"]: row for row in rows if row.complete}


def line(name: str, told: Mapping[str, Any], row: Row | None) -> tuple[str, ...]:
    """The cells of one method."""
    needs = needs_of(name)
    verdict = (told["verdict"] or "open") if row else "not measured"
    parts = (f"`{name}` {told['title']}", needs.keeps(), told["trains"], needs.of_encoder(), published_text(name, told))
    return (*parts, measured_text(row) if row else "–", f"**{verdict}**. {told['why']}")


def needs_of(name: str) -> Needs:
    """What the method asks for with the settings of the comparison."""
    config = choices.config(name, DATASET, RECIPE, {})
    return build(
        RunSpec(method=name, dataset=DATASET, recipe=RECIPE, config=config), "float32", torch.device("cpu")
    ).needs


def published_text(name: str, told: Mapping[str, Any]) -> str:
    paper = published(DATASET)
    rows = [row.sessions for row in paper.rows if row.method == name] if paper else []
    curve = rows[0] if rows else told.get("published")
    return f"{curve[0]:.2f} → {curve[-1]:.2f}, Avg {sum(curve) / len(curve):.2f}" if curve else "none"


def measured_text(row: Row) -> str:
    accuracy, new = row.curve("accuracy"), row.curve("new")
    average = row.over_seeds(lambda curve: curve.average).mean
    return f"{accuracy[0].mean:.2f} → {accuracy[-1].mean:.2f}, Avg {average:.2f}, new {new[-1].mean:.2f}"


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    (root / "docs" / "methods.md").write_text(page(root / "results" / "compare"), encoding="utf-8")
