"""Many visitors who ask the same for a while, and how long each of them waited."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.visitor import FORM, Gone, Visitor


@dataclass
class Rush:
    """How long answers took, in seconds, and with which status they came (0: none came)."""

    seconds: float
    waits: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    processor: float = 0.0  # seconds that the process of the visitors took from the cores

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.waits) / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the answers came."""
        ordered = sorted(self.waits)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def text(self) -> str:
        p50, p95, p99 = (self.percentile(share) for share in (0.5, 0.95, 0.99))
        bad = {status: n for status, n in self.statuses.items() if status not in (200, 201)}
        return (
            f"{self.rate:.1f}/s, p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms, n {len(self.waits)}"
            + f", others {bad}" * bool(bad)
        )


def rush(port: int, paths: Iterator[str], bodies: Iterator[bytes], clients: int, seconds: float, most: int) -> Rush:
    """Visitors ask until the time is over, or until there are no more bodies; `most` answers in all."""
    lock, begin = threading.Lock(), time.monotonic()
    told, turns, processor = Rush(0.0), itertools.count(), time.process_time()

    def visit() -> None:
        visitor = Visitor(port)
        while time.monotonic() < begin + seconds:
            with lock:
                body = next(bodies, None)
                path = next(paths)
                if body is None or next(turns) >= most:
                    return
            asked = time.monotonic()
            try:
                status = visitor.ask("POST", path, body, FORM).status
            except Gone:
                status = 0
            with lock:
                told.waits.append(time.monotonic() - asked)
                told.statuses[status] += 1

    threads = [threading.Thread(target=visit) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.seconds, told.processor = time.monotonic() - begin, time.process_time() - processor
    return told
