"""The README keeps its size, and its commands and snippets do what it shows."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import fscil
from apart import NANO, NANO_RESA, always_tiny  # noqa: F401 (a fixture)
from fscil.command import cli
from fscil.command.cli import application
from fscil.running.outcome import Outcome
from packages import installed
from printed import is_printed

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def outside_of_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_the_readme_is_short_and_has_one_table() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert sum(bool(re.match(r"\|[-|: ]+\|$", line)) for line in lines) == 1  # one table has one line of dashes
    prose = [line for line in outside_of_code(README).splitlines() if not line.lstrip().startswith(("|", "<"))]
    assert [line for line in prose if len(line) > 100] == []


def test_the_wheel_it_names_is_of_this_version() -> None:
    assert re.findall(r"fscil-([\w.]+)-py3-none-any.whl", README) == [fscil.__version__]


def test_its_commands_are_understood() -> None:
    """Those for benchmarks: parsed as the command line parses them, with every value checked, but not executed."""
    (block,) = [text for language, text in BLOCKS if not language]
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert len(commands) == 6
    for tokens in commands:
        function, _, _ = application(tokens).parse_args(tokens, exit_on_error=False, print_error=False)
        assert callable(function)


def test_teaching_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed("efficientnet_lite0")
    monkeypatch.chdir(tmp_path)
    drawing = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "teach.md").read_text("utf-8"), re.DOTALL)[0]
    exec(compile(drawing, "docs/teach.md", "exec"), {"__name__": "page"})
    (session,) = [text for language, text in BLOCKS if language == "console" and "$ fscil learn" in text]
    steps = re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", session, re.MULTILINE)
    assert len(steps) == 5
    for command, shown in steps:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        capsys.readouterr()
        cli.main()
        assert is_printed(shown, capsys.readouterr().out)
    (snippet,) = [text for language, text in BLOCKS if language == "python" and "Classifier" in text]
    exec(compile(snippet, "README.md", "exec"), {"__name__": "page"})
    (commented,) = re.findall(r"print\(.*# (.*);", snippet)
    assert capsys.readouterr().out == f"{commented}\n"


def test_a_run_from_python_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snippet, with a tiny data set and a tiny net put in the place of its own."""
    run = fscil.run

    def tiny_run(method: str, dataset: str, **settings: Any) -> Outcome:
        assert (method, dataset) == ("kt_rcnet", "glyphs")
        return run(method, "folder", recipe="paper", out=tmp_path, **{**NANO, **NANO_RESA, **settings})

    monkeypatch.setattr(fscil, "run", tiny_run, raising=False)
    (snippet,) = [text for language, text in BLOCKS if language == "python" and "fscil.run" in text]
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert re.fullmatch(rf"\d+\.\d+ {re.escape(str(tmp_path))}/folder/kt_rcnet-paper/seed0\n", capsys.readouterr().out)
    assert [len(branch) for branch in names["features"]] == [len(names["result"].sessions.test(0))] * 2
