"""What users are told has one form: a sentence that begins in lower case, unless with a name, and has no full stop."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fscil

NAMES = ("CIFAR-100", "CUB-200", "F2M", "FACT", "SoftNet", "W1")


def sentences() -> Iterator[tuple[str, str]]:
    """Where an FscilError is made, and its text with {} for what is filled in."""
    for file in sorted(Path(fscil.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "FscilError":
                yield f"{file.name}:{node.lineno}", "".join(_parts(node.args[0]))


def _parts(node: ast.expr) -> Iterator[str]:
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        yield str(part.value) if isinstance(part, ast.Constant) else "{}"


@pytest.mark.parametrize(("place", "sentence"), list(sentences()))
def test_an_error_is_one_sentence_without_capital_and_full_stop(place: str, sentence: str) -> None:
    assert not sentence[0].isupper() or sentence.startswith(NAMES)
    assert not sentence.endswith((".", "!"))
