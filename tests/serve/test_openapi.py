"""OpenAPI is true to the code: what schemathesis makes of it crashes nothing, and no answer is missing in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode, checks
from schemathesis.schemas import BaseSchema
from starlette.types import ASGIApp, Receive, Scope, Send

from fscil.serve.app import application
from fscil.serve.settings import Settings
from fscil.teach.storage import modelfile

CHECKS = (
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
)


class Running:
    """An application that runs already: schemathesis would start and stop it for each request."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        for word in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{word}.complete"})


@pytest.fixture(scope="module")
def described(learned_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    file = tmp_path_factory.mktemp("described") / "birds.fscil"
    file.write_bytes(learned_file.read_bytes())
    app = application(Settings(file, names=("testserver",)))
    with TestClient(app):
        yield schemathesis.openapi.from_asgi("/openapi.json", Running(app))
    assert modelfile.load(file).revision  # whatever was asked, the file is one that can be loaded


def ask(strategy: SearchStrategy[schemathesis.Case], examples: int) -> None:
    """Makes requests of a kind; each answer has to be one that is described."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def is_described(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    is_described()


def test_every_answer_is_described(described: BaseSchema) -> None:
    operations = [result.ok() for result in described.get_all_operations()]
    assert len(operations) >= 20
    for operation in operations:
        ask(operation.as_strategy(), 6)
        if operation.body:  # else hardly anything is wrong
            ask(operation.as_strategy(GenerationMode.NEGATIVE), 4)


def test_what_is_known_and_allowed_is_described(described: BaseSchema) -> None:
    """Made-up names and revisions are mostly refused; these are not."""
    for method, path in (("PATCH", "/v1/classes/{name}"), ("POST", "/v1/classes/{name}/photos"), ("POST", "/v1/undo")):
        named = {"path_parameters": {"name": "jay"}} if "{name}" in path else {}
        ask(described[path][method].as_strategy(headers={"If-Match": "*"}, **named), 6)
