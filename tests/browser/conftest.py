"""Pages in Debian's chromium; all tests are skipped, with the reason, where there is none."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import Serving

AXE = Path(__file__).parent.parent.parent / ".cache" / "axe" / "package" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 20_000  # milliseconds


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'fscil[browser]'")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no chromium: apt-get install chromium, or name one in $CHROMIUM")
    switches = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=switches)
        yield browser
        browser.close()


@pytest.fixture
def serving(birds_file: Path) -> Iterator[Serving]:
    """A service of its own with a copy of the model of birds."""
    service = Serving(birds_file)
    yield service
    service.stop()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A browser tab in which nothing may go wrong unseen."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def axe() -> str:
    """The script that finds what some people could not see, read or reach."""
    if not AXE.exists():
        pytest.skip(f"there is no {AXE.name}; make test-browser gets it with npm")
    return AXE.read_text("utf-8")


@pytest.fixture
def studio(serving: Serving, tab: Any) -> Any:
    """The studio, open, with the classes it knows on the page."""
    tab.goto(serving.address)
    tab.wait_for_selector(".card")
    return tab
