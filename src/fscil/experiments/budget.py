"""What an experiment will cost: the base sessions of all its cells, a base that cells share counted once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fscil.experiments.cells import OF_SHOTS
from fscil.methods.shared.base import DECIDED_BY
from fscil.running.experiment import RunSpec, plan
from fscil.settings import to_dict

BASE = "base"  # how the names of stages begin that train a base


@dataclass(frozen=True)
class Cost:
    """Multiply-adds and seconds of a cell: of its base, and of the rest of its base session."""

    run: RunSpec
    shared: bool  # whether an earlier cell trains the same base
    base_macs: float
    rest_macs: float
    base_seconds: float
    rest_seconds: float
    memory_bytes: float

    @property
    def macs(self) -> float:
        return self.rest_macs * (not self.takes_features) + self.base_macs * (not self.shared)

    @property
    def seconds(self) -> float:
        return self.rest_seconds * (not self.takes_features) + self.base_seconds * (not self.shared)

    @property
    def takes_features(self) -> bool:
        """Whether what its encoders see, the most of the rest, was computed for an earlier cell."""
        return self.shared and self.run.keeps_features


def costs(runs: Sequence[RunSpec]) -> list[Cost]:
    """The cost of each cell; cells with the same method and settings are timed once, whatever their seed and shots."""
    plans: dict[str, Mapping[str, Any]] = {}
    bases: set[str] = set()
    made = []
    for run in runs:
        settings = json.dumps([run.method, to_dict(run.config)])
        if settings not in plans:
            plans[settings] = plan(run)
        base = base_of(run)
        made.append(cost(run, plans[settings], base in bases))
        bases.add(base)
    return made


def fitting(costs: Sequence[Cost], macs: float) -> list[RunSpec]:
    """The first cells that together take no more than a number of multiply-adds."""
    sums = accumulate(cost.macs for cost in costs)
    return [cost.run for cost, total in zip(costs, sums, strict=True) if total <= macs]


def cost(run: RunSpec, planned: Mapping[str, Any], shared: bool) -> Cost:
    def total(key: str, base: bool) -> float:
        return float(sum(stage[key] for stage in planned["stages"] if stage["stage"].startswith(BASE) == base))

    return Cost(
        run,
        shared,
        base_macs=total("macs", True),
        rest_macs=total("macs", False),
        base_seconds=total("seconds", True),
        rest_seconds=total("seconds", False),
        memory_bytes=float(planned["memory_bytes"]),
    )


def base_of(run: RunSpec) -> str:
    """What decides a base; the method too, since not all methods train the same classifier."""
    settings, protocol = to_dict(run.config), to_dict(run.protocol)
    own = [settings.get(name) for name in (*DECIDED_BY, "start")]
    sessions = {name: value for name, value in protocol.items() if name not in OF_SHOTS}
    return json.dumps([run.method, run.seed, own, sessions], sort_keys=True)
