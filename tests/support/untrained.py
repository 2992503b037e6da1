"""Every method before it has learned anything, with settings under which its tests take no time."""

from typing import Any

import torch

from fscil import methods, settings
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from tiny import TINY

# What a method's tests need besides TINY; several of them need the stages of a real network.
SMALL: dict[str, dict[str, object]] = {
    "c_fscil": {"meta.epochs": 1, "tasks": 2, "shot": 2, "query": 2, "dim": 24, "base.epochs": 1, "held_out": 0},
    "cec": {"tasks": 2, "transfer.epochs": 1, "way": 3, "shot": 2, "query": 2, "base.epochs": 1, "held_out": 0},
    "eeil": {"base.epochs": 0, "new.epochs": 1, "balanced.epochs": 1, "memory": 24},
    "f2m": {"encoder": "resnet20", "base.epochs": 1, "base.batch": 90, "per_class": 0, "draws": 1},
    "fact": {"encoder": "resnet20", "total_classes": 12, "base.epochs": 2, "base.schedule": "linear"},
    "finetune": {"base.epochs": 0, "new.epochs": 2},
    "icarl": {"base.epochs": 0, "new.epochs": 0, "memory": 20},
    "joint": {"base.epochs": 1, "new.epochs": 1, "new.batch": 30, "new.step_epochs": 40},
    "mcnet": {"encoder": "resnet20", "base.epochs": 1, "base.batch": 90},
    "meta_fscil": {
        "base.epochs": 1,
        "meta.epochs": 1,
        "inner.epochs": 2,
        "warm_up.epochs": 2,
        "tasks": 2,
        "held_out": 0,
        "pseudo_base": 3,
        "pseudo_shots": 4,
        "pseudo_sessions": 2,
        "way": 1,
        "shot": 2,
        "query": 3,
    },
    "ncm": {"base.epochs": 1, "new.epochs": 2, "new.lr": 0.01, "exemplars": 3},
    "softnet": {"encoder": "resnet20", "base.epochs": 1, "base.batch": 90},
    "sppr": {
        "transfer.epochs": 1,
        "transfer.batch": 40,
        "base.epochs": 1,
        "held_out": 0,
        "way": 2,
        "spare": 2,
        "shot": 2,
    },
    "topic": {"base.epochs": 0, "new.epochs": 3, "nodes": 18},
}


def untrained(method: str, net: Encoder | None = None, **changes: object) -> Any:
    """The method in eval mode with the paper's settings, those above and `changes`, on `net` or its encoder."""
    module = methods.load(method)
    config = settings.resolve(module.Config, method, "tiny", "paper", {**TINY, **SMALL.get(method, {}), **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return module.Method(config, net or encoders.build(config.encoder, config.pixels)).eval()
