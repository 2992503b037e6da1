"""Strength `full`: KT-RCNet end to end on a folder of photos; the same command continues where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fscil import methods, settings
from fscil.data import Protocol
from fscil.data.framing import Framing
from fscil.data.pictures import SUFFIXES
from fscil.errors import FscilError
from fscil.files import write_json
from fscil.nn.pretrained import IMAGENET
from fscil.running.experiment import RunSpec, execute, plan
from fscil.teach.base.planning import Tell, quiet, split
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.seeing.photos import batches

METHOD, DATASET = "kt_rcnet", "folder"
GLANCE = Framing(8, *IMAGENET)  # enough to see whether a photo can be read


def trained(
    root: Path,
    folders: Mapping[str, list[Path]],
    save: Path,
    recipe: str | None,
    seed: int,
    changes: Mapping[str, object],
    tell: Tell = quiet,
) -> Model:
    """The frozen branches of a training on these photos, without classes; its run folder lies beside the model file.

    The photos that `learning` keeps for calibration are kept from this training too. `tell` hears how long it takes.
    """
    sources = [photo for found in folders.values() for photo in found]
    held = split([name for name, found in folders.items() for _ in found], seed).held
    readable = {position for batch in batches(sources, GLANCE) for position in batch.positions}
    usable = [p for p in sorted(readable) if sources[p].suffix.lower() in SUFFIXES and sources[p].parent.parent == root]
    if not usable:
        raise FscilError(f"{root} holds no photos that can be trained on; put them as {root / 'CLASS' / 'PHOTO.jpg'}")
    of_class: dict[str, list[int]] = {}
    for p in usable:
        of_class.setdefault(sources[p].parent.name, []).append(p)
    held |= {found[0] for found in of_class.values() if held.isdisjoint(found)}  # a run tests every class
    place = save.with_name(f"{save.name}.training")
    parts = {"train": [p for p in usable if p not in held], "test": [p for p in usable if p in held]}
    named = {part: [sources[p].relative_to(root).as_posix() for p in found] for part, found in parts.items()}
    write_json(place / "split.json", named)
    chosen = recipe or settings.default_recipe(METHOD, DATASET)
    config = settings.resolve(methods.load(METHOD).Config, METHOD, DATASET, chosen, changes)
    counts = {name: sum(p not in held for p in found) for name, found in of_class.items()}
    config = fitting(config, counts)
    protocol = Protocol(base_classes=len(counts), shots=1, split=str(place / "split.json"))
    experiment = RunSpec(
        method=METHOD, dataset=DATASET, recipe=chosen, config=config, root=root, protocol=protocol, seed=seed, out=place
    )
    about = plan(experiment)["seconds"] / 60
    tell(f"full: KT-RCNet is trained end to end; about {about:.0f} min, the same command continues if it is stopped")
    return backbones.of_run(execute(experiment))


def fitting(config: Any, counts: Mapping[str, int]) -> Any:
    """The settings with tasks and held-out photos no larger than the class with the fewest photos allows."""
    name, fewest = min(counts.items(), key=lambda pair: pair[1])
    least = 1 if config.complement_weight else 2  # a weight is fitted on two photos of each class or more
    if len(counts) < 2 or fewest < least + 2:
        raise FscilError(
            f"--train needs two classes or more with {least + 3} photos each, and {name!r} has {fewest} to train on; "
            "add photos, remove the class, or learn without --train"
        )
    held_out = min(config.held_out, max(least, fewest // 4))
    shot = min(config.shot, (fewest - held_out) // 2)
    query = min(config.query, fewest - held_out - shot)
    return replace(config, way=min(config.way, len(counts)), shot=shot, query=query, held_out=held_out)
