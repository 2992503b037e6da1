"""The tables of an experiment: marks, and LaTeX that compiles."""

import shutil
import subprocess
from pathlib import Path

import pytest

from apart import always_tiny  # noqa: F401 (fixture)
from fscil.experiments import folder, schedule, specs
from fscil.experiments.cells import cells, only
from small_experiments import small, spread_out

DOCUMENT = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n\\tiny\n%s\n\\end{document}\n"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with a method that is in part a reconstruction."""
    out = tmp_path_factory.mktemp("compared")
    experiment = small(specs.load("compare"))
    readings = spread_out(experiment, out, seeds=2, dataset="glyphs", recipe="small")
    runs = cells(only(readings, ["arm=cosine,topic"]))
    assert [end.error for end in schedule.in_turn(runs, lambda run: lambda session: None)] == [""] * 4
    folder.write_results(experiment, readings, out)
    return out


def test_a_reconstruction_is_marked_in_every_table(compared: Path) -> None:
    page = (compared / "report.html").read_text()
    assert "topic † · small" in page
    assert "† in part a reconstruction" in page
    for name in ("table.md", "table.csv"):
        assert "topic † · small" in (compared / name).read_text()
    assert "topic$^\\dagger$ $\\cdot$ small" in (compared / "table.tex").read_text().replace(" $^", "$^")
    for name in ("differences.md", "differences.csv"):
        assert "topic †" in (compared / name).read_text()
        assert "cosine †" not in (compared / name).read_text()
    assert "† in part a reconstruction" in (compared / "differences.md").read_text()


def test_the_order_is_told_on_the_page_and_in_markdown(compared: Path) -> None:
    page, text = (compared / "report.html").read_text(), (compared / "differences.md").read_text()
    assert "Neighbours in the ranking" in page
    assert "## Neighbours in the ranking" in text
    assert text.count("| minus the next | pairs |") == 1
    for told in (page, text):
        assert "can be told apart" in told


def test_figures_of_the_page_take_its_colours_and_files_are_white(compared: Path) -> None:
    page, file = (compared / "report.html").read_text(), (compared / "figure.svg").read_text()
    figures = page.split('<div class="figure">')[1:]
    assert len(figures) == 2
    for figure in (text.split("</svg>")[0] for text in figures):
        assert "stroke: currentColor" in figure
        assert "#000000" not in figure
        assert 'style="fill: #ffffff' not in figure
    assert 'style="fill: #ffffff"' in file
    assert "stroke: #000000" in file


@pytest.mark.parametrize("name", ["table.tex", "differences.tex"])
def test_tables_are_latex(name: str, compared: Path, tmp_path: Path) -> None:
    text = (compared / name).read_text()
    assert "".join(line for line in text.splitlines() if not line.startswith("%")).isascii()
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("there is no pdflatex: apt-get install texlive-latex-recommended")
    (tmp_path / "page.tex").write_text(DOCUMENT % text)
    subprocess.run([program, "-interaction=nonstopmode", "-halt-on-error", "page.tex"], cwd=tmp_path, check=True)
