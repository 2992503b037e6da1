"""From an experiment to its runs: arms x points of the axes x repetitions x seeds, one run folder each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from fscil.errors import FscilError
from fscil.experiments.specs import ARM, DATASET, Arm, Experiment, Settings, holds, settings_of
from fscil.running.experiment import RunSpec, resolved
from fscil.settings.names import suggestion

AFTER_BASE = ("shots", "shots_seed", "later_order_seed")  # of the protocol, what leaves the base session as it is
# axes along which cells may share what complementary learning trains, or its beginning
BEHIND_F2 = ("complement_weight", "new_bonus", "refit_scale", "shrinkage", "statistics", "stop_after", "views")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the command decides about an experiment."""

    dataset: str
    out: Path
    seeds: int
    changes: Settings = field(default_factory=dict)  # over what the experiment says, where a method has such a setting
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
    omitted: tuple[Settings, ...]  # the omissions of the experiment that hold for it


def readings(experiment: Experiment, surroundings: Surroundings) -> list[Reading]:
    """Everything the tables of an experiment are made of; readings of one run share its RunSpec."""
    runs: dict[str, RunSpec] = {}
    made = []
    for seed, arm, point, repetition in product(
        range(surroundings.seeds), experiment.arms, points(experiment.places), points(experiment.repeats)
    ):
        owner, place = experiment.owner(arm), {**point, **repetition}
        facts = _facts(experiment, owner, place, surroundings)
        run = _run(experiment, owner, place, seed, surroundings, facts)
        shared = runs.setdefault(str(run.folder), run)
        if shared != run:
            raise FscilError(f"{experiment.source}: two cells would share the folder {run.folder}; rename an arm")
        omitted = tuple(when for when in experiment.omissions if holds(when, facts))
        made.append(Reading(arm, point, {**repetition, "seed": seed}, shared, omitted))
    return made


def cells(made: Iterable[Reading]) -> list[RunSpec]:
    """The runs of readings, each once, seed by seed, so that the first rows of a table are complete early."""
    return list({str(reading.run.folder): reading.run for reading in made}.values())


def only(made: Iterable[Reading], wishes: Sequence[str]) -> list[Reading]:
    """The readings of some arms, seeds, or values of an axis, choice or repetition, alone: "arm=RESA-R,tied", "seed=1".

    What the experiment omits stays away unless a wish names a part of the reason.
    """
    left, named = list(made), {wish.partition("=")[0] for wish in wishes}
    for wish in wishes:
        key, _, listed = wish.partition("=")
        known = {key: {name for r in left if (name := _place(r).get(key))} for key in _place(left[0])}
        if key not in known:
            raise FscilError(f"--only {wish}: there is no {key!r} in this experiment; {suggestion(key, list(known))}")
        wanted = _listed(listed, known[key])
        for name in wanted:
            if name not in known[key]:
                raise FscilError(f"--only {wish}: {key} is never {name!r} here; {suggestion(name, known[key])}")
        left = [reading for reading in left if _place(reading)[key] in wanted]
    kept = [reading for reading in left if all(named & when.keys() for when in reading.omitted)]
    if not kept:
        reasons = sorted({name for reading in left for when in reading.omitted for name in when} - named)
        raise FscilError(f"the experiment leaves these cells out ({', '.join(reasons)}); name others by --only")
    return kept


def check_changes(experiment: Experiment, chosen: Iterable[Reading], changes: Settings) -> None:
    """Refuses to change what the chosen arms set: they would be alike under their different names."""
    for arm in {reading.arm.name: experiment.owner(reading.arm) for reading in chosen}.values():
        name = next((name for name in changes if name in arm.settings), None)
        if name:
            raise FscilError(
                f"--set {name}: arm {arm.name!r} of {experiment.name} is made by its own {name}; omit it, or choose "
                "arms that do not set it by --only arm=…"
            )


def _listed(text: str, known: set[str]) -> list[str]:
    """The names in a list with commas; a known name may hold a comma itself, such as "cosine, two nets"."""
    names, rest = [], text.split(",")
    while rest:
        parts = next((k for k in range(len(rest), 1, -1) if ",".join(rest[:k]) in known), 1)
        names.append(",".join(rest[:parts]))
        rest = rest[parts:]
    return names


def _place(reading: Reading) -> dict[str, str]:
    place = {**reading.point, **reading.repetition}
    return {ARM: reading.arm.name, **{name: value_text(value) for name, value in place.items()}}


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


def _run(
    experiment: Experiment, arm: Arm, place: Settings, seed: int, surroundings: Surroundings, facts: Settings
) -> RunSpec:
    told = {DATASET, ARM, *experiment.choices}  # no settings
    numbered = {name: _of_seed(value, seed) for name, value in facts.items() if name not in told}
    try:
        choice = resolved(arm.method, surroundings.dataset, surroundings.recipe or experiment.recipe or None, numbered)
    except FscilError as problem:
        raise FscilError(f"experiment {experiment.name}, {variant(arm, place) or arm.name}: {problem}") from problem
    same_base = not place.keys().isdisjoint(AFTER_BASE)
    quick = same_base or getattr(choice.config, "trains", "") == "map"  # their encoders stand still
    same_f2 = bool(experiment.choices) or not experiment.axes.keys().isdisjoint(BEHIND_F2)
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
        keeps_base_features=same_f2 and not quick,
        keeps_trained=same_f2,
        keeps_states=not quick,
        shares_base=same_base,
    )


def _facts(experiment: Experiment, arm: Arm, place: Settings, surroundings: Surroundings) -> dict[str, object]:
    """The settings of a cell, experiment < arm < point < exceptions < command, with its arm, choices and data set."""
    wanted = {name: value for name, value in surroundings.changes.items() if name in settings_of(arm.method)}
    facts = {DATASET: surroundings.dataset, ARM: arm.name, **experiment.settings, **arm.settings, **place}
    for name, groups in experiment.choices.items():
        facts |= groups[str(place[name])]
    facts |= wanted
    for exceptional in experiment.exceptions:
        facts |= {**exceptional.settings, **wanted} if holds(exceptional.when, facts) else {}
    return facts


def _of_seed(value: object, seed: int) -> object:
    """A text with the number of the seed in place of {seed}, such as the run folder that weights come from."""
    return value.replace("{seed}", str(seed)) if isinstance(value, str) else value


def variant(arm: Arm, place: Settings) -> str:
    """The name of a cell, as a part of a file name: "RESA-R", "way5_shot20"; empty for a method as its recipe is."""
    named = [arm.name] if arm.name != arm.method else []
    texts = [*named, *(f"{name}{value_text(value)}" for name, value in place.items())]
    return re.sub(r"[^\w.+-]+", "_", "_".join(texts))


def value_text(value: object) -> str:
    """A value of a setting in a name."""
    return value if isinstance(value, str) else json.dumps(value)
