"""A service of the album, in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fscil.serve.app import application
from fscil.serve.settings import Settings


@pytest.fixture
def client(birds_file: Path) -> Iterator[TestClient]:
    """Asks a service that has its own copy of the model file."""
    with TestClient(application(Settings(birds_file)), base_url="http://127.0.0.1:8000") as asking:
        yield asking
