"""A real service in this process that can be stopped and started again at the same address."""

import json
import socket
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import uvicorn

from fscil.serve.app import application
from fscil.serve.settings import Limits, Settings


class Serving:
    """Serves a model file until it is stopped."""

    def __init__(self, file: Path, token: str | None = None, limits: Limits | None = None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._settings = Settings(file, port=self._port, token=token, limits=limits or Limits())
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        config = uvicorn.Config(application(self._settings), port=self._port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)

    def change(self, method: str, path: str, **values: str) -> None:
        """What somebody else does."""
        headers = {"If-Match": "*", "Content-Type": "application/json"}
        body = json.dumps(values).encode() if values else None
        with urlopen(Request(f"{self.address}v1/{path}", body, headers, method=method)):
            pass

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
