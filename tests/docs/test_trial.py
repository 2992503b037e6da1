"""The tables of docs/trial.md are means over the files below results, and its intervals those of paired seeds."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from fscil.metrics import paired_difference

ROOT = Path(__file__).parents[2]
FILES = ROOT / "results" / "trial" / "cub200"
ENCODERS = ROOT / "results" / "trial-encoder" / "cifar100"
CELL = re.compile(r"kt_rcnet-small-(?P<arm>.+)_read_out(?P<read>\w+)_length(?P<length>\w+)-seed(?P<seed>\d+)")

GRIDS = {
    "way_shot": re.compile(r"kt_rcnet-map-way(?P<row>\d+)_shot(?P<column>\d+)-seed(?P<seed>\d+)"),
    "lambdas": re.compile(
        r"kt_rcnet-map-global_weight(?P<row>[\d.]+)_local_weight(?P<column>[\d.]+)-seed(?P<seed>\d+)"
    ),
}

pytestmark = pytest.mark.skipif(not FILES.exists(), reason="the results are not part of the source distribution")

Averages = dict[int, float]  # by seed


def averages(files: Path = FILES) -> dict[tuple[str, str, str], dict[str, Averages]]:
    """By read-out, length and arm: Avg of the sum and of C, accuracy of new classes and compute, by seed."""
    found: dict[tuple[str, str, str], dict[str, Averages]] = defaultdict(lambda: defaultdict(dict))
    for file in files.glob("kt_rcnet-*.json"):
        named = CELL.fullmatch(file.stem)
        assert named is not None, file.name
        told = json.loads(file.read_text("utf-8"))
        metrics = told["metrics"]
        cell = found[named["read"], named["length"], named["arm"]]
        cell["sum"][int(named["seed"])] = metrics["sum"]["average"]
        cell["C"][int(named["seed"])] = metrics["C"]["average"]
        cell["new"][int(named["seed"])] = metrics["sum"]["new"][-1]
        cell["macs"][int(named["seed"])] = told["macs"]
    return found


def spread(values: Averages) -> str:
    numbers = list(values.values())
    return f"{mean(numbers):.2f}" + (f" ± {stdev(numbers):.2f}" if len(numbers) > 1 else "")


def gap(values: Averages, reference: Averages) -> str:
    seeds = sorted(values.keys() & reference.keys())
    found = paired_difference([values[seed] for seed in seeds], [reference[seed] for seed in seeds])
    return f"{found.mean:+.2f}" + (f" ({found.low:+.2f} … {found.high:+.2f})" if len(seeds) > 1 else "")


def rows(encoders: bool = False) -> dict[tuple[str, str], list[list[str]]]:
    """The rows of the page's tables, of maps or of whole encoders, by the read-out and length in the heading."""
    tables, place = defaultdict(list), None
    for line in (ROOT / "docs" / "trial.md").read_text("utf-8").splitlines():
        if heading := re.search(r"read-out `(\w+)`, length `(\w+)`", line):
            place = (heading[1], heading[2]) if ("whole encoders" in line) == encoders else None
        if place and line.startswith("|") and not line.startswith(("| arm", "|---")):
            tables[place].append([cell.strip(" `*†") for cell in line.strip("|").split("|")])
        if line.startswith("## "):
            place = None
    return tables


@pytest.mark.parametrize(("files", "encoders"), [(FILES, False), (ENCODERS, True)])
def test_every_row_is_the_mean_of_its_files(files: Path, encoders: bool) -> None:
    known, tables = averages(files), rows(encoders)
    assert tables
    for (read, length), table in tables.items():
        tied = known[read, length, "tied"]
        assert {row[0] for row in table} == {arm for r, n, arm in known if (r, n) == (read, length)}
        for arm, n, total, total_gap, alone, alone_gap, new, pmac in table:
            own = known[read, length, arm]
            assert (n, total, alone, new) == (str(len(own["sum"])), *map(spread, (own["sum"], own["C"], own["new"])))
            assert {pmac} == {f"{macs / 1e15:.4f}" for macs in own["macs"].values()}
            assert arm == "tied" or (total_gap, alone_gap) == tuple(gap(own[k], tied[k]) for k in ("sum", "C"))


def test_the_verdict_on_as_much_training_names_every_control() -> None:
    """The one that RESA beats as well as those that it does not."""
    known = averages()
    page = (ROOT / "docs" / "results.md").read_text("utf-8").splitlines()
    (verdict,) = [line for line in page if line.startswith("| RESA helps, over as much training otherwise")]
    for control in ("conventional", "means", "rotation"):
        resa, other = (known["paper", "short", arm]["sum"] for arm in ("RESA-R", control))
        assert gap(resa, other).replace("-", "−") in verdict


def test_the_reconstructed_arm_is_marked_in_every_table() -> None:
    lines = (ROOT / "docs" / "trial.md").read_text("utf-8").splitlines()
    named = [line for line in lines if line.startswith("|") and "meta-learning" in line.split("|")[1].lower()]
    assert len(named) == 3
    assert all("†" in line.split("|")[1] for line in named)
    assert any(line.startswith("† A reconstruction") for line in lines)


def grid(sweep: str) -> dict[tuple[str, str], Averages]:
    """Avg of the sum by row, column and seed of a sweep over two settings."""
    found: dict[tuple[str, str], Averages] = defaultdict(dict)
    for file in (ROOT / "results" / sweep / "cub200").glob("*.json"):
        named = GRIDS[sweep].fullmatch(file.stem)
        assert named is not None, file.name
        found[named["row"], named["column"]][int(named["seed"])] = json.loads(file.read_text("utf-8"))["avg"]
    return found


def shown_grid(sweep: str) -> dict[tuple[str, str], str]:
    """The cells of the table below the heading that names a sweep, by row and column."""
    text = (ROOT / "docs" / "trial.md").read_text("utf-8")
    section = text.split(f"(`{sweep}`)", 1)[1].split("\n#", 1)[0]
    head, _, *body = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    names = [name.strip() for name in head[1:]]
    return {
        (line[0].strip(), name): cell.strip(" *") for line in body for name, cell in zip(names, line[1:], strict=True)
    }


@pytest.mark.parametrize("sweep", GRIDS)
def test_every_cell_of_a_sweep_is_the_mean_of_its_files(sweep: str) -> None:
    assert shown_grid(sweep) == {place: spread(values) for place, values in grid(sweep).items()}


def runs_of(sweep: str, start: str) -> list[dict[str, Any]]:
    """The results of a sweep whose files begin so."""
    files = sorted((ROOT / "results" / sweep / "cub200").glob(f"{start}-seed*.json"))
    return [json.loads(file.read_text("utf-8")) for file in files]


def base_and_new(runs: Sequence[dict[str, Any]]) -> str:
    sums = [run["metrics"]["sum"] for run in runs]
    return f"{mean(one['base'][-1] for one in sums):.1f} / {mean(one['new'][-1] for one in sums):.1f}"


def test_every_number_of_shots_is_the_mean_of_its_files() -> None:
    section = (ROOT / "docs" / "trial.md").read_text("utf-8").split("## The shots of Figure 4")[1].split("\n## ")[0]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert len(table) == 2 + 4
    for shots, cosine, kt_rcnet, cosine_ends, kt_rcnet_ends in table[2:]:
        rivals, ours = (runs_of("shots", f"{method}-map-shots{shots}") for method in ("cosine", "kt_rcnet"))
        assert (len(rivals), len(ours)) == (3, 3)
        assert cosine == f"{mean(run['avg'] for run in rivals):.2f}"
        assert kt_rcnet == spread(dict(enumerate(run["avg"] for run in ours)))
        assert (cosine_ends, kt_rcnet_ends) == (base_and_new(rivals), base_and_new(ours))


def test_the_draws_of_the_shots_are_those_of_their_files() -> None:
    text = " ".join((ROOT / "docs" / "trial.md").read_text("utf-8").split())
    cosine, ours = (
        {draw: runs_of("draws", f"{method}-map-shots_seed{draw}")[0]["avg"] for draw in range(1, 11)}
        for method in ("cosine", "kt_rcnet")
    )
    found = paired_difference(list(ours.values()), list(cosine.values()))
    interval = f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})".replace("-", "−")
    assert f"cosine {spread(cosine)}, KT-RCNet {spread(ours)}, difference {interval}" in text
    assert f"cosine has {min(cosine.values()):.2f} to {max(cosine.values()):.2f}" in text
