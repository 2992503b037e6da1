"""Teaching through the service: on the disk before it is answered, seen by all, harmless when repeated."""

from pathlib import Path

from fastapi.testclient import TestClient

from albums import empty_model
from fscil.teach.base import learning
from fscil.teach.storage import modelfile
from visitors import sent, until


def test_a_class_is_taught_and_recognised(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    answer = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:5]))
    lesson = answer.json()
    assert answer.status_code == 201
    assert (lesson["class"], lesson["taught"], len(lesson["digests"])) == ("hoopoe", 5, 5)
    assert lesson["review"]["photos"] == 5
    assert "photos of 'hoopoe' would be recognised" in lesson["review"]["text"]
    saved = modelfile.load(birds_file)
    assert saved.revision == lesson["revision"] == answer.headers["etag"].strip('"')
    assert [photo.hex() for photo in saved.photos[6]] == lesson["digests"]
    assert client.post("/v1/predict", files=sent(hoopoes[5:6])).json()["answers"][0]["class"] == "hoopoe"


def test_the_same_photos_again_change_nothing(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    first = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:3]))
    file = birds_file.stat()
    again = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:3]))
    assert (again.status_code, again.json()["taught"]) == (200, 0)
    assert again.json()["revision"] == first.json()["revision"]
    assert birds_file.stat() == file


def test_a_name_with_a_slash_and_an_accent(client: TestClient, hoopoes: list[Path]) -> None:
    answer = client.post("/v1/classes/Wiede%2Fhopf%20%C3%A9/photos", files=sent(hoopoes[:2]))
    assert answer.json()["class"] == "Wiede/hopf é"
    assert client.get("/v1/classes").json()["classes"][-1]["name"] == "Wiede/hopf é"


def test_names_that_cannot_be_are_refused(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    before = birds_file.read_bytes()
    for name in ("%20", "a" * 101, "%1B[2J", "none of these"):
        assert client.post(f"/v1/classes/{name}/photos", files=sent(hoopoes[:1])).status_code == 422
    assert birds_file.read_bytes() == before


def test_a_change_meant_for_another_state_is_refused(client: TestClient, hoopoes: list[Path]) -> None:
    tag = client.get("/v1/model").headers["etag"]
    assert client.post("/v1/classes/a/photos", files=sent(hoopoes[:1]), headers={"If-Match": tag}).status_code == 201
    refused = client.post("/v1/classes/b/photos", files=sent(hoopoes[1:2]), headers={"If-Match": tag})
    assert refused.status_code == 412
    assert client.get("/v1/model").json()["classes"] == 7


def test_what_the_command_line_changes_is_seen(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
    with modelfile.editing(birds_file) as model:
        model.rename("hoopoe", "upupa")
    assert until(lambda: client.get("/v1/classes").json()["classes"][-1]["name"] == "upupa", 1.0)
    client.post("/v1/classes/upupa/photos", files=sent(hoopoes[2:4]))
    texts = [step["text"] for step in client.get("/v1/history").json()["steps"]]
    assert texts[:3] == ["taught 'upupa' from 2 photos", "renamed 'hoopoe' to 'upupa'", "taught 'hoopoe' from 2 photos"]


def test_a_model_replaced_by_another_is_taken_over(client: TestClient, birds_file: Path, album: Path) -> None:
    """The encoder stays, but not what was fitted to its features."""

    model = empty_model()
    sources = [album / name / f"{i}.png" for name in ("owl", "wren") for i in range(4)]
    learning.learn(model, sources, [photo.parent.name for photo in sources], "prototypes")
    modelfile.replace(model, birds_file)
    assert until(lambda: client.get("/v1/model").json()["classes"] == 2, 1.0)
    assert client.post("/v1/predict", files=sent([sources[0]])).json()["answers"][0]["class"] == "owl"
