"""Small pictures of taught photos: only where they were asked for, in the model file itself, gone with their photo."""

import io
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from commands import Fscil
from fscil.errors import FscilError
from fscil.serve.app import application
from fscil.serve.settings import Settings
from fscil.teach.storage import modelfile
from fscil.tensors import read_tensors, write_tensors
from visitors import sent


def switch(file: Path, keep: bool) -> None:
    with modelfile.editing(file) as model:
        model.album.switch(keep)


def taught(client: TestClient, photos: list[Path]) -> list[str]:
    digests: list[str] = client.post("/v1/classes/hoopoe/photos", files=sent(photos)).json()["digests"]
    return digests


def test_none_is_kept_unless_asked_for(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    (digest,) = taught(client, hoopoes[:1])
    assert client.get("/v1/model").json()["thumbnails"] is False
    assert client.get(f"/v1/photos/{digest}").status_code == 404
    assert modelfile.load(birds_file).album.pictures == {}


def test_they_come_with_a_lesson_and_go_with_the_photo(birds_file: Path, hoopoes: list[Path]) -> None:
    switch(birds_file, True)
    with TestClient(application(Settings(birds_file)), base_url="http://127.0.0.1:8000") as client:
        digests = taught(client, hoopoes[:3])
        shown = client.get(f"/v1/photos/{digests[0]}")
        assert shown.headers["content-type"] == "image/webp"
        assert Image.open(io.BytesIO(shown.content)).size == (32, 32)
        assert client.get("/v1/classes/hoopoe/photos").json()["photos"][0]["thumbnail"] is True
        assert {photo.hex() for photo in modelfile.load(birds_file).album.pictures} == set(digests)
        client.delete(f"/v1/classes/hoopoe/photos/{digests[0]}?erase=true")
        assert client.get(f"/v1/photos/{digests[0]}").status_code == 404
        assert shown.content not in birds_file.read_bytes()
        assert client.get(f"/v1/photos/{digests[1]}").status_code == 200


def test_a_photo_that_is_undone_takes_its_picture_along(birds_file: Path, hoopoes: list[Path]) -> None:
    switch(birds_file, True)
    with TestClient(application(Settings(birds_file)), base_url="http://127.0.0.1:8000") as client:
        none = client.post("/v1/none", files=sent(hoopoes[:1])).json()
        client.post("/v1/correct", files=sent(hoopoes[1:2]), data={"class": "owl"})
        assert len(modelfile.load(birds_file).album.pictures) == 2
        tag = client.get("/v1/model").headers["etag"]
        client.post("/v1/undo", headers={"If-Match": tag})
        assert [photo.hex() for photo in modelfile.load(birds_file).album.pictures] == none["digests"]


def test_the_command_line_keeps_them_too(birds_file: Path, hoopoes: list[Path], fscil_command: Fscil) -> None:
    switch(birds_file, True)
    assert fscil_command("teach", birds_file, "hoopoe", *hoopoes[:2]).code == 0
    assert len(modelfile.load(birds_file).album.pictures) == 2


def test_switching_off_removes_all(birds_file: Path, hoopoes: list[Path], fscil_command: Fscil) -> None:
    switch(birds_file, True)
    fscil_command("teach", birds_file, "hoopoe", hoopoes[0])
    assert "thumbnails.data" in read_tensors(birds_file)[0]
    switch(birds_file, False)
    assert not any(name.startswith("thumbnails") for name in read_tensors(birds_file)[0])


def test_broken_pictures_are_a_damaged_file(birds_file: Path, hoopoes: list[Path], fscil_command: Fscil) -> None:
    switch(birds_file, True)
    fscil_command("teach", birds_file, "hoopoe", hoopoes[0])
    tensors, notes = read_tensors(birds_file)
    write_tensors(birds_file, tensors | {"thumbnails.data": tensors["thumbnails.data"][:-1]}, notes)
    with pytest.raises(FscilError, match="is damaged: its small pictures do not fit its photos"):
        modelfile.load(birds_file)
