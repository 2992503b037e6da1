"""The README's picture is the one that scripts/picture.py draws from results/ and the published numbers."""

import json
from pathlib import Path

import pytest

import picture
from drawings import curves
from picture import ROOT

pytestmark = pytest.mark.skipif(
    not (ROOT / "results").exists(), reason="the results are not part of the source distribution"
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    picture.write(folder)
    return folder


@pytest.mark.parametrize("name", ["accuracy-light.svg", "accuracy-dark.svg"])
def test_the_committed_picture_is_the_drawn_one(name: str, fresh: Path) -> None:
    drawn, committed = curves(fresh / name), curves(ROOT / "docs" / "pictures" / name)
    assert len(drawn) == 3 * (7 + 1)
    assert drawn.keys() == committed.keys()
    for curve, coordinates in drawn.items():
        assert coordinates == pytest.approx(committed[curve], abs=0.01), f"{curve}: run python scripts/picture.py"


def test_a_picture_is_drawn_the_same_twice(fresh: Path, tmp_path: Path) -> None:
    picture.write(tmp_path)
    for file in fresh.iterdir():
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


def test_a_curve_is_the_mean_over_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, accuracy in enumerate(("[80, 60]", "[70, 64]")):
        file = tmp_path / "results" / f"x-seed{seed}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'{{"metrics": {{"sum": {{"accuracy": {accuracy}}}}}}}', "utf-8")
    monkeypatch.setattr(picture, "ROOT", tmp_path)
    curve = picture.measured_curve(picture.Measured("x", "x-seed*.json"), "ours")
    assert (curve.means, curve.n) == ((75, 62), 2)
    assert curve.stds == pytest.approx((7.0711, 2.8284), abs=1e-3)


def test_a_point_of_the_compute_panels_is_the_mean_over_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {"a/x/kt_rcnet-small-seed0": (1e15, 60, 2), "a/x/kt_rcnet-small-seed1": (3e15, 64, 2)}
    runs |= {
        "x/cosine-large-seed0": (1e15, 50, 2),
        "x/cosine-map-seed0": (9e15, 99, 0),
        "x/topic-small-seed0": (1, 1, 2),
    }
    for name, (macs, average, epochs) in runs.items():
        file = tmp_path / "results" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        method, recipe, _ = file.stem.split("-")
        told = {
            "method": method,
            "recipe": recipe,
            "macs": macs,
            "avg": average,
            "settings": {"base": {"epochs": epochs}},
        }
        file.write_text(json.dumps(told), "utf-8")
    monkeypatch.setattr(picture, "ROOT", tmp_path)
    points = picture.measured_points("x")
    ours = [picture.Spent("cosine", "large", 1, 50), picture.Spent("kt_rcnet", "small", 2, 62)]
    assert points == [picture.Spent("topic", "small", 1e-15, 1), *ours]


def test_the_line_of_the_compute_panels_joins_what_is_better_than_everything_cheaper() -> None:
    points = [picture.Spent("m", "r", pmac, average) for pmac, average in ((1, 50), (2, 49), (3, 50), (4, 51))]
    assert [point.pmac for point in picture.frontier(points)] == [1, 4]
