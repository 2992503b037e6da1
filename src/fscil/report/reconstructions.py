"""What of a method is our own: told by its run, or known here about runs that were written before runs told it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fscil.settings.fields import dotted

# What `reconstruction` of each method says; a test compares them, since no method is imported to read a run.
OF_METHOD = {
    "mcnet": "triplet loss, rates and steps",
    "meta_fscil": "learning rates, number of sequences and gates",
    "topic": "losses and neural gas",
}
META_LEARNING = "meta-learning as a sequence of local tasks"  # of KT-RCNet, with several pseudo-sessions
REDUCED = "loss on the anchors"  # of the methods that TOPIC has reduced


def reconstruction(facts: Mapping[str, Any]) -> str:
    """What neither the paper nor released code tells about the method of a run; empty where they tell all."""
    return str(facts.get("reconstruction") or OF_METHOD.get(facts["method"]) or _by_settings(facts))


def _by_settings(facts: Mapping[str, Any]) -> str:
    settings = dotted(facts.get("settings") or {})
    if settings.get("reduction.on"):
        return REDUCED
    several = facts["method"] == "kt_rcnet" and settings.get("pseudo_sessions", 1) > 1
    return META_LEARNING if several and settings.get("complement") == "resa" else ""
