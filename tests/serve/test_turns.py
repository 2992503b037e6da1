"""Photos on their way from the form to the answer: who decodes, who encodes, and what becomes of those who leave."""

import threading
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fscil.data.framing import Framing
from fscil.serve import eyes, server, words
from fscil.serve.app import application
from fscil.serve.settings import Settings
from fscil.serve.tasks import Cut, Task, Turns
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import Seen
from fscil.teach.seeing.photos import Upload
from fscil.teach.storage import modelfile
from visitors import sent, until


@pytest.fixture
def model(birds_file: Path) -> Model:
    return modelfile.load(birds_file)


def task_of(model: Model, photos: list[Path]) -> Task:
    framing = model.framing
    assert framing is not None
    uploads = [Upload(photo.name, photo.read_bytes()) for photo in photos]
    return Task(model, framing, uploads, False, lambda seen: seen)


def test_beside_the_encoder_few_photos_are_decoded_and_else_all() -> None:
    turns, stop, decoding = Turns(1), threading.Event(), []

    def decode() -> None:
        with turns.decoding():
            decoding.append(1)
            assert stop.wait(20)

    threads = [threading.Thread(target=decode) for _ in range(3)]
    with turns.encoding():
        for thread in threads:
            thread.start()
        assert until(lambda: len(decoding) == 1, 10)
        time.sleep(0.1)
        assert len(decoding) == 1
    try:
        assert until(lambda: len(decoding) == 3, 10)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


def test_a_service_decodes_few_photos_beside_the_encoder(
    client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder is held up; meanwhile only as many photos of another request are decoded as may be."""
    encoding, go_on, cut, encoded = threading.Event(), threading.Event(), eyes._cut, eyes._encoded
    beside, most, lock = [0], [0], threading.Lock()

    def held_up(model: Model, crops: list) -> list:  # type: ignore[type-arg]
        encoding.set()
        assert go_on.wait(20)
        return encoded(model, crops)

    def counted(photo: Upload, framing: Framing, small: bool) -> Cut:
        if not encoding.is_set() or go_on.is_set():
            return cut(photo, framing, small)
        with lock:
            beside[0] += 1
            most[0] = max(most[0], beside[0])
        time.sleep(0.05)
        with lock:
            beside[0] -= 1
        return cut(photo, framing, small)

    monkeypatch.setattr(eyes, "_encoded", held_up)
    monkeypatch.setattr(eyes, "_cut", counted)
    one, *others = sorted((album / "owl").iterdir())
    threads = [threading.Thread(target=client.post, args=("/v1/predict",), kwargs={"files": sent([one])})]
    threads[0].start()
    assert encoding.wait(20)
    threads += [threading.Thread(target=client.post, args=("/v1/predict",), kwargs={"files": sent(others)})]
    threads[1].start()
    assert until(lambda: most[0] > 0, 10)
    time.sleep(0.2)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert most[0] == eyes.BESIDE


def test_answers_are_made_by_the_thread_that_encodes(
    client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other thread has to be woken, which takes longer than making them."""
    told, threads = words.told, []
    monkeypatch.setattr(words, "told", lambda *given: threads.append(threading.current_thread().name) or told(*given))
    assert client.post("/v1/predict", files=sent([album / "owl" / "1.png"])).status_code == 200
    assert threads == ["encoder"]


def test_who_has_left_is_not_worked_for(model: Model, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(model, sorted((album / "owl").iterdir())[:3])
    assert task.begin() == 0
    task.result.cancel()
    assert task.begin() is None
    monkeypatch.setattr(eyes, "_cut", lambda *_: pytest.fail("nobody waits for it"))
    eyes.Eyes(1)._decode(task, 0)  # a giant that waited behind others


def test_a_photo_that_breaks_the_decoder_breaks_nothing_else(
    birds_file: Path, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sent it is told at once, and the others are answered."""
    cut, address = eyes._cut, "http://127.0.0.1:8000"

    def broken(photo: Upload, framing: Framing, small: bool) -> Cut:
        if photo.name == "0.png":
            raise MemoryError
        return cut(photo, framing, small)

    monkeypatch.setattr(eyes, "_cut", broken)
    photos = sorted((album / "owl").iterdir())
    app = application(Settings(birds_file))
    with TestClient(app, base_url=address, raise_server_exceptions=False) as client:
        assert client.post("/v1/predict", files=sent(photos)).status_code == 500
        assert client.post("/v1/predict", files=sent(photos[1:])).status_code == 200


def test_an_answer_that_fails_is_told(client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[object]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(words, "told", fails)
        with pytest.raises(ZeroDivisionError):
            client.post("/v1/predict", files=sent([album / "owl" / "1.png"]))
    assert client.post("/v1/predict", files=sent([album / "owl" / "1.png"])).status_code == 200


def test_no_photos_are_looked_at_too(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]

    async def nothing() -> Seen:
        seen: Seen = await service.eyes.look(service.model, [], False, lambda seen: seen)
        return seen

    assert client.portal is not None
    assert client.portal.call(nothing).positions == []


def test_a_service_keeps_memory(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(Exception):
        pass

    def keep(up_to: int) -> None:
        raise Kept

    monkeypatch.setattr(server, "keep_freed_memory", keep)
    with pytest.raises(Kept):
        server.run(Settings(birds_file, port=0), None, None, print)
