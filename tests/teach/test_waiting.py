"""The benchmark of what people wait for: what it runs, reads and writes. Commands are made up, the encoder is not."""

import json
import os
import sys
from pathlib import Path

import pytest

from fscil.teach.seeing.folders import class_folders

waiting = pytest.importorskip("waiting", reason="the benchmarks are not part of this checkout")
pytest.importorskip("onnxruntime", reason="needs the extra fscil[onnx]")
pytest.importorskip("onnx", reason="needs the extra fscil[onnx]")

LEARNED = "prototypes: 3 classes with 24 photos; about 4 s\nthings.fscil: learned 3 classes from 24 photos in 5.2 s\n"


@pytest.fixture
def ran(graph_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What would have been run: verb, cache and runtime."""
    made = []

    def run(desk: object, cache: str, *words: object, runtime: str = "auto") -> str:
        verb = str(words[2]) if words[0] == "-m" else "fit" if words[1] == waiting.FIT else "light"
        made.append((verb, cache, runtime))
        return {"learn": LEARNED, "fit": "3.5\n", "predict": "a.jpg: ball 0.9\n", "light": "True\n"}[verb]

    monkeypatch.setattr(waiting.Desk, "run", run)
    return made


def test_every_figure_is_measured_and_written(
    ran: list[tuple[str, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(waiting, "DRAWN", {"2 classes of 3": (2, 3), "4 classes of 2": (4, 2)})
    out = tmp_path / "out.json"
    words = ("--encoder", "tiny", "--pixels", 32, "--times", 2, "--questions", 3, "--rounds", 2)
    monkeypatch.setattr(sys, "argv", ["waiting.py", str(out), *map(str, words)])
    waiting.main()
    result = json.loads(out.read_text("utf-8"))
    assert [(one["set"], one["cache"]) for one in result["learn"]] == [
        (name, cache) for name in ("2 classes of 3", "4 classes of 2") for cache in ("empty", "filled")
    ]
    assert [(one["photos"], one["classes"]) for one in result["learn"][::2]] == [(6, 2), (8, 4)]
    assert result["learn"][0]["announced"] == [4.0, 4.0]
    assert result["learn"][0]["took"] == [5.2, 5.2]
    assert result["learn"][0]["fit"] == [3.5, 3.5]
    assert len(result["predict"]["light"]) == len(result["predict"]["torch"]) == 3
    assert len(result["encoder"]["onnx"]) == len(result["encoder"]["torch"]) == 2
    assert "\n".join(waiting.tables(result)) in capsys.readouterr().out


def test_an_empty_cache_is_used_once_and_the_last_model_is_the_one_that_is_asked(
    ran: list[tuple[str, str, str]], album: Path, tmp_path: Path
) -> None:
    desk = waiting.Desk(tmp_path, "tiny", 32)
    waiting.learning(desk, "album", album, 2)
    empty = [cache for verb, cache, _ in ran if cache != "full"]
    assert len(empty) == len(set(empty)) == 4
    assert [cache for verb, cache, _ in ran if verb == "learn"][-1] == "full"  # what an answer needs is kept there
    waiting.answering(desk, album, 2)
    assert [(cache, runtime) for verb, cache, runtime in ran if verb == "predict"] == [
        ("full", "auto"),
        ("full", "torch"),
    ] * 2


def test_commands_run_with_a_cache_of_their_own(tmp_path: Path) -> None:
    told = "import os; print(os.environ['XDG_CACHE_HOME'], os.environ['FSCIL_RUNTIME'])"
    assert waiting.Desk(tmp_path, "tiny", 32).run("empty", "-c", told).split() == [str(tmp_path / "empty"), "auto"]
    assert "empty" not in os.environ.get("XDG_CACHE_HOME", "")


def test_photos_are_drawn(tmp_path: Path) -> None:
    found = class_folders(waiting.draw(tmp_path / "photos", 4, 2))
    assert [len(photos) for photos in found.values()] == [2] * 4


def test_medians_stand_in_the_tables() -> None:
    learned = {"set": "some", "cache": "empty", "n": 3, "announced": [1.0, 2.0, 3.0]}
    learned |= {name: [1.0, 9.0, 2.0] for name in ("command", "took", "fit")}
    result = {
        "settings": {"encoder": "tiny"},
        "learn": [learned],
        "predict": {"n": 3, "light": [0.5, 0.4, 0.9], "torch": [2.0, 2.1, 2.2]},
        "encoder": {"name": "tiny", "n": 3, "images": 8, "onnx": [1.0, 1.0, 1.0], "torch": [2.0, 4.0, 1.0]},
    }
    lines = waiting.tables(result)
    spent = "2.0 s (1.0 to 9.0)"
    assert f"| some | empty | {spent} | 2 s (1 to 3) | {spent} | {spent} | 3 |" in lines
    assert "| `fscil predict` of one photo, without torch | 0.50 s (0.40 to 0.90) | 3 |" in lines
    assert "| tiny in ONNX Runtime, 8 images | 0.50 of the time of torch (0.25 to 1.00) | 3 |" in lines
