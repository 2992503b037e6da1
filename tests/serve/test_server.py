"""The process: it listens, serves, finishes what it accepted, and closes connections that say nothing."""

import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from commands import Fscil
from fscil.serve.server import _listening
from fscil.teach.storage import modelfile
from processes import FSCIL, serving
from visitors import sent

HASTY = f"from fscil.serve import patience; patience.HEADERS = 0.5; {FSCIL}"


def test_it_serves_and_finishes_what_it_accepted(birds_file: Path, hoopoes: list[Path]) -> None:
    with serving(birds_file, code=HASTY) as (process, address):
        with httpx.Client(base_url=address, timeout=30) as client:
            assert client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2])).status_code == 201
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            silent.settimeout(10)
            began = time.monotonic()
            assert silent.recv(100) == b""
            assert 0.3 < time.monotonic() - began < 8
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    assert "hoopoe" in modelfile.load(birds_file).classes


def test_an_answer_leaves_at_once() -> None:
    """Head and body of an answer are sent one after the other; the second must not wait until the first has arrived."""
    with _listening("127.0.0.1", 0) as door, socket.create_connection(door.getsockname()):
        line, _ = door.accept()
        with line:
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that nobody has signed but its own key, and the key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not there")
    file, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    named = ["-subj", "/CN=fscil test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", file]
    subprocess.run(["openssl", "req", "-x509", *kind, *named], check=True, capture_output=True)
    return file, key


def test_it_speaks_https(birds_file: Path, hoopoes: list[Path], certificate: tuple[Path, Path]) -> None:
    file, key = certificate
    with serving(birds_file, "--tls-cert", file, "--tls-key", key) as (_, address):
        assert address.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=file)
        with httpx.Client(base_url=address, timeout=30, verify=trust, headers={"Origin": address}) as client:
            assert client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2])).status_code == 201
            assert client.get("/v1/model").json()["classes"] == 7
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            httpx.get(f"{address}/health", verify=ssl.create_default_context())
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{address.replace('https', 'http')}/health")


def test_what_cannot_be_served_is_said_before(birds_file: Path, fscil_command: Fscil) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = fscil_command("serve", birds_file, "--port", port)
    assert told.code == 2
    assert f"nobody can listen at 127.0.0.1:{port} (Address already in use)" in told.err
    assert "choose another --host or --port" in fscil_command("serve", birds_file, "--port", 99999).err
    assert "--token-file" in fscil_command("serve", birds_file, "--host", "0.0.0.0").err
    assert "give both" in fscil_command("serve", birds_file, "--tls-cert", birds_file).err
    assert fscil_command("serve", birds_file.parent / "none.fscil").code == 2
    assert (
        "in PEM form"
        in fscil_command("serve", birds_file, "--port", port, "--tls-cert", birds_file, "--tls-key", birds_file).err
    )
