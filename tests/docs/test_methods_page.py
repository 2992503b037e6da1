"""docs/methods.md is what the code says about the methods, and needs no data to be written."""

from pathlib import Path

import pytest

import methods_page
from fscil import methods
from fscil.methods.shared.method import Prototypical

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results"
WORDS = {"title": "T", "paper": "P", "trains": "nothing", "verdict": "partly", "why": "Why."}


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
def test_the_committed_page_is_the_generated_one() -> None:
    written = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert written == methods_page.page(RESULTS / "compare"), "python scripts/methods_page.py"


def test_sixteen_methods_are_told_about_in_full() -> None:
    verdicts = methods_page.verdicts()
    assert len(verdicts) == 16
    assert set(verdicts) <= set(methods.names())  # a method that is added need not be on the page
    for words in verdicts.values():
        assert words["title"]
        assert words["paper"]
        assert words["trains"]
        assert words["why"].endswith(".")
        assert words["verdict"] in methods_page.VERDICTS


def test_frozen_methods_train_nothing() -> None:
    for name, words in methods_page.verdicts().items():
        frozen = issubclass(methods.load(name).Method, Prototypical) and name != "c_fscil"  # its mode 1 alone
        assert (words["trains"] == "nothing") == frozen, name


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
def test_a_results_file_fills_its_row_and_its_paragraph() -> None:
    row = methods_page.measured(RESULTS / "cifar100")["kt_rcnet"]
    average = f"{methods_page.average(row):.2f}"
    cells = methods_page.line("kt_rcnet", WORDS, row)
    assert cells == ("`kt_rcnet`", "P", "class prototypes", average, "69.24", "partly reproduced")
    heading, _, facts, _, verdict = methods_page.paragraph("kt_rcnet", WORDS, row).splitlines()
    assert heading == "## T (`kt_rcnet`)"
    assert "Published: 83.40 → 58.53 from the first to the last session, Avg 69.24." in facts
    assert f"Avg {average};" in facts
    assert verdict == "Verdict: **partly reproduced**. Why."


def test_a_paragraph_names_what_the_encoder_needs_and_what_is_reconstructed() -> None:
    text = methods_page.paragraph("topic", WORDS, None)
    assert "Needs an encoder with several stages." in text
    assert "A reconstruction: " in text
    assert "encoder" not in methods_page.paragraph("cosine", WORDS, None)


def test_without_results_nothing_is_measured(tmp_path: Path) -> None:
    assert methods_page.measured(tmp_path / "nowhere") == {}
    cells = methods_page.line("cosine", WORDS, None)
    assert cells == ("`cosine`", "P", "class prototypes", "–", "none", "not measured")
    assert "Measured: not yet." in methods_page.paragraph("cosine", WORDS, None)
