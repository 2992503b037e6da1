"""What an experiment will cost: the base sessions of all its cells, what cells share counted once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fscil.experiments.cells import OF_SHOTS
from fscil.methods.shared.base import DECIDED_BY, OWN_BASE
from fscil.running.experiment import RunSpec, plan
from fscil.settings import to_dict

BASE = "base"  # how the names of stages begin that train a base


@dataclass(frozen=True)
class Cost:
    """Multiply-adds and seconds of a cell: of its base, and of what it computes itself of its base session."""

    run: RunSpec
    shared: bool  # whether an earlier cell trains the same base
    takes_features: bool  # whether what its encoders see, the most of the rest, was computed for an earlier cell
    base_macs: float
    rest_macs: float
    base_seconds: float
    rest_seconds: float
    memory_bytes: float

    @property
    def macs(self) -> float:
        return self.rest_macs + self.base_macs * (not self.shared)

    @property
    def seconds(self) -> float:
        return self.rest_seconds + self.base_seconds * (not self.shared)


def costs(runs: Sequence[RunSpec]) -> list[Cost]:
    """The cost of each cell; cells with the same method and settings are timed once, whatever their seed and shots."""
    plans: dict[str, Mapping[str, Any]] = {}
    spent: dict[str, float] = {}
    made = []
    for run in runs:
        settings = json.dumps([run.method, to_dict(run.config)])
        if settings not in plans:
            plans[settings] = plan(run)
        made.append(cost(run, plans[settings], spent))
    return made


def fitting(costs: Sequence[Cost], macs: float) -> list[RunSpec]:
    """The first cells that together take no more than a number of multiply-adds."""
    sums = accumulate(cost.macs for cost in costs)
    return [cost.run for cost, total in zip(costs, sums, strict=True) if total <= macs]


def cost(run: RunSpec, planned: Mapping[str, Any], spent: dict[str, float]) -> Cost:
    """The cost of a cell behind others; `spent` tells what these computed, by what decides it, and learns of this."""
    base = base_of(run)
    seen = f"features {base} {to_dict(run.config).get('start')}"
    shared, takes_features = base in spent, seen in spent and run.keeps_features
    spent |= {base: 1.0, seen: 1.0}
    macs, seconds = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}  # of the base, and of the rest
    for stage in planned["stages"]:
        of_base = stage["stage"].startswith(BASE) and not stage["stage"].startswith(OWN_BASE)
        share = 1.0 if of_base else _left(stage, run, base, spent, takes_features)
        macs[of_base] += share * stage["macs"]
        seconds[of_base] += share * stage["seconds"]
    return Cost(
        run,
        shared,
        takes_features,
        base_macs=macs[True],
        rest_macs=macs[False],
        base_seconds=seconds[True],
        rest_seconds=seconds[False],
        memory_bytes=float(planned["memory_bytes"]),
    )


def _left(stage: Mapping[str, Any], run: RunSpec, base: str, spent: dict[str, float], takes_features: bool) -> float:
    """The share of a stage that earlier cells have not computed."""
    own = stage["stage"].startswith(OWN_BASE)
    if takes_features and not own:
        return 0.0
    maker = f"{stage['stage']} {to_dict(run.config).get('start_weights')}" if own else stage["made_by"]
    if not (maker and stage["macs"] and (own or run.keeps_trained)):
        return 1.0
    key = f"{maker} {base}"
    before, macs = spent.get(key, 0.0), float(stage["macs"])
    spent[key] = max(before, macs)
    return max(0.0, 1 - before / macs)


def base_of(run: RunSpec) -> str:
    """What decides a base; the method too, since not all methods train the same classifier."""
    settings, protocol = to_dict(run.config), to_dict(run.protocol)
    own = [settings.get(name) for name in DECIDED_BY]
    sessions = {name: value for name, value in protocol.items() if name not in OF_SHOTS}
    return json.dumps([run.method, run.seed, own, sessions], sort_keys=True)
