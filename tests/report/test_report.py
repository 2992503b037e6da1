"""Run folders become tables, one HTML page and results files; what is broken is named in one sentence."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fscil import methods, report, settings
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.report import published
from fscil.report.html import charts, confusions
from fscil.report.reconstructions import OF_METHOD, reconstruction
from fscil.report.rows import sections
from fscil.report.runs import TOTAL
from records import PER_CLASS, Outside, cells_of, make_run, printed, rows_of


def test_the_table_holds_the_metrics_of_the_predictions(tmp_path):
    make_run(tmp_path)
    row, b, _ = rows_of([tmp_path])
    # One of four images of every class but class 0 is called 0: 10 of 12, 13 of 16, 16 of 20 right.
    assert [row["0"], row["1"], row["2"]] == ["83.33", "81.25", "80.00"]
    assert row["Avg"] == "81.53"
    assert row["base"] == "83.33"
    assert row["new"] == "75.00"
    assert row["HM"] == "78.95"
    assert row["PD"] == "3.33"
    assert row["new as base"] == "25.00"
    assert row["forgetting"] == "0.00"
    assert row["gain"] == f"{(83.3333 + 81.25 + 80) / 3 - 83.3333 * (1 + 12 / 16 + 12 / 20) / 3:.2f}"
    assert row["PMAC"] == "0.60"
    assert row["minutes"] == "3.00"
    assert row["memory (GB)"] == "3.00"
    assert row["n"] == "1"
    assert row["parameters (M)"] == "1.23"
    assert row["keeps"] == "means"
    assert row["selection"] == "last epoch"
    assert b["branch"] == "B"
    assert b["Avg"] == "100.00"
    assert b["PMAC"] == ""


def test_seeds_of_one_configuration_are_one_row(tmp_path):
    for seed, wrong in enumerate((0, 1, 2)):
        make_run(tmp_path, seed=seed, wrong=wrong, branches=())
    (row,) = rows_of([tmp_path])
    assert (row["n"], row["1"]) == ("3", "81.25")
    assert float(row["1 std"]) == pytest.approx(18.75)
    assert "81.25 ± 18.75" in report.table([tmp_path], "md")


def test_other_settings_are_another_row_and_named(tmp_path):
    make_run(tmp_path / "a", branches=())
    make_run(tmp_path / "b", branches=(), seed=1, settings={"base": {"epochs": 9, "weights": "/home/somebody/w.pt"}})
    assert {row["method"] for row in rows_of([tmp_path])} == {
        "kt_rcnet · small (base.epochs 2)",
        "kt_rcnet · small (base.epochs 9)",
    }


def test_a_repeated_seed_counts_once(tmp_path):
    make_run(tmp_path / "a", branches=())
    make_run(tmp_path / "b", branches=())
    assert [row["n"] for row in rows_of([tmp_path])] == ["1"]
    assert len(report.load([tmp_path, tmp_path / "a"])) == 2


def test_diff_needs_a_joint_run(tmp_path):
    make_run(tmp_path, branches=())
    assert "Diff" not in rows_of([tmp_path])[0]
    make_run(tmp_path, method="joint", wrong=0, branches=())
    ours = next(row for row in rows_of([tmp_path]) if row["method"] == "kt_rcnet · small")
    assert ours["Diff"] == "-20.00"


def test_an_incomplete_run_shows_what_it_has(tmp_path):
    make_run(tmp_path, finished=3, branches=())
    make_run(tmp_path, seed=1, finished=2, branches=())
    make_run(tmp_path, seed=2, finished=0, branches=())
    complete, two, none = rows_of([tmp_path])
    assert complete["n"] == "1"
    assert two["method"] == "kt_rcnet · small (incomplete: seed 1, 2 of 3 sessions)"
    assert two["kind"] == "incomplete"
    assert (two["1"], two["2"], two["Avg"], two["PMAC"]) == ("81.25", "", "", "0.40")
    assert (none["0"], none["PMAC"]) == ("", "0.00")
    page = report.write_html([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2 of 3 sessions" in page
    assert "0 of 3 sessions" in page


def test_only_unfinished_runs_make_a_page(tmp_path):
    make_run(tmp_path, finished=0)
    page = report.write_html([tmp_path], tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "none finished yet" in page


def test_the_page_stands_alone(tmp_path):
    make_run(tmp_path)
    make_run(tmp_path, seed=1, wrong=2)
    make_run(tmp_path, method="cosine", branches=())
    page = report.write_html([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8")
    outside = Outside()
    outside.feed(page)
    assert not outside.open
    assert not outside.loads
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "data:image/png;base64," in page
    for expected in ("branch B alone", "base.epochs", "last epoch", "abc1234", "a<b", "Further metrics"):
        assert expected in outside.text


def test_the_page_is_the_same_for_the_same_runs(tmp_path):
    make_run(tmp_path / "runs")
    pages = [report.write_html([tmp_path / "runs"], tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_published_rows_stand_beside_runs_of_the_same_sessions(tmp_path):
    found = published.published("cub200")
    kt_rcnet = next(row for row in found.rows if row.method == "kt_rcnet")
    assert (kt_rcnet.avg, kt_rcnet.diff) == (67.82, 2.97)
    assert kt_rcnet.gain == pytest.approx(12.01, abs=0.005)
    assert kt_rcnet.performance_drop == pytest.approx(19.39)
    make_run(tmp_path, dataset="cub200")  # three sessions: not the paper's eleven
    assert "published" not in {row["kind"] for row in rows_of([tmp_path])}


@pytest.mark.parametrize(
    ("protocol", "shown"), [({}, True), ({"shots": 1}, False), ({"order_seed": 3}, False), ({"ways": 4}, False)]
)
def test_published_rows_need_the_published_protocol(tmp_path, protocol, shown):
    folder = make_run(tmp_path, dataset="cifar100", finished=2)
    facts = json.loads((folder / "run.json").read_text())
    facts["protocol"] |= protocol
    facts["sessions"] = 9
    (folder / "run.json").write_text(json.dumps(facts))
    (section,) = sections(report.load([folder]))
    assert (published.comparable(section) is not None) == shown
    assert ("KT-RCNet (published)" in report.table([folder], "md")) == shown


def test_published_averages_are_those_of_their_sessions():
    datasets = published.numbers()["datasets"]
    rows = [(name, row) for name, table in datasets.items() for row in table["rows"]]
    rows += [(name, row) for name, table in published.numbers()["studies"].items() for row in table["rows"]]
    assert len(rows) == 14 + 13 + 14 + 5 + 6
    wrong = [(name, row["name"]) for name, row in rows if abs(row["avg"] - np.mean(row["sessions"])) > 0.0051]
    assert wrong == [("cub200", "SPPR")]  # the paper's own slip, noted in the report


def test_markdown_and_latex(tmp_path):
    make_run(tmp_path)
    markdown = report.table([tmp_path], "md")
    assert cells_of(markdown, "kt_rcnet · small")[:4] == ["83.33", "81.25", "80.00", "81.53"]
    assert cells_of(markdown, "↳ branch C alone")[:4] == ["100.00"] * 4
    latex = report.table([tmp_path], "latex")
    assert latex.count("\\toprule") == latex.count("\\bottomrule") == 3
    assert "kt\\_rcnet $\\cdot$ small & 83.33 & 81.25 & 80.00 & 81.53" in latex
    columns = re.search(r"tabular}{l(r+)}", latex).group(1)
    assert len(columns) == re.search(r"Method.*", latex).group(0).count("&")


def test_an_unknown_table_format_is_refused_with_the_choices(tmp_path):
    make_run(tmp_path)
    with pytest.raises(FscilError, match="'pdf': choose one of md, csv, latex"):
        report.table([tmp_path], "pdf")


def test_results_files_give_the_same_tables(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "runs", seed=seed, wrong=seed)
    make_run(tmp_path / "runs", method="joint", finished=2, branches=())
    files = report.write_results([tmp_path / "runs"], tmp_path / "results")
    assert [str(file.relative_to(tmp_path / "results")) for file in files] == [
        "glyphs/joint-small-seed0.json",
        "glyphs/kt_rcnet-small-seed0.json",
        "glyphs/kt_rcnet-small-seed1.json",
    ]
    for style in ("md", "csv", "latex"):
        assert report.table([tmp_path / "results"], style) == report.table([tmp_path / "runs"], style)
    assert report.table([tmp_path], "csv") == report.table([tmp_path / "runs"], "csv")  # the same seeds, not new ones
    page = report.write_html(files, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "data:image/png" not in page
    assert "83.33" in page


def test_a_summary_holds_what_is_committed_and_no_paths(tmp_path):
    summary = report.summarise(make_run(tmp_path))
    facts = {"command", "method", "dataset", "recipe", "seed", "git", "versions", "machine", "precision", "settings"}
    assert facts | {"avg", "macs", "seconds", "peak_memory_bytes", "test_images"} <= set(summary)
    assert summary["metrics"][TOTAL]["accuracy"] == [83.3333, 81.25, 80.0]
    assert summary["metrics"]["B"]["new"] == [None, 100.0, 100.0]
    assert summary["test_images"] == 20
    assert summary["command"] == "fscil run kt_rcnet glyphs --root data"
    assert "/home" not in json.dumps(summary)


@pytest.mark.parametrize(
    ("place", "name"),
    [("/home/me/my photos/birds", "birds"), ("/home/me/my photos/", "my photos"), ("/home/o'neil/x y", "x y")],
)
def test_paths_with_blanks_are_cut_too(tmp_path, place, name):
    def command(path: str) -> str:
        return shlex.join(["fscil", "run", "cosine", "folder", "--root", path, f"--out={path}", "--split", "a b.csv"])

    told = {"command": command(place), "settings": {"weights": place}}
    summary = report.summarise(make_run(tmp_path, told=told))
    assert summary["settings"]["weights"] == name
    assert shlex.split(summary["command"]) == shlex.split(command(name))


def test_results_are_made_from_run_folders(tmp_path):
    files = report.write_results([make_run(tmp_path / "runs", finished=1) / "run.json"], tmp_path / "results")
    with pytest.raises(FscilError, match="no run folder among the paths given"):
        report.write_results(files, tmp_path / "again")


def test_two_runs_are_not_written_to_one_results_file(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", wrong=0)
    with pytest.raises(FscilError, match="two runs would be written to"):
        report.write_results([tmp_path / "a", tmp_path / "b"], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def other_format(folder: Path) -> None:
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | {"format": 7}))


def unseen_label(folder: Path) -> None:
    labels = np.full(PER_CLASS * 3, 4, dtype=np.int32)  # class 4 comes in session 2
    save_file({"truth": labels, "predicted": labels}, folder / "predictions-00.safetensors")


def unequal_lengths(folder: Path) -> None:
    save_file(
        {"truth": np.zeros(3, np.int32), "predicted": np.zeros(2, np.int32)}, folder / "predictions-00.safetensors"
    )


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: cut(folder / "run.json"), "run.json cannot be read"),
        (lambda folder: (folder / "run.json").write_text('{"name": "x"}'), "run.json was not written by fscil"),
        (lambda folder: (folder / "run.json").write_text("[]"), "run.json was not written by fscil"),
        (other_format, "has format 7, this version reads 1"),
        (lambda folder: cut(folder / "session-01.json"), "session-01.json cannot be read"),
        (lambda folder: cut(folder / "predictions-01.safetensors"), "predictions-01.safetensors cannot be read"),
        (lambda folder: (folder / "predictions-01.safetensors").unlink(), "predictions-01.safetensors is missing"),
        (unseen_label, "holds label 4, of no session up to 0"),
        (unequal_lengths, "'sum' has shape"),
    ],
)
def test_a_broken_folder_is_named(tmp_path, damage, sentence):
    folder = make_run(tmp_path)
    damage(folder)
    with pytest.raises(FscilError, match=re.escape(sentence)) as error:
        report.load([tmp_path])
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_run_json_stands_for_its_folder(tmp_path):
    folder = make_run(tmp_path)
    (run,) = report.load([folder / "run.json", folder])
    assert run.source == folder


def test_foreign_paths_are_named(tmp_path):
    for path, sentence in [(tmp_path / "none", "there is nothing at"), (tmp_path, "holds no run")]:
        with pytest.raises(FscilError, match=sentence):
            report.load([path])
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(FscilError, match="holds no run"):
        report.load([tmp_path])
    with pytest.raises(FscilError, match="was not written by fscil"):
        report.load([tmp_path / "other.json"])
    with pytest.raises(FscilError, match="nothing to report"):
        report.load([])


def test_a_broken_results_file_is_named(tmp_path):
    (file,) = report.write_results([make_run(tmp_path)], tmp_path / "results")
    content = json.loads(file.read_text())
    content["metrics"][TOTAL]["base"].pop()
    file.write_text(json.dumps(content))
    with pytest.raises(FscilError, match="is broken: its metrics"):
        report.load([file])


def test_a_report_that_cannot_be_written_is_named(tmp_path):
    folder = make_run(tmp_path)
    with pytest.raises(FscilError, match="could not be written"):
        report.write_html([folder], folder / "run.json" / "report.html")


WRITERS = {
    "html": lambda folder, out: report.write_html([folder], out / "report.html"),
    "md": lambda folder, out: report.write_table([folder], "md", out / "report.md"),
    "results": lambda folder, out: report.write_results([folder], out)[0],
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_costs_no_earlier_report(tmp_path, monkeypatch, kind):
    folder = make_run(tmp_path / "runs")
    file = WRITERS[kind](folder, tmp_path / "new" / "place")
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("fscil.files.os.fsync", full)
    with pytest.raises(FscilError, match="the disk is full"):
        WRITERS[kind](folder, tmp_path / "new" / "place")
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_table_is_written_into_a_pipe(tmp_path):
    folder, pipe = make_run(tmp_path / "runs"), tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    report.write_table([folder], "csv", pipe)
    assert os.read(reader, 1 << 20).decode() == report.table([folder], "csv")
    assert pipe.is_fifo()


def test_a_table_is_written_to_the_standard_output_of_a_pipe(tmp_path):
    code = "import sys; from fscil import report; report.write_table(sys.argv[1:], 'csv', '/dev/stdout')"
    done = subprocess.run([sys.executable, "-c", code, make_run(tmp_path)], capture_output=True, text=True)
    assert done.stdout == report.table([tmp_path], "csv"), done.stderr


def test_the_terminal_table_fits(tmp_path):
    make_run(tmp_path)
    runs = report.load([tmp_path])
    wide, narrow, small = (printed(report.terminal_table(runs, width), width) for width in (160, 80, 60))
    assert "81.25" in wide
    assert "81.25" not in narrow  # session 1 is left out where there is no room
    assert "PMAC" in narrow
    assert "PMAC" not in small
    for text in (wide, narrow, small):
        assert "83.33" in text
        assert "80.00" in text
        assert "81.53" in text
        assert "branch B alone" in text
        assert "…" not in text


TOLD = {"encoder_needs": "several stages", "reconstruction": "losses and neural gas"}


def test_what_a_method_needs_and_what_is_reconstructed_stand_in_the_tables(tmp_path):
    make_run(tmp_path / "runs", method="topic", branches=(), told=TOLD)
    make_run(tmp_path / "runs", method="cosine", branches=(), told={"encoder_needs": "nothing", "reconstruction": ""})
    make_run(tmp_path / "runs", method="older", branches=())
    files = report.write_results([tmp_path / "runs"], tmp_path / "results")
    for source in ([tmp_path / "runs"], files):
        found = {row["method"].split()[0]: (row["encoder needs"], row["reconstructed"]) for row in rows_of(source)}
        assert found == {"topic": tuple(TOLD.values()), "cosine": ("nothing", ""), "older": ("", "")}
    page = report.write_html(files, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "losses and neural gas" in page


def test_what_is_known_of_earlier_runs_is_what_the_methods_say():
    names = methods.names()
    assert {name: methods.load(name).Method.reconstruction for name in names} == dict.fromkeys(names, "") | OF_METHOD


@pytest.mark.parametrize(
    ("method", "changes"),
    [("kt_rcnet", {"pseudo_sessions": 5}), ("icarl", {"reduction.on": True}), ("topic", {}), ("kt_rcnet", {})],
)
def test_a_run_that_does_not_tell_is_marked_as_its_method_would_be(method, changes):
    config = settings.resolve(methods.load(method).Config, method, "glyphs", "small", changes)
    own = methods.load(method).Method(config, encoders.build(config.encoder, config.pixels)).reconstruction
    told = {"method": method, "settings": settings.to_dict(config)}
    assert reconstruction(told) == reconstruction({**told, "reconstruction": ""}) == own
    assert bool(own) == bool(changes or method == "topic")


def test_the_table_of_earlier_results_marks_reconstructions(tmp_path):
    make_run(tmp_path, method="topic", branches=())
    assert "topic † · small" in report.table([tmp_path], "md")
    assert rows_of([tmp_path])[0]["reconstructed"] == OF_METHOD["topic"]


def test_runs_that_tell_nothing_of_needs_have_no_column_for_them(tmp_path):
    make_run(tmp_path)
    assert not {"encoder needs", "reconstructed"} & set(rows_of([tmp_path])[0])


def test_below_the_table_each_method_tells_with_what_its_numbers_were_made(tmp_path):
    for seed in range(2):
        make_run(tmp_path, seed=seed)
    make_run(tmp_path, method="topic", wrong=2, branches=(), told=TOLD)
    needs, ours = TOLD.values()
    common = "encoder fast; pixels 32; parameters (M) 1.23; keeps means; "
    assert report.method_lines(report.load([tmp_path])) == [
        f"kt_rcnet · small: {common}selection last epoch",
        f"topic † · small: {common}encoder needs {needs}; selection last epoch; reconstructed {ours}",
    ]


def test_sessions_and_runs_are_told_in_sentences(tmp_path):
    (run,) = report.load([make_run(tmp_path)])
    assert report.session_line(0, ["a", "b", "c"], run) == (
        "Session 0: learned 3 classes (a, b, c); 83.33 % of the 12 test images of all 3 classes are named right."
    )
    line = report.session_line(2, ["e"], run)
    assert "learned 1 class (e)" in line
    assert line.endswith("(base 83.33, new 75.00, harmonic mean 78.95).")
    assert "81.53 % on average, 80.00 % after the last session" in report.run_line(run)
    tuned = replace(run, facts={**run.facts, "protocol": {"tune": True}})
    assert "of the 12 held-out training images of all 3 classes" in report.session_line(0, ["a", "b", "c"], tuned)


def test_confusions_by_session_and_by_name(tmp_path):
    make_run(tmp_path)
    make_run(tmp_path, seed=1, wrong=3)
    ((row,),) = (section.rows for section in sections(report.load([tmp_path])))
    confusion = confusions.row_confusion(row)
    assert confusion.counts.sum() == 2 * 20
    assert confusion.sessions == (0, 0, 0, 1, 2)
    # Classes 3 and 4: four of eight images are called class 0.
    np.testing.assert_allclose(confusions.by_session(confusion), [[100, 0, 0], [50, 50, 0], [50, 0, 50]])
    assert confusions.worst_pairs(confusion, 2) == [("b", "a<b", 50.0), ("c", "a<b", 50.0)]


def test_labels_of_a_chart_move_apart_and_no_farther_than_needed():
    assert charts.spread_out([0, 50, 100], 10) == [0, 50, 100]
    assert charts.spread_out([50, 50, 52], 10) == pytest.approx([122 / 3, 152 / 3, 182 / 3])


def test_reading_runs_imports_no_torch():
    code = "import sys, fscil.report; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_axis_goes_beyond_all_images(tmp_path):
    report.write_html([make_run(tmp_path, wrong=0)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ">100</text>" in page
    assert ">105</text>" not in page
    assert ">110</text>" not in page
