"""What KT-RCNet refuses before anything is trained: settings that contradict each other, or the base session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fscil.data.episodes import Sampling, class_pool
from fscil.data.sessions import Session
from fscil.errors import FscilError
from fscil.methods.shared.balance import check_held_out
from fscil.methods.shared.base import check_another

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Config, Method


def check_choices(c: Config) -> None:
    """Refuses settings that contradict each other."""
    if c.W1 == "learned" and c.shrinkage < 1:
        raise FscilError("W1 learned has no whitened rows; set --shrinkage 1, or --W1 means")
    if c.W1 == "learned" and not c.base.epochs:
        raise FscilError("W1 learned takes rows that a base session trains; set --base.epochs, or --W1 means")
    if c.start == "weights" and not (c.start_weights or c.weights):
        raise FscilError("start weights begins f2 with --weights, which are not given: give them, or set --start f1")
    if c.start == "f1" and c.start_weights:
        raise FscilError("start_weights is for an f2 that does not begin as f1; set --start weights, or omit it")
    if c.distil and c.start != "own":
        raise FscilError("distil is for a base session of f2, which has none; set --start own or --distil 0")
    if c.complement == "resa" and not (c.global_weight or c.local_weight):
        raise FscilError("global_weight and local_weight are both 0: RESA has no loss; raise one of them")


def check_base(method: Method, base: Session) -> None:
    """Refuses, before anything is trained, a base session that cannot serve the settings."""
    c = method.config
    check_start(c)
    check_length(c)
    if c.whiten_first and c.shrinkage == 1:  # not among the choices: of an experiment it shall refuse some cells alone
        raise FscilError("whiten_first whitens by --shrinkage, which is 1 (none): lower it, or omit --whiten_first")
    if not c.feature_scale and base.held_out is None:
        raise FscilError("feature_scale 0 is fitted on held-out base images; set --held_out to 5 or more")
    if not c.complement_weight:
        check_held_out("complement_weight", c.held_out)
    if c.trains == "last_stage" and len(method.f2.stages) == 1:
        raise FscilError(
            f"encoder {c.encoder} is one piece and has no last stage; set --trains encoder or --trains map"
        )
    if c.complement == "resa":
        class_pool(base.train, Sampling(c.way, c.shot, c.query))


def check_start(c: Config) -> None:
    """Refuses a start that would make f2 another than it says."""
    of_run = c.weights is not None and Path(c.weights).is_dir()
    if c.start == "weights" and of_run and not c.start_weights:
        raise FscilError(
            f"f1 is taken from the run folder {c.weights}, so start weights would begin f2 as f1; name the weights of "
            "f2 by --start_weights, or set --start f1"
        )
    if c.start == "own" and c.start_weights and not c.weights:
        raise FscilError("with --start own, --start_weights is for an f1 that has --weights too: give them, or omit it")
    if c.start in ("own", "weights"):
        check_another(c, c.start_weights)


def check_length(c: Config) -> None:
    """Refuses means over the last steps of a training that another run may go on with."""
    if c.stop_after and c.transfer.average:
        raise FscilError(
            "--transfer.average means the last steps of the whole training, of which --stop_after makes the first; "
            "set one of them to 0"
        )
