"""Figures 3 and 4 of the documentation are those that scripts/paper_figures.py draws from results/."""

import json
from pathlib import Path

import pytest

import paper_figures
from drawings import curves, named
from paper_figures import FIGURES, SWEEPS, Sweep
from picture import PICTURES, ROOT

FILES = [f"{name}-{shade}.svg" for name in FIGURES for shade in ("light", "dark")]

pytestmark = pytest.mark.skipif(
    not (ROOT / "results").exists(), reason="the results are not part of the source distribution"
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    paper_figures.write(folder)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_the_committed_figure_is_the_drawn_one(name: str, fresh: Path) -> None:
    again = "run python scripts/paper_figures.py"
    assert named(fresh / name, "cell ").keys() == named(PICTURES / name, "cell ").keys(), again  # with their values
    drawn, committed = curves(fresh / name), curves(PICTURES / name)
    assert drawn.keys() == committed.keys()
    for curve, coordinates in drawn.items():
        assert coordinates == pytest.approx(committed[curve], abs=0.01), f"{curve}: {again}"


def test_everything_that_was_measured_is_drawn(fresh: Path) -> None:
    assert len(named(fresh / "figure3-light.svg", "cell ")) == 3 * 25
    assert len(curves(fresh / "figure4-light.svg")) == (4 + 1) + 2 * 2
    for page in ("trial.md", "results.md"):
        text = (ROOT / "docs" / page).read_text("utf-8")
        assert all(f"pictures/{name}" in text for name in FILES)


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.title)
def test_the_frame_is_around_a_cell(sweep: Sweep) -> None:
    assert sweep.chosen in paper_figures.grid(sweep)


def test_a_cell_is_the_mean_over_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results" / "way_shot" / "cub200"
    folder.mkdir(parents=True)
    for seed, average in enumerate((50, 60)):
        (folder / f"kt_rcnet-map-way5_shot20-seed{seed}.json").write_text(json.dumps({"avg": average}), "utf-8")
    monkeypatch.setattr(paper_figures, "ROOT", tmp_path)
    assert paper_figures.grid(SWEEPS[0]) == {("5", "20"): [50, 60]}
