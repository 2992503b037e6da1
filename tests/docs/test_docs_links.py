"""Every relative link and anchor in the pages leads somewhere; lists and tables are such for all Markdown readers."""

import re
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"])
LINK = re.compile(r"""\]\(([^)\s]+)(?:\s[^)]*)?\)|(?:src|srcset|href)="([^"\s]+)""")
OUTSIDE = re.compile(r"[a-z]+:")
EXAMPLE = "src/fscil/methods/centred.py"  # the method that CONTRIBUTING.md lets its readers write


def prose(text: str) -> str:
    """A page without its code, in which brackets are no links and # is no heading."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    letters = [c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN"]
    return "".join(letters).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def faults(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    links = [unquote(a or b) for a, b in LINK.findall(prose(text))]
    return [link for link in links if not OUTSIDE.match(link) and not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    place, _, anchor = link.partition("#")
    target = page.parent / place if place else page
    return target.exists() and (not anchor or anchor in anchors(target.resolve()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|scripts|benchmarks|docs|results)/[\w./-]+)`", page.read_text("utf-8"))
    assert not [name for name in named if not (ROOT / name).exists() and name != EXAMPLE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert not faults(page, page.read_text("utf-8"))


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/nothing.md)",
        "[a](docs/data.md#nothing)",
        "[a](#nothing)",
        '<img src="docs/nothing.svg">',
        "![](no.png)",
    ],
)
def test_a_dead_link_would_be_noticed(link: str) -> None:
    assert len(faults(ROOT / "README.md", f"Text {link} and [data](docs/data.md#your-own-folder).")) == 1


def joined(text: str) -> list[str]:
    """Lines that begin a list or a table right below a line of text, which some readers make part of that text."""
    lines = prose(text).splitlines()
    begins = re.compile(r"([-*] |\d+\. |\|)")
    return [
        b
        for a, b in pairwise(lines)
        if begins.match(b) and a.strip() and not begins.match(a) and not a.startswith("  ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    assert not joined(page.read_text("utf-8"))


def test_a_list_without_an_empty_line_would_be_noticed() -> None:
    assert joined("These:\n- one\n  more\n- two") == ["- one"]


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link, _ in LINK.findall(index.read_text("utf-8"))}
    assert not set(PAGES) - linked - {index}


def test_the_page_of_results_names_every_folder() -> None:
    page = ROOT / "results" / "README.md"
    named = set(re.findall(r"`([\w-]+)`", page.read_text("utf-8")))
    assert not {folder.name for folder in page.parent.iterdir() if folder.is_dir()} - named
