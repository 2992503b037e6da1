"""A run folder never tells of numbers that other settings have made."""

import json
from pathlib import Path

import pytest

from apart import always_tiny, differing, results, tiny_experiment  # noqa: F401 (a fixture)
from fscil import report
from fscil.errors import FscilError
from fscil.report.runs import read_folder
from fscil.running.experiment import RunSpec, execute, git_hash
from fscil.running.runfolder import RunFolder
from fscil.tensors import read_tensors
from records import make_run, rows_of


def cosine(out: Path, epochs: int = 1) -> RunSpec:
    return tiny_experiment(out, "cosine", {"base.epochs": epochs})


def test_run_json_is_not_written_beside_states_of_other_settings(tmp_path: Path) -> None:
    folder = execute(cosine(tmp_path))
    (folder / "run.json").unlink()
    other = cosine(tmp_path, epochs=2)
    sentence = (
        r"state-00.safetensors belongs to another run; no run.json tells of it: delete .* or choose another --out"
    )
    with pytest.raises(FscilError, match=sentence):
        execute(other)
    assert not (folder / "run.json").exists()
    for state in folder.glob("state-*"):
        state.unlink()
    with pytest.raises(FscilError, match=r"holds results of an unknown run; no run.json tells of it"):
        execute(other)
    assert not (folder / "run.json").exists()


def test_a_lost_or_broken_run_json_costs_nothing(tmp_path: Path) -> None:
    experiment = cosine(tmp_path)
    folder = execute(experiment)
    before = results(folder)
    (folder / "run.json").write_text("{")
    for read in (lambda: execute(experiment), lambda: report.load([folder])):
        with pytest.raises(FscilError, match=r"run.json cannot be read .*: delete .* and run .* command again"):
            read()
    (folder / "run.json").unlink()
    execute(experiment)
    assert differing(before, results(folder)) == []
    assert read_folder(folder).complete


def test_a_state_of_another_run_is_refused_before_run_json_tells_of_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = cosine(tmp_path / "mine")
    folder, other = execute(experiment), execute(cosine(tmp_path / "other", epochs=2))
    (folder / "session-03.json").unlink()
    (folder / "state-03.safetensors").write_bytes((other / "state-03.safetensors").read_bytes())
    before = (folder / "run.json").read_bytes()
    monkeypatch.setattr("fscil.running.experiment.git_hash", lambda: "another commit")
    with pytest.raises(FscilError, match=r"state-03.safetensors belongs to another run; delete it and run again"):
        execute(experiment)
    assert (folder / "run.json").read_bytes() == before


def test_the_commit_is_that_of_the_imported_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a long experiment begins after somebody has committed something else."""
    monkeypatch.setattr("fscil.running.experiment._git", lambda *arguments: "a later commit")
    assert "a later commit" not in git_hash()


def test_predictions_of_another_run_are_ignored_and_made_again(tmp_path: Path) -> None:
    experiment = cosine(tmp_path / "mine")
    folder, other = execute(experiment), execute(cosine(tmp_path / "other", epochs=2))
    before = results(folder)
    (folder / "predictions-02.safetensors").write_bytes((other / "predictions-02.safetensors").read_bytes())
    assert len(read_folder(folder).learning) == 2
    execute(experiment)
    assert differing(before, results(folder)) == []
    assert read_folder(folder).complete


@pytest.mark.parametrize("name", ["session-02.json", "predictions-02.safetensors"])
def test_what_the_report_advises_works(tmp_path: Path, name: str) -> None:
    experiment = cosine(tmp_path)
    folder = execute(experiment)
    before = results(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:20])
    with pytest.raises(FscilError, match=rf"{name} cannot be read.*: run its command again, or leave the run out"):
        report.load([folder])
    execute(experiment)
    assert differing(before, results(folder)) == []


def test_missing_predictions_ask_for_nothing_but_the_command(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "predictions-01.safetensors").unlink()
    with pytest.raises(FscilError, match=r"predictions-01.safetensors is missing: run its command again") as problem:
        report.load([folder])
    assert "delete" not in str(problem.value)


def test_a_refused_run_lets_go_of_the_folder(tmp_path: Path) -> None:
    experiment = cosine(tmp_path)
    execute(experiment)
    with pytest.raises(FscilError, match="other settings"):
        execute(cosine(tmp_path, epochs=2))
    execute(experiment)


def test_a_run_tells_which_settings_of_its_recipe_were_changed(tmp_path: Path) -> None:
    changed = json.loads((execute(cosine(tmp_path, epochs=2)) / "run.json").read_text())["changed"]
    assert changed["base.epochs"] == 2
    assert "base.momentum" not in changed


def test_reports_name_runs_by_what_was_changed(tmp_path: Path) -> None:
    one, two = {"base.epochs": 1}, {"base.epochs": 2, "weights": "/home/somebody/w.pt", "views": "flip", "scale": 3.0}
    folders = [
        make_run(tmp_path / "plain", "cosine", told={"changed": {}}),
        make_run(tmp_path / "one", "cosine", told={"changed": one}, settings={"base": {"epochs": 1}}),
        make_run(tmp_path / "two", "cosine", told={"changed": two}, settings={"base": {"epochs": 9}}),
    ]
    names = {row["method"] for row in rows_of(folders)}
    assert names == {
        "cosine · small",
        "cosine · small, base.epochs 1",
        "cosine · small, base.epochs 2, weights w.pt, views flip, …",
    }
    (line,) = report.method_lines(report.load(folders[:1])) or [""]
    assert "base.epochs" not in line
    assert "(recipe small, base.epochs 1, seed 0)" in report.run_line(report.load(folders[1:2])[0])


def test_settings_that_the_label_tells_are_not_told_twice(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / str(n), "cosine", told={"changed": {"base.epochs": n}}, settings={"base": {"epochs": n}})
        for n in (1, 2)
    ]
    assert {row["method"] for row in rows_of(folders)} == {f"cosine · small, base.epochs {n}" for n in (1, 2)}


@pytest.mark.parametrize(("content", "told"), [(None, "is missing: run"), (b"half", "cannot be read.*: delete it and")])
def test_predictions_that_cannot_be_read_are_named_in_plain_words(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "predictions-00.safetensors").write_bytes(content)
    with pytest.raises(FscilError, match=rf"predictions-00.safetensors {told}") as said:
        RunFolder(tmp_path, writable=False).predictions(0)
    assert ("delete" in str(said.value)) == (content is not None)
    assert "header" not in str(said.value).lower()


def test_a_missing_checkpoint_need_not_be_deleted(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match=r"state.safetensors is missing; run again$"):
        read_tensors(tmp_path / "state.safetensors")
    (tmp_path / "state.safetensors").write_bytes(b"half")
    with pytest.raises(FscilError, match=r"or half of one; delete it and run again$"):
        read_tensors(tmp_path / "state.safetensors")
