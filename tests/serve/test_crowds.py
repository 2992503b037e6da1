"""Large photos, silent connections and requests that end early do not hold up others, nor fill the log."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from albums import picture
from fscil.serve import eyes, patience
from fscil.serve.app import application
from fscil.serve.settings import Settings
from visitors import sent, until


def test_large_photos_wait_for_each_other_and_for_nobody_else(
    client: TestClient, album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, cut, large = threading.Event(), eyes._cut, tmp_path / "large.png"
    picture(0, 0, 200).save(large)

    def held_up(photo: eyes.Upload, framing: eyes.Framing, small: bool) -> eyes.Cut:
        if photo.name == large.name:
            assert go_on.wait(20)
        return cut(photo, framing, small)

    monkeypatch.setattr(eyes, "_cut", held_up)
    monkeypatch.setattr(eyes, "GIANT", 100 * 100)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.post, "/v1/predict", files=sent([large] * 8))
        try:
            for photo in sorted((album / "owl").iterdir()):
                assert client.post("/v1/predict", files=sent([photo])).status_code == 200
            assert not slow.done()
        finally:
            go_on.set()
        assert len(slow.result(20).json()["answers"]) == 8


def test_one_request_does_not_fill_the_queue(client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of a second request are decoded before all those of the first."""
    order, cut = [], eyes._cut

    def noted(photo: eyes.Upload, framing: eyes.Framing, small: bool) -> eyes.Cut:
        order.append(photo.name)
        time.sleep(0.02)
        return cut(photo, framing, small)

    monkeypatch.setattr(eyes, "_cut", noted)
    many, one = sorted((album / "owl").iterdir())[1:] * 4, album / "owl" / "0.png"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/v1/predict", files=sent(many))
        while not order:
            time.sleep(0.001)
        assert client.post("/v1/predict", files=sent([one])).status_code == 200
        first.result(20)
    assert order.index(one.name) < len(many) - eyes.DECODERS


def test_nobody_is_sent_elsewhere(client: TestClient) -> None:
    for path in ("/v1/none/photos/00%2e%2e%2f", "/v1/model/", "/v1/classes/"):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code in (404, 405)
        assert "location" not in answer.headers


def test_a_request_that_ends_early_is_no_mistake_of_the_service(
    birds_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who hangs up in the middle of a form gets no answer; the log holds no traceback."""
    messages = [{"type": "http.request", "body": b"--x\r\n", "more_body": True}, {"type": "http.disconnect"}]
    answers = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    async def hang_up() -> None:
        app = application(Settings(birds_file))
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"multipart/form-data; boundary=x")]
        place = {"method": "POST", "path": "/v1/predict", "raw_path": b"/v1/predict", "query_string": b""}
        async with app.router.lifespan_context(app):
            scope = {"type": "http", "http_version": "1.1", "scheme": "http", "headers": headers, **place}
            await app(scope, receive, send)

    asyncio.run(hang_up())
    assert answers[0]["status"] == 400
    assert caplog.records == []


@pytest.fixture
def served() -> Iterator[uvicorn.Server]:
    """A server of which only the connections matter."""

    async def hello(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(hello, http=patience.Patient, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield server
        server.should_exit = True
        thread.join(10)


def asked(line: socket.socket) -> bytes:
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return line.recv(1000)[:15]


def closed(line: socket.socket) -> bool:
    line.settimeout(0.3)
    try:
        return line.recv(10) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_those_who_are_silent_for_longest_make_room(served: uvicorn.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "CROWD", 4)
    address = served.servers[0].sockets[0].getsockname()
    polite, *silent = (socket.create_connection(address, 5) for _ in range(4))
    silent[0].sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert until(lambda: len(served.server_state.connections) == 4, 5.0)
    assert asked(polite) == b"HTTP/1.1 200 OK"
    late = [socket.create_connection(address, 5) for _ in range(2)]
    assert [asked(line) for line in (polite, *late)] == [b"HTTP/1.1 200 OK"] * 3
    assert sum(closed(line) for line in silent) == 2
    for line in (polite, *silent, *late):
        line.close()
