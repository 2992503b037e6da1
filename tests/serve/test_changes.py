"""Changes through the service: corrected, taken back, renamed, forgotten, erased, undone; never half, never unseen."""

from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from fscil.teach.names import NONE
from fscil.teach.storage import modelfile
from visitors import sent


def tag(client: TestClient) -> dict[str, str]:
    return {"If-Match": client.get("/v1/model").headers["etag"]}


def taught(client: TestClient, photos: list[Path], name: str = "hoopoe") -> list[str]:
    """The digests of photos that were taught."""
    return client.post(f"/v1/classes/{name}/photos", files=sent(photos)).json()["digests"]


def names(client: TestClient) -> list[str]:
    return [one["name"] for one in client.get("/v1/classes").json()["classes"]]


def test_one_photo_is_taken_back(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    taught(client, hoopoes[:4])
    before = modelfile.load(birds_file).branches[0].prototypes.take(6)
    (digest,) = taught(client, hoopoes[4:5])
    answer = client.delete(f"/v1/classes/hoopoe/photos/{digest}")
    told = answer.json()
    assert (told["photos"], told["sources"], told["gone"], told["reviews"][0]["photos"]) == (1, ["hoopoe"], [], 4)
    after = modelfile.load(birds_file).branches[0].prototypes.take(6)
    assert after.photos == before.photos
    assert (after.total == before.total).all()
    assert client.delete(f"/v1/classes/hoopoe/photos/{digest}").status_code == 404
    assert client.delete(f"/v1/classes/nobody/photos/{digest}").status_code == 404
    assert client.delete("/v1/classes/hoopoe/photos/123").status_code == 422


def test_the_last_photo_takes_its_class_along(client: TestClient, hoopoes: list[Path]) -> None:
    (digest,) = taught(client, hoopoes[:1])
    assert client.delete(f"/v1/classes/hoopoe/photos/{digest}").json()["gone"] == ["hoopoe"]
    assert "hoopoe" not in names(client)
    assert client.post("/v1/undo", headers=tag(client)).json()["undone"] == "took 1 photo out of 'hoopoe'"
    assert "hoopoe" in names(client)


def test_an_erased_photo_leaves_no_byte(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    digest, _ = taught(client, hoopoes[:2])
    client.delete(f"/v1/classes/hoopoe/photos/{digest}?erase=true")
    content = birds_file.read_bytes()
    assert digest.encode() not in content
    assert bytes.fromhex(digest) not in content
    assert client.post("/v1/undo", headers=tag(client)).status_code == 409


def test_a_wrong_answer_is_corrected_with_the_photo(client: TestClient, hoopoes: list[Path], album: Path) -> None:
    told = client.post("/v1/correct", data={"class": "hoopoe"}, files=sent([album / "jay" / "3.png"])).json()
    assert (told["class"], told["photos"], told["sources"]) == ("hoopoe", 1, ["jay"])
    answer = client.post("/v1/predict", files=sent([album / "jay" / "3.png"])).json()["answers"][0]
    assert answer["taught_as"] == "hoopoe"
    again = client.post("/v1/correct", data={"class": "hoopoe"}, files=sent([album / "jay" / "3.png"])).json()
    assert (again["photos"], again["revision"]) == (0, told["revision"])


def test_a_taught_photo_is_corrected_by_its_digest(client: TestClient, hoopoes: list[Path]) -> None:
    digest, *_ = taught(client, hoopoes[:2])
    told = client.post("/v1/correct", data={"class": "jay", "digest": digest}, files={}).json()
    assert told["detail"] == "send photos as multipart/form-data, each in a field called photos"
    form = {"class": (None, "jay"), "digest": (None, digest)}
    assert client.post("/v1/correct", files=form).json()["sources"] == ["hoopoe"]
    assert client.post("/v1/correct", files={**form, "digest": (None, "f" * 32)}).status_code == 404
    assert client.post("/v1/correct", files={**form, "digest": (None, "xyz")}).status_code == 422
    assert client.post("/v1/correct", files={"class": (None, "jay")}).status_code == 422
    assert client.post("/v1/correct", files={"digest": (None, digest)}).status_code == 422


def test_photos_of_none_of_these(client: TestClient, hoopoes: list[Path]) -> None:
    lesson = client.post("/v1/none", files=sent(hoopoes[:2])).json()
    assert (lesson["class"], lesson["taught"], lesson["review"]) == (NONE, 2, None)
    answer = client.post("/v1/predict", files=sent(hoopoes[:1])).json()["answers"][0]
    assert (answer["known"], answer["like_none"], answer["taught_as"], answer["nearest"][0]["class"]) == (
        False,
        True,
        NONE,
        NONE,
    )
    listed = client.get("/v1/none").json()
    assert [photo["digest"] for photo in listed["photos"]] == lesson["digests"][::-1]
    assert client.delete(f"/v1/none/photos/{lesson['digests'][0]}").json()["sources"] == [NONE]
    assert client.get("/v1/model").json()["none"] == 1
    form = {"class": (None, NONE), "digest": (None, client.get("/v1/classes").json()["classes"][0]["latest"][0])}
    assert client.post("/v1/correct", files=form).json()["sources"] == ["crow"]
    assert client.get("/v1/model").json()["none"] == 2


def test_rename_forget_and_undo(client: TestClient, birds_file: Path) -> None:
    before = client.get("/v1/model").json()["revision"]
    renamed = client.patch("/v1/classes/jay", json={"name": " Eichelhäher "}, headers=tag(client))
    assert renamed.json() == {"revision": renamed.headers["etag"].strip('"'), "class": "Eichelhäher"}
    assert client.patch("/v1/classes/owl", json={"name": "crow"}, headers=tag(client)).status_code == 409
    assert client.patch("/v1/classes/jay", json={"name": "x"}, headers=tag(client)).status_code == 404
    forgotten = client.delete("/v1/classes/Eichelh%C3%A4her", headers=tag(client)).json()
    assert (forgotten["class"], forgotten["erased"], forgotten["was_base"]) == ("Eichelhäher", False, True)
    assert "Eichelhäher" not in names(client)
    assert client.post("/v1/undo", headers=tag(client)).json()["undone"] == "forgot 'Eichelhäher'"
    assert client.post("/v1/undo", headers=tag(client)).json()["revision"] == before
    assert client.post("/v1/undo", headers=tag(client)).status_code == 409
    assert modelfile.load(birds_file).revision == before


def test_an_erased_class_is_final(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    digests = taught(client, hoopoes[:3])
    client.delete("/v1/classes/hoopoe", headers=tag(client))
    answer = client.delete("/v1/classes/hoopoe?erase=true", headers=tag(client))
    assert (answer.status_code, answer.json()["erased"], answer.json()["was_base"]) == (200, True, False)
    content = birds_file.read_bytes()
    assert not any(secret in content for secret in (b"hoopoe", *map(bytes.fromhex, digests)))
    assert client.delete("/v1/classes/hoopoe?erase=true", headers=tag(client)).status_code == 404


@pytest.mark.parametrize("name", ["jay/photos/" + 32 * "0", "jay/photos/x", "a/b", "50%2F", "jay/photos"])
def test_a_name_that_looks_like_a_path_is_a_name(client: TestClient, hoopoes: list[Path], name: str) -> None:
    """`/` and `%` in a name are written as `%2F` and `%25`; then nothing of it is taken for a part of the path."""
    path = f"/v1/classes/{quote(name, safe='')}"
    assert client.post(f"{path}/photos", files=sent(hoopoes[:2])).json()["class"] == name
    first, second = (photo["digest"] for photo in client.get(f"{path}/photos").json()["photos"])
    assert client.delete(f"{path}/photos/{first}").json()["sources"] == [name]
    assert client.patch(path, json={"name": f"{name}!"}, headers=tag(client)).json()["class"] == f"{name}!"
    path += "%21"
    assert client.get(f"{path}/photos").json()["photos"][0]["digest"] == second
    assert client.delete(path, headers=tag(client)).json()["class"] == f"{name}!"
    assert names(client) == ["crow", "jay", "kite", "owl", "robin", "wren"]


def forms(client: TestClient, headers: dict[str, str]) -> list[Response]:
    return [
        client.post("/v1/undo", headers=headers),
        client.patch("/v1/classes/jay", json={"name": "x"}, headers=headers),
        client.delete("/v1/classes/jay", headers=headers),
    ]


@pytest.mark.parametrize("headers", [{}, {"If-Match": '"of before"'}, {"If-Match": ""}])
def test_who_has_not_seen_the_newest_state_changes_nothing(
    client: TestClient, birds_file: Path, hoopoes: list[Path], headers: dict[str, str]
) -> None:
    taught(client, hoopoes[:1])
    before = birds_file.read_bytes()
    assert [answer.status_code for answer in forms(client, headers)] == [412, 412, 412]
    assert birds_file.read_bytes() == before


def test_any_state_can_be_meant(client: TestClient, hoopoes: list[Path]) -> None:
    taught(client, hoopoes[:1])
    assert [answer.status_code for answer in forms(client, {"If-Match": "*"})] == [200, 200, 404]


def test_a_model_that_keeps_no_features_says_what_to_do(client: TestClient, birds_file: Path, album: Path) -> None:
    with modelfile.editing(birds_file) as model:
        model.memory.keep = False
    digest = client.get("/v1/classes").json()["classes"][0]["latest"][0]
    answer = client.delete(f"/v1/classes/crow/photos/{digest}")
    assert answer.status_code == 409
    assert "fscil unteach" in answer.json()["detail"]
    assert client.post("/v1/predict", files=sent([album / "owl" / "1.png"])).json()["answers"][0]["nearest"] == []
