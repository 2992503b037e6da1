"""At the door: who may come in, how much they may bring, and what every answer carries."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient

from fscil.command.serve import serve
from fscil.errors import FscilError
from fscil.serve.app import application
from fscil.serve.settings import Limits, Settings, read_token
from visitors import sent

TOKEN = "a-long-word-that-nobody-guesses"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def visitor(settings: Settings, base: str = "http://127.0.0.1:8000") -> TestClient:
    return TestClient(application(settings), base_url=base)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_others_reach_nothing_without_a_token(birds_file: Path, host: str) -> None:
    with pytest.raises(FscilError, match="--token-file"):
        Settings(birds_file, host=host)
    assert Settings(birds_file, host=host, token=TOKEN).token == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "::1", "localhost"])
def test_this_machine_needs_none(birds_file: Path, host: str) -> None:
    assert Settings(birds_file, host=host).token is None


def test_a_token_is_not_printed(birds_file: Path) -> None:
    assert TOKEN not in repr(Settings(birds_file, token=TOKEN))


@pytest.mark.parametrize("content", ["", "short", "two words that are long enough", "ümläüte-are-no-ascii-text"])
def test_a_poor_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    with pytest.raises(FscilError, match="holds no token"):
        read_token(tmp_path / "token")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(tmp_path / "token") == TOKEN


def test_a_token_opens_everything(birds_file: Path, album: Path) -> None:
    photo = sent([album / "jay" / "1.png"])
    with visitor(Settings(birds_file, "0.0.0.0", token=TOKEN), "http://my.machine") as client:
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            answer = client.get("/v1/model", headers=wrong)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            for path in ("/v1/classes", "/v1/history", "/v1/model/file", "/metrics"):
                assert client.get(path, headers=wrong).status_code == 401
            assert client.post("/v1/predict", files=photo, headers=wrong).status_code == 401
            assert client.post("/v1/classes/x/photos", files=photo, headers=wrong).status_code == 401
        assert client.get("/v1/model", headers=BEARER).json()["token_for"] == "everything"
        assert client.post("/v1/predict", files=photo, headers=BEARER).status_code == 200
        assert [client.get(path).status_code for path in ("/health", "/ready", "/", "/openapi.json")] == [200] * 4


def test_questions_can_be_opened_to_all(birds_file: Path, album: Path) -> None:
    photo = sent([album / "jay" / "1.png"])
    settings = Settings(birds_file, "0.0.0.0", token=TOKEN, open_prediction=True)
    with visitor(settings, "http://my.machine") as client:
        assert client.get("/v1/model").json()["token_for"] == "changes"
        assert client.post("/v1/predict", files=photo).status_code == 200
        closed = [
            client.post("/v1/classes/x/photos", files=photo),
            client.post("/v1/none", files=photo),
            client.post("/v1/correct", files={"class": (None, "jay"), **dict(photo)}),
            client.patch("/v1/classes/jay", json={"name": "x"}, headers={"If-Match": "*"}),
            client.delete("/v1/classes/jay", headers={"If-Match": "*"}),
            client.post("/v1/undo", headers={"If-Match": "*"}),
            client.get("/v1/model/file"),
            client.get("/v1/history"),
            client.get("/metrics"),
        ]
        assert [answer.status_code for answer in closed] == [401] * len(closed)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""])
def test_at_home_the_service_has_no_other_name(client: TestClient, host: str) -> None:
    """A page that lets its name lead to this machine is not served."""
    assert client.get("/v1/model", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
def test_at_home_it_is_called_by_its_address(client: TestClient, host: str) -> None:
    assert client.get("/v1/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000"])
def test_pages_of_others_change_nothing(client: TestClient, birds_file: Path, hoopoes: list[Path], origin: str) -> None:
    before = birds_file.read_bytes()
    answer = client.post("/v1/classes/x/photos", files=sent(hoopoes[:1]), headers={"Origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert birds_file.read_bytes() == before


def test_its_own_page_may(client: TestClient, hoopoes: list[Path]) -> None:
    own = {"Origin": "http://127.0.0.1:8000"}
    assert client.post("/v1/classes/x/photos", files=sent(hoopoes[:1]), headers=own).status_code == 201


def test_every_answer_carries_the_headers(client: TestClient) -> None:
    for answer in (
        client.get("/"),
        client.get("/v1/model"),
        client.get("/nowhere"),
        client.get("/", headers={"Host": "x"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cache-control"] in ("no-store", "no-cache")


def test_too_much_is_refused(birds_file: Path, album: Path) -> None:
    limits = Limits(body=20_000, photos=2)
    photo = album / "jay" / "1.png"
    with visitor(Settings(birds_file, limits=limits)) as client:
        assert client.post("/v1/predict", files=sent([photo])).status_code == 200
        assert client.post("/v1/predict", files=sent([photo] * 3)).status_code == 413
        assert client.post("/v1/predict", content=b"x" * 20_001).status_code == 413
        assert client.post("/v1/predict", content=iter([b"x" * 15_000] * 2)).status_code in (413, 415)
        fields = {f"field {i}": (None, "x") for i in range(100)}
        assert client.post("/v1/predict", files=fields).status_code == 413
        boundary = {"Content-Type": "multipart/form-data; boundary=x"}
        endless = iter(
            [b'--x\r\nContent-Disposition: form-data; name="photos"; filename="a"\r\n\r\n', *[b"a" * 5000] * 5]
        )
        assert client.post("/v1/predict", content=endless, headers=boundary).status_code == 413
        assert client.get("/v1/model").json()["limits"] == {
            "body_bytes": 20_000,
            "photos": 2,
            "pixels": 80_000_000,
            "name_characters": 100,
        }


def test_who_waits_too_long_or_too_many_are_sent_away(birds_file: Path, album: Path) -> None:
    photo = album / "jay" / "1.png"
    with visitor(Settings(birds_file, limits=Limits(waiting=1))) as client:
        answer = client.post("/v1/predict", files=sent([photo] * 2))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.post("/v1/predict", files=sent([photo])).status_code == 200
    with visitor(Settings(birds_file, limits=Limits(held=100))) as client:
        assert client.post("/v1/predict", files=sent([photo])).status_code == 503
        assert client.get("/v1/model").status_code == 200


def test_a_slow_request_is_not_waited_for(birds_file: Path) -> None:
    async def dripping() -> AsyncIterator[bytes]:
        yield b"--x\r\n"
        await asyncio.sleep(5)
        yield b"never"

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        app = application(Settings(birds_file, limits=Limits(idle=0.2)))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                headers = {"Content-Type": "multipart/form-data; boundary=x"}
                slow = asyncio.create_task(client.post("/v1/predict", content=dripping(), headers=headers))
                other = await client.get("/v1/model")
                return await slow, other

    slow, other = asyncio.run(ask())
    assert (slow.status_code, other.status_code) == (408, 200)


def test_a_mistake_of_the_service_tells_nothing(birds_file: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fscil.serve import words

    def wrong(*_: object) -> None:
        raise RuntimeError(f"secret in {birds_file}")

    monkeypatch.setattr(words, "told", wrong)
    app = application(Settings(birds_file))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.post("/v1/predict", files=sent([album / "jay" / "1.png"]))
    assert answer.status_code == 500
    assert answer.json()["detail"] == "the service made a mistake; its log says more"
    assert "secret" not in answer.text


async def asked(settings: Settings, *requests: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
    """What a service answers to requests that are sent together, each a moment after the one before."""
    app = application(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=20) as client:
            begun = []
            for path, content in requests:
                begun.append(asyncio.create_task(client.post(path, **content)))
                await asyncio.sleep(0.1)
            return await asyncio.gather(*begun)


def form_of(photo: Path) -> tuple[bytes, dict[str, str]]:
    """A form with one photo as bytes, and its headers."""
    request = httpx.Request("POST", "http://127.0.0.1/", files=sent([photo]))
    return request.read(), dict(request.headers.items())


async def in_parts(content: bytes, parts: int, seconds: float) -> AsyncIterator[bytes]:
    for i in range(parts):
        yield content[i * len(content) // parts : (i + 1) * len(content) // parts]
        await asyncio.sleep(seconds / parts)


def test_who_only_announces_bytes_takes_no_room(birds_file: Path, album: Path) -> None:
    content, headers = form_of(album / "jay" / "1.png")
    most = len(content) + 100
    limits = Limits(body=most, held=most, idle=0.5)
    dripping = {"content": in_parts(b"--x", 3, 6.0), "headers": {**headers, "Content-Length": str(most)}}
    small = {"content": content, "headers": headers}
    slow, quick = asyncio.run(
        asked(Settings(birds_file, limits=limits), ("/v1/predict", dripping), ("/v1/predict", small))
    )
    assert (slow.status_code, quick.status_code) == (408, 200)


def test_a_long_upload_is_no_slow_answer(birds_file: Path, album: Path) -> None:
    content, headers = form_of(album / "jay" / "1.png")
    steady = {"content": in_parts(content, 10, 2.0), "headers": headers}
    limits = Limits(seconds=1.5, slowest=len(content) / 4)
    (answer,) = asyncio.run(asked(Settings(birds_file, limits=limits), ("/v1/predict", steady)))
    assert answer.status_code == 200
    drips = {"content": in_parts(content, 10, 5.0), "headers": headers}
    (answer,) = asyncio.run(
        asked(Settings(birds_file, limits=Limits(seconds=0.5, slowest=1e9)), ("/v1/predict", drips))
    )
    assert answer.status_code == 503


def test_a_download_may_take_longer_than_a_visitor_is_silent(birds_file: Path) -> None:
    """A visitor who reads sends nothing more."""
    headers = [(b"host", b"127.0.0.1")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "headers": headers,
    }
    scope |= {"method": "GET", "path": "/v1/model/file", "raw_path": b"/v1/model/file", "query_string": b""}
    request = [{"type": "http.request", "body": b"", "more_body": False}]
    parts: list[bytes] = []

    async def receive() -> dict[str, object]:
        if not request:
            await asyncio.Event().wait()
        return request.pop()

    async def send(message: dict[str, Any]) -> None:
        await asyncio.sleep(0.3)
        parts.append(message.get("body", b""))

    async def download() -> None:
        app = application(Settings(birds_file, limits=Limits(idle=0.1)))
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    asyncio.run(download())
    assert b"".join(parts) == birds_file.read_bytes()


def test_a_proxy_on_this_machine_has_a_name(birds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Host": "photos.example", "Origin": "https://photos.example"}
    with visitor(Settings(birds_file)) as client:
        assert client.get("/v1/model", headers=headers).status_code == 421
    kept: list[Settings] = []
    monkeypatch.setattr("fscil.serve.server.run", lambda settings, *_: kept.append(settings))
    serve(birds_file, name=["photos.example"])
    with visitor(kept[0]) as client:
        assert client.get("/v1/model", headers=headers).status_code == 200
