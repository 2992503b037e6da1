"""Progress for people: a bar on a terminal, a line now and then in a log file, and a Ctrl-C that loses nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 30.0


class Bar:
    """Progress of one stage with its running loss; silent unless `shown`."""

    def __init__(self, title: str, total: int, shown: bool = True):
        self.title, self.total, self.shown = title, total, shown
        self._loss: float | None = None
        self._said = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Bar:
        if self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            texts = TextColumn("{task.description}"), TextColumn("{task.fields[loss]}")
            columns = (texts[0], BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), texts[1])
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self.title, total=self.total, loss="")
            self._bar.start()
        return self

    def advance(self, done: int, loss: float | None = None) -> None:
        if loss is not None:
            self._loss = loss if self._loss is None else 0.95 * self._loss + 0.05 * loss
        told = "" if self._loss is None else f"loss {self._loss:.3f}"
        if self._bar:
            self._bar.update(self._task, completed=done, loss=told)
        elif self.shown and time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            print(f"{self.title}: {done} of {self.total} {told}", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()


class Patience:
    """While it is entered, the first Ctrl-C only sets `asked`, so that a step can be finished and kept."""

    def __init__(self, shown: bool = True) -> None:
        self.asked, self.shown = False, shown

    def __enter__(self) -> Patience:
        self._process, self._before = os.getpid(), signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()  # only there signals can be caught
        self._catches = main and self._before not in (signal.SIG_IGN, None)  # in the background Ctrl-C means others
        if self._catches:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a worker that loads images goes on until its parent stops
        self.asked = True
        signal.signal(signal.SIGINT, self._before)
        if self.shown:  # not by print, which may be what the signal came in
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._catches:
            signal.signal(signal.SIGINT, self._before)
