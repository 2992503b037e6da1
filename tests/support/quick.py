"""Settings with which every method learns the tiny benchmark, and learns something."""

from tiny import TINY, TINY_RESA

# A base session that separates the tiny classes in thirty steps.
LEARNS: dict[str, object] = {
    **TINY,
    "views": "one",
    "held_out": 0,
    "base.epochs": 5,
    "base.optimizer": "muon",
    "base.lr": 0.1,
    "base.rest_lr": 0.05,
    "base.momentum": 0.6,
    "base.schedule": "linear",
    "base.weight_decay": 0.0,
}

# What a method needs besides to be quick and to learn something here; its recipe `small` holds for the rest.
OWN: dict[str, dict[str, object]] = {
    "fact": {"total_classes": 12, "mix_after": 1},
    "f2m": {"layers": 2},
    "mcnet": {"second": "tiny", "second_share": 1.0, "new.epochs": 2},
    "eeil": {"memory": 24, "new.epochs": 12, "new.lr": 0.05, "balanced.epochs": 8, "balanced.lr": 0.02},
    "finetune": {"new.epochs": 8},
    "icarl": {"memory": 24, "new.epochs": 6, "new.lr": 0.1},
    "joint": {"new.epochs": 1, "new.batch": 30},
    "kt_rcnet": TINY_RESA,
    "ncm": {"exemplars": 2, "new.epochs": 6},
    "topic": {"nodes": 18, "new.epochs": 6, "new.lr": 0.005, "anchor": 20.0},
    "cec": {"transfer.epochs": 1, "tasks": 4, "way": 3, "query": 3},
    "sppr": {"transfer.epochs": 12, "transfer.batch": 30, "dropout": 0.0},
    "c_fscil": {"meta.epochs": 1, "tasks": 3},
    "meta_fscil": {"meta.epochs": 1, "tasks": 2, "query": 2},
}
