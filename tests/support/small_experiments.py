"""Experiments that learn the tiny benchmark in seconds."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fscil.experiments import specs
from fscil.experiments.cells import Reading, Surroundings, readings
from fscil.experiments.specs import Experiment
from quick import LEARNS, OWN

# A base of two epochs, and tasks that the tiny classes can fill; the strategies need a way of five.
BRIEF: dict[str, object] = {**LEARNS, "base.epochs": 2}
OF_METHOD: dict[str, dict[str, object]] = {**OWN, "kt_rcnet": {**OWN["kt_rcnet"], "way": 5, "tasks": 2}}


def small(experiment: Experiment) -> Experiment:
    """The experiment with a tiny encoder and few steps in every arm."""
    arms = [
        arm if arm.of else replace(arm, settings={**BRIEF, **OF_METHOD.get(arm.method, {}), **arm.settings})
        for arm in experiment.arms
    ]
    axes = {name: (1, 2) if name == "stop_after" else values for name, values in experiment.axes.items()}
    return replace(experiment, arms=tuple(arms), axes=axes)


def written(folder: Path, text: str, name: str = "mine") -> Experiment:
    """The experiment of a user's file."""
    file = folder / f"{name}.toml"
    file.write_text(text)
    return specs.read(file)


def spread_out(experiment: Experiment, out: Path, seeds: int = 1, **rest: object) -> list[Reading]:
    """Its readings, in float32."""
    facts: Mapping[str, object] = {"dataset": experiment.dataset, "precision": "float32", **rest}
    return readings(experiment, Surroundings(out=out, seeds=seeds, **facts))
