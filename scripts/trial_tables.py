"""Tables of docs/trial.md from a folder of results of `fscil experiment trial`.

`python scripts/trial_tables.py results/trial-encoder/cifar100` prints, for each read-out and length, the rows of the
arms and the paired differences between them. With --write it also puts them into docs/trial.md, where a heading ends
with the folder, the read-out and the length, as it prints them; those of results/trial/cub200 also into Table 5 of
docs/results.md, and both lengths.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fscil.metrics import paired_difference
from fscil.report.captions import DAGGER
from fscil.report.published import published
from tables import placed

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS_PAGE = ROOT / "docs" / "trial.md", ROOT / "docs" / "results.md"
MAPS, SHORT = ROOT / "results" / "trial" / "cub200", ("paper", "short")  # of which docs/results.md has Table 5
FILE = re.compile(r"kt_rcnet-\w+-(?P<arm>.+)_read_out(?P<read>\w+)_length(?P<length>\w+)-seed(?P<seed>\d+)")
ORDER = ["tied", "conventional", "means", "rotation", "own", "RESS", "PIL", "Meta-learning"]
ORDER += ["RESA-C", "RESA-M", "RESA-R", "rate-0"]
REFERENCE, TRIED = "tied", "RESA-R"
CONTROLS = ("tied", "conventional", "means", "rotation", "own")
PARTS = {"sum": ("sum", "average"), "C alone": ("C", "average"), "base": ("sum", "base"), "new": ("sum", "new")}
TITLES = ("arm", "n", "sum", "sum, minus `tied`", "C alone", "C alone, minus `tied`", "new", "PMAC")
STRATEGY_TITLES = ("strategy", "n", "sum", "C alone", "published Avg")
READ_OUTS = ("paper", "small")
LENGTH_TITLES = ("arm", "pairs", *(f"{part}, `{read}`" for read in READ_OUTS for part in ("sum", "C alone")))
GAP_TITLES = ("difference", "pairs", "sum", "C alone", "base", "new")

Runs = Mapping[int, dict[str, Any]]  # of one arm, by seed
Place = tuple[str, str]  # read-out and length


def read(folder: Path) -> dict[Place, dict[str, Runs]]:
    """The runs of each arm by read-out and length, in the order of the tables."""
    found: dict[Place, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for file in sorted(folder.glob("kt_rcnet-*.json")):
        named = FILE.fullmatch(file.stem)
        if named is None:
            raise SystemExit(f"{file} is not named as a cell of the trial: read-out, length and seed")
        found[named["read"], named["length"]][named["arm"]][int(named["seed"])] = json.loads(file.read_text("utf-8"))
    return {place: {arm: arms[arm] for arm in sorted(arms, key=ORDER.index)} for place, arms in sorted(found.items())}


def values(runs: Runs, branch: str, metric: str) -> dict[int, float]:
    """By seed: an average over the sessions, or an accuracy after the last one."""
    found = {seed: run["metrics"][branch][metric] for seed, run in runs.items()}
    return {seed: value[-1] if isinstance(value, list) else value for seed, value in found.items()}


def spread(numbers: Mapping[int, float]) -> str:
    some = list(numbers.values())
    return f"{mean(some):.2f}" + (f" ± {stdev(some):.2f}" if len(some) > 1 else "")


def gap(own: Mapping[int, float], other: Mapping[int, float]) -> str:
    """The mean of the paired differences with Student's 95 % interval."""
    seeds = sorted(own.keys() & other.keys())
    if not seeds:
        return "–"
    found = paired_difference([own[seed] for seed in seeds], [other[seed] for seed in seeds])
    return f"{found.mean:+.2f}" + (f" ({found.low:+.2f} … {found.high:+.2f})" if len(seeds) > 1 else "")


def arms_table(arms: Mapping[str, Runs]) -> list[str]:
    """One row an arm, beside the one that trains nothing."""
    lines: list[Sequence[str]] = [TITLES]
    tied = arms.get(REFERENCE, {})
    for arm, runs in arms.items():
        total, alone = values(runs, "sum", "average"), values(runs, "C", "average")
        gaps = [
            "–" if arm == REFERENCE else gap(own, values(tied, *PARTS[part]))
            for part, own in (("sum", total), ("C alone", alone))
        ]
        pmac = f"{mean(run['macs'] for run in runs.values()) / 1e15:.4f}"
        new = spread(values(runs, "sum", "new"))
        lines.append((name_of(arm), str(len(runs)), spread(total), gaps[0], spread(alone), gaps[1], new, pmac))
    return rows(lines)


def differences_table(arms: Mapping[str, Runs]) -> list[str]:
    """RESA and the controls, each minus the other controls; and what the sum has over B alone."""
    lines: list[Sequence[str]] = [GAP_TITLES]
    controls = [arm for arm in CONTROLS if arm in arms]
    pairs = [(TRIED, other) for other in controls if TRIED in arms]
    pairs += [(arm, REFERENCE) for arm in controls if arm != REFERENCE and REFERENCE in arms]
    for own, other in pairs:
        cells = [gap(values(arms[own], *part), values(arms[other], *part)) for part in PARTS.values()]
        lines.append((f"{name_of(own)} − {name_of(other)}", str(len(arms[own].keys() & arms[other].keys())), *cells))
    for arm in [arm for arm in (*controls, TRIED) if arm in arms]:
        runs = arms[arm]
        cells = [gap(values(runs, "sum", metric), values(runs, "B", metric)) for metric in ("average", "base", "new")]
        lines.append((f"{name_of(arm)}: sum − B alone", str(len(runs)), cells[0], "", *cells[1:]))
    return rows(lines)


def strategies_table(arms: Mapping[str, Runs], dataset: str) -> list[str]:
    """The arms beside the averages that the paper prints of them."""
    paper = published(dataset)
    known = {row.name: f"{row.avg:.2f}" for row in paper.study_rows} if paper else {}
    lines: list[Sequence[str]] = [STRATEGY_TITLES]
    for arm, runs in arms.items():
        own = (spread(values(runs, branch, "average")) for branch in ("sum", "C"))
        lines.append((name_of(arm), str(len(runs)), *own, known.get(arm, "–")))
    return rows(lines)


def lengths_table(found: Mapping[Place, Mapping[str, Runs]]) -> list[str]:
    """The paper's length minus the short one, of the same seeds."""
    lines: list[Sequence[str]] = [LENGTH_TITLES]
    for arm in [arm for arm in found[READ_OUTS[0], "paper"] if arm != REFERENCE]:
        longs, shorts = ([found[read, length][arm] for read in READ_OUTS] for length in ("paper", "short"))
        pairs = str(len(longs[0].keys() & shorts[0].keys()))
        gaps = [
            gap(values(long, branch, "average"), values(short, branch, "average"))
            for long, short in zip(longs, shorts, strict=True)
            for branch in ("sum", "C")
        ]
        lines.append((arm, pairs, *gaps))
    return rows(lines)


def rows(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, of which the first has the titles."""
    head, *body = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines]
    return [head, "|" + "---|" * len(lines[0]), *body]


def name_of(arm: str) -> str:
    return f"{arm}{DAGGER}" if arm == "Meta-learning" else arm


def heading(folder: Path, place: Place) -> str:
    """What the heading above the two tables of a folder, a read-out and a length has in brackets."""
    return f"(files `{folder.parent.name}`, read-out `{place[0]}`, length `{place[1]}`)"


def written(page: str, folder: Path) -> str:
    """The page with the tables below each heading that ends so."""
    for place, arms in read(folder).items():
        for line in [line for line in page.split("\n") if line.endswith(heading(folder, place))]:
            page = placed(page, arms_table(arms), line)
            below = page.split("\n")[page.split("\n").index(line) :]
            until = next((at for at, text in enumerate(below[1:], 1) if text.startswith("#")), len(below))
            if rows([GAP_TITLES])[0] in below[:until]:
                page = placed(page, differences_table(arms), line)
    return page


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    found = read(folder)
    for place, arms in found.items():
        print(f"### {heading(folder, place)}", *arms_table(arms), "", *differences_table(arms), "", sep="\n")
    more = {}
    if folder == MAPS:
        more = {PAGE: lengths_table(found), RESULTS_PAGE: strategies_table(found[SHORT], folder.name)}
    for lines in more.values():
        print(*lines, "", sep="\n")
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text("utf-8"), folder), "utf-8")
        for page, lines in more.items():
            page.write_text(placed(page.read_text("utf-8"), lines), "utf-8")


if __name__ == "__main__":
    main()
