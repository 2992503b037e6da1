"""Run folders as `fscil run` writes them, made up; and what a reader sees of a report."""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fscil import report

FIRST_SEEN = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2}
SESSIONS = 3
PER_CLASS = 4


def make_run(
    root: Path,
    method: str = "kt_rcnet",
    dataset: str = "glyphs",
    recipe: str = "small",
    seed: int = 0,
    finished: int = SESSIONS,
    wrong: int = 1,  # images per class called class 0
    branches: tuple[str, ...] = ("B", "C"),
    settings: dict | None = None,
    told: dict | None = None,  # further facts, which older runs lack
    first_seen: dict[int, int] = FIRST_SEEN,
) -> Path:
    """A run folder as `fscil run` writes it: three base classes, then one class per session."""
    folder = root / dataset / f"{method}-{recipe}" / f"seed{seed}"
    folder.mkdir(parents=True)
    facts = {
        "format": 1,
        "method": method,
        "dataset": dataset,
        "recipe": recipe,
        "seed": seed,
        "sessions": SESSIONS,
        "command": f"fscil run {method} {dataset} --root /home/somebody/data",
        "settings": settings or {"base": {"epochs": 2, "weights": "/home/somebody/w.pt"}},
        "protocol": {"shots": 5, "shots_seed": 1, "order_seed": None},
        "versions": {"numpy": "2"},
        "git": "abc1234",
        "machine": {"cores": 2},
        "precision": {"chosen": "float32"},
        "class_names": ["a<b", "b", "c", "d", "e"],
        "first_seen": {str(label): session for label, session in first_seen.items()},
        "encoder": "fast",
        "pixels": 32,
        "parameters": 1_234_000,
        "pretrained": "none",
        "selection": "last epoch",
        "keeps": "means",
        "benchmark_fingerprint": "f00",
        "started": "2025-01-01T00:00:00",
        **(told or {}),
    }
    (folder / "run.json").write_text(json.dumps(facts))
    for session in range(finished):
        truth = np.repeat([label for label in first_seen if first_seen[label] <= session], PER_CLASS).astype(np.int32)
        predicted = np.where(np.arange(len(truth)) % PER_CLASS < wrong, 0, truth).astype(np.int32)
        answers = {"truth": truth, "predicted": predicted} | {f"branch.{name}": truth for name in branches}
        save_file(answers, folder / f"predictions-{session:02d}.safetensors")
        cost = {"learn_seconds": 50.0, "test_seconds": 10.0, "macs": 2e14, "peak_memory_bytes": 10**9 * (session + 1)}
        stages = [{"name": "base", "seconds": 50.0, "macs": 2e14, "steps": 7}] if session == 0 else []
        record = {"session": session, "classes": [session], **cost, "stages": stages}
        (folder / f"session-{session:02d}.json").write_text(json.dumps(record))
    return folder


def rows_of(paths) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.table(paths, "csv"))))


def cells_of(markdown: str, name: str) -> list[str]:
    line = next(line for line in markdown.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


class Outside(HTMLParser):
    """Collects everything a page would load from elsewhere, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.open += [] if tag == "meta" else [tag]
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.loads += [value for key, value in attributes if key in ("src", "href") and not value.startswith("data:")]
        self.loads += [tag] if tag in ("link", "script", "iframe") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def printed(table, width: int) -> str:
    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()
