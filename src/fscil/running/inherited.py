"""An encoder taken over from another run must not have seen what this run keeps aside."""

from pathlib import Path
from typing import Any

from fscil.errors import FscilError
from fscil.running.runfolder import RunFolder
from fscil.settings import differences, to_dict

OF_THE_BASE = ("base_classes", "order_seed", "test_share", "split", "tune")  # parts of the protocol


def check_inherited(dataset: str, root: str, config: Any, protocol: Any) -> None:
    """Refuses a run folder that the settings name where its base session had other images than this one.

    `root` is the name of the folder of the data: of the data set `folder` there are many.
    """
    for folder, facts in _runs(config).items():
        elsewhere = dataset == "folder" and facts.get("root", root) != root
        if facts.get("dataset") == dataset and not elsewhere:
            _check_base(folder, facts, config, protocol)


def check_new_classes(config: Any, sessions: Any) -> None:
    """Refuses a run folder that the settings name where a class of its base session is new here."""
    new = {sessions.class_names[label] for label, session in sessions.first_seen.items() if session}
    for folder, facts in _runs(config).items():
        names, first_seen = facts.get("class_names", ()), facts.get("first_seen", {})
        old = {names[int(label)] for label, session in first_seen.items() if session == 0}
        if facts.get("dataset") == sessions.name and old & new:
            raise FscilError(
                f"the encoder of {folder} learned {min(old & new)!r} in its base session, which is a new class here; "
                "take a run whose base session is the same"
            )


def _runs(config: Any) -> dict[Path, dict[str, Any]]:
    """What the run folders that settings name tell about themselves."""
    named = filter(None, (config.weights, getattr(config, "start_weights", None)))
    folders = [Path(weights) for weights in named if Path(weights).is_dir()]
    return {folder: RunFolder(folder, writable=False).described() for folder in folders}


def _check_base(folder: Path, facts: dict[str, Any], config: Any, protocol: Any) -> None:
    there = {name: facts.get("protocol", {}).get(name) for name in OF_THE_BASE}
    here = {name: to_dict(protocol)[name] for name in OF_THE_BASE}
    changed = differences(
        {**there, "held_out": facts.get("settings", {}).get("held_out")}, {**here, "held_out": config.held_out}
    )
    if changed:
        raise FscilError(
            f"the encoder of {folder} learned from other images ({'; '.join(changed)}): it may have seen what this run "
            "keeps aside; take a run whose base session is the same"
        )
