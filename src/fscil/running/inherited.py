"""An encoder taken over from another run must not have seen what this run keeps aside."""

from pathlib import Path
from typing import Any

from fscil.errors import FscilError
from fscil.running.runfolder import RunFolder
from fscil.settings import differences, to_dict

OF_THE_BASE = ("base_classes", "order_seed", "test_share", "split", "tune")  # parts of the protocol


def check_inherited(dataset: str, config: Any, protocol: Any) -> None:
    """Refuses a run folder that the settings name where its base session had other images than this one."""
    for weights in filter(None, (config.weights, getattr(config, "start_weights", None))):
        if Path(weights).is_dir():
            _check_folder(Path(weights), dataset, config, protocol)


def _check_folder(folder: Path, dataset: str, config: Any, protocol: Any) -> None:
    facts = RunFolder(folder, writable=False).described()
    if facts.get("dataset") != dataset:
        return
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
