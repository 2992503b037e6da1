"""The verb that learns classes from a folder of photos."""

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from fscil.command import show
from fscil.command.options import Count, Share, Whole
from fscil.command.photos import WITHOUT_FEATURES, Folder, Keep, Strict, about_loose, be_strict, tell_lesson
from fscil.data import check_seed
from fscil.errors import FscilError
from fscil.files import check_writable
from fscil.text import count

Strength = Literal["auto", "prototypes", "transfer", "full"]


def learn(
    photos: Folder,
    /,
    *,
    save: Annotated[Path, Parameter(help="model file to write")],
    strength: Annotated[
        Strength, Parameter(help="auto: prototypes, and transfer where it costs little and wins; full: as --train")
    ] = "auto",
    train: Annotated[bool, Parameter(help="train KT-RCNet end to end; continues if stopped", negative=())] = False,
    recipe: Annotated[str | None, Parameter(help="with --train: recipe of KT-RCNet")] = None,
    encoder: Annotated[
        str | None,
        Parameter(
            help="name (see fscil encoders), NAME+NAME, timm:NAME or run folder "
            "[default: auto, efficientnet_lite0 or its layout; with --train: the recipe's, fast]"
        ),
    ] = None,
    best: Annotated[
        bool, Parameter(help="two encoders or layouts, two views of each photo: slower, more accurate", negative=())
    ] = False,
    weights: Annotated[
        str | None, Parameter(help="local weights file [default: the pretrained weights; with --train: none]")
    ] = None,
    pixels: Annotated[
        Count | None, Parameter(help="size of the images [default: the encoder's own; with --train: the recipe's, 64]")
    ] = None,
    views: Annotated[
        Literal["one", "flip", "negative"],
        Parameter(help="flip: a photo and its mirror image are averaged; negative: a photo and its negative"),
    ] = "one",
    false_acceptance: Annotated[Share, Parameter(help="share of unknown photos that may be taken for known")] = 0.05,
    seed: Annotated[Whole, Parameter(help="seed of everything that is drawn")] = 0,
    keep_features: Keep = "all",
    strict: Strict = False,
    overwrite: Annotated[bool, Parameter(help="replace an existing model file", negative=())] = False,
) -> None:
    """Learn classes from a folder of photos."""
    began = time.perf_counter()  # before torch is imported: people wait for that, too
    full = train or strength == "full"
    _check_place(save, overwrite)
    _check_numbers(false_acceptance, seed)
    _check_training(full, strength, views, recipe)
    if best and (full or encoder or weights or views != "one"):
        others = "--encoder, --weights, --views, --train and --strength full"
        raise FscilError(f"--best chooses the encoder and the views; omit {others}")
    from fscil.nn.branches import SEEN_BESIDE
    from fscil.teach.base import learning
    from fscil.teach.base.choosing import Chosen, model_for
    from fscil.teach.knowledge import backbones
    from fscil.teach.storage import modelfile

    folders = _class_folders(photos)
    sources = [photo for found in folders.values() for photo in found]
    names = [name for name, found in folders.items() for _ in found]
    if full:
        from fscil.teach.base.full import trained

        given = {"encoder": encoder, "weights": weights, "pixels": pixels}
        changes = {name: value for name, value in given.items() if value is not None}
        chosen, strength = Chosen(trained(photos, folders, save, recipe, seed, changes, show.say)), "full"
    else:
        wanted = backbones.BEST if best else encoder or backbones.AUTO
        chosen = model_for(wanted, weights, pixels, views, sources, names, show.say)
        if wanted == backbones.BEST:
            seen = f"{chosen.model.origin.encoder} with {SEEN_BESIDE[chosen.model.branches[0].views]}"
            show.say(f"{seen}: {backbones.cost(chosen.model):.1f} times the compute of the default")
    model = chosen.model
    model.memory.keep = keep_features == "all"
    lesson = learning.learn(
        model,
        sources,
        names,
        strength,
        false_acceptance,
        seed=seed,
        tell=show.say,
        began=None if full else began,
        known=chosen.known,
    )
    tell_lesson(lesson, len(sources))
    (modelfile.replace if overwrite else modelfile.save_over)(model, save)
    if keep_features == "none":
        show.say(WITHOUT_FEATURES)
    facts = f"{count(len(model.names), 'class', 'classes')} from {count(lesson.taught, 'photo')}"
    show.say(f"{save}: learned {facts} in {time.perf_counter() - began:.1f} s")
    be_strict(strict, len(lesson.unreadable), len(sources))


def _check_place(save: Path, overwrite: bool) -> None:
    """Refuses a place where the model could not be saved in the end."""
    if save.is_dir():
        raise FscilError(f"{save} is a folder; give --save a file, for instance {save / 'things.fscil'}")
    if save.exists() and not overwrite:
        raise FscilError(f"{save} exists; add classes to it with fscil teach, or give --overwrite to start over")
    check_writable(save)


def _check_numbers(false_acceptance: float, seed: int) -> None:
    if not 0 < false_acceptance < 1:
        raise FscilError(f"--false-acceptance is {false_acceptance}, but must lie between 0 and 1")
    check_seed("--seed", seed)


def _check_training(full: bool, strength: Strength, views: str, recipe: str | None) -> None:
    """Refuses what a training, or learning without one, would ignore."""
    if not full and recipe is not None:
        raise FscilError("--recipe works only with --train; a frozen encoder needs none")
    if full and strength not in ("auto", "full"):
        raise FscilError(f"--strength {strength} works only with a frozen encoder; omit it or --train")
    if full and views != "one":
        raise FscilError("--views works only with a frozen encoder; with --train set views in a recipe file (--recipe)")


def _class_folders(photos: Path) -> dict[str, list[Path]]:
    """The photos of each class, without those that are not there."""
    from fscil.teach.seeing.folders import class_folders

    folders = class_folders(photos)
    for name in [name for name, found in folders.items() if not found]:
        show.say(f"class {name!r} has no photos and is skipped")
    for sentence in about_loose(photos):
        show.say(sentence)
    return folders


VERBS = (learn,)
