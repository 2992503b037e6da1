"""Settings of a run that tell it from others: those that were added later, and stand at their default, tell nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fscil.report.results import without_folders
from fscil.settings.fields import dotted

# Settings that runs of before do not have, with the value that stands for what was done then. A test compares them with
# the methods, since no method is imported to read a run.
ADDED: Mapping[str, object] = {
    "average": 0.0,
    "conventional.batches": "passes",
    "conventional.relation": 0.0,
    "conventional.rows": "means",
    "cosine.feature_length": 0.0,  # METHOD.NAME where other methods have a setting of this name
    "distil": 0.0,
    "feature_dropout": 0.5,
    "head": "cosine",
    "head_rate": 1.0,
    "kt_rcnet.pseudo_sessions": 1,
    "kt_rcnet.start": "f1",
    "nets": 1,
    "refit_scale": False,
    "row_images": 0,
    "row_std": 0.001,
    "start_weights": None,
    "statistics": "trained",
    "stop_after": 0,
    "trains": "encoder",
    "turned": 0.0,
    "unit_means": False,
    "whiten_first": False,
    "winograd": False,
}
NOT_ADDED = object()


def telling_settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run with dotted names, without those at which runs of before stood without saying so.

    A folder of the run's own seed, such as that of its weights, is the same for all seeds.
    """
    settings = dotted(for_all_seeds(facts.get("settings") or {}, facts["seed"]))
    earlier = {name: value_of_before(facts["method"], name) for name in settings}
    return {name: v for name, v in settings.items() if not (type(v) is type(earlier[name]) and v == earlier[name])}


def for_all_seeds(value: Any, seed: int) -> Any:
    """The same value without folders in its texts, and with {seed} for the seed where a path ends in its folder."""
    if isinstance(value, Mapping):
        return {name: for_all_seeds(inner, seed) for name, inner in value.items()}
    cut = without_folders(value)
    return re.sub(rf"(^|/)seed{seed}(?=/|$)", r"\1seed{seed}", cut) if isinstance(cut, str) else cut


def value_of_before(method: str, name: str) -> object:
    """What stands for a setting in runs that do not have it; groups such as `base` share what they were given."""
    names = (f"{method}.{name}", name, name.rpartition(".")[2])
    return next((ADDED[known] for known in names if known in ADDED), NOT_ADDED)
