"""From an experiment to its runs: arms x points of the axes x repetitions x seeds, one run folder each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from fscil.errors import FscilError
from fscil.experiments.specs import Arm, Experiment, Settings
from fscil.running.experiment import RunSpec, resolved

OF_SHOTS = ("shots", "shots_seed")  # of the protocol, what leaves the base session as it is


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the command decides about an experiment."""

    dataset: str
    out: Path
    seeds: int
    root: Path | None = None
    recipe: str | None = None
    precision: str = "auto"
    command: str = ""


@dataclass(frozen=True)
class Reading:
    """One number of a table is made of such: an arm, at a point of the axes, in one repetition."""

    arm: Arm
    point: Settings
    repetition: Settings  # with the seed
    run: RunSpec


def readings(experiment: Experiment, surroundings: Surroundings) -> list[Reading]:
    """Everything the tables of an experiment are made of; readings of one run share its RunSpec."""
    runs: dict[str, RunSpec] = {}
    made = []
    for seed, arm, point, repetition in product(
        range(surroundings.seeds), experiment.arms, points(experiment.axes), points(experiment.repeats)
    ):
        run = _run(experiment, experiment.owner(arm), {**point, **repetition}, seed, surroundings)
        shared = runs.setdefault(str(run.folder), run)
        if shared != run:
            raise FscilError(f"{experiment.source}: two cells would share the folder {run.folder}; rename an arm")
        made.append(Reading(arm, point, {**repetition, "seed": seed}, shared))
    return made


def cells(made: Iterable[Reading]) -> list[RunSpec]:
    """The runs of readings, each once, seed by seed, so that the first rows of a table are complete early."""
    return list({str(reading.run.folder): reading.run for reading in made}.values())


def points(axes: Mapping[str, Sequence[object]]) -> Iterator[Settings]:
    """All combinations of the values, the last axis fastest."""
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def part(runs: Sequence[RunSpec], text: str) -> list[RunSpec]:
    """Every N-th run, from the K-th on, of "K/N"."""
    parsed = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = map(int, parsed.groups()) if parsed else (0, 0)
    if not 1 <= number <= count:
        raise FscilError(f"--part {text} is not possible: write K/N with K from 1 to N, such as 2/4")
    return list(runs[number - 1 :: count])


def _run(experiment: Experiment, arm: Arm, place: Settings, seed: int, surroundings: Surroundings) -> RunSpec:
    changes = {**experiment.settings, **arm.settings, **place}
    for exceptional in experiment.exceptions:
        changes |= exceptional.settings if exceptional.holds(changes) else {}
    try:
        choice = resolved(arm.method, surroundings.dataset, surroundings.recipe or experiment.recipe or None, changes)
    except FscilError as problem:
        raise FscilError(f"experiment {experiment.name}, {variant(arm, place) or arm.name}: {problem}") from problem
    other_shots = not place.keys().isdisjoint(OF_SHOTS)
    quick = other_shots or getattr(choice.config, "trains", "") == "map"  # their encoders stand still
    return RunSpec(
        method=arm.method,
        dataset=surroundings.dataset,
        recipe=choice.recipe,
        config=choice.config,
        root=surroundings.root,
        protocol=choice.protocol,
        seed=seed,
        out=surroundings.out,
        precision=surroundings.precision,
        command=surroundings.command,
        variant=variant(arm, place),
        keeps_features=quick,
        keeps_states=not quick,
        shares_base=other_shots,
    )


def variant(arm: Arm, place: Settings) -> str:
    """The name of a cell, as a part of a file name: "RESA-R", "way5_shot20"; empty for a method as its recipe is."""
    named = [arm.name] if arm.name != arm.method else []
    texts = [*named, *(f"{name}{value_text(value)}" for name, value in place.items())]
    return re.sub(r"[^\w.+-]+", "_", "_".join(texts))


def value_text(value: object) -> str:
    """A value of a setting in a name."""
    return value if isinstance(value, str) else json.dumps(value)
