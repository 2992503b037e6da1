"""Commands as processes that can be killed: a service that lives until then, and `fscil …` beside it."""

from __future__ import annotations

import functools
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from soak.visitor import Gone, Visitor

NOBODY = 65534  # a user for whom permissions hold
LONGEST_START = 120.0  # seconds; only a machine that does much else needs so long


@functools.cache
def _cradle() -> ForkServerContext:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["soak.cradle"])
    return context


def command(
    tokens: Sequence[object], log: Path, environment: Mapping[str, str] | None = None, humble: bool = False
) -> BaseProcess:
    """`fscil …` as a process; `humble`: not as root, who may write everywhere."""
    process = _cradle().Process(target=_command, args=([*map(str, tokens)], log, dict(environment or {}), humble))
    process.start()
    return process


def _command(tokens: Sequence[str], log: Path, environment: Mapping[str, str], humble: bool) -> None:
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    os.environ.update(environment)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent and parent.join(), os._exit(1)), daemon=True).start()
    from soak import cradle  # there already, unless the fork server was started by somebody else

    if humble and os.geteuid() == 0:
        os.seteuid(NOBODY)  # only now: root's Python may be closed to others
    sys.argv = ["fscil", *tokens]
    cradle.cli.main()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Life:
    """A service from its start to its end, whichever end that is."""

    def __init__(
        self, file: Path, log: Path, environment: Mapping[str, str] | None = None, humble: bool = False
    ) -> None:
        self.port = free_port()
        self._process = command(["serve", file, "--port", self.port], log, environment, humble)
        self._await_ready()

    def _await_ready(self) -> None:
        end = time.monotonic() + LONGEST_START
        while True:
            try:
                if Visitor(self.port).ask("GET", "/ready").status == 200:
                    return
            except Gone:
                time.sleep(0.02)
            if not self._process.is_alive() or time.monotonic() > end:
                self.kill()
                raise RuntimeError("the service does not start; its log says why")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.join()

    def stop(self) -> int:
        """Asks it to end; gives its exit code, -9 where it had to be killed."""
        os.kill(self.pid, signal.SIGTERM)
        self._process.join(60)
        self._process.kill()
        self._process.join()
        return self._process.exitcode or 0

    def limit_files(self, size: int) -> None:
        """From now on no file may grow beyond a size in bytes, as on a disk that is full; -1: any may."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, hard))

    def memory(self) -> int:
        """Bytes that it occupies."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
