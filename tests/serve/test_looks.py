"""Closer looks through the service: photos of a class, the map, explanations, tests, the file itself."""

import io
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from albums import BIRDS
from fscil.serve import asking
from fscil.teach.outputs.evaluation import evaluate
from fscil.teach.storage import modelfile
from visitors import sent


def test_the_photos_of_a_class(client: TestClient, hoopoes: list[Path]) -> None:
    lesson = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:3])).json()
    listed = client.get("/v1/classes/hoopoe/photos").json()
    assert [photo["digest"] for photo in listed["photos"]] == lesson["digests"][::-1]
    assert sum(photo["recognised"] for photo in listed["photos"]) == lesson["review"]["recognised"]
    assert all(photo["without"] for photo in listed["photos"])
    assert "photos of 'hoopoe' would be recognised" in listed["text"]
    assert client.get("/v1/classes/nobody/photos").status_code == 404


def test_the_map_shows_every_class(client: TestClient) -> None:
    told = client.get("/v1/map").json()
    assert [one["class"] for one in told["classes"]] == list(BIRDS)
    assert 0 < told["share"] <= 1
    assert max(max(abs(one["x"]), abs(one["y"])) for one in told["classes"]) == 1
    assert client.get("/v1/map").json() == told


def test_an_answer_is_explained_by_a_picture(client: TestClient, album: Path) -> None:
    pytest.importorskip("pytorch_grad_cam")
    answer = client.post("/v1/explain", files=sent([album / "jay" / "3.png"]))
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).format == "PNG"
    broken = client.post("/v1/explain", files=[("photos", ("a.jpg", b"x", "image/jpeg"))])
    assert (broken.status_code, broken.json()["photos"][0]["photo"]) == (422, "a.jpg")
    assert client.post("/v1/explain", files=sent([album / "jay" / "3.png"] * 2)).status_code == 422


def test_without_the_extra_nothing_is_explained(
    client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking.importlib.util, "find_spec", lambda _: None)
    assert client.post("/v1/explain", files=sent([album / "jay" / "3.png"])).status_code == 501
    assert client.get("/v1/model").json()["explain"] is False


def test_a_test_in_portions_counts_like_one(
    client: TestClient, birds_file: Path, album: Path, hoopoes: list[Path]
) -> None:
    folders = {"jay": sorted((album / "jay").iterdir()), "owl": sorted((album / "wren").iterdir()), "hoopoe": hoopoes}
    told: dict = {"results": []}
    for name, photos in folders.items():
        form = {"labels": json.dumps([name] * len(photos)), "earlier": json.dumps(told["results"])}
        told = client.post("/v1/evaluate", data=form, files=sent(photos)).json()
    whole = evaluate(modelfile.load(birds_file), folders)
    assert (told["photos"], told["strangers"], told["taught"]) == (20, 8, 20)
    assert told["accuracy"] == pytest.approx(whole.metrics.accuracy)
    assert told["accuracy_interval_95"] == pytest.approx(whole.interval)
    assert told["refused"] == whole.refused
    assert told["taken_for_known_interval_95"] == pytest.approx(whole.false_acceptance_interval)
    assert [(c["truth"], c["said"], len(c["photos"])) for c in told["confused"]] == whole.confused
    many = {"labels": '["jay"]', "earlier": json.dumps(told["results"] * 500)}
    assert len(many["earlier"]) > 1e6
    told = client.post("/v1/evaluate", data=many, files=sent(folders["jay"][:1])).json()
    assert told["photos"] == 500 * 20 + 1


def test_a_test_without_labels_for_all_is_refused(client: TestClient, album: Path) -> None:
    photos = sent([album / "jay" / "3.png"])
    for form in ({}, {"labels": "[]"}, {"labels": "jay"}, {"labels": '["jay"]', "earlier": '[{"photo": 1}]'}):
        assert client.post("/v1/evaluate", data=form, files=photos).status_code == 422


def test_the_file_itself(client: TestClient, birds_file: Path) -> None:
    answer = client.get("/v1/model/file")
    assert answer.content == birds_file.read_bytes()
    assert answer.headers["etag"] == client.get("/v1/model").headers["etag"]
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''birds.fscil"
