"""Questions to the service: what the model is, what it knows, what a photo shows."""

import gc
import inspect
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from albums import BIRDS
from fscil.serve import words
from fscil.serve.app import ROUTES
from fscil.serve.service import Served
from fscil.teach.lessons.looking import replies
from fscil.teach.lessons.nearest import Taught
from fscil.teach.storage import modelfile
from visitors import sent


def test_it_lives_is_ready_and_counts(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert 'fscil_requests_total{route="/ready",status="200"} 1.0' in client.get("/metrics").text


def test_the_page_and_the_description_ask_no_other_host(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text.replace("<!doctype", "")
    assert client.get("/openapi.json").json()["info"]["title"] == "fscil"
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


def test_no_other_file_is_sent(client: TestClient) -> None:
    for name in ("..%2Fapp.py", "app.py", "%2Fetc%2Fpasswd", "index.html%00"):
        assert client.get(f"/page/{name}").status_code == 404


def test_it_says_what_the_model_is(client: TestClient, birds_file: Path) -> None:
    facts = client.get("/v1/model")
    model = modelfile.load(birds_file)
    told = facts.json()
    assert facts.headers["etag"] == f'"{model.revision}"'
    assert told["revision"] == model.revision
    assert (told["file"], told["classes"], told["photos"], told["undo"]) == ("birds.fscil", 6, 60, None)
    assert str(birds_file.parent) not in facts.text


def test_it_says_what_it_knows(client: TestClient, birds_file: Path) -> None:
    classes = client.get("/v1/classes").json()["classes"]
    assert [one["name"] for one in classes] == list(BIRDS)
    newest = modelfile.load(birds_file).photos[0][-1].hex()
    assert classes[0] == {"name": "crow", "photos": 10, "learned": "base", "latest": classes[0]["latest"]}
    assert classes[0]["latest"][0] == newest
    assert len(classes[0]["latest"]) == 4


def test_it_answers_as_the_model_does(client: TestClient, birds_file: Path, album: Path, hoopoes: list[Path]) -> None:
    photos = [album / "jay" / "3.png", hoopoes[0]]
    answer = client.post("/v1/predict?top=2&nearest=1", files=sent(photos))
    said = answer.json()
    assert answer.headers["etag"] == f'"{said["revision"]}"'
    assert answer.headers["content-type"] == "application/json"
    for told, reply in zip(said["answers"], replies(modelfile.load(birds_file), photos), strict=True):
        assert told["text"] == reply.answer.text()
        assert [one["class"] for one in told["best"]] == [name for name, _ in reply.answer.best[:2]]
    jay, hoopoe = said["answers"]
    assert (jay["class"], jay["known"], jay["taught_as"]) == ("jay", True, "jay")
    assert jay["nearest"][0]["digest"] == jay["digest"]
    assert hoopoe["taught_as"] is None
    assert len(hoopoe["nearest"]) == 1


def test_what_was_taught_is_put_together_once_a_snapshot(
    client: TestClient, album: Path, hoopoes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(words, "Taught", lambda model: made.append(1) or Taught(model))
    for _ in range(3):
        assert client.post("/v1/predict", files=sent([album / "jay" / "3.png"])).json()["answers"][0]["nearest"]
    assert len(made) == 1
    client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:1]))
    near = client.post("/v1/predict", files=sent(hoopoes[:1])).json()["answers"][0]["nearest"]
    assert near[0]["class"] == "hoopoe"
    assert len(made) == 2


def test_what_was_forgotten_goes_with_its_snapshot(birds_file: Path) -> None:
    model = modelfile.load(birds_file)
    assert words.taught(model) is words.taught(model)
    before = len(words._TAUGHT)
    del model
    gc.collect()
    assert len(words._TAUGHT) < before


def test_what_is_asked_most_is_found_first() -> None:
    """Routes are tried one after the other."""
    first: Any = ROUTES[0].routes[0]
    assert first.path == "/v1/predict"


def test_no_thread_is_asked_for_the_service_itself() -> None:
    """FastAPI runs dependencies that are no coroutines in a thread, for every request."""
    assert inspect.iscoroutinefunction(get_args(Served)[1].dependency)


def test_an_unreadable_photo_costs_no_other(client: TestClient, album: Path) -> None:
    files = [("photos", ("../a/broken.jpg", b"no picture", "image/jpeg")), *sent([album / "owl" / "1.png"])]
    said = client.post("/v1/predict", files=files).json()
    assert [told["class"] for told in said["answers"]] == ["owl"]
    assert said["unreadable"] == [{"photo": "broken.jpg", "problem": "is no picture that can be read"}]


def test_only_unreadable_photos_are_a_problem(client: TestClient) -> None:
    answer = client.post("/v1/predict", files=[("photos", ("empty.jpg", b"", "image/jpeg"))])
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["photos"] == [{"photo": "empty.jpg", "problem": "is empty (0 bytes)"}]


def test_a_postscript_file_is_not_opened(client: TestClient) -> None:
    """Pillow would hand it to another program."""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    answer = client.post("/v1/predict", files=[("photos", ("a.jpg", script, "image/jpeg"))])
    assert answer.json()["photos"] == [{"photo": "a.jpg", "problem": "is no picture that can be read"}]


def test_a_model_without_classes_cannot_answer(client: TestClient, birds_file: Path, album: Path) -> None:
    with modelfile.editing(birds_file) as model:
        for name in BIRDS:
            model.forget(name)
    for _ in range(100):
        answer = client.post("/v1/predict", files=sent([album / "owl" / "1.png"]))
        if answer.status_code == 409:
            break
    assert answer.json()["detail"] == "the model knows no class yet; teach it one"


def test_what_is_asked_wrongly_is_a_problem_document(client: TestClient) -> None:
    asked = [
        client.get("/nowhere"),
        client.put("/v1/model"),
        client.post("/v1/predict", json={}),
        client.post("/v1/predict?top=0", files=[("photos", ("a.jpg", b"x", "image/jpeg"))]),
        client.post("/v1/predict", files=[("text", ("a.jpg", b"x", "image/jpeg"))]),
        client.post("/v1/predict", content=b"text", headers={"content-type": "multipart/form-data; boundary=x"}),
    ]
    assert [answer.status_code for answer in asked] == [404, 405, 415, 422, 422, 400]
    for answer in asked:
        document = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert document["status"] == answer.status_code
        assert document["detail"]
        assert document["type"] == "about:blank"
