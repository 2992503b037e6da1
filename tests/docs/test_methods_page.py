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
        assert words["verdict"] in (*methods_page.VERDICTS, methods_page.BY_ORDER)


def test_the_published_order_is_that_of_the_published_averages() -> None:
    """`cosine` has no published row on these sessions; the papers of the others tell where they stand beside it."""
    verdicts = methods_page.verdicts()
    curves = {name: methods_page.published_curve(name, words) for name, words in verdicts.items()}
    averages = {name: sum(curve) / len(curve) for name, curve in curves.items() if curve}
    for name, words in verdicts.items():
        assert (words["verdict"] == methods_page.BY_ORDER) == bool(methods_page.relations(words)), name
        assert all(averages[name] > averages[other] for other in words.get("above", ()) if other in averages), name
        assert all(averages[name] < averages[other] for other in words.get("below", ()) if other in averages), name
        assert {*words.get("above", ()), *words.get("below", ())} <= set(verdicts)


RUNS = {  # two seeds each, one point apart or as good as the other
    "low": (50.0, 51.0),
    "high": (52.0, 53.1),
    "same": (50.0, 51.1),
}


def order_of(**rows: str) -> methods_page.Order:
    def run(seed: int, average: float) -> dict[str, object]:
        sums = {"accuracy": [average], "base": [60.0], "new": [average / 10], "harmonic": [average], "gain": -1.0}
        return {"seed": seed, "metrics": {"sum": sums, "B": sums}, "learning": [{"stages": [{"seconds": average}]}]}

    named = {"cosine": "low", **rows}
    found = {
        f"`{name}`": {seed: run(seed, value) for seed, value in enumerate(RUNS[kind])} for name, kind in named.items()
    }
    return found | {"cosine, two nets": {}, "class means on the linear base": {}}


@pytest.mark.parametrize(
    ("own", "words", "told"),
    [
        ("high", {"above": ["cosine"]}, "reproduced"),
        ("same", {"above": ["cosine"]}, "open"),
        ("high", {"below": ["cosine"]}, "not"),
        ("high", {"above": ["cosine", "other"]}, "partly"),
        ("high", {"above": ["cosine"], "below": ["other"]}, "partly"),
    ],
)
def test_a_verdict_on_an_order_is_that_of_the_intervals(own: str, words: dict[str, list[str]], told: str) -> None:
    assert methods_page.order_verdict("it", words, order_of(it=own, other="high")) == told


def test_orders_and_numbers_are_told_as_measured() -> None:
    order = order_of(it="high")
    words = {"above": ["cosine"]}
    assert methods_page.order_sentences("it", words, order) == [
        "Published above `cosine`.",
        "Minus `cosine`: +2.05 (+1.41 to +2.69, n = 2), above.",
    ]
    assert methods_page.filled("It has {it.new} and {it.gain}, {nobody.new}.", order) == "It has 5.3 and −1.0, –."


def test_frozen_methods_train_nothing() -> None:
    for name, words in methods_page.verdicts().items():
        frozen = issubclass(methods.load(name).Method, Prototypical) and name != "c_fscil"  # its mode 1 alone
        assert (words["trains"] == "nothing") == frozen, name


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
def test_a_results_file_fills_its_row_and_its_paragraph() -> None:
    row = methods_page.measured(RESULTS / "cifar100")["kt_rcnet"]
    average = methods_page.average_text(row)
    assert "±" in average
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
