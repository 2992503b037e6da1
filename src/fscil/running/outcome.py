"""A run from Python: `fscil.run` does what the command does and gives what it has learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fscil.data.images import Images
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods.shared.method import Method, Taught
from fscil.metrics import RunMetrics, run_metrics
from fscil.running.experiment import RunSpec, resolved, trained
from fscil.running.protocol import TEST_BATCH
from fscil.running.runfolder import RunFolder
from fscil.settings.fields import dotted


@dataclass(frozen=True)
class Outcome:
    """A finished run: its folder, its sessions, and the method after the last of them."""

    folder: Path
    sessions: Benchmark
    method: Method

    @cached_property
    def predictions(self) -> tuple[dict[str, np.ndarray], ...]:
        """For each session, labels (n,) of all its test images: `truth`, `predicted`, and `branch.NAME` of branches."""
        folder = RunFolder(self.folder)
        return tuple(folder.predictions(session) for session in range(self.sessions.session_count))

    @cached_property
    def metrics(self) -> RunMetrics:
        """Accuracy, base, new and the others in percent, one number for each session."""
        tests = [(labels["truth"], labels["predicted"]) for labels in self.predictions]
        return run_metrics(tests, self.sessions.first_seen)

    def features(self, images: Images) -> list[Tensor]:
        """Features (n, dim) of images, such as `sessions.test(0)`: one tensor for each branch of the method."""
        method = self.method
        if isinstance(method, Taught):
            return [torch.cat(parts) for parts in zip(*self._each(images, method.embed), strict=True)]
        encoder = getattr(method, "encoder", None)
        if encoder is None:
            raise FscilError(f"{type(method).__module__} has no single encoder; ask its parts for features")
        return [torch.cat(self._each(images, encoder))]

    def scores(self, images: Images) -> Tensor:
        """Scores (n, classes) of images; the columns are those of `method.classes`."""
        return torch.cat(self._each(images, self.method.scores))

    @torch.no_grad()
    def _each(self, images: Images, look: Callable[[Tensor], Any]) -> list[Any]:
        """What `look` makes of each batch of images under the test framing."""
        framing = self.method.eval().test_framing(self.sessions.base())
        batches = torch.arange(len(images)).split(TEST_BATCH)
        return [look(shown) for shown in images.batches(batches, framing)]


def run(
    method: str,
    dataset: str,
    /,
    *,
    seed: int = 0,
    recipe: str | Path | None = None,
    root: str | Path | None = None,
    out: str | Path = "runs",
    precision: str = "auto",
    keep_features: bool = False,
    **settings: Any,
) -> Outcome:
    """Runs a method on a data set, or the rest of it where the run folder holds its beginning.

    `settings` are those of the method (`way=5`, `base={"epochs": 3}`) and of the sessions (`shots=10`, `tune=True`),
    under the names they have on the command line. `keep_features` keeps those of frozen encoders for other runs.
    """
    choice = resolved(method, dataset, recipe, dotted(settings))
    spec = RunSpec(
        method=method,
        dataset=dataset,
        recipe=choice.recipe,
        config=choice.config,
        root=None if root is None else Path(root),
        protocol=choice.protocol,
        seed=seed,
        out=Path(out),
        precision=precision,
        keeps_features=keep_features,
        command=f"fscil.run({method!r}, {dataset!r}, seed={seed}, recipe={choice.recipe!r}, **{settings})",
    )
    sessions, learned = trained(spec)
    return Outcome(spec.folder, sessions, learned)
