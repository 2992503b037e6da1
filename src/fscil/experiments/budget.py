"""What an experiment will cost: all sessions of all its cells, with what cells share counted once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from fscil.errors import FscilError
from fscil.experiments.cells import AFTER_BASE
from fscil.methods.shared.method import OF_F1
from fscil.running.experiment import RunSpec, plan_all
from fscil.running.planning import TESTS
from fscil.settings import to_dict

BASE, REST, LATER = "base", "rest", "later"  # a trained base; the rest of its session; later sessions and tests
OF_F2 = ("start", "start_weights")  # settings that decide a second encoder which stands still, beside the bases


class Part(NamedTuple):
    """A stage of a cell: what it costs alone, and the share of it that is left behind what was made before."""

    kind: str
    left: float  # 0: all of it is taken over, 1: nothing is
    macs: float
    seconds: float


@dataclass(frozen=True)
class Cost:
    """What a cell costs on top of the cells before it."""

    run: RunSpec
    parts: tuple[Part, ...]
    memory_bytes: float
    error: str = ""  # why it cannot be run, and so not be planned

    def macs_of(self, kind: str) -> float:
        return sum(part.left * part.macs for part in self.parts if part.kind == kind)

    def takes(self, kind: str) -> bool:
        """Whether there is such a part, and all of it is taken over from earlier cells."""
        own = [part for part in self.parts if part.kind == kind]
        return bool(own) and not any(part.left for part in own)

    @property
    def macs(self) -> float:
        return sum(part.left * part.macs for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.left * part.seconds for part in self.parts)


class Planner:
    """Plans cells; those with the same method and settings are timed once, whatever their seed."""

    def __init__(self) -> None:
        self.plans: dict[str, Mapping[str, Any] | FscilError] = {}

    def plan(self, run: RunSpec) -> Mapping[str, Any] | FscilError:
        """The plan of a cell, or why it cannot be run."""
        settings = json.dumps([run.method, to_dict(run.config), to_dict(run.protocol)])
        if settings not in self.plans:
            self.plans[settings] = _tried(run)
        return self.plans[settings]

    def costs(self, runs: Sequence[RunSpec], finished: Sequence[RunSpec] = ()) -> list[Cost]:
        """The cost of each cell, in this order, behind those that are finished and have left what can be shared."""
        made: dict[str, int] = {}
        for run in finished:
            self.cost(run, made)
        return [self.cost(run, made) for run in runs]

    def cost(self, run: RunSpec, made: dict[str, int]) -> Cost:
        planned = self.plan(run)
        return Cost(run, (), 0.0, str(planned)) if isinstance(planned, FscilError) else cost(run, planned, made)


def costs(runs: Sequence[RunSpec]) -> list[Cost]:
    """The cost of each cell, in this order, where none is finished."""
    return Planner().costs(runs)


def _tried(run: RunSpec) -> Mapping[str, Any] | FscilError:
    try:
        return plan_all(run)
    except FscilError as problem:  # the other cells do not depend on it
        return problem


def fitting(costs: Sequence[Cost], macs: float) -> list[RunSpec]:
    """The first cells that together take no more than a number of multiply-adds."""
    sums = accumulate(cost.macs for cost in costs)
    return [cost.run for cost, total in zip(costs, sums, strict=True) if total <= macs]


def cost(run: RunSpec, planned: Mapping[str, Any], made: dict[str, int]) -> Cost:
    """The cost of a cell behind those that have `made` something, to which it adds what it makes.

    `made` tells the length that a stage had, by its identity: a short one is the beginning of a longer one.
    """
    parts = []
    for kind, stage, identity in stages(run, planned):
        whole, before = length(stage), made.get(identity, 0)
        left = max(0.0, 1 - before / whole) if whole else 0.0
        parts.append(Part(kind, left, float(stage["macs"]), float(stage["seconds"])))
        if identity:
            made[identity] = max(before, whole)
    return Cost(run, tuple(parts), float(planned["memory_bytes"]))


def length(stage: Mapping[str, Any]) -> int:
    """Forward passes of a stage; its steps, where no image passes through an encoder."""
    return int(3 * stage["trained"] + stage["encoded"] if stage["batch"] else stage["steps"])


def stages(run: RunSpec, planned: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every stage of a run: its kind, what it costs, and what cells that share it have in common; empty: none do."""
    bases, sessions = planned["bases"], base_sessions(run)
    for place, stage in enumerate(planned["stages"]):
        base = base_of(stage["stage"], bases)
        if base:
            yield BASE, stage, json.dumps(["base", bases[base], stage["stage"], run.seed, sessions])
        elif run.shares_base:  # all of its base session, where only later shots differ
            yield REST, stage, session_identity(run, str(place))
        else:
            yield REST, stage, shared_identity(run, stage, planned)
    for stage in planned["later"]:
        if stage["stage"] == TESTS and run.shares_base:
            yield LATER, stage, session_identity(run, f"{TESTS} {run.protocol.later_order_seed}")
        else:
            yield LATER, stage, shared_identity(run, stage, planned) if stage["stage"] == TESTS else ""


def session_identity(run: RunSpec, place: str) -> str:
    """What decides a stage of a run that differs from others in later shots alone."""
    return json.dumps(["session", run.method, to_dict(run.config), run.seed, base_sessions(run), place])


def shared_identity(run: RunSpec, stage: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
    """What decides a stage that the cache of the experiment keeps: f2 behind its training, features of encoders."""
    made_by, bases, sessions = stage["made_by"], planned["bases"], base_sessions(run)
    trained = any(base_of(other["stage"], bases) for other in planned["stages"])
    seed = run.seed if trained else None  # encoders that are given see the same, whatever the seed
    if made_by == OF_F1:
        kept = run.keeps_features or run.keeps_base_features
        return json.dumps([OF_F1, bases.get("base"), stage["pixels"], seed, sessions]) if kept else ""
    if run.keeps_features and stage["encoded"] and not stage["trained"]:
        begun = [to_dict(run.config).get(name) for name in OF_F2]
        what = [stage["stage"], stage["pixels"], made_by]
        return json.dumps(["features", bases, begun, what, run.seed if made_by else seed, sessions])
    if run.keeps_trained and made_by:
        return json.dumps(["f2", run.method, stage["stage"], made_by, run.seed, sessions])
    return ""


def base_of(stage: str, bases: Mapping[str, str]) -> str:
    """The name of the base that a stage trains; empty where it trains none that others may share."""
    return next((name for name in bases if stage.startswith(f"{name} at ")), "")


def base_sessions(run: RunSpec) -> dict[str, Any]:
    """What of the protocol decides the base session."""
    return {name: value for name, value in to_dict(run.protocol).items() if name not in AFTER_BASE}
