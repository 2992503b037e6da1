"""The process: it listens, serves, finishes what it accepted, and closes connections that say nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from commands import Fscil
from fscil.teach.storage import modelfile
from visitors import sent

TEST = Path(__file__).parent.parent
SERVER = (
    "import sys; from pathlib import Path; import tiny; from fscil.serve import patience, server, settings; "
    "patience.HEADERS = 0.5; server.run(settings.Settings(Path(sys.argv[1]), port=0), None, None, print)"
)


@pytest.fixture
def served(birds_file: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    paths = [str(TEST / "support"), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", SERVER, str(birds_file)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split(" at ")[1].split(";")[0]
    yield process, address
    process.kill()
    process.wait()
    process.stdout.close()


def test_it_serves_and_finishes_what_it_accepted(
    served: tuple[subprocess.Popen[str], str], birds_file: Path, hoopoes: list[Path]
) -> None:
    process, address = served
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
