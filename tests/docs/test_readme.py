"""The README keeps its size, its links lead somewhere, and its commands and snippets do what it shows."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from fscil.command import cli
from fscil.command.cli import application
from packages import installed

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def outside_of_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that headings get on a page."""
    titles = re.findall(r"^#+ (.*)$", outside_of_code(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: str) -> list[str]:
    """Links of a page to files of the repository, or to headings in them, that do not exist."""
    file, missing = ROOT / page, []
    for target in (first or second for first, second in LINK.findall(outside_of_code(file.read_text("utf-8")))):
        name, _, heading = target.partition("#")
        goal = file.parent / name if name else file
        if "://" in target or (goal.exists() and (not heading or heading in anchors(goal))):
            continue
        missing.append(target)
    return missing


def test_the_readme_is_short_and_has_one_table() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert sum(bool(re.match(r"\|[-|: ]+\|$", line)) for line in lines) == 1  # one table has one line of dashes
    prose = [line for line in outside_of_code(README).splitlines() if not line.startswith(("|", "  <"))]
    assert [line for line in prose if len(line) > 100] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert broken(page) == []


def test_a_broken_link_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(
        "# One\n[a](page.md#one) [b](page.md#two) [c](gone.md) [d](https://x.y)\n", "utf-8"
    )
    assert broken("page.md") == ["page.md#two", "gone.md"]


def test_its_commands_are_understood() -> None:
    """Those for benchmarks: parsed as the command line parses them, with every value checked, but not executed."""
    (block,) = [text for language, text in BLOCKS if not language]
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert len(commands) == 6
    for tokens in commands:
        function, _, _ = application(tokens).parse_args(tokens, exit_on_error=False, print_error=False)
        assert callable(function)


def masked(text: str) -> str:
    """A text without its numbers with a point, which depend on the machine, and without estimates of seconds."""
    return re.sub(r"\d+\.\d+|\d+(?= s\b)", "#", text).strip()


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
        assert masked(capsys.readouterr().out) == masked(shown)
    (snippet,) = [text for language, text in BLOCKS if language == "python" and "Classifier" in text]
    exec(compile(snippet, "README.md", "exec"), {"__name__": "page"})
    assert "['moon']" in capsys.readouterr().out
