"""The protocol: learn a session, test on every class seen so far, write; continue where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fscil.data.images import Framing, Images
from fscil.data.sessions import Benchmark, Session
from fscil.methods.shared.method import Method, Prototypical, compared_features
from fscil.running.costs import Cost, peak_memory
from fscil.running.progress import Bar
from fscil.running.training import Run

TEST_BATCH = 500


def follow(
    method: Method,
    benchmark: Benchmark,
    run: Run,
    tell: Callable[[Session], None] | None = None,
    shared_base: dict[str, Any] | None = None,
) -> None:
    """Learns and tests session by session; what the run folder already holds is loaded, not repeated.

    `shared_base` tells what makes this method what it is, where runs share what their base session makes of it.
    """
    tester = Tester(method, benchmark, run)
    done = run.devices.agree(run.folder.finished(benchmark.session_count))
    for session in benchmark.sessions(oracle=method.needs.oracle, held_out=method.config.held_out):
        if session.index == done - 1:
            run.folder.restore(method, session.index)
            run.folder.tidy(session.index)
        if session.index >= done:
            with run.learning(session.index) as cost:
                learn(method, session, run, shared_base)
            if run.folder.writable:
                began = time.perf_counter()
                predictions = tester.predict(session)
                record = {**session_record(session, run, cost), "test_seconds": time.perf_counter() - began}
                run.folder.write_session(session.index, method.state_dict(), predictions, record)
        if tell:
            tell(session)


def learn(method: Method, session: Session, run: Run, shared_base: dict[str, Any] | None) -> None:
    """Learns a session; a base session that is shared, only if no other run has learned it."""

    def learn_base() -> None:
        with run.told_as_stage():
            method.learn_base(session, run)

    if session.index:
        method.learn_new(session, run)
    elif shared_base is None:
        method.learn_base(session, run)
    else:
        run.cached("base session", shared_base, method, learn_base)


def session_record(session: Session, run: Run, cost: Cost) -> dict[str, Any]:
    """What learning a session cost."""
    return {
        "session": session.index,
        "classes": list(session.classes),
        "learn_seconds": cost.seconds,
        "macs": cost.macs,
        "images_per_second": cost.images / cost.seconds,
        "peak_memory_bytes": peak_memory(),
        "stages": [vars(stage) for stage in run.stages],
    }


class Tester:
    """Predicts all test images of the classes seen so far; a frozen method encodes each test image once per run."""

    def __init__(self, method: Method, benchmark: Benchmark, run: Run):
        self.method, self.benchmark, self.run = method, benchmark, run
        self.features: list[list[Tensor]] = []
        self.encoded = 0  # sessions

    @torch.no_grad()
    def predict(self, session: Session) -> dict[str, np.ndarray]:
        """`truth` and `predicted` labels and, for a sum of branches, what each alone would predict (`branch.NAME`)."""
        self.method.eval()
        images = self.benchmark.test(session.index)
        framing = self.method.test_framing(session)
        predictions = {"truth": images.labels.numpy()}
        if isinstance(self.method, Prototypical):
            features = self._embedded(self.method, images, framing, session.index)
            predictions["predicted"] = self._labels(self.method.relate(features))
            if len(features) > 1:
                for branch, f in zip(self.method.branches, features, strict=True):
                    predictions[f"branch.{branch.name}"] = self._labels(branch.relate(f))
        else:
            scores = [self.method.scores(x) for x in self._shown(images, framing, "testing")]
            predictions["predicted"] = self._labels(torch.cat(scores))
        return predictions

    def _embedded(self, method: Prototypical, images: Images, framing: Framing, session: int) -> list[Tensor]:
        """Features of the test images so far; test(t) begins with test(t - 1), so only the rest is encoded.

        Session by session, also in a resumed run: the last digits depend on which images share a batch.
        """
        sizes = [len(self.benchmark.test_indices(t)) for t in range(session + 1)]
        for part in torch.split(torch.arange(len(images)), sizes)[self.encoded :]:
            self.features.append(compared_features(method.branches, images.select(part), framing, self.run))
        self.encoded = len(sizes)
        return [torch.cat(parts) for parts in zip(*self.features, strict=True)]

    def _shown(self, images: Images, framing: Framing, what: str) -> Iterator[Tensor]:
        with Bar(what, len(images)) as bar:
            for i, x in enumerate(self.run.batches(images, framing, TEST_BATCH)):
                yield x
                bar.advance(min((i + 1) * TEST_BATCH, len(images)))

    def _labels(self, scores: Tensor) -> np.ndarray:
        labels: np.ndarray = np.asarray(self.method.classes)[scores.argmax(1).cpu().numpy()]
        return labels
