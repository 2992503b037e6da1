"""`fscil serve` as a process of its own, for tests that have to see a real one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from soak.lives import free_port

FSCIL = "import tiny; from fscil.command import cli; cli.main()"


class Served(NamedTuple):
    """A service, and where it is."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def serving(file: Path, *options: object, code: str = FSCIL, below: Sequence[str] = ()) -> Iterator[Served]:
    """A service of a model file with the tiny encoder, at any free port; `below`: a command that starts commands."""
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    command = [*below, sys.executable, "-c", code, "serve", str(file), "--port", str(free_port()), *map(str, options)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield Served(process, process.stdout.readline().split(" at ")[1].split(";")[0])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what the command has started
        process.wait()
        process.stdout.close()
