"""The maintainers' checks notice what they are for: dead links, outside resources, incomplete packages."""

import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

import check_dist
import check_site
import list_folders


def site(folder: Path, body: str, style: str = "") -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "index.html").write_text(f"<html><body>{body}</body></html>", "utf-8")
    (folder / "data" / "index.html").write_text('<h2 id="folder">Folder</h2><a href="..">up</a>', "utf-8")
    (folder / "page.css").write_text(style, "utf-8")
    return folder


FINE = '<a href="data/#folder">a</a> <a href="https://arxiv.org/abs/1">b</a> <link rel="stylesheet" href="page.css">'


def test_a_good_site_passes(tmp_path: Path) -> None:
    picture = '<svg><use href="#here"></use></svg><p id="here"></p><a href="mailto:a@b.c">c</a><img src="data:,">'
    assert not list(check_site.problems(site(tmp_path / "site", FINE + picture)))


@pytest.mark.parametrize(
    ("body", "style", "sentence"),
    [
        ('<a href="nothing/">a</a>', "", "index.html: links to nothing/, which is not part of the site"),
        ('<a href="data/#nothing">a</a>', "", "index.html: links to data/#nothing, but that page has no such heading"),
        ('<img src="nothing.svg">', "", "index.html: links to nothing.svg, which is not part of the site"),
        ('<source srcset="page.css 1x, no.svg 2x">', "", "index.html: links to no.svg, which is not part of the site"),
        ('<script src="https://cdn.example/x.js"></script>', "", "index.html: loads https://cdn.example/x.js from"),
        ('<link rel="stylesheet" href="//fonts.example/x">', "", "index.html: loads //fonts.example/x from"),
        ("", "@import 'https://fonts.example/x';", "page.css: loads https://fonts.example/x from another server"),
        ("", "a { background: url(//cdn.example/x.png) }", "page.css: loads //cdn.example/x.png from another server"),
    ],
)
def test_faults_of_a_site_are_named(tmp_path: Path, body: str, style: str, sentence: str) -> None:
    (problem,) = check_site.problems(site(tmp_path / "site", FINE + body, style))
    assert problem.startswith(sentence)


def test_a_site_that_was_not_built_is_named(tmp_path: Path) -> None:
    assert "build the site first" in "".join(check_site.problems(tmp_path))


def test_folders_without_a_page_get_a_list(tmp_path: Path) -> None:
    root = site(tmp_path / "site", '<a href="results/odd">files</a> <a href="results">all</a>')
    (root / "results" / "odd").mkdir(parents=True)
    (root / "results" / "odd" / "a & b #1.json").touch()
    (root / "results" / "index.html").write_text("mine", "utf-8")
    list_folders.write_lists(root / "results", "results")
    assert not list(check_site.problems(root))
    assert "a &amp; b #1.json</a>" in (root / "results" / "odd" / "index.html").read_text("utf-8")
    assert (root / "results" / "index.html").read_text("utf-8") == "mine"


FILES = (
    "src/fscil/__init__.py",
    "src/fscil/py.typed",
    "src/fscil/recipes/shared.toml",
    "src/fscil/report/published.json",
    "src/fscil/data/digests.json",
    "tests/test_x.py",
    "docs/x.md",
    "results/x.json",
    "benchmarks/x.py",
    "scripts/x.py",
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile", "pyproject.toml"),
)
PACKAGE = [name.removeprefix("src/") for name in FILES if name.startswith("src/")]


def project(folder: Path, wheel: Iterable[str], source: Iterable[str]) -> Path:
    """A project with all files on disk, and what was built from it."""
    for name in (*FILES, "src/fscil/__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "dist").mkdir()
    with zipfile.ZipFile(folder / "dist" / "x.whl", "w") as archive:
        for name in (*wheel, "x.dist-info/METADATA"):
            archive.writestr(name, "")
    with tarfile.open(folder / "dist" / "x.tar.gz", "w:gz") as archive:
        for name in source:
            archive.addfile(tarfile.TarInfo(f"fscil-1/{name}"), io.BytesIO())
    return folder


def test_complete_packages_pass(tmp_path: Path) -> None:
    root = project(tmp_path, PACKAGE, FILES)
    assert not check_dist.problems(root / "dist", root)


@pytest.mark.parametrize("name", PACKAGE)
def test_what_the_wheel_lacks_is_named(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, set(PACKAGE) - {name}, FILES)
    assert check_dist.problems(root / "dist", root)[0] == f"the wheel lacks {name}"


@pytest.mark.parametrize("name", FILES)
def test_what_the_source_archive_lacks_is_named(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, PACKAGE, set(FILES) - {name})
    assert check_dist.problems(root / "dist", root) == [f"the source archive lacks {name}"]


def test_a_wheel_with_something_beside_the_package_is_named(tmp_path: Path) -> None:
    root = project(tmp_path, [*PACKAGE, "tests/test_x.py"], FILES)
    assert check_dist.problems(root / "dist", root) == ["the wheel would install tests beside the package"]


def test_old_packages_are_named(tmp_path: Path) -> None:
    root = project(tmp_path, PACKAGE, FILES)
    (root / "dist" / "older.whl").touch()
    assert "2 wheels" in check_dist.problems(root / "dist", root)[0]
