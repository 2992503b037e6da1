"""Which bases a run will share with others, asked of its method before anything is trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from torch import Tensor, nn

from fscil.data.images import Framing, Images
from fscil.data.sessions import Session
from fscil.methods.shared.method import Method
from fscil.running.descent import Descent
from fscil.running.stages import Epoch
from fscil.running.training import AnyWay, Run
from fscil.tensors import digest


class Enough(Exception):
    """A method wants to compute: all bases that can be known before have been told."""


@dataclass
class Overture(Run):
    """A run that writes down which bases a method asks for, and ends where the first image would be looked at."""

    told: dict[str, str] = field(default_factory=dict)  # by name: digest of what decides it, beside the data

    def cached(self, name: str, key: dict[str, Any], module: nn.Module, make: Callable[[], None]) -> None:
        full = json.dumps({**key, "start": digest(module.state_dict())}, sort_keys=True)
        self.told[name] = hashlib.sha256(full.encode()).hexdigest()[:16]

    def epochs(
        self, name: str, keeps: nn.Module, trains: nn.Module, descent: Descent, steps: int, stop_after: int = 0
    ) -> Iterator[Epoch]:
        self._end()

    def batches(self, images: Images, framing: Framing, batch: int = 500) -> Iterator[Tensor]:
        self._end()

    def features(
        self,
        looks: Sequence[AnyWay],
        images: Images,
        framing: Framing,
        make: Callable[[Sequence[AnyWay]], list[Tensor]],
    ) -> list[Tensor]:
        self._end()

    def _end(self) -> NoReturn:
        raise Enough


def shared_bases(method: Method, base: Session, run: Overture) -> dict[str, str]:
    """Digests of the bases that a method will train or take over, by the names of their stages; uses the method up."""
    with suppress(Enough):
        method.learn_base(base, run)
    return run.told
