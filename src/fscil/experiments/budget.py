"""What an experiment will cost: all sessions of all its cells, with what cells share counted once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from fscil.experiments.cells import OF_SHOTS
from fscil.running.experiment import RunSpec, plan_all
from fscil.running.planning import TESTS
from fscil.settings import to_dict

BASE, REST, LATER = "base", "rest", "later"  # a trained base; the rest of its session; later sessions and tests


class Part(NamedTuple):
    """A stage of a cell, and whether an earlier cell computes it."""

    kind: str
    taken: bool
    macs: float
    seconds: float


@dataclass(frozen=True)
class Cost:
    """What a cell costs on top of the cells before it."""

    run: RunSpec
    parts: tuple[Part, ...]
    memory_bytes: float
    knows_later: bool  # whether the learning of later sessions is counted

    def macs_of(self, kind: str) -> float:
        return sum(part.macs for part in self.parts if part.kind == kind and not part.taken)

    def takes(self, kind: str) -> bool:
        """Whether there is such a part, and all of it is taken over from earlier cells."""
        own = [part for part in self.parts if part.kind == kind]
        return bool(own) and all(part.taken for part in own)

    @property
    def macs(self) -> float:
        return sum(part.macs for part in self.parts if not part.taken)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts if not part.taken)


class Planner:
    """Plans cells; those with the same method and settings are timed once, whatever their seed."""

    def __init__(self) -> None:
        self.plans: dict[str, Mapping[str, Any]] = {}

    def plan(self, run: RunSpec) -> Mapping[str, Any]:
        settings = json.dumps([run.method, to_dict(run.config), to_dict(run.protocol)])
        if settings not in self.plans:
            self.plans[settings] = plan_all(run)
        return self.plans[settings]

    def costs(self, runs: Sequence[RunSpec], finished: Sequence[RunSpec] = ()) -> list[Cost]:
        """The cost of each cell, in this order, behind those that are finished and have left what can be shared."""
        made: set[str] = set()
        for run in finished:
            cost(run, self.plan(run), made)
        return [cost(run, self.plan(run), made) for run in runs]


def costs(runs: Sequence[RunSpec]) -> list[Cost]:
    """The cost of each cell, in this order, where none is finished."""
    return Planner().costs(runs)


def fitting(costs: Sequence[Cost], macs: float) -> list[RunSpec]:
    """The first cells that together take no more than a number of multiply-adds."""
    sums = accumulate(cost.macs for cost in costs)
    return [cost.run for cost, total in zip(costs, sums, strict=True) if total <= macs]


def cost(run: RunSpec, planned: Mapping[str, Any], made: set[str]) -> Cost:
    """The cost of a cell behind those that have `made` something, to which it adds what it makes."""
    parts = []
    for kind, stage, identity in stages(run, planned):
        parts.append(Part(kind, identity in made, float(stage["macs"]), float(stage["seconds"])))
        made |= {identity} - {""}
    return Cost(run, tuple(parts), float(planned["memory_bytes"]), planned["knows_later"])


def stages(run: RunSpec, planned: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every stage of a run: its kind, what it costs, and what cells that share it have in common; empty: none do."""
    bases, sessions = planned["bases"], base_sessions(run)
    for place, stage in enumerate(planned["stages"]):
        base = base_of(stage["stage"], bases)
        if base:
            yield BASE, stage, json.dumps(["base", bases[base], stage["stage"], run.seed, sessions])
        elif run.shares_base:  # all of its base session, where only later shots differ
            yield REST, stage, json.dumps(["session", run.method, to_dict(run.config), run.seed, sessions, place])
        else:
            yield REST, stage, shared_identity(run, stage, planned)
    for stage in planned["later"]:
        yield LATER, stage, shared_identity(run, stage, planned) if stage["stage"] == TESTS else ""


def shared_identity(run: RunSpec, stage: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
    """What decides a stage that the cache of the experiment keeps: f2 behind its training, features of encoders."""
    sessions = base_sessions(run)
    if run.keeps_trained and stage["key"]:
        return json.dumps(["f2", run.method, stage["stage"], stage["key"], run.seed, sessions])
    if not run.keeps_features or stage["trained"]:
        return ""
    trained = any(base_of(other["stage"], planned["bases"]) for other in planned["stages"])
    seed = run.seed if trained or stage["key"] else None  # encoders that are given see the same, whatever the seed
    what = [stage[name] for name in ("stage", "pixels", "encoded", "key")]
    return json.dumps(["features", planned["bases"], what, seed, sessions])


def base_of(stage: str, bases: Mapping[str, str]) -> str:
    """The name of the base that a stage trains; empty where it trains none that others may share."""
    return next((name for name in bases if stage.startswith(f"{name} at ")), "")


def base_sessions(run: RunSpec) -> dict[str, Any]:
    """What of the protocol decides the base session."""
    return {name: value for name, value in to_dict(run.protocol).items() if name not in OF_SHOTS}
