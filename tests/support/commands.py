"""`fscil …` in the process of the test."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fscil.command import cli


class Outcome(NamedTuple):
    """How a command ended, what it said and what it complained about."""

    code: object
    out: str
    err: str


Fscil = Callable[..., Outcome]


@pytest.fixture
def fscil_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fscil:
    """Runs `fscil …` in this process and an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.formatwarning", None)

    def command(*tokens: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fscil", *map(str, tokens)])
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        return Outcome(code, *capsys.readouterr())

    return command
