"""What docs/photos.md and docs/photos-tuning.md say about unknown photos is in the files below results/unknown."""

import json
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "results" / "unknown"

pytestmark = pytest.mark.skipif(not FILES.exists(), reason="the results are not part of the source distribution")


def row(told: dict[str, Any]) -> list[str]:
    """A set that was shown once, or the draws of one, as a row of the page up to its AUROC."""
    shares = [f"{told[name]:.1f} %" for name in ("accepted", "refused")]
    if "draws" in told:
        worst = (told[f"{name}_in_worst_tenth"] for name in ("accepted", "refused"))
        shares = [f"{share} ({value:.1f})" for share, value in zip(shares, worst, strict=True)]
    return [told["set"], str(told.get("draws", 1)), *shares, f"{told['auroc']:.2f}"]


@pytest.mark.parametrize(("name", "place"), [("draws", 0), ("layout", 1), ("best-flip", 2), ("best-layouts", 3)])
def test_the_rows_of_unknown_photos_were_measured(name: str, place: int) -> None:
    told = json.loads((FILES / f"{name}.json").read_text("utf-8"))
    alone = [one for one in told["sets"] if "draw" not in one["set"]]
    known = {one["set"]: row(one) for one in [*told["spread"], *alone]}
    kept = {one["set"]: f"{one['both_kept']:.0f} % of the draws" for one in told["spread"]} | {
        one["set"]: "yes" if one["accepted"] <= 8 and one["refused"] <= 55 else "no" for one in alone
    }
    section = (ROOT / "docs" / "photos.md").read_text("utf-8").split("keep its promise?")[1].split("\n### ")[0]
    table = section.split("| learned |")[1:][place]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:] if line[:1] == "|"]
    assert {cells[0]: cells[:5] for cells in rows} == known
    assert {cells[0]: cells[5] for cells in rows} == kept


def test_how_sure_the_means_of_the_draws_are_was_computed() -> None:
    models = {"best-flip": "`--best`", "best-layouts": "`--best`", "draws": "one encoder", "layout": "the layout"}
    lines = []
    for name, model in models.items():
        found: dict[str, list[dict[str, Any]]] = {}
        for one in json.loads((FILES / f"{name}.json").read_text("utf-8"))["sets"]:
            found.setdefault(one["set"].split(", draw")[0], []).append(one)
        for title, draws in found.items():
            if len(draws) > 1 and (title, name) != ("glyphs, 10 + 10", "draws"):  # which `learn` does not make
                cells = [interval([one[part] for one in draws]) for part in ("accepted", "refused")]
                lines.append(f"| {title} | {model} | {' | '.join(cells)} |")
    page = (ROOT / "docs" / "photos.md").read_text("utf-8").split("How sure the means are")[1].split("\n- ")[0]
    assert sorted(line for line in page.splitlines() if "±" in line) == sorted(lines)


def interval(shares: list[float]) -> str:
    """Mean and half the 95 % interval of Student's t over 60 draws."""
    assert len(shares) == 60
    return f"{mean(shares):.1f} ± {2.001 * stdev(shares) / sqrt(60):.1f} %"


def test_the_rule_of_today_is_told_beside_those_before_it() -> None:
    told = json.loads((FILES / "draws.json").read_text("utf-8"))
    found = {one["set"]: one for one in [*told["spread"], *told["sets"]]}
    rows = (ROOT / "docs" / "photos-tuning.md").read_text("utf-8").split("| E, used today |")[1].splitlines()[2:4]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    said = {row[0].split(" (")[0]: row[-1] for row in cells}
    assert said == {
        "100 species": "{accepted:.1f} / {refused:.1f}".format(**found["100 species"]),
        "glyphs, 10 + 10": "{accepted:.1f} / {refused:.1f} ({draws} draws)".format(**found["glyphs, 10 + 10"]),
    }


def test_what_the_runs_of_a_practitioner_accepted_and_refused_was_measured() -> None:
    named = {
        "`prototypes`, before the whitened read-out": "cub200-prototypes",
        "`transfer`, before the whitened read-out": "cub200-transfer",
        "whitened read-out, rule B": "cub200-whitened",
        "`--best`, rule C": "cub200-best",
        "whitened read-out, rule D": "cub200-lessons",
        "whitened read-out, rule E": "cub200-rule-e",
        "`--best`, rule E": "cub200-best-rule-e",
    }
    lines = (ROOT / "docs" / "photos-tuning.md").read_text("utf-8").splitlines()
    for title, name in named.items():
        unknown = json.loads((ROOT / "results" / "practitioner" / f"{name}.json").read_text("utf-8"))["unknown"]
        accepted = [100 * share for share in unknown["taken_for_known"][:-1]]  # at the end no species is unknown
        refused = [100 * unknown["known_not_sure"][at] for at in (0, 9)]
        shares = f"{min(accepted):.0f} to {max(accepted):.0f} | {refused[0]:.0f} and {refused[1]:.0f}"
        assert f"| {title} | {shares} |" in lines


@pytest.mark.parametrize(("name", "place"), [("cub200-rule-e", 0), ("cub200-best-rule-e", 1), ("cub200-best", 2)])
def test_what_is_accepted_while_classes_are_taught_was_measured(name: str, place: int) -> None:
    unknown = json.loads((ROOT / "results" / "practitioner" / f"{name}.json").read_text("utf-8"))["unknown"]
    rows = {
        "unknown photos accepted, %": [f"{100 * share:.1f}" for share in unknown["taken_for_known"][:10]],
        "known photos refused, %": [f"{100 * share:.1f}" for share in unknown["known_not_sure"][:10]],
        "AUROC": [f"{value:.2f}" for value in unknown["auroc"][:10]],
    }
    table = (ROOT / "docs" / "photos.md").read_text("utf-8").split("| species known |")[1:][place]
    assert [line for title, cells in rows.items() if (line := f"| {title} | {' | '.join(cells)} |") not in table] == []
