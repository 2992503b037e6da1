"""What a service allows, and how much of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from fscil.errors import FscilError

MEGABYTE = 1024 * 1024
SHORTEST_TOKEN = 16  # characters; shorter ones can be guessed


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may ask for."""

    body: int = 64 * MEGABYTE  # bytes of a request
    held: int = 256 * MEGABYTE  # bytes of all requests that are read or worked on
    photos: int = 64  # of a request
    waiting: int = 256  # photos that wait for an answer
    changes: int = 128  # that wait to be written
    seconds: float = 30.0  # from the end of a request to the beginning of its answer
    slowest: float = 32 * 1024.0  # bytes a second at which a request has to come, once these seconds have passed
    download: float = 600.0  # seconds for an answer that has begun
    idle: float = 10.0  # seconds without a byte of a request


@dataclass(frozen=True)
class Settings:
    """How a model is served."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    open_prediction: bool = False  # whether questions need no token
    names: tuple[str, ...] = ()  # by which the service is called besides its address
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise FscilError(
                f"--host {self.host} opens the model to other machines, which needs a token: write one into a file and "
                "give it with --token-file"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path) -> str:
    """The token in the first line of a file."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise FscilError(f"{file} cannot be read as a token file; give a text file with one long word") from problem
    token = lines[0].strip() if lines else ""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or any(c.isspace() for c in token):
        raise FscilError(
            f"{file} holds no token in its first line; write one word of {SHORTEST_TOKEN} or more letters and digits"
        )
    return token
