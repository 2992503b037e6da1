"""What stands in one table was made alike, or the report says in what it was not."""

import json
import re
from pathlib import Path

import pytest

from fscil import methods, report
from fscil.errors import FscilError
from fscil.report.earlier import NOT_ADDED, value_of_before
from fscil.report.html.page import page
from fscil.report.rows import sections
from fscil.running.experiment import RunSpec, build, describe
from fscil.running.runfolder import RunFolder
from fscil.settings.fields import dotted, flatten
from records import make_run, printed, rows_of

ROOT = Path(__file__).parents[2]
OTHER = {"protocol": {"shots": 50, "shots_seed": 3, "order_seed": 7}, "benchmark_fingerprint": "other"}
TUNED = {"protocol": {"shots": 5, "shots_seed": 1, "order_seed": None, "tune": True}}
FORMATS = ("md", "csv", "latex")


def html(*paths: Path) -> str:
    return page(report.load(paths))


def introduction(*paths: Path) -> str:
    return re.search(r'</h2>\n<p class="soft">(.*?)</p>', html(*paths))[1]


def terminal(*paths: Path) -> str:
    return " ".join(printed(report.terminal_table(report.load(paths), 200), 200).split())


# ---- protocols -------------------------------------------------------------------------------------------------------


def test_another_protocol_is_named_also_where_the_methods_differ(tmp_path):
    make_run(tmp_path / "a", method="kt_rcnet", branches=())
    make_run(tmp_path / "b", method="cosine", branches=(), told=OTHER)
    assert {row["method"] for row in rows_of([tmp_path])} == {
        "kt_rcnet · small (protocol.shots 5, protocol.shots_seed 1, protocol.order_seed None)",
        "cosine · small (protocol.shots 50, protocol.shots_seed 3, protocol.order_seed 7)",
    }
    remark = "Not all rows have the same protocol and images"
    assert remark in report.table([tmp_path], "md")
    assert remark in report.table([tmp_path], "latex")
    assert remark in html(tmp_path)
    assert remark in terminal(tmp_path)


def test_seeds_of_before_and_after_a_new_entry_of_the_protocol_are_one_row(tmp_path):
    before = {"shots": 5, "shots_seed": 1, "order_seed": None}
    make_run(tmp_path, branches=(), seed=0, told={"protocol": before})
    make_run(tmp_path, branches=(), seed=1, told={"protocol": {**before, "later_order_seed": None}})
    assert [row["n"] for row in rows_of([tmp_path])] == ["2"]
    make_run(tmp_path, branches=(), seed=2, told={"protocol": {**before, "later_order_seed": 4}})
    assert sorted(row["n"] for row in rows_of([tmp_path])) == ["1", "2"]


def test_seeds_of_before_and_after_a_new_setting_are_one_row(tmp_path):
    before = {"base": {"epochs": 2}}
    make_run(tmp_path, branches=(), seed=0, settings=before)
    make_run(tmp_path, branches=(), seed=1, settings={"base": {"epochs": 2, "average": 0.0}, "winograd": False})
    assert [row["n"] for row in rows_of([tmp_path])] == ["2"]
    make_run(tmp_path, branches=(), seed=2, settings={**before, "winograd": True})
    found = {row["method"]: row["n"] for row in rows_of([tmp_path])}
    assert found == {"kt_rcnet · small": "2", "kt_rcnet · small (winograd True)": "1"}


@pytest.mark.parametrize("place", ["runs/f1/seed{}", "/home/somebody/seed{}", "runs/seed{}/net.safetensors"])
def test_seeds_with_weights_of_their_own_are_one_row(tmp_path, place):
    for seed in (0, 1, 10):
        weights = place.format(seed)
        make_run(
            tmp_path, branches=(), seed=seed, settings={"weights": weights}, told={"changed": {"weights": weights}}
        )
    (row,) = rows_of([tmp_path])
    assert row["n"] == "3"
    assert "{seed}" in row["method"]


def test_added_settings_stand_at_their_defaults():
    """Otherwise runs of before would be averaged with runs of something else."""
    for name in methods.names():
        for setting, leaf in flatten(methods.load(name).Config()).items():
            added = value_of_before(name, setting)
            assert added is NOT_ADDED or leaf.value == added, (name, setting)


def test_what_stored_runs_lack_was_added():
    files = [file for file in (ROOT / "results").rglob("*.json") if '"fscil results"' in file.read_text("utf-8")[:40]]
    known = {name: set(flatten(methods.load(name).Config())) for name in methods.names()}
    for file in files:
        facts = json.loads(file.read_text("utf-8"))
        lacking = known[facts["method"]] - set(dotted(facts["settings"]))
        assert {name for name in lacking if value_of_before(facts["method"], name) is NOT_ADDED} == set(), file


def test_settings_are_compared_within_a_method_alone(tmp_path):
    make_run(tmp_path, method="kt_rcnet", branches=(), settings={"a": 1})
    make_run(tmp_path, method="cosine", branches=(), settings={"b": 2})
    assert {row["method"] for row in rows_of([tmp_path])} == {"kt_rcnet · small", "cosine · small"}


def test_protocols_are_named_however_many_settings_differ(tmp_path):
    make_run(tmp_path / "a", branches=(), settings=dict.fromkeys("abcd", 1))
    make_run(tmp_path / "b", branches=(), settings=dict.fromkeys("abcd", 2), told={"protocol": {"shots": 1}})
    assert "kt_rcnet · small (protocol.shots 1, a 2, b 2, c 2, …)" in {row["method"] for row in rows_of([tmp_path])}


def test_other_images_under_the_same_protocol_are_named(tmp_path):
    make_run(tmp_path, branches=())
    make_run(tmp_path, method="cosine", branches=(), told={"benchmark_fingerprint": "0123456789"})
    names = {row["method"] for row in rows_of([tmp_path])}
    assert names == {"kt_rcnet · small (images f00)", "cosine · small (images 01234567)"}


def test_the_introduction_tells_what_all_rows_agree_in(tmp_path):
    make_run(tmp_path / "a")
    told = "3 sessions: 3 base classes, then 1 new classes per session from 5 images each; tested on 20 test images"
    assert introduction(tmp_path).startswith(told)
    make_run(tmp_path / "b", method="cosine", told=OTHER)
    assert "3 base classes, then 1 new classes per session; tested on 20 test images" in introduction(tmp_path)
    make_run(tmp_path / "c", method="ncm", told=OTHER, first_seen={0: 0, 1: 0, 2: 1, 3: 1, 4: 2})
    assert "3 sessions: base classes, then new classes per session; tested on 20" in introduction(tmp_path)


# ---- folders ---------------------------------------------------------------------------------------------------------


def photos(root: Path, name: str, fingerprint: str, **told) -> Path:
    facts = {"benchmark_fingerprint": fingerprint, **({"root": name} if name else {}), **told}
    return make_run(root, dataset="folder", branches=(), told=facts)


def titles(*paths: Path) -> list[str]:
    found = {row["dataset"] for row in rows_of(paths)}
    headings = set(re.findall("^## (.*)$", report.table(paths, "md"), re.MULTILINE))
    assert headings == found == set(re.findall("<h2>(.*?)</h2>", html(*paths)))
    return sorted(found)


def test_each_folder_of_photos_has_a_table_of_its_own(tmp_path):
    photos(tmp_path / "a", "birds", "b1")
    photos(tmp_path / "b", "fish", "f1")
    assert titles(tmp_path) == ["folder birds", "folder fish"]
    report.write_results([tmp_path / "a"], tmp_path / "results")
    assert titles(tmp_path / "results") == ["folder birds"]


def test_runs_that_do_not_tell_their_folder_are_told_apart_by_its_images(tmp_path):
    photos(tmp_path / "a", "", "0123456789")
    assert titles(tmp_path) == ["folder"]
    photos(tmp_path / "b", "", "abcdef0123")
    assert titles(tmp_path) == ["folder (images 01234567)", "folder (images abcdef01)"]


def test_one_folder_under_two_protocols_is_two_tables_that_say_so(tmp_path):
    photos(tmp_path / "a", "birds", "b5")
    photos(tmp_path / "b", "birds", "b1", protocol={"shots": 1, "shots_seed": 1, "order_seed": None})
    assert titles(tmp_path) == ["folder birds (protocol.shots 1)", "folder birds (protocol.shots 5)"]


def test_a_folder_that_was_moved_is_the_same_data_set(tmp_path):
    photos(tmp_path / "a", "birds", "b1")
    make_run(tmp_path / "b", dataset="folder", seed=1, branches=(), told={"benchmark_fingerprint": "b1", "root": "x"})
    assert [(row["dataset"], row["n"]) for row in rows_of([tmp_path])] == [("folder birds", "2")]


@pytest.mark.parametrize("below", ["secret/birds", "secret/birds/robin/.."])
def test_a_run_tells_the_name_of_its_folder_and_nothing_else_of_its_place(tmp_path, tiny, below):
    from fscil import methods, settings

    (tmp_path / "secret" / "birds" / "robin").mkdir(parents=True)
    config = settings.resolve(methods.load("cosine").Config, "cosine", "folder", "paper", {"encoder": "resnet20"})
    e = RunSpec(method="cosine", dataset="folder", recipe="paper", config=config, root=tmp_path / below)
    told = describe(e, build(e, "float32", "cpu"), tiny, {"used": "float32"})
    assert told["root"] == "birds"
    assert "secret" not in json.dumps(told)


def test_a_run_goes_on_where_its_photos_have_moved(tmp_path):
    for name in ("birds", "moved"):
        folder = RunFolder(tmp_path)
        folder.open({"format": 1, "dataset": "folder", "benchmark_fingerprint": "b1", "root": name})
        folder.close()
        (tmp_path / "stage-00-base.safetensors").touch()
    assert "continued_with" not in json.loads((tmp_path / "run.json").read_text())


# ---- pseudo-sessions -------------------------------------------------------------------------------------------------


def test_pseudo_sessions_are_never_taken_for_the_benchmark(tmp_path):
    folder = make_run(tmp_path, dataset="cifar100", branches=(), told={**TUNED, "sessions": 9})
    for source in ([folder], report.write_results([folder], tmp_path / "results")):
        name = "CIFAR-100, pseudo-sessions of the base classes"
        assert titles(*source) == [name]
        for text in (*(report.table(source, style) for style in FORMATS), html(*source), terminal(*source)):
            assert name in re.sub(r"\s+", " ", text)
            assert "(published)" not in text
            assert "arXiv" not in text
        assert "tested on 20 held-out training images" in html(*source)
        assert "percent of held-out training images" in html(*source)
        assert not re.search(r"\btest images", html(*source))
        (run,) = report.load(source)
        assert "on cifar100, pseudo-sessions of the base classes" in report.run_line(run)


def test_pseudo_sessions_and_the_benchmark_stand_in_two_tables(tmp_path):
    make_run(tmp_path / "a", branches=())
    make_run(tmp_path / "b", branches=(), wrong=0, told=TUNED)
    assert [(row["dataset"], row["method"]) for row in rows_of([tmp_path])] == [
        ("glyphs", "kt_rcnet · small"),
        ("glyphs, pseudo-sessions of the base classes", "kt_rcnet · small"),
    ]
    assert "percent of test images or held-out training images" in html(tmp_path)


# ---- repeated seeds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", ["a", "b"])
def test_of_a_repeated_seed_the_newest_run_counts_and_the_other_is_named(tmp_path, newer):
    older = "ab".replace(newer, "")
    kept = make_run(tmp_path / newer, branches=(), wrong=0, told={"started": "2025-03-01T00:00:00"})
    left = make_run(tmp_path / older, branches=(), wrong=2, told={"started": "2025-02-28T23:59:59"})
    remark = f"seed 0 counts once, from {kept}; left out: {left}"
    for paths in ([tmp_path / "a", tmp_path / "b"], [tmp_path / "b", tmp_path / "a"]):
        (row,) = rows_of(paths)
        assert (row["Avg"], row["n"], row["remarks"]) == ("100.00", "1", remark)
        for text in (report.table(paths, "md"), report.table(paths, "latex"), html(*paths)):
            assert f"kt_rcnet · small: {remark}." in text
        assert "left out:" in terminal(*paths)


def test_a_finished_run_counts_before_a_newer_one_that_is_not(tmp_path):
    make_run(tmp_path / "a", branches=())
    newer = make_run(tmp_path / "b", branches=(), finished=1, told={"started": "2026-01-01T00:00:00"})
    (row,) = rows_of([tmp_path])
    assert (row["n"], row["Avg"]) == ("1", "81.53")
    assert row["remarks"].endswith(f"left out: {newer}")


def test_the_results_file_of_a_run_is_no_second_run(tmp_path):
    folder = make_run(tmp_path / "runs", branches=())
    (file,) = report.write_results([folder], tmp_path / "results")
    assert "remarks" not in rows_of([file, folder])[0]
    (section,) = sections(report.load([file, folder]))
    assert section.rows[0].runs[0].source == folder


def test_the_page_tells_whose_answers_are_counted(tmp_path):
    folders = [make_run(tmp_path / "runs", seed=seed, branches=()) for seed in (0, 1)]
    (file,) = report.write_results(folders[1:], tmp_path / "results")
    assert "after session 2, seed 0, 1</span>" in html(*folders)
    assert "after session 2, seed 0, 1; answers of seed 0 alone</span>" in html(folders[0], file)


def test_one_folder_named_in_two_ways_is_read_once(tmp_path, monkeypatch):
    folder = make_run(tmp_path, branches=())
    monkeypatch.chdir(tmp_path)
    assert len(report.load([folder, folder.relative_to(tmp_path)])) == 1


def test_a_row_tells_where_its_runs_differ_in_commit_or_precision(tmp_path):
    float32, bfloat16 = ({"used": name, "block_seconds": {name: len(name)}} for name in ("float32", "bfloat16"))
    make_run(tmp_path, seed=0, branches=(), told={"precision": float32})
    named = {"precision": {"used": "float32"}}  # earlier versions took this for a change
    make_run(tmp_path, seed=1, branches=(), told={"precision": float32, "continued_with": [named]})
    assert "remarks" not in rows_of([tmp_path])[0]
    make_run(tmp_path, seed=2, branches=(), told={"precision": bfloat16, "git": "def5678"})
    make_run(tmp_path, seed=3, branches=(), told={"precision": float32, "continued_with": [{"git": "def5678"}]})
    commits = "its runs differ in git commit: abc1234 (seed 0, 1), def5678 (seed 2), abc1234 then def5678 (seed 3)"
    precisions = "its runs differ in precision: float32 (seed 0, 1, 3), bfloat16 (seed 2)"
    (row,) = rows_of([tmp_path])
    assert row["remarks"] == f"{commits}; {precisions}"
    assert f"- kt_rcnet · small: {commits}.\n- kt_rcnet · small: {precisions}.\n" in report.table([tmp_path], "md")
    assert precisions in html(tmp_path)


# ---- what others wrote -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["<b>1</b>", None, 1.5, True])
def test_a_seed_that_is_no_number_is_refused(tmp_path, seed):
    folder = make_run(tmp_path / "runs")
    for file in (folder / "run.json", *report.write_results([folder], tmp_path / "results")):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"seed": seed}))
        with pytest.raises(FscilError, match=r"is broken: 'seed' is .*, not a whole number"):
            report.load([file if file.name != "run.json" else folder])


def test_what_a_session_tells_is_text_on_the_page(tmp_path):
    file = make_run(tmp_path) / "session-00.json"
    evil = "<script>alert(1)</script>"
    stage = {"name": evil, "seconds": 1, "macs": 1, "steps": evil}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"session": evil, "stages": [stage]}))
    written = html(tmp_path)
    assert "<script" not in written
    assert written.count("&lt;script&gt;") == 3
