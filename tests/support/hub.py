"""A stand-in for the model hub: what its client asks for, answered on this machine."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Gives `content` as the only file of any repository; notes what was asked."""

    def __init__(self, content: bytes):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.content, self.announced = content, hashlib.sha256(content).hexdigest()
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._start()

    def do_GET(self) -> None:
        self._start()
        if self.path.endswith("/model.safetensors"):
            self.wfile.write(self.server.content)

    def _start(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        if not self.path.endswith("/resolve/main/model.safetensors") and COMMIT not in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.send_header("ETag", f'"{self.server.announced}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def stand_in(content: bytes) -> Iterator[Hub]:
    """A hub that serves until the end of the block."""
    hub = Hub(content)
    Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
