"""The studio for everybody: axe-core finds nothing, in light and dark, on a phone and on a desk."""

from pathlib import Path
from typing import Any

import pytest

from serving import Serving

pytestmark = pytest.mark.browser
SCREENS = [(1280, 900, "light"), (1280, 900, "dark"), (390, 844, "light"), (390, 844, "dark")]


def findings(page: Any) -> list[tuple[str, str]]:
    """What axe-core complains about, and the first element it is about."""
    violations = page.evaluate("axe.run().then(found => found.violations)")
    return [(one["id"], one["nodes"][0]["html"][:160]) for one in violations]


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_nothing_stands_in_the_way(
    tab: Any, serving: Serving, axe: str, hoopoes: list[Path], tmp_path: Path, width: int, height: int, scheme: str
) -> None:
    page = tab
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(serving.address)
    page.wait_for_selector(".card")
    page.evaluate(axe)  # past the policy of the page, as a debugger would
    states = {"start": findings(page)}
    (tmp_path / "x.txt").write_text("no photo")
    page.set_input_files("#ask-file", [*hoopoes[:2], tmp_path / "x.txt"])
    page.wait_for_selector(".strip button")
    page.set_input_files("#teach-file", hoopoes[:3])
    states["asked"] = findings(page)
    page.fill("#name", "hoopoe")
    page.click("#teach-go")
    page.wait_for_selector(".toast")
    states["taught"] = findings(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.click(".card .open >> nth=0")
    page.wait_for_selector(".taught")
    states["class"] = findings(page)
    page.click("#class-dialog button.main")
    for view, part in (("Map", ".map text"), ("History", ".steps li"), ("Test", "[data-drop=test]")):
        page.click(f"nav >> text={view}")
        page.wait_for_selector(part)
        states[view] = findings(page)
    page.set_input_files("#test-file", hoopoes[0].parent)
    page.wait_for_selector("#score table")
    states["tested"] = findings(page)
    assert {state: some for state, some in states.items() if some} == {}
