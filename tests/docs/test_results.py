"""Numbers on the README and in docs/results.md are measured: every row of ours is found in files below results/."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

import comparison
from fscil import methods, settings
from fscil.methods import kt_rcnet
from fscil.nn import encoders
from fscil.report.published import dataset_title, published
from fscil.running.planning import stage_macs
from fscil.settings.fields import dotted
from picture import OURS, PLANNED, Measured
from tables import placed

ROOT = Path(__file__).parent.parent.parent
NUMBERS = re.compile(r"\d+\.\d\d")
BASE_IMAGES = {"cifar100": 30000, "cub200": 3000, "mini_imagenet": 30000}

pytestmark = pytest.mark.skipif(
    not (ROOT / "results").exists(), reason="the results are not part of the source distribution"
)


def results() -> dict[Path, dict[str, Any]]:
    return {file: json.loads(file.read_text("utf-8")) for file in sorted((ROOT / "results").rglob("*.json"))}


def printed(values: list[float]) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in values)


def measured() -> set[tuple[str, ...]]:
    """Session accuracies and average of every committed result, sum and branches, and their means over the seeds."""
    seeds: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for file, result in results().items():
        for answer, scores in result["metrics"].items():
            seeds[re.sub(r"-seed\d+", "", str(file)), answer].append([*scores["accuracy"], scores["average"]])
    single = {printed(row) for rows in seeds.values() for row in rows}
    return single | {printed([mean(column) for column in zip(*rows, strict=True)]) for rows in seeds.values()}


def cells(page: str, before: str = "\f") -> list[list[str]]:
    lines = (ROOT / page).read_text("utf-8").split(before)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def rows_of_ours(page: str) -> list[tuple[str, ...]]:
    """Rows with one number a session that claim to be ours: not marked as published, without ± and intervals."""
    ours = (" ".join(row) for row in cells(page) if "published" not in row[0])
    rows = [tuple(NUMBERS.findall(row)) for row in ours if "±" not in row and "…" not in row]
    return [row for row in rows if len(row) >= 10]


def test_every_row_of_ours_was_measured() -> None:
    rows, known = rows_of_ours("docs/results.md"), measured()
    assert len(rows) > 30
    assert [row for row in rows if not any(row[: len(k)] == k for k in known)] == []


def ends() -> dict[tuple[str, ...], tuple[str, str]]:
    """By session accuracies and average: base / new / HM at the end, and the gain over never learning."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for file, result in results().items():
        for answer, scores in result["metrics"].items():
            groups[re.sub(r"-seed\d+", "", str(file)), answer].append(scores)
    found = {}
    for some in [one for rows in groups.values() for one in (*([row] for row in rows), rows)]:
        curve = [[*row["accuracy"], row["average"]] for row in some]
        last = [mean(row[name][-1] or 0.0 for row in some) for name in ("base", "new", "harmonic")]
        shares = " / ".join(f"{share:.1f}" for share in last)
        key = printed([mean(column) for column in zip(*curve, strict=True)])
        found[key] = shares, f"{mean(row['gain'] for row in some):+.2f}"
    return found


def test_harmonic_means_and_gains_stand_beside_every_average() -> None:
    known, checked = ends(), 0
    for row in cells("docs/results.md", before="## Teaching from photos"):
        numbers = tuple(NUMBERS.findall(" ".join(row)))
        key = next((k for k in known if numbers[: len(k)] == k), None)
        if key is None or "published" in row[0]:
            continue
        shares, gain = known[key]
        assert shares in row, row
        assert gain in row, row
        checked += 1
    assert checked > 40


def test_every_row_of_the_others_was_published() -> None:
    known = {printed([*row.sessions, row.avg]) for dataset in BASE_IMAGES for row in published(dataset).rows}
    rows = [tuple(NUMBERS.findall(" ".join(row[1:]))) for row in cells("docs/results.md") if "published" in row[0]]
    assert len(rows) > 5
    assert set(rows) <= known


def test_reconstructions_are_marked_in_the_tables_of_all_methods() -> None:
    for page in ("docs/results.md", "docs/methods.md"):
        rows = {row[0].split("`")[1]: row[0] for row in cells(page) if row[0].startswith("`")}
        named = rows.keys() & set(methods.names())
        assert len(named) == 16
        for name in named:
            assert ("†" in rows[name]) == bool(methods.load(name).Method.reconstruction), (page, name)
        assert "in part a reconstruction" in (ROOT / page).read_text("utf-8").lower()


@pytest.mark.parametrize("make", comparison.TABLES, ids=lambda make: make.__name__)
def test_every_table_of_the_comparison_marks_reconstructions(make: Callable[[Any], list[str]]) -> None:
    named = [part for line in make(comparison.rows()) for part in line.replace(",", "|").split("|")]
    told = {name: methods.load(name).Method.reconstruction for name in methods.names()}
    marks = {(name, "†" in part) for part in named if (name := part.strip(" `†")) in told}
    assert {name for name, marked in marks if marked} & {"mcnet", "meta_fscil", "topic"}
    assert marks == {(name, bool(told[name])) for name, _ in marks}


@pytest.mark.parametrize("make", comparison.TABLES, ids=lambda make: make.__name__)
def test_the_tables_of_all_methods_were_measured(make: Callable[[Any], list[str]]) -> None:
    """Their sessions are on docs/methods.md, which is made from the same files."""
    found = comparison.rows()
    assert {name.strip("`") for name in found if name[0] == "`"} == set(methods.names())
    page = (ROOT / "docs/results.md").read_text("utf-8")
    assert "\n".join(make(found)) + "\n\n" in page, "python scripts/comparison.py --write"


def test_both_pages_print_the_same_average_and_diff() -> None:
    rows = [row for row in cells("docs/methods.md") if row[0].endswith("· compare") and len(row) == 18]
    other = {row[0].split(" ")[0]: (row[10], row[16].split(" ")[0]) for row in rows}
    assert len(other) == 16
    for line in comparison.table(comparison.rows())[2:]:
        row = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if row[0].startswith("`"):
            average, diff = other[row[0].split("`")[1]]
            assert (row[4], row[8].lstrip("+")) == (average, "" if diff == "–" else diff)


ORDERS = [  # what the words below the tables of the comparison claim; a row, what it is, and beside which
    ("`icarl`", comparison.UNTOLD, comparison.LINEAR),
    ("`kt_rcnet`", comparison.UNTOLD, "`cosine`"),
    (comparison.LINEAR, comparison.ABOVE, "`cosine`"),
    ("`icarl`", comparison.ABOVE, "`cosine`"),
    ("cosine, two nets", comparison.ABOVE, "`cosine`"),
    ("cosine, two nets", comparison.ABOVE, None),  # class means on the same base
    ("`mcnet`", comparison.UNTOLD, None),
]


@pytest.mark.parametrize(("row", "claimed", "other"), ORDERS)
def test_an_order_is_claimed_only_where_an_interval_shows_it(row: str, claimed: str, other: str | None) -> None:
    found = comparison.rows()
    _, gap = comparison.minus(found, row, other) if other else comparison.on_the_same_base(found)[row]
    assert comparison.word(gap) == claimed


def test_a_row_that_is_above_by_a_seed_of_its_own_is_told_apart_from_the_next() -> None:
    seeds = {"a": (50.0, 51.0, 99.0), "b": (51.0, 52.1)}
    found = {
        name: {seed: {"method": name, "metrics": {"sum": {"accuracy": [value]}}} for seed, value in enumerate(values)}
        for name, values in seeds.items()
    }
    line = comparison.order(found)[-1]
    assert line.startswith("| a | b | 2 | -1.05 [")
    assert line.endswith("| yes |")


def test_highest_means_are_named() -> None:
    """In the words below the tables of the comparison."""
    found = comparison.rows()
    assert list(found)[:2] == ["cosine, two nets", comparison.LINEAR]
    by_new = sorted(found, key=lambda name: -comparison.mean_of(found[name], "new"))[:5]
    by_base = sorted(found, key=lambda name: comparison.mean_of(found[name], "base"))[:6]
    assert {*by_new} == {f"`{name}`" for name in ("ncm", "topic", "eeil", "f2m", "meta_fscil")}
    assert {*by_base} == {*by_new, "`finetune`"}
    assert comparison.mean_of(found["`mcnet`"], "avg") > comparison.mean_of(found["`cosine`"], "avg")
    assert max(found, key=lambda name: comparison.mean_of(found[name], "base")) == "`joint`"


def test_bases_of_one_seed_that_differ_are_told() -> None:
    found = comparison.rows()
    bases = found["`cosine`"][0]["metrics"]["sum"], found["cosine, two nets"][0]["metrics"]["B"]
    older, newer = (f"{one['average']:.2f}" for one in bases)
    text = " ".join((ROOT / "docs/results.md").read_text("utf-8").split())
    assert f"have {newer}, on that of the older rows {older}" in text


def test_a_table_takes_the_place_of_an_older_one() -> None:
    page = "a\n| x |\n|---|\n| 1 |\n\n### b\n| x |\n|---|\n| 1 |"
    new = ["| x |", "|---|", "| 2 |", "| 3 |"]
    assert placed(page, new) == "a\n| x |\n|---|\n| 2 |\n| 3 |\n\n### b\n| x |\n|---|\n| 1 |"
    assert placed(page, new, below="### b").endswith("| 1 |\n\n### b\n| x |\n|---|\n| 2 |\n| 3 |")


def test_rows_whose_settings_are_no_longer_those_of_the_recipe_are_named() -> None:
    """The command below which they stand gives other rows today."""
    earlier = set()
    for file in sorted((ROOT / "results" / "compare" / "cifar100").glob("*.json")):
        run = json.loads(file.read_text("utf-8"))
        if file.stem != f"{run['method']}-compare-seed{run['seed']}":
            continue  # an arm has settings of its own
        config = methods.load(run["method"]).Config
        now = settings.to_dict(settings.resolve(config, run["method"], "cifar100", "compare"))
        had = {**settings.to_dict(config()), **run["settings"]}
        if any(dotted(now).get(name, value) != value for name, value in dotted(had).items()):
            earlier.add(run["method"])
    (line,) = re.findall(r"Measured with earlier settings: (.*?)\.", (ROOT / "docs/results.md").read_text("utf-8"))
    assert set(re.findall(r"`(\w+)`", line)) == earlier


def headline(source: Measured) -> str:
    """The average of a curve as the README prints it: with its standard deviation, if there is one, and n."""
    files = sorted((ROOT / "results").glob(source.files))
    averages = [json.loads(file.read_text("utf-8"))["metrics"]["sum"]["average"] for file in files]
    spread = f" ± {stdev(averages):.2f}" if len(averages) > 1 else ""
    return f"{mean(averages):.2f}{spread} (n = {len(averages)})"


@pytest.mark.parametrize("title", ["CIFAR-100 `small`", "CIFAR-100 `large`", "CUB-200 `small`", "miniImageNet `large`"])
def test_the_table_of_goals_tells_what_was_measured(title: str) -> None:
    dataset = next(name for name in BASE_IMAGES if dataset_title(name) == title.split()[0])
    recipe = title.split("`")[1]
    (row,) = [row for row in cells("docs/results.md") if row[0] == title]
    files = sorted((ROOT / "results" / dataset).glob(f"kt_rcnet-{recipe}-*.json"))
    runs = [json.loads(file.read_text("utf-8")) for file in files]
    ends = [[run["metrics"]["sum"][name][-1] for name in ("new", "harmonic")] for run in runs]
    assert row[3] == headline(Measured("KT-RCNet", f"{dataset}/kt_rcnet-{recipe}-*.json"))
    assert row[4] == " / ".join(f"{mean(column):.1f}" for column in zip(*ends, strict=True))
    assert row[5] == f"{mean(run['metrics']['sum']['gain'] for run in runs):+.2f}"
    assert row[6] == f"{mean(run['macs'] for run in runs) / 1e15:.2f}"


def test_the_table_of_the_readme_was_measured() -> None:
    """It shows the runs that its picture shows."""
    rows = {row[0]: row for row in cells("README.md")}
    for dataset, (ours, baseline) in OURS.items():
        _, here, rival, paper, compute = rows[dataset_title(dataset)]
        assert here == headline(ours)
        assert rival == f"{baseline.label} {headline(baseline)}"
        assert paper == next(f"{row.avg:.2f}" for row in published(dataset).rows if row.method == "kt_rcnet")
        macs = [json.loads(file.read_text("utf-8"))["macs"] for file in (ROOT / "results").glob(ours.files)]
        assert compute == f"{mean(macs) / 1e15:.2f} / {recipe_macs(dataset, 'paper') / 1e15:.0f}"


def average_of(name: str) -> float:
    return float(json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))["avg"])


def test_the_two_nets_of_the_readme_were_measured() -> None:
    """KT-RCNet minus two cosine nets, of the same recipe and seed."""
    runs = ["cifar100/{}-small-seed1", "cifar100/{}-small-seed2", "cifar100/{}-large-seed0"]
    runs += ["mini_imagenet/{}-large-seed0", "cub200/{}-small-seed2"]
    *cifar, mini, cub = [
        average_of(run.format("kt_rcnet")) - average_of(f"nets-2/{run.format('cosine')}") for run in runs
    ]
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    seeds = "(`small` n = 2, `large` n = 1)"
    told = f"Two cosine nets: at most {max(cifar):.1f} below on CIFAR-100 {seeds}, {mini:.1f} below on miniImageNet"
    assert f"{told} (n = 1), {-cub:.1f} above on CUB-200 (n = 1)" in text


@cache
def recipe_macs(dataset: str, recipe: str) -> int:
    """Multiply-adds of KT-RCNet's base session by a recipe, from the number of its images."""
    config = settings.resolve(kt_rcnet.Config, "kt_rcnet", dataset, recipe, {"weights": None})
    method = kt_rcnet.Method(config, encoders.build(config.encoder, config.pixels))
    plan = method.plan(SimpleNamespace(train=range(BASE_IMAGES[dataset]), held_out=None))
    return sum(stage_macs(stage, method.f1) for stage in plan)


def test_a_fiftieth_of_the_compute_is_of_the_recipe_that_is_named() -> None:
    ours = json.loads((ROOT / "results/cub200/kt_rcnet-small-seed0.json").read_text("utf-8"))["macs"]
    assert round(recipe_macs("cub200", "paper") / ours, -1) == 50
    assert round(recipe_macs("cub200", "official") / ours, -1) == 30


def test_published_points_of_the_picture_stand_at_the_compute_of_the_recipe_official() -> None:
    for dataset, pmac in PLANNED.items():
        assert recipe_macs(dataset, "official") / 1e15 == pytest.approx(pmac, rel=0.005), dataset


def test_results_tell_how_they_were_made() -> None:
    for file, result in results().items():
        assert {"command", "seed", "git", "machine", "macs", "seconds", "settings", "versions"} <= set(result), file
        assert "/tmp" not in file.read_text("utf-8"), file
