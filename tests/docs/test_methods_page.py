"""docs/methods.md is what the code says about the methods, and needs no data to be written."""

from pathlib import Path

import pytest

import methods_page
from fscil import methods
from fscil.methods.shared.method import Prototypical

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results"


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
def test_the_committed_page_is_the_generated_one() -> None:
    written = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert written == methods_page.page(RESULTS / "compare"), "python scripts/methods_page.py"


def test_sixteen_methods_are_told_about_in_full() -> None:
    told = methods_page.verdicts()
    assert len(told) == 16
    assert set(told) <= set(methods.names())  # a method that is added need not be on the page
    for words in told.values():
        assert words["title"]
        assert words["trains"]
        assert words["why"].endswith(".")
        assert words["verdict"] in ("", "reproduced", "partly", "not")


def test_frozen_methods_train_nothing() -> None:
    for name, words in methods_page.verdicts().items():
        frozen = issubclass(methods.load(name).Method, Prototypical) and name != "c_fscil"  # its mode 1 alone
        assert (words["trains"] == "nothing") == frozen, name


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
def test_a_results_file_fills_its_row() -> None:
    row = methods_page.measured(RESULTS / "cifar100")["kt_rcnet"]
    cells = methods_page.line("kt_rcnet", {"title": "T", "trains": "nothing", "verdict": "partly", "why": "Why."}, row)
    average = row.over_seeds(lambda curve: curve.average).mean
    assert cells[4] == "83.40 → 58.53, Avg 69.24"
    assert f"Avg {average:.2f}" in cells[5]
    assert cells[6] == "**partly**. Why."


def test_without_results_nothing_is_measured(tmp_path: Path) -> None:
    assert methods_page.measured(tmp_path / "nowhere") == {}
    cells = methods_page.line("cosine", methods_page.verdicts()["cosine"], None)
    assert cells[1:6] == ("class prototypes", "nothing", "nothing", "none", "–")
    assert cells[6].startswith("**not measured**. ")
