"""The verbs for people with photos: learn, teach, predict, correct, evaluate, export, explain."""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fscil.command import show
from fscil.command.options import Count, Whole
from fscil.data import LARGEST_SEED
from fscil.errors import FscilError

if TYPE_CHECKING:
    from fscil.teach.teaching import Lesson

Saved = Annotated[Path, Parameter(help="model file made by fscil learn")]
Class = Annotated[str, Parameter(help="name of the class")]
Photos = Annotated[list[Path], Parameter(help="photos, or folders of photos", negative=())]
Folder = Annotated[Path, Parameter(help="folder with one sub-folder of photos per class")]
Strength = Literal["auto", "prototypes", "transfer", "full"]


def learn(
    photos: Folder,
    /,
    *,
    save: Annotated[Path, Parameter(help="model file to write")],
    strength: Annotated[Strength, Parameter(help="auto: transfer where the photos suffice; full: as --train")] = "auto",
    train: Annotated[bool, Parameter(help="train KT-RCNet end to end; continues if stopped", negative=())] = False,
    recipe: Annotated[str | None, Parameter(help="with --train: recipe of KT-RCNet")] = None,
    encoder: Annotated[
        str | None,
        Parameter(help="name, timm:NAME or run folder [default: efficientnet_lite0; with --train: the recipe's, fast]"),
    ] = None,
    weights: Annotated[
        str | None, Parameter(help="local weights file [default: the pretrained weights; with --train: none]")
    ] = None,
    pixels: Annotated[
        Count | None, Parameter(help="size of the images [default: the encoder's own; with --train: the recipe's, 64]")
    ] = None,
    views: Annotated[Literal["one", "flip"], Parameter(help="flip: a photo and its mirror image are averaged")] = "one",
    false_acceptance: Annotated[float, Parameter(help="share of unknown photos that may be taken for known")] = 0.05,
    seed: Annotated[Whole, Parameter(help="seed of everything that is drawn")] = 0,
    overwrite: Annotated[bool, Parameter(help="replace an existing model file", negative=())] = False,
) -> None:
    """Learn classes from a folder of photos."""
    if save.exists() and not overwrite:
        raise FscilError(f"{save} exists; add classes to it with fscil teach, or give --overwrite to begin anew")
    if not 0 < false_acceptance < 1:
        raise FscilError(f"--false-acceptance is {false_acceptance}, but must lie between 0 and 1")
    if not 0 <= seed <= LARGEST_SEED:
        raise FscilError(f"--seed is {seed}, but must lie between 0 and {LARGEST_SEED}")
    full = train or strength == "full"
    if full:
        _check_training(strength, views)
    elif recipe is not None:
        raise FscilError("--recipe goes with --train; a frozen encoder needs none")
    from fscil.teach import backbones, learning, modelfile
    from fscil.teach.photos import class_folders

    began = time.perf_counter()
    folders = class_folders(photos)
    for name in [name for name, found in folders.items() if not found]:
        show.say(f"class {name!r} has no photos and is left out")
    sources = [photo for found in folders.values() for photo in found]
    names = [name for name, found in folders.items() for _ in found]
    if full:
        from fscil.teach.full import trained

        given = {"encoder": encoder, "weights": weights, "pixels": pixels}
        changes = {name: value for name, value in given.items() if value is not None}
        model, strength = trained(photos, folders, save, recipe, seed, changes, show.say), "full"
    else:
        model = backbones.of_encoder(encoder or backbones.DEFAULT, weights, pixels, views)
    lesson = learning.learn(model, sources, names, strength, false_acceptance, seed=seed, tell=show.say)
    _tell(lesson, len(sources))
    (modelfile.replace if overwrite else modelfile.save_over)(model, save)
    facts = f"{len(model.names)} classes from {lesson.taught} photos"
    show.say(f"{save}: learned {facts} in {time.perf_counter() - began:.1f} s")


def _check_training(strength: Strength, views: str) -> None:
    """Refuses what a training would ignore."""
    if strength not in ("auto", "full"):
        raise FscilError(f"--strength {strength} goes with a frozen encoder; omit it or --train")
    if views != "one":
        raise FscilError("--views goes with a frozen encoder; with --train set views in a recipe file (--recipe)")


def teach(model: Saved, name: Class, photos: Photos, /) -> None:
    """Teach a class from a few photos, or add photos to a class; no old photos are needed."""
    from fscil.teach import modelfile, teaching
    from fscil.teach.photos import class_name

    name = class_name(name)
    if not name:
        raise FscilError("a class needs a name")
    found = _found(photos)
    with modelfile.editing(model) as known:
        meant = known.name_of(name)
        lesson = teaching.teach(known, [meant] * len(found), found)
    _tell(lesson, len(found))
    show.say(f"taught {name!r} from {lesson.taught} photos; {model} knows {len(known.names)} classes")


def predict(
    model: Saved,
    photos: Photos,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", help="one JSON object per photo", negative=())] = False,
) -> None:
    """Say what photos show, or that the model is not sure."""
    from fscil.teach import modelfile
    from fscil.teach.looking import answers, glance

    known, found = modelfile.load(model), _found(photos)
    seen = glance(known, found, "looking at photos" if len(found) > 100 else "")
    said = dict(zip(seen.positions, answers(known, seen.features), strict=True)) if seen.positions else {}
    problems = {problem.name: problem.reason for problem in seen.unreadable}
    for position, photo in enumerate(found):
        answer = said.get(position)
        if as_json:
            facts: dict[str, Any] = {"photo": str(photo)}
            if answer is None:
                facts["error"] = problems[str(photo)]
            else:
                best = [{"class": name, "probability": round(p, 6)} for name, p in answer.best]
                facts |= {"class": best[0]["class"], "known": answer.known, "best": best}
            print(json.dumps(facts, ensure_ascii=False))
        elif answer is not None:
            show.say(f"{photo}: {answer.text()}" if len(found) > 1 else answer.text())
    _complain(f"{name} {reason}" for name, reason in problems.items())
    if not said:
        raise FscilError("none of the photos could be read")


def forget(
    model: Saved,
    name: Class,
    /,
    *,
    erase: Annotated[bool, Parameter(help="remove every trace; this is final", negative=())] = False,
) -> None:
    """Forget a class; undo brings it back, unless it was erased."""
    from fscil.teach import modelfile
    from fscil.teach.photos import class_name

    name = class_name(name)
    gone: set[int] = set()
    with modelfile.editing(model) as known:
        if erase:
            gone = known.erase(name)
        else:
            known.forget(name)
    show.say(f"{'erased' if erase else 'forgot'} {name!r}; {model} knows {len(known.names)} classes")
    if any(label < known.base for label in gone):
        show.say(
            "it was a base class: what was fitted to all base classes together stays; learn again to remove that too"
        )


def rename(model: Saved, name: Class, new: Annotated[str, Parameter(help="the new name")], /) -> None:
    """Give a class another name."""
    from fscil.teach import modelfile
    from fscil.teach.photos import class_name

    if not class_name(new):
        raise FscilError("a class needs a name")
    with modelfile.editing(model) as known:
        known.rename(class_name(name), known.name_of(class_name(new)))
    show.say(f"renamed {name!r} to {class_name(new)!r}")


def undo(model: Saved, /) -> None:
    """Take the last change back."""
    from fscil.teach import modelfile

    with modelfile.editing(model) as known:
        step = known.undo()
    show.say(f"undone: {step.text()}; {model} knows {len(known.names)} classes")


def classes(model: Saved, /) -> None:
    """List the classes and the history of a model."""
    from fscil.teach import modelfile

    known = modelfile.load(model)
    bank = known.branches[0].prototypes
    how = {label: "base" if label < known.base else "taught" for label in known.names}
    rows = [(name, int(bank.counts[row]), how[label]) for row, (label, name) in enumerate(known.names.items())]
    show.table(("class", "photos", "learned"), rows)
    show.say("")
    for step in known.journal.steps:
        show.say(f"{step.when}  {step.text()}")


def evaluate(model: Saved, photos: Folder, /) -> None:
    """Test a model on photos by class; folders of classes it does not know show how well it says "not sure"."""
    from fscil.teach import modelfile
    from fscil.teach.evaluation import evaluate as test
    from fscil.teach.photos import class_folders, summary

    folders = class_folders(photos)
    result = test(modelfile.load(model), folders)
    if result.unreadable:
        show.say(summary(result.unreadable, sum(map(len, folders.values()))))
    for line in result.lines():
        show.say(line)


def card(model: Saved, /) -> None:
    """Say what a model is, what it knows and how good it is."""
    from fscil.teach import modelfile
    from fscil.teach.card import card as lines

    for line in lines(modelfile.load(model)):
        show.say(line)


def export(model: Saved, /, *, onnx: Annotated[Path, Parameter(help="folder to write into")]) -> None:
    """Write a model as one ONNX graph: image in, class scores out."""
    from fscil.teach import modelfile
    from fscil.teach.export import to_onnx

    show.say(to_onnx(modelfile.load(model), onnx))


def explain(
    model: Saved,
    photo: Annotated[Path, Parameter(help="photo to explain")],
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="picture to write")] = Path("why.png"),
) -> None:
    """Draw what each relation looks at in a photo."""
    from fscil.teach import modelfile
    from fscil.teach.explain import explain as draw

    show.say(draw(modelfile.load(model), photo, output))


def _found(paths: list[Path]) -> list[Path]:
    """The photos that are meant by files and folders."""
    from fscil.teach.photos import expanded

    photos = expanded(paths)
    if not photos:
        raise FscilError(f"there are no photos in {', '.join(map(str, paths))}")
    return photos


def _tell(lesson: "Lesson", total: int) -> None:
    from fscil.teach.photos import summary

    if lesson.unreadable:
        show.say(summary(lesson.unreadable, total))
    for sentence in lesson.advice:
        show.say(sentence)


def _complain(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"fscil: {sentence}", file=sys.stderr)


VERBS = (learn, teach, predict, forget, rename, undo, classes, evaluate, card, export, explain)


def register(app: App) -> None:
    """Adds these verbs to the command line."""
    for verb in VERBS:
        app.command(verb)
