"""Files for forges and packagers: they parse, and they name targets, versions and pages that exist."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import fscil

ROOT = Path(__file__).parent.parent.parent
CONFIGS = [ROOT / "mkdocs.yml", ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def jobs() -> dict[str, Any]:
    return read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]


def targets_of(job: dict[str, Any]) -> list[str]:
    """The make targets that a job runs, for each cell of its matrix."""
    lines = [step["run"] for step in job["steps"] if "run" in step]
    named = [line.removeprefix("make ") for line in lines if line.startswith("make ")]
    matrix = job.get("strategy", {}).get("matrix", {})
    return [t for name in named for t in (matrix["target"] if name == "${{ matrix.target }}" else [name])]


def pages(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            yield from pages(value) if isinstance(value, list) else [value]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_project_file_parses(path: Path) -> None:
    assert isinstance(read(path), dict)


def test_continuous_integration_runs_targets_that_exist() -> None:
    run = [target for job in jobs().values() for target in targets_of(job)]
    assert {"lint", "test", "docs", "dist", "test-browser", "test-ray"} == set(run) <= TARGETS


def test_continuous_integration_tests_every_python_that_is_promised() -> None:
    promised = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)}
    assert set(jobs()["test"]["strategy"]["matrix"]["python"]) == promised
    assert PROJECT["requires-python"] == f">={min(promised, key=lambda v: int(v.partition('.')[2]))}"


def test_a_commit_is_checked_by_the_target_that_checks_everything() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]


@pytest.mark.parametrize("name", ["bug", "feature", "result"])
def test_issue_forms_ask_something(name: str) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    questions = [field for field in form["body"] if field["type"] in ("input", "textarea", "dropdown")]
    assert form["name"]
    assert form["description"]
    assert len({field["id"] for field in questions}) == len(questions) > 0
    assert any(field.get("validations", {}).get("required") for field in questions)


def test_the_navigation_of_the_site_is_every_page() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]
    listed = list(pages(read(ROOT / "mkdocs.yml")["nav"]))
    assert sorted(listed) == sorted(path.relative_to(ROOT).as_posix() for path in files)


def test_the_site_asks_no_other_server_for_fonts() -> None:
    assert read(ROOT / "mkdocs.yml")["theme"]["font"] is False


def test_make_installs_what_the_pages_about_photos_need() -> None:
    """`fscil learn --best` needs two packages of weights, and an answer without torch ONNX Runtime."""
    recipe = (ROOT / "Makefile").read_text("utf-8").split("$(VENV)/.installed: ")[1].split("\n\n")[0]
    (installed,) = re.findall(r"--editable '\.\[([a-z,]+)\]'", recipe)
    advised = re.findall(r"pip install '[^'\[]+\[([a-z,]+)\]'", (ROOT / "README.md").read_text("utf-8"))
    assert {*advised} == {installed} == {"pretrained,onnx"}
    assert installed in (ROOT / "docs" / "teach.md").read_text("utf-8")


def test_the_version_is_in_one_place() -> None:
    assert "version" not in PROJECT
    assert "version" in PROJECT["dynamic"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest
    assert newest[1] == fscil.__version__
