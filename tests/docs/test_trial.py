"""The tables of docs/trial.md are means over the files below results, and its intervals those of paired seeds."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

import trial_tables
from fscil.metrics import paired_difference
from fscil.report.published import published

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGE, RESULTS_PAGE = ROOT / "docs" / "trial.md", ROOT / "docs" / "results.md"
FILES, SHORT = RESULTS / "trial" / "cub200", ("paper", "short")
PAIRS = ("RESA-R - RESS", "RESA-R - PIL", "PIL - RESS")
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


def headings() -> dict[tuple[str, str, str], list[list[list[str]]]]:
    """The tables of the page below each heading that names files, read-out and length."""
    tables: dict[tuple[str, str, str], list[list[list[str]]]] = defaultdict(list)
    place, before = None, ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            found = re.search(r"\(files `([\w-]+)`, read-out `(\w+)`, length `(\w+)`\)$", line)
            place = (found[1], found[2], found[3]) if found else None
        if place and line.startswith("|"):
            if not before.startswith("|"):
                tables[place].append([])
            tables[place][-1].append([cell.strip(" `*†") for cell in line.strip("|").split("|")])
        before = line
    return tables


def folder_of(name: str) -> Path:
    (folder,) = (RESULTS / name).iterdir()
    return folder


def test_every_row_is_the_mean_of_its_files() -> None:
    tables = headings()
    assert {name for name, _, _ in tables} >= {"trial", "trial-encoder", "trial-encoder-half"}
    for (name, read, length), ((_, _, *table), *_) in tables.items():
        known = averages(folder_of(name))
        tied = known[read, length, "tied"]
        assert {row[0] for row in table} == {
            arm for r, n, arm in known if (r, n) == (read, length) and known[r, n, arm]
        }
        for arm, n, total, total_gap, alone, alone_gap, new, pmac in table:
            own = known[read, length, arm]
            assert (n, total, alone, new) == (str(len(own["sum"])), *map(spread, (own["sum"], own["C"], own["new"])))
            assert pmac == f"{mean(own['macs'].values()) / 1e15:.4f}"
            assert arm == "tied" or (total_gap, alone_gap) == tuple(gap(own[k], tied[k]) for k in ("sum", "C"))


@pytest.mark.parametrize("name", sorted({name for name, _, _ in headings()}))
def test_the_page_has_what_the_script_prints(name: str) -> None:
    page = PAGE.read_text("utf-8")
    assert trial_tables.written(page, folder_of(name)) == page, "python scripts/trial_tables.py FOLDER --write"


def test_both_lengths_and_table_5_are_what_the_script_prints() -> None:
    found = trial_tables.read(FILES)
    assert "\n".join(trial_tables.lengths_table(found)) in PAGE.read_text("utf-8")
    assert "\n".join(trial_tables.strategies_table(found[SHORT], "cub200")) in RESULTS_PAGE.read_text("utf-8")


def test_a_folder_prints_its_arms_and_their_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "trial-longer" / "cifar100"
    folder.mkdir(parents=True)
    for arm, average in (("tied", 50.0), ("own", 52.0), ("RESA-R", 51.0)):
        for seed in (0, 1):
            sums = {"average": average + seed, "base": [60.0], "new": [20.0 + seed]}
            told = {"metrics": {"sum": sums, "B": sums, "C": sums}, "macs": 2e14}
            file = folder / f"kt_rcnet-small-{arm}_read_outsmall_lengthpaper-seed{seed}.json"
            file.write_text(json.dumps(told), "utf-8")
    monkeypatch.setattr("sys.argv", ["trial_tables.py", str(folder)])
    trial_tables.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### (files `trial-longer`, read-out `small`, length `paper`)"
    gained = "+2.00 (+2.00 … +2.00)"
    assert f"| own | 2 | 52.50 ± 0.71 | {gained} | 52.50 ± 0.71 | {gained} | 20.50 ± 0.71 | 0.2000 |" in lines
    assert any(line.startswith("| RESA-R − own | 2 | -1.00 (-1.00 … -1.00) |") for line in lines)
    page = "\n".join([f"#### Longer {lines[0][4:]}", lines[1], "|---|", "| old |", "", "rest"])
    written = trial_tables.written(page, folder)
    assert "old" not in written
    assert written.endswith("\n\nrest")


FOLDERS = {"encoders": "trial-encoder", "half": "trial-encoder-half"}  # others: the map


def told(claim: str) -> str:
    """The interval of "arm - other, part" or "arm: sum - B, part", on the map, with read-out `small` or on encoders."""
    pair, part, *where = claim.split(", ")
    name = next((folder for word, folder in FOLDERS.items() if word in where), "trial")
    arms = trial_tables.read(folder_of(name))["small" if "small" in where else "paper", "short"]
    branch, metric = {**trial_tables.PARTS, "new of C": ("C", "new")}[part]
    if ": " in pair:
        runs = arms[pair.split(":")[0]]
        own, other = (trial_tables.values(runs, one, metric) for one in ("sum", "B"))
    else:
        own, other = (trial_tables.values(arms[arm], branch, metric) for arm in pair.split(" - "))
    return gap(own, other).replace("-", "−")


ENDS = ("sum", "base", "new")
CLAIMS = {  # rows of the claims on docs/results.md, and the intervals in them
    "two relations beat one": ("tied: sum - B, sum, encoders", "tied: sum - B, sum"),
    "RESA helps, over nothing": (
        "RESA-R - tied, sum",
        "RESA-R - tied, sum, small",
        *(f"RESA-R - tied, {part}, encoders" for part in ENDS),
    ),
    "RESA makes C alone better": tuple(f"RESA-R - tied, C alone{where}" for where in ("", ", small", ", encoders")),
    "RESA helps, over as much training otherwise": (
        *(f"RESA-R - {control}, sum" for control in ("conventional", "means", "rotation")),
        *(f"RESA-R - conventional, {part}, encoders" for part in ENDS),
        *(f"RESA-R - {control}, sum, encoders" for control in ("rotation", "own")),
    ),
    "RESA > PIL > RESS": (
        *(f"{pair}, {part}" for pair in PAIRS for part in ("C alone", "sum")),
        "RESA-R - RESS, sum, small",
        "PIL - RESS, sum, small",
    ),
    "RESA > meta-learning": (
        "RESA-R - Meta-learning, sum",
        "RESA-R - Meta-learning, sum, small",
        "RESA-R - Meta-learning, C alone, small",
    ),
    "rotation beats MixUp and CutMix": ("RESA-R - RESA-M, sum", "RESA-R - RESA-C, sum"),
    "the local loss raises the accuracy of new classes": (
        "RESA-R - RESS, new",
        "RESA-R - RESS, new of C",
        "RESA-R - RESS, new, small",
        "RESA-R - tied, new, small",
        "PIL - tied, new, small",
    ),
}


def both(*claims: str) -> tuple[str, ...]:
    """With either read-out."""
    return tuple(f"{claim}{read}" for claim in claims for read in ("", ", small"))


CLAIMS_OF_MAPS = {  # likewise on docs/trial.md
    "two relations beat one (B + C tied, minus B alone)": ("tied: sum - B, sum",),
    "RESA helps, over nothing": both("RESA-R - tied, sum", "RESA-R - tied, C alone"),
    "RESA helps, over as much conventional training": both("RESA-R - conventional, sum"),
    "… over batches against class means": both("RESA-R - means, sum"),
    "… over the same with rotated classes (`rotation`)": both("RESA-R - rotation, sum"),
    "RESA > PIL > RESS": (*CLAIMS["RESA > PIL > RESS"], "RESA-R - PIL, sum, small"),
    "rotated twins beat MixUp and CutMix": both("RESA-R - RESA-M, sum", "RESA-R - RESA-C, sum"),
    "RESA > meta-learning †": CLAIMS["RESA > meta-learning"],
    "the local loss raises new-class accuracy (RESA against RESS)": (
        *both("RESA-R - RESS, new"),
        "RESA-R - RESS, new of C",
    ),
    "RESA raises new-class accuracy, over nothing": (
        *both("RESA-R - tied, new"),
        "PIL - tied, new, small",
        "RESA-R - tied, new of C, small",
    ),
}


def claim_row(page: Path, claim: str) -> str:
    (row,) = [line for line in page.read_text("utf-8").splitlines() if line.startswith(f"| {claim} |")]
    return row


@pytest.mark.parametrize(
    ("page", "claim", "differences"),
    [(RESULTS_PAGE, *item) for item in CLAIMS.items()] + [(PAGE, *item) for item in CLAIMS_OF_MAPS.items()],
)
def test_the_intervals_of_every_claim_were_measured(page: Path, claim: str, differences: tuple[str, ...]) -> None:
    """All that are meant stand in the row, and no other."""
    intervals = re.findall(r"[+−]\d+\.\d\d \([^()]* … [^()]*\)", claim_row(page, claim))
    assert {told(one) for one in differences} == set(intervals)


def test_the_claim_about_length_has_the_paired_differences() -> None:
    row = claim_row(RESULTS_PAGE, "RESA helps more the longer it is trained")
    (resa,) = [line for line in trial_tables.lengths_table(trial_tables.read(FILES)) if line.startswith("| RESA-R")]
    _, pairs, *gaps = [cell.strip().replace("-", "−") for cell in resa.strip("|").split("|")]
    assert [one for one in gaps if one not in row] == []
    assert f"not shown (n = {pairs})" in row


def test_the_readme_tells_what_the_trial_found() -> None:
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    claims = ("conventional - tied, sum, encoders", "RESA-R - tied, sum", "rotation - tied, sum")
    control, resa, best = (f"{float(told(claim).split()[0]):.1f}" for claim in claims)
    plain, whole = (told(f"RESA-R - tied, sum, {where}").split()[0] for where in ("small", "encoders"))
    assert f"{float(whole):.1f} over nothing (n = 3; a control {control}); on a map {resa} by" in text
    assert f"by the paper's read-out (a control {best}), {plain} by that of" in text
    assert "(+" in told("RESA-R - tied, sum, encoders")  # a sure gain


WITHOUT_RESA, WITH_RESA = "complement-conventional/cifar100", "views-flip/cifar100"
TABLE_4 = {  # the columns of Table 4: the runs whose f2 is trained without RESA, and with it
    "miniImageNet, n = 1": ((), ("epochs-16/mini_imagenet/kt_rcnet-small-seed0",)),
    "CIFAR-100, n = 3": tuple(
        tuple(f"trial-encoder/cifar100/kt_rcnet-small-{arm}_read_outpaper_lengthshort-seed{seed}" for seed in range(3))
        for arm in ("conventional", "RESA-R")
    ),
    "CIFAR-100, n = 1": ((), ("start-f1/cifar100/kt_rcnet-small-seed0",)),
    "CIFAR-100, two nets, n = 1": tuple((f"{place}/kt_rcnet-small-seed0",) for place in (WITHOUT_RESA, WITH_RESA)),
}


def average_of(names: Sequence[str], branch: str) -> str:
    runs = [json.loads((RESULTS / f"{name}.json").read_text("utf-8")) for name in names]
    return f"{mean(run['metrics'][branch]['average'] for run in runs):.2f}" if runs else "–"


def test_table_4_was_measured() -> None:
    text = RESULTS_PAGE.read_text("utf-8").split("**Table 4**")[1].split("**Table 5**")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    head, _, *body = lines
    columns = {title: {row[0]: row[at] for row in body} for at, title in enumerate(head) if title}
    assert columns.pop("published") == {row.name: f"{row.avg:.2f}" for row in published("mini_imagenet").study_rows}
    assert columns.keys() == TABLE_4.keys()
    for title, (plain, resa) in TABLE_4.items():
        found = {"B": average_of(resa, "B"), "C": average_of(plain, "C"), "B+C": average_of(plain, "sum")}
        assert columns[title] == found | {"C+RESA": average_of(resa, "C"), "B+C+RESA": average_of(resa, "sum")}, title


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
