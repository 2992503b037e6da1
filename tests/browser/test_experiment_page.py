"""The page of an experiment in chromium: no error, and no request leaves it."""

from pathlib import Path
from typing import Any

import pytest

from apart import on_tiny_images
from fscil.experiments import folder, schedule, specs
from fscil.experiments.cells import cells
from small_experiments import small, spread_out

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", ["strategies", "lambdas"])
def test_the_page_of_an_experiment_opens_alone(name: str, tab: Any, tmp_path: Path) -> None:
    experiment = small(specs.load(name))
    readings = spread_out(experiment, tmp_path, seeds=2, dataset="glyphs")
    with on_tiny_images():
        ends = list(schedule.in_turn(cells(readings)[:4], lambda run: lambda session: None))
    assert [end.error for end in ends] == [""] * 4
    folder.write_results(experiment, readings, tmp_path)
    requests: list[str] = []
    lines: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("console", lambda line: lines.append(line.text))
    tab.goto((tmp_path / "report.html").as_uri())
    assert tab.locator(".figure svg").count() == 2
    assert tab.locator(".figure").first.bounding_box()["height"] > 150
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    assert requests == [(tmp_path / "report.html").as_uri()]
    assert lines == []
