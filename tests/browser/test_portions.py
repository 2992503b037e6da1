"""Many photos, large ones and strange names: the studio sends them in portions that the service accepts."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from albums import BIRDS, photos
from fscil.serve.settings import MEGABYTE, Limits
from fscil.teach.storage import modelfile
from serving import Serving
from studio import ask, names, teach
from visitors import until

pytestmark = pytest.mark.browser
NAMED = """async (names) => {
    const { named } = await import("/page/photos.js");
    return named(names.map((name) => new File([], name))).map(({ name }) => name);
}"""


@pytest.fixture
def limited(tab: Any, birds_file: Path) -> Iterator[Callable[[Limits], Serving]]:
    """Opens the studio of a service that allows less than usual."""
    services = []

    def opened(limits: Limits) -> Serving:
        services.append(Serving(birds_file, limits=limits))
        tab.goto(services[0].address)
        tab.wait_for_selector(".card")
        return services[0]

    yield opened
    for service in services:
        service.stop()


def lessons(page: Any) -> list[str]:
    """Requests that teach, as they are sent."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.url.endswith("/photos") else None)
    return sent


def test_a_long_test_leaves_room_for_its_earlier_answers(
    tab: Any, limited: Callable[[Limits], Serving], tmp_path: Path
) -> None:
    bird = "鳥" * 70
    for photo in photos(tmp_path / "test" / bird, 50, range(140)):
        photo.rename(photo.with_name(f"{bird}{photo.name}"))
    limited(Limits(body=160_000))
    tab.click("nav >> text=Test")
    tab.set_input_files("#test-file", tmp_path / "test")
    tab.wait_for_selector("#test-running", state="visible")
    tab.wait_for_selector("#test-running", state="hidden")
    assert tab.inner_text("#test-notes") == ""
    assert "140 photos of classes that it does not know" in tab.inner_text("#score")


def test_no_request_is_too_large_for_a_slow_line(studio: Any, birds_file: Path, hoopoes: list[Path]) -> None:
    for photo, megabytes in zip(hoopoes, (5, 2, 9), strict=False):
        photo.write_bytes(photo.read_bytes() + bytes(megabytes * MEGABYTE))
    sent = lessons(studio)
    teach(studio, "hoopoe", hoopoes[:3])
    assert len(sent) == 2
    assert len(modelfile.load(birds_file).photos[6]) == 3


def test_a_portion_that_cannot_be_read_does_not_stop_the_others(
    studio: Any, birds_file: Path, tmp_path: Path, hoopoes: list[Path]
) -> None:
    film = tmp_path / "film.mov"
    film.write_bytes(bytes(9 * MEGABYTE))
    teach(studio, "hoopoe", [film, *hoopoes[:3]])
    assert "“film.mov” is no picture that can be read." in studio.inner_text("#teach-notes")
    assert studio.locator("#tray .held").count() == 0
    assert len(modelfile.load(birds_file).photos[6]) == 3
    ask(studio, film, hoopoes[3])
    studio.wait_for_selector(".verdict:has-text('hoopoe')")
    assert "“film.mov” is no picture that can be read." in studio.inner_text("#ask-notes")


def test_undo_of_a_lesson_in_portions_leaves_what_others_did_in_between(
    tab: Any, limited: Callable[[Limits], Serving], birds_file: Path, hoopoes: list[Path]
) -> None:
    service = limited(Limits(photos=2))
    sent = lessons(tab)

    def meanwhile(route: Any) -> None:
        if len(sent) == 3:
            service.change("PATCH", "classes/owl", name="barn owl")
        route.continue_()

    tab.route("**/v1/classes/hoopoe/photos", meanwhile)
    teach(tab, "hoopoe", hoopoes[:7])
    assert len(modelfile.load(birds_file).photos[6]) == 7
    assert "somebody else changed the model meanwhile, so Undo takes back the last 3 photos only" in tab.inner_text(
        ".toast"
    )
    tab.click(".toast button:has-text('Undo')")
    tab.wait_for_selector(".toast:has-text('Taken back')")
    assert len(modelfile.load(birds_file).photos[6]) == 4
    assert "barn owl" in names(birds_file)


def test_an_undo_in_several_steps_says_when_it_ends_too_early(
    tab: Any, limited: Callable[[Limits], Serving], birds_file: Path, hoopoes: list[Path]
) -> None:
    service = limited(Limits(photos=2))
    teach(tab, "hoopoe", hoopoes[:5])
    undone: list[Any] = []

    def meanwhile(route: Any) -> None:
        undone.append(route)
        if len(undone) == 2:
            service.change("PATCH", "classes/owl", name="barn owl")
        route.continue_()

    tab.route("**/v1/undo", meanwhile)
    tab.click(".toast button:has-text('Undo')")
    tab.wait_for_selector(".toast:has-text('Taken back in part: the last 1 of 3 changes')")
    assert len(modelfile.load(birds_file).photos[6]) == 4


def test_names_are_those_of_one_photo_each(studio: Any) -> None:
    given = ["a.jpg", "a.jpg", "a (2).jpg", "a.jpg", 'a".jpg', "a\u2028\u2029.jpg", "😀" * 60 + "é.jpg"]
    sent = studio.evaluate(NAMED, given)
    assert sent[:4] == ["a.jpg", "a (2).jpg", "a (2) (2).jpg", "a (3).jpg"]
    assert sent[4:] == ["a_.jpg", "a__.jpg", "_" + "😀" * 57 + "é.jpg"]


def test_photos_are_shown_whatever_they_are_called(studio: Any, album: Path, tmp_path: Path) -> None:
    wrong = [
        ("crow", "1.png"),
        ("jay", "1.png"),
        ("kite", "1 (2).png"),
        ("robin", 'a "b".png'),
        ("wren", "a\u2028.png"),
    ]
    for bird, name in wrong:
        (tmp_path / "test" / bird).mkdir(parents=True)
        shutil.copy(album / "owl" / f"{BIRDS.index(bird)}.png", tmp_path / "test" / bird / name)
    studio.click("nav >> text=Test")
    studio.set_input_files("#test-file", tmp_path / "test")
    studio.wait_for_selector("#score table")
    assert until(lambda: studio.locator("#score .near img").count() == 5, 5)
    studio.click("nav >> text=Studio")
    letter = tmp_path / "letter.txt"
    letter.write_text("dear bird")
    ask(studio, letter, tmp_path / "test" / "robin" / 'a "b".png')
    studio.wait_for_selector(".verdict:has-text('owl')")
    assert studio.get_attribute(".seen", "alt") == "a _b_.png"


def test_a_test_shows_its_score_although_a_photo_is_called_otherwise(studio: Any, hoopoes: list[Path]) -> None:
    """As behind a gate that changes names on the way."""
    row = {"photo": "other.png", "truth": "hoopoe", "said": "owl", "known": True, "stranger": True}
    score = {
        "photos": 0,
        "accuracy_interval_95": None,
        "strangers": 1,
        "refused": 0,
        "unreadable": [],
        "results": [row],
    }
    confused = [{"truth": "hoopoe", "said": "owl", "photos": ["other.png"]}]
    studio.route("**/v1/evaluate", lambda route: route.fulfill(json={**score, "confused": confused}))
    studio.click("nav >> text=Test")
    studio.set_input_files("#test-file", hoopoes[0].parent)
    studio.wait_for_selector("#score >> text=other.png")
