"""The studio as people use it: teach, ask, correct, take back, and what it says when something goes wrong."""

from pathlib import Path
from typing import Any

import pytest

from albums import BIRDS, photos
from fscil.teach.lessons import correcting
from fscil.teach.storage import modelfile
from serving import Serving
from studio import ask, choose_folders, drop, names, teach, texts
from visitors import until

pytestmark = pytest.mark.browser


def test_a_class_is_taught_asked_about_and_taken_back(studio: Any, birds_file: Path, hoopoes: list[Path]) -> None:
    teach(studio, "hoopoe", hoopoes[:5])
    assert "of 5 photos of 'hoopoe' would be recognised" in studio.inner_text("#teach-notes")
    assert texts(studio, ".card .open")[0] == "hoopoe"
    assert studio.locator(".card >> nth=0").locator("img").count() == 4
    ask(studio, hoopoes[5])
    studio.wait_for_selector(".verdict:has-text('hoopoe')")
    assert texts(studio, ".bars li span:first-child")[0] == "hoopoe"
    assert "hoopoe." in studio.text_content("#spoken")
    assert studio.locator(".near li").count() == 4
    assert names(birds_file) == [*BIRDS, "hoopoe"]
    studio.click(".toast button:has-text('Undo')")
    studio.wait_for_selector(".toast:has-text('Taken back')")
    assert texts(studio, ".card .open") == list(reversed(BIRDS))
    assert names(birds_file) == list(BIRDS)
    studio.wait_for_selector(".verdict:not(:has-text('hoopoe'))")
    assert studio.is_disabled("#undo")


def test_a_wrong_answer_is_corrected_on_the_spot(studio: Any, hoopoes: list[Path]) -> None:
    teach(studio, "hoopoe", hoopoes[:4])
    ask(studio, hoopoes[6])
    studio.wait_for_selector(".verdict:has-text('hoopoe')")
    studio.fill("#answer input", "upupa")
    studio.click("#answer button:has-text('Correct')")
    studio.wait_for_selector(".toast:has-text('this is upupa')")
    studio.wait_for_selector(".verdict:has-text('upupa')")
    studio.fill("#answer input", "hoopoe")
    studio.click("#answer button:has-text('Correct')")
    studio.wait_for_selector(".toast:has-text('upupa lost its last photo')")
    assert "upupa" not in texts(studio, ".card .open")


def test_a_stranger_is_none_of_these(studio: Any, birds_file: Path, hoopoes: list[Path]) -> None:
    ask(studio, hoopoes[0])
    studio.wait_for_selector(".verdict")
    studio.click("#answer button:has-text('None of these')")
    studio.wait_for_selector(".verdict:has-text('None of these')")
    assert len(modelfile.load(birds_file).negatives) == 1
    studio.click(".card .open:has-text('None of these')")
    studio.click(".taught button")
    studio.wait_for_selector(".toast:has-text('Removed a photo')")
    assert len(modelfile.load(birds_file).negatives) == 0


def test_without_features_photos_of_none_of_these_alone_can_be_removed(
    birds_file: Path, tab: Any, hoopoes: list[Path]
) -> None:
    """Their features are always kept; a photo of a class can be taken back only by the photo itself."""
    model = modelfile.load(birds_file)
    model.memory.keep = False
    model.tidy()
    correcting.teach_none(model, hoopoes[:2])
    modelfile.save(model, birds_file)
    service = Serving(birds_file)
    try:
        tab.goto(service.address)
        tab.click(".card .open:has-text('jay')")
        tab.wait_for_selector(".taught >> nth=9")
        assert tab.locator(".taught button").count() == 0
        tab.click("#class-dialog button:has-text('Close')")
        tab.click(".card .open:has-text('None of these')")
        tab.click(".taught button >> nth=0")
        tab.wait_for_selector(".toast:has-text('Removed a photo of none of these')")
        assert len(modelfile.load(birds_file).negatives) == 1
    finally:
        service.stop()


def test_one_photo_is_removed_and_comes_back(studio: Any, birds_file: Path) -> None:
    studio.click(".card .open:has-text('jay')")
    studio.click(".taught button >> nth=0")
    studio.wait_for_selector(".toast:has-text('Removed a photo of jay')")
    assert studio.locator(".taught").count() == 9
    assert len(modelfile.load(birds_file).photos[1]) == 9
    studio.click(".toast button:has-text('Undo')")
    studio.wait_for_selector(".toast:has-text('Taken back')")
    assert len(modelfile.load(birds_file).photos[1]) == 10


def test_a_class_is_renamed_and_forgotten(studio: Any, birds_file: Path) -> None:
    studio.click(".card .open:has-text('kite')")
    studio.fill("#class-dialog input", "red kite")
    studio.click("button:has-text('Rename')")
    studio.wait_for_selector("#class-title:has-text('red kite')")
    studio.click("button:has-text('Forget this class')")
    studio.wait_for_selector(".toast:has-text('Forgot red kite')")
    assert "red kite" not in names(birds_file)
    studio.click("nav >> text=History")
    studio.wait_for_selector(".steps li >> nth=2")
    assert "forgot" in texts(studio, ".steps li")[0].lower()
    studio.click(".steps button:has-text('Undo')")
    assert until(lambda: "red kite" in names(birds_file), 5)


def test_a_wrong_file_is_named_in_a_sentence(studio: Any, tmp_path: Path, album: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear bird")
    ask(studio, letter)
    studio.wait_for_selector("#ask-notes >> text=“letter.txt” is no picture that can be read.")
    ask(studio, letter, album / "owl" / "3.png")
    studio.wait_for_selector(".verdict:has-text('owl')")
    assert "no picture" in studio.inner_text("#ask-notes")
    studio.click("#teach-go")
    assert studio.evaluate("document.activeElement.id") == "name"


def test_a_service_that_goes_and_comes_back(studio: Any, serving: Serving, hoopoes: list[Path]) -> None:
    serving.stop()
    studio.wait_for_selector("#gone:has-text('does not answer')")
    studio.set_input_files("#teach-file", hoopoes[:2])
    studio.fill("#name", "hoopoe")
    studio.click("#teach-go")
    studio.wait_for_selector("#teach-notes >> text=does not answer")
    assert studio.locator("#tray .held").count() == 2
    serving.start()
    studio.wait_for_selector(".toast:has-text('The service is back')")
    assert not studio.is_visible("#gone")
    studio.click("#teach-go")
    studio.wait_for_selector(".toast:has-text('Taught hoopoe')")


def unaware_until_it_undoes(page: Any) -> None:
    """Lets a page see the model as it is now until it sends an undo: the moment in which two people meet."""
    model = page.request.get(f"{page.url}v1/model").text()
    page.route("**/v1/model", lambda route: route.fulfill(body=model, content_type="application/json"))

    def go(route: Any) -> None:
        page.unroute("**/v1/model")
        route.continue_()

    page.route("**/v1/undo", go)


def test_two_people_at_once(studio: Any, serving: Serving, hoopoes: list[Path], birds_file: Path) -> None:
    other = studio.context.new_page()
    other.goto(serving.address)
    other.wait_for_selector(".card")
    teach(studio, "hoopoe", hoopoes[:3])
    other.wait_for_selector(".toast:has-text(\"Changed elsewhere: taught 'hoopoe'\")")
    assert texts(other, ".card .open")[0] == "hoopoe"
    unaware_until_it_undoes(studio)
    teach(other, "upupa", hoopoes[3:5])
    studio.click(".toast button:has-text('Undo')")
    studio.wait_for_selector(".toast:has-text('Somebody else changed the model')")
    assert names(birds_file) == [*BIRDS, "hoopoe", "upupa"]
    assert texts(studio, ".card .open")[:2] == ["upupa", "hoopoe"]
    studio.click("#undo")
    other.wait_for_selector(".toast:has-text('Changed elsewhere: a change was taken back')")
    other.close()
    assert names(birds_file) == [*BIRDS, "hoopoe"]


def test_a_test_folder_gives_accuracy_and_confused_pairs(studio: Any, tmp_path: Path) -> None:
    photos(tmp_path / "test" / "crow", 0, range(20, 24))
    photos(tmp_path / "test" / "jay", 1, range(20, 23))
    (tmp_path / "test" / "jay" / "23.png").write_bytes((tmp_path / "test" / "crow" / "20.png").read_bytes())
    studio.click("nav >> text=Test")
    studio.set_input_files("#test-file", tmp_path / "test")
    studio.wait_for_selector(".score")
    assert studio.inner_text(".score") == "87.5 %"
    assert "jay taken for crow: 1" in studio.inner_text("#score")
    assert studio.locator("#score .near img").count() == 1
    assert studio.locator("tbody tr").count() == 2


def test_the_map_names_every_class(studio: Any) -> None:
    studio.click("nav >> text=Map")
    studio.wait_for_selector(".map text")
    assert sorted(studio.locator(".map text").all_text_contents()) == sorted(BIRDS)


COVERED = """() => {
    const boxes = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return boxes(".map text").filter((name) => boxes(".map circle").some((dot) => meet(name, dot))).length;
}"""


def test_on_a_phone_no_name_of_the_map_covers_a_dot(studio: Any) -> None:
    """Two that are so close that the name of the one would lie on the other."""
    places = {"telephone": (-0.2, 0.4), "snowman": (-0.1, 0.47), "cup": (0.5, -0.5)}
    classes = [{"class": name, "photos": 8, "x": x, "y": y} for name, (x, y) in places.items()]
    studio.route("**/v1/map", lambda route: route.fulfill(json={"revision": "", "share": 0.5, "classes": classes}))
    studio.set_viewport_size({"width": 390, "height": 844})
    studio.click("nav >> text=Map")
    studio.wait_for_selector(".map text")
    assert studio.evaluate(COVERED) == 0


def test_on_a_phone_the_two_ways_to_ask_stand_beside_each_other(studio: Any) -> None:
    studio.set_viewport_size({"width": 390, "height": 844})
    tops = {studio.locator(f"[data-{way}=ask]").bounding_box()["y"] for way in ("choose", "camera")}
    assert len(tops) == 1


def test_the_camera_teaches(studio: Any, birds_file: Path) -> None:
    studio.click("[data-camera=teach]")
    for shot in (1, 2):
        studio.click("#camera-take:enabled")
        studio.wait_for_selector(f"#camera-notes:has-text('{shot} taken')")
    studio.click("#camera-done")
    studio.wait_for_selector("#tray .held >> nth=1")
    studio.fill("#name", "picture")
    studio.press("#name", "Enter")
    studio.wait_for_selector(".toast:has-text('picture')")
    assert names(birds_file)[-1] == "picture"


def test_the_keyboard_reaches_everything(studio: Any, album: Path) -> None:
    studio.keyboard.press("Tab")
    assert studio.evaluate("document.activeElement.className") == "skip"
    ask(studio, album / "owl" / "3.png")
    studio.wait_for_selector(".verdict")
    reached = set()
    for _ in range(60):
        studio.keyboard.press("Tab")
        reached.add(studio.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert {"Studio", "Map", "Choose photos", "Camera", "Correct", "None of these", "name", "Teach", *BIRDS} <= reached
    studio.focus(".card .open >> nth=0")
    studio.keyboard.press("Enter")
    studio.wait_for_selector("#class-dialog[open] .taught")
    studio.keyboard.press("Escape")
    assert studio.evaluate("document.activeElement.innerText") == "wren"


def test_a_token_is_asked_for(tab: Any, birds_file: Path, album: Path) -> None:
    service = Serving(birds_file, token="a-token-nobody-guesses")
    try:
        tab.goto(service.address)
        tab.fill("#token-word", "a-token-somebody-guesses")
        tab.click("#token-dialog button.main")
        tab.wait_for_selector("#token-wrong:has-text('did not accept')")
        tab.click("#token-close")
        ask(tab, album / "owl" / "3.png")
        tab.wait_for_selector("#ask-notes >> text=This needs the token of the service.")
        tab.click("#token")
        tab.fill("#token-word", "a-token-nobody-guesses")
        tab.click("#token-dialog button.main")
        tab.wait_for_selector(".card")
    finally:
        service.stop()


def test_photos_are_dropped_where_they_belong(studio: Any, birds_file: Path, album: Path, hoopoes: list[Path]) -> None:
    drop(studio, "h2#known-title", [album / "owl" / "3.png"])
    studio.wait_for_selector(".verdict:has-text('owl')")
    drop(studio, "[data-drop=teach]", hoopoes[:2])
    assert studio.locator("#tray .held").count() == 2
    studio.click("#tray button >> nth=0")
    assert studio.locator("#tray .held").count() == 1
    drop(studio, ".card[data-class=jay]", hoopoes[2:3])
    studio.wait_for_selector(".toast:has-text('Taught jay from 1 photo')")
    assert len(modelfile.load(birds_file).photos[1]) == 11


def test_folders_are_classes(studio: Any, tmp_path: Path, birds_file: Path) -> None:
    photos(tmp_path / "new" / "hoopoe", 50, range(2))
    photos(tmp_path / "new" / "bee_eater", 51, range(3))
    choose_folders(studio, tmp_path / "new")
    studio.click("button:has-text('Teach 2 classes')")
    studio.wait_for_selector(".toast:has-text('Taught 2 classes from 5 photos')")
    assert sorted(names(birds_file)[-2:]) == ["bee eater", "hoopoe"]
    studio.click(".toast button:has-text('Undo')")
    studio.wait_for_selector(".toast:has-text('Taken back')")
    assert names(birds_file) == list(BIRDS)


def test_a_test_with_taught_photos_is_no_test(studio: Any, album: Path) -> None:
    studio.click("nav >> text=Test")
    studio.set_input_files("#test-file", album)
    studio.wait_for_selector("#score >> text=60 photos of this test were taught")


def test_small_pictures_outlast_the_page(tab: Any, birds_file: Path, hoopoes: list[Path]) -> None:
    with modelfile.editing(birds_file) as model:
        model.album.switch(True)
    service = Serving(birds_file)
    try:
        tab.goto(service.address)
        tab.wait_for_selector(".card")
        teach(tab, "hoopoe", hoopoes[:3])
        tab.reload()
        tab.wait_for_selector(".card[data-class=hoopoe] img >> nth=2")
        assert until(lambda: tab.evaluate("document.querySelector('.card img').naturalWidth") > 0, 5)
        assert tab.locator(".card[data-class=owl] img").count() == 0
    finally:
        service.stop()


def test_many_photos_go_in_portions(studio: Any, tmp_path: Path, birds_file: Path) -> None:
    teach(studio, "hoopoe", photos(tmp_path / "many", 50, range(70)))
    assert len(modelfile.load(birds_file).photos[6]) == 70
    studio.click(".toast button:has-text('Undo')")
    studio.wait_for_selector(".toast:has-text('Taken back')")
    assert names(birds_file) == list(BIRDS)


def test_a_model_that_knows_nothing_says_so(studio: Any, birds_file: Path, album: Path) -> None:
    with modelfile.editing(birds_file) as model:
        for name in BIRDS:
            model.forget(name)
    studio.wait_for_selector("#no-classes")
    ask(studio, album / "owl" / "3.png")
    studio.wait_for_selector("#ask-notes >> text=The model knows no class yet; teach it one.")


def test_an_answer_says_where_it_comes_from(studio: Any, album: Path) -> None:
    ask(studio, album / "owl" / "3.png")
    studio.click("button:has-text('Show why')")
    studio.wait_for_selector("button:has-text('Show the photo')")
    assert "warm colours" in studio.get_attribute(".seen", "alt")
    assert until(lambda: studio.evaluate("document.querySelector('.seen').naturalWidth") > 0, 5)
