"""`fscil experiment gradcam`: Figure 5 from a run folder."""

import re
from pathlib import Path

import numpy as np
import pytest

from apart import always_tiny, tiny_benchmark, tiny_experiment  # noqa: F401 (fixture)
from commands import Fscil
from fscil.experiments import gradcam
from fscil.experiments.gradcam import examples
from fscil.running.experiment import execute


@pytest.fixture(autouse=True)
def tiny_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradcam.data, "benchmark", lambda name, root, protocol: tiny_benchmark(protocol))


def test_the_figure_of_a_run_folder_is_drawn(fscil_command: Fscil) -> None:
    pytest.importorskip("pytorch_grad_cam", reason="pip install 'fscil[explain]'")
    run = execute(tiny_experiment(Path("mine")))
    outcome = fscil_command("experiment", "gradcam", run, "--out", "figure5")
    assert outcome.code == 0, outcome.err
    assert outcome.out.split() == ["figure5/gradcam.html", "figure5/gradcam.svg", "figure5/gradcam.png"]
    page = Path("figure5/gradcam.html").read_text()
    assert page.count("<svg") == 1
    assert "kt_rcnet · " in page
    assert "(Figure 5 of the paper)" in page
    assert len(re.findall("<td>(?:hit|miss)</td></tr>", page)) == 8
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)  # it needs nothing but itself
    assert Path("figure5/gradcam.png").read_bytes()[:4] == b"\x89PNG"
    assert b"complementary relation" in Path("figure5/gradcam.svg").read_bytes()


def test_examples_are_hits_and_misses_of_four_old_and_four_new_classes() -> None:
    truth = np.repeat(np.arange(20), 5)
    predicted = np.where(np.arange(100) % 5 < 2, truth, (truth + 1) % 20)  # two hits and three misses of each class
    shown = examples({"truth": truth, "predicted": predicted}, {label: label // 10 for label in range(20)})
    assert [example.new for example in shown] == [False] * 4 + [True] * 4
    assert [example.truth == example.answer for example in shown] == [True, True, False, False] * 2
    assert len({example.truth for example in shown}) == 8
    right = examples({"truth": truth, "predicted": truth}, {label: label // 10 for label in range(20)})
    assert [example.truth == example.answer for example in right] == [True] * 8  # nothing was missed
    assert [example.new for example in right] == [False] * 4 + [True] * 4
    assert len({example.truth for example in right}) == 8
    one = np.where(truth == 1, 3, truth)  # an old class is never named right, all others always
    mixed = examples({"truth": truth, "predicted": one}, {label: label // 10 for label in range(20)})
    assert [example.truth == example.answer for example in mixed] == [True, True, True, False, *[True] * 4]
    wrong = examples({"truth": truth, "predicted": truth + 1}, {label: label // 10 for label in range(20)})
    assert [example.truth == example.answer for example in wrong] == [False] * 8


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([], "gradcam draws a finished run: give its run folder"),
        (["nowhere"], "nowhere is no run folder"),
    ],
)
def test_what_is_no_run_is_named(tokens: list[str], complaint: str, fscil_command: Fscil) -> None:
    assert complaint in fscil_command("experiment", "gradcam", *tokens).err


def test_a_run_without_two_relations_or_states_is_refused(fscil_command: Fscil) -> None:
    one = execute(tiny_experiment(Path("mine"), "cosine"))
    two = execute(tiny_experiment(Path("two"), "cosine", {"nets": 2}))
    for run in (one, two):
        outcome = fscil_command("experiment", "gradcam", run)
        assert "cosine has no complementary relation; take a run of kt_rcnet" in outcome.err
    quick = execute(tiny_experiment(Path("quick"), keeps_states=False))
    assert "keeps no state of session 3" in fscil_command("experiment", "gradcam", quick).err


def test_a_run_of_other_images_is_refused(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    run = execute(tiny_experiment(Path("mine")))
    monkeypatch.setattr("fscil.data.sessions.Benchmark.fingerprint", lambda _: "of other images")
    outcome = fscil_command("experiment", "gradcam", run, "--root", "elsewhere")
    assert outcome.code == 2
    assert "was measured on other images than elsewhere holds now: give the folder of those" in outcome.err
