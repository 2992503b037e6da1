"""Things that happen at once in the studio: two lessons, two tests, two questions, and changes of somebody else."""

import json
from pathlib import Path
from typing import Any

import pytest

from albums import photos
from fscil.teach.knowledge.journal import REMEMBERED, Step
from fscil.teach.storage import modelfile
from serving import Serving
from studio import ask, choose_folders, drop, names, texts
from visitors import until

pytestmark = pytest.mark.browser
HOLD_ANSWERS = """() => {
    const real = window.fetch;
    window.fetch = async (path, ...rest) => {
        const answer = await real(path, ...rest);
        if (path.includes("predict") && !window.letGo) await new Promise((go) => (window.letGo = go));
        return answer;
    };
}"""
FOCUS = "document.activeElement.closest('[data-digest]')?.dataset.digest ?? document.activeElement.tagName"


def held(page: Any, pattern: str) -> list[Any]:
    """The next request to an address, which waits until it is let go."""
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        if waiting:
            route.continue_()
        else:
            waiting.append(route)

    page.route(pattern, hold)
    return waiting


def arrived(page: Any, waiting: list[Any]) -> None:
    """Waits for a request that is held."""
    while not waiting:
        page.wait_for_timeout(20)


def test_photos_that_come_during_a_lesson_stay(
    studio: Any, birds_file: Path, tmp_path: Path, hoopoes: list[Path]
) -> None:
    photos(tmp_path / "new" / "heron", 51, range(2))
    photos(tmp_path / "new" / "stork", 52, range(2))
    waiting = held(studio, "**/v1/classes/hoopoe/photos")
    studio.set_input_files("#teach-file", hoopoes[:3])
    studio.fill("#name", "hoopoe")
    studio.click("#teach-go")
    arrived(studio, waiting)
    drop(studio, "[data-drop=teach]", hoopoes[3:5])
    studio.wait_for_selector("#tray .held >> nth=4")
    studio.fill("#name", "upupa")
    choose_folders(studio, tmp_path / "new")
    waiting[0].continue_()
    studio.wait_for_selector(".toast:has-text('Taught hoopoe from 3 photos')")
    assert studio.locator("#tray .held").count() == 2
    assert studio.input_value("#name") == "upupa"
    studio.click("button:has-text('Teach 2 classes')")
    studio.wait_for_selector(".toast:has-text('Taught 2 classes from 4 photos')")
    assert studio.locator("#teach-offer *").count() == 0
    studio.click("#teach-go")
    studio.wait_for_selector(".toast:has-text('Taught upupa from 2 photos')")
    assert sorted(names(birds_file)[6:]) == ["heron", "hoopoe", "stork", "upupa"]


def test_lessons_wait_for_each_other(studio: Any, birds_file: Path, hoopoes: list[Path]) -> None:
    waiting = held(studio, "**/v1/classes/*/photos")
    studio.set_input_files("#teach-file", hoopoes[:3])
    studio.fill("#name", "hoopoe")
    studio.click("#teach-go")
    arrived(studio, waiting)
    drop(studio, ".card[data-class=jay]", hoopoes[3:4])
    studio.wait_for_timeout(300)
    assert studio.is_disabled("#teach-go")
    waiting[0].continue_()
    studio.wait_for_selector(".toast:has-text('Taught jay from 1 photo')")
    assert [step.names for step in modelfile.load(birds_file).journal.steps[1:]] == [("hoopoe",), ("jay",)]


def test_a_second_test_is_refused_while_one_runs(studio: Any, tmp_path: Path) -> None:
    photos(tmp_path / "test" / "crow", 0, range(20, 24))
    photos(tmp_path / "other" / "jay", 1, range(20, 23))
    waiting = held(studio, "**/v1/evaluate")
    studio.click("nav >> text=Test")
    studio.set_input_files("#test-file", tmp_path / "test")
    arrived(studio, waiting)
    studio.set_input_files("#test-file", tmp_path / "other")
    studio.wait_for_selector("#test-notes >> text=A test runs already")
    waiting[0].continue_()
    studio.wait_for_selector("#score table")
    assert texts(studio, "#score tbody th") == ["crow"]
    assert studio.inner_text("#test-notes") == ""
    studio.set_input_files("#test-file", tmp_path / "other")
    studio.wait_for_selector("#score tbody th:has-text('jay')")


def test_classes_of_another_state_than_the_model_are_not_kept(studio: Any, serving: Serving) -> None:
    old = json.loads(studio.request.get(f"{serving.address}v1/classes").text())
    late: list[Any] = []

    def stale(route: Any) -> None:
        late.append(route)
        if len(late) == 1:
            route.fulfill(json=old)
        else:
            route.continue_()

    studio.route("**/v1/classes", stale)
    serving.change("DELETE", "classes/wren")
    studio.wait_for_selector(".toast:has-text(\"Changed elsewhere: forgot 'wren'\")")
    assert "wren" not in texts(studio, ".card .open")


def test_a_late_answer_replaces_no_newer_one(studio: Any, serving: Serving, album: Path) -> None:
    ask(studio, album / "owl" / "3.png")
    studio.wait_for_selector(".verdict:has-text('owl')")
    waiting = held(studio, "**/v1/predict*")
    serving.change("PATCH", "classes/crow", name="raven")
    arrived(studio, waiting)  # the owl is asked about again
    ask(studio, album / "jay" / "3.png")
    studio.wait_for_selector(".verdict:has-text('jay')")
    with studio.expect_response("**/v1/predict*"):
        waiting[0].continue_()
    studio.wait_for_timeout(300)
    assert texts(studio, ".verdict") == ["jay"]


def test_an_answer_follows_what_changed_while_it_was_asked_for(studio: Any, serving: Serving, album: Path) -> None:
    studio.evaluate(HOLD_ANSWERS)
    ask(studio, album / "owl" / "3.png")
    assert until(lambda: studio.evaluate("Boolean(window.letGo)"), 5)
    serving.change("PATCH", "classes/owl", name="barn owl")
    studio.wait_for_selector(".card[data-class='barn owl']")
    studio.evaluate("window.letGo()")
    studio.wait_for_selector(".verdict:has-text('barn owl')")


def test_a_change_of_somebody_else_leaves_an_open_class_in_hand(studio: Any, serving: Serving) -> None:
    studio.click(".card .open:has-text('jay')")
    studio.wait_for_selector(".taught >> nth=9")
    studio.fill("#class-dialog input", "blue j")
    serving.change("PATCH", "classes/crow", name="raven")
    studio.wait_for_selector(".toast:has-text('Changed elsewhere')")
    assert studio.input_value("#class-dialog input") == "blue j"
    assert studio.evaluate(FOCUS) == "INPUT"
    kept, gone = (studio.get_attribute(f".taught >> nth={place}", "data-digest") for place in (3, 0))
    studio.focus(f"[data-digest='{kept}'] button")
    serving.change("DELETE", f"classes/jay/photos/{gone}")
    studio.wait_for_selector(f"[data-digest='{gone}']", state="detached")
    assert studio.evaluate(FOCUS) == kept
    studio.click("button:has-text('Rename')")
    studio.wait_for_selector("#class-title:has-text('blue j')")


def test_a_full_history_is_no_reason_to_speak_of_undo(studio: Any, serving: Serving, birds_file: Path) -> None:
    with modelfile.editing(birds_file) as model:
        for _ in range(REMEMBERED):
            model.journal.add(Step("forget", (0,), ("crow",)))
    studio.wait_for_selector(".toast:has-text(\"Changed elsewhere: forgot 'crow'\")")
    serving.change("PATCH", "classes/owl", name="barn owl")
    studio.wait_for_selector(".toast:has-text(\"Changed elsewhere: renamed 'owl' to 'barn owl'\")")
    serving.change("POST", "undo")
    studio.wait_for_selector(".toast:has-text('Changed elsewhere: a change was taken back')")
    serving.change("DELETE", "classes/wren?erase=true")
    studio.wait_for_selector(".toast:has-text('Changed elsewhere: erased a class')")
