"""The verbs for people with photos: learn, teach, predict, correct, evaluate, export, explain."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from fscil.command import answers, show
from fscil.command.options import Count, Whole
from fscil.data import LARGEST_SEED
from fscil.errors import FscilError
from fscil.files import check_writable, write_bytes

if TYPE_CHECKING:
    from fscil.teach.lessons.teaching import Lesson

Saved = Annotated[Path, Parameter(help="model file made by fscil learn")]
Class = Annotated[str, Parameter(help="name of the class")]
Photos = Annotated[list[Path], Parameter(help="photos, or folders of photos", negative=())]
Folder = Annotated[Path, Parameter(help="folder with one sub-folder of photos per class")]
Strict = Annotated[bool, Parameter(help="end with an error if a photo cannot be read", negative=())]
Keep = Annotated[
    Literal["all", "none"],
    Parameter(help="whether the file keeps a feature of each photo; unteach, nearest and photos need it"),
]
WITHOUT_FEATURES = (
    "without features of photos, unteach and correct need the photo itself, nearest does not work, no photo is called "
    "unlike the others, and only photos of the same lesson are asked about; undo does not bring features back"
)
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
            "[default: efficientnet_lite0; with --train: the recipe's, fast]"
        ),
    ] = None,
    best: Annotated[bool, Parameter(help="two encoders and mirror images: slower, more accurate", negative=())] = False,
    weights: Annotated[
        str | None, Parameter(help="local weights file [default: the pretrained weights; with --train: none]")
    ] = None,
    pixels: Annotated[
        Count | None, Parameter(help="size of the images [default: the encoder's own; with --train: the recipe's, 64]")
    ] = None,
    views: Annotated[Literal["one", "flip"], Parameter(help="flip: a photo and its mirror image are averaged")] = "one",
    false_acceptance: Annotated[float, Parameter(help="share of unknown photos that may be taken for known")] = 0.05,
    seed: Annotated[Whole, Parameter(help="seed of everything that is drawn")] = 0,
    keep_features: Keep = "all",
    overwrite: Annotated[bool, Parameter(help="replace an existing model file", negative=())] = False,
) -> None:
    """Learn classes from a folder of photos."""
    full = train or strength == "full"
    _check_place(save, overwrite)
    _check_numbers(false_acceptance, seed)
    _check_training(full, strength, views, recipe)
    if best and (full or encoder or weights):
        raise FscilError("--best chooses the encoder; omit --encoder, --weights, --train and --strength full")
    from fscil.teach.base import learning
    from fscil.teach.knowledge import backbones
    from fscil.teach.storage import modelfile

    began = time.perf_counter()
    folders = _class_folders(photos)
    sources = [photo for found in folders.values() for photo in found]
    names = [name for name, found in folders.items() for _ in found]
    if full:
        from fscil.teach.base.full import trained

        given = {"encoder": encoder, "weights": weights, "pixels": pixels}
        changes = {name: value for name, value in given.items() if value is not None}
        model, strength = trained(photos, folders, save, recipe, seed, changes, show.say), "full"
    else:
        chosen = backbones.BEST if best else encoder or backbones.DEFAULT
        model = backbones.of_encoder(chosen, weights, pixels, "flip" if best else views)
        if best:
            show.say(f"{chosen} with mirror images: {backbones.cost(model):.1f} times the compute of the default")
    model.memory.keep = keep_features == "all"
    lesson = learning.learn(model, sources, names, strength, false_acceptance, seed=seed, tell=show.say)
    _tell(lesson, len(sources))
    (modelfile.replace if overwrite else modelfile.save_over)(model, save)
    if keep_features == "none":
        show.say(WITHOUT_FEATURES)
    facts = f"{len(model.names)} classes from {lesson.taught} photos"
    show.say(f"{save}: learned {facts} in {time.perf_counter() - began:.1f} s")


def _check_place(save: Path, overwrite: bool) -> None:
    """Refuses a place where the model could not be saved in the end."""
    if save.exists() and not overwrite:
        raise FscilError(f"{save} exists; add classes to it with fscil teach, or give --overwrite to start over")
    check_writable(save)


def _check_numbers(false_acceptance: float, seed: int) -> None:
    if not 0 < false_acceptance < 1:
        raise FscilError(f"--false-acceptance is {false_acceptance}, but must lie between 0 and 1")
    if not 0 <= seed <= LARGEST_SEED:
        raise FscilError(f"--seed is {seed}, but must lie between 0 and {LARGEST_SEED}")


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
    from fscil.teach.seeing.photos import class_folders

    folders = class_folders(photos)
    for name in [name for name, found in folders.items() if not found]:
        show.say(f"class {name!r} has no photos and is left out")
    return folders


def teach(
    model: Saved,
    name: Annotated[str, Parameter(help="name of the class; omitted with --none")],
    /,
    *photos: Annotated[Path, Parameter(help="photos, or folders of photos")],
    none: Annotated[
        bool, Parameter(help="the photos show none of the classes: like them is not sure", negative=())
    ] = False,
    keep_features: Keep | None = None,
) -> None:
    """Teach a class from a few photos, or add photos to a class; no old photos are needed."""
    from fscil.teach.lessons import correcting, teaching
    from fscil.teach.names import NONE, check_name
    from fscil.teach.seeing.photos import class_name
    from fscil.teach.storage import modelfile
    from fscil.text import count

    if not none:
        name = class_name(name)
        check_name(name)
    found = _found([Path(name), *photos] if none else list(photos))
    with modelfile.editing(model) as known:
        if keep_features is not None:
            known.memory.keep = keep_features == "all"
        meant = None if none else known.name_of(name)
        lesson = (
            correcting.teach_none(known, found) if meant is None else teaching.teach(known, [meant] * len(found), found)
        )
    _tell(lesson, len(found))
    if keep_features == "none":
        show.say(WITHOUT_FEATURES)
    if none:
        kept, there = count(lesson.taught, "photo"), count(len(known.negatives), "photo")
        show.say(f"kept {kept} as {NONE}; {model} has {there} of {NONE}")
    else:
        show.say(f"taught {name!r} from {lesson.taught} photos; {model} knows {len(known.names)} classes")


def predict(
    model: Saved,
    /,
    *photos: Annotated[Path, Parameter(help="photos, or folders of photos")],
    as_json: Annotated[bool, Parameter(name="--json", help="one JSON object per photo", negative=())] = False,
    as_csv: Annotated[bool, Parameter(name="--csv", help="a table with one row per photo", negative=())] = False,
    sort_into: Annotated[
        Path | None, Parameter(help="folder to copy the photos into, one sub-folder per class")
    ] = None,
    link: Annotated[bool, Parameter(help="with --sort-into: links instead of copies", negative=())] = False,
    strict: Strict = False,
) -> None:
    """Say what photos show, or that the model is not sure."""
    _check_forms(as_json, as_csv)
    if link and sort_into is None:
        raise FscilError("--link goes with --sort-into DIR")
    if sort_into is not None:
        check_writable(sort_into / "photo")
    from fscil.teach.seeing import light

    found = _found(list(photos))
    told = light.replies(model, found) if sort_into is None else None
    if told is None:
        from fscil.teach.lessons.looking import replies
        from fscil.teach.storage import lightfile, modelfile

        known = modelfile.load(model)
        told = replies(known, found, "looking at photos" if len(found) > 100 else "")
        lightfile.keep(known)
    unreadable = [reply for reply in told if reply.answer is None]
    (answers.print_json if as_json else answers.print_csv if as_csv else answers.say)(told)
    _complain(f"{reply.photo} {reply.problem}" for reply in unreadable)
    if len(unreadable) == len(told):
        raise FscilError("none of the photos could be read")
    if sort_into is not None:
        from fscil.teach.outputs import sorting

        done = sorting.sort_into(sort_into, told, known.classes, link).text(sort_into)
        _complain([done]) if as_json or as_csv else show.say(done)
    _be_strict(strict, len(unreadable), len(told))


def forget(
    model: Saved,
    name: Class,
    /,
    *,
    erase: Annotated[bool, Parameter(help="remove every trace; this is final", negative=())] = False,
) -> None:
    """Forget a class; undo brings it back, unless it was erased."""
    from fscil.teach.seeing.photos import class_name
    from fscil.teach.storage import modelfile

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
    from fscil.teach.names import check_name
    from fscil.teach.seeing.photos import class_name
    from fscil.teach.storage import modelfile

    check_name(class_name(new))
    with modelfile.editing(model) as known:
        known.rename(class_name(name), known.name_of(class_name(new)))
    show.say(f"renamed {name!r} to {class_name(new)!r}")


def undo(model: Saved, /) -> None:
    """Take the last change back."""
    from fscil.teach.storage import modelfile

    with modelfile.editing(model) as known:
        step = known.undo()
    show.say(f"undone: {step.text()}; {model} knows {len(known.names)} classes")


def classes(model: Saved, /) -> None:
    """List the classes and the history of a model."""
    from fscil.teach.storage import modelfile

    known = modelfile.load(model)
    bank = known.branches[0].prototypes
    how = {label: "base" if label < known.base else "taught" for label in known.names}
    rows = [(name, int(bank.counts[row]), how[label]) for row, (label, name) in enumerate(known.names.items())]
    show.table(("class", "photos", "learned"), rows)
    show.say("")
    for step in known.journal.steps:
        show.say(f"{step.when}  {step.text()}")


def evaluate(
    model: Saved,
    photos: Folder,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", help="numbers and wrong photos as JSON", negative=())] = False,
    as_csv: Annotated[bool, Parameter(name="--csv", help="a table with one row per photo", negative=())] = False,
    html: Annotated[Path | None, Parameter(help="page to write, with the mistakes as thumbnails")] = None,
    strict: Strict = False,
) -> None:
    """Test a model on photos by class; folders of classes it does not know show how well it says "not sure"."""
    _check_forms(as_json, as_csv)
    if html is not None:
        check_writable(html)
    from fscil.teach.outputs import evaluation
    from fscil.teach.seeing.photos import class_folders, summary
    from fscil.teach.storage import modelfile
    from fscil.text import few

    known, folders = modelfile.load(model), class_folders(photos)
    result, total = evaluation.evaluate(known, folders), sum(map(len, folders.values()))
    if result.unreadable:
        _complain([summary(result.unreadable, total)])
    if result.metrics is None:
        some = few([str(name) for name in known.classes])
        _complain([f"no folder is called like a class of the model ({some}): all photos count as unknown"])
    (answers.print_test_as_json if as_json else answers.print_test_as_csv if as_csv else answers.say_test)(result)
    if html is not None:
        from fscil.teach.outputs.mistakes import page

        write_bytes(html, page(result, model, photos).encode("utf-8", "backslashreplace"))
        _complain([f"page: {html}"]) if as_json or as_csv else show.say(f"page: {html}")
    _be_strict(strict, len(result.unreadable), total)


def _check_forms(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise FscilError("--json and --csv exclude each other; give one of them")


def _be_strict(strict: bool, unreadable: int, total: int) -> None:
    if strict and unreadable:
        raise FscilError(f"{unreadable} of {total} photos could not be read, and --strict makes that an error")


def adjust(
    model: Saved,
    /,
    *,
    false_acceptance: Annotated[float, Parameter(help="share of unknown photos that may be taken for known")],
) -> None:
    """Move the threshold of "not sure" and say what that costs."""
    from fscil.teach.storage import modelfile

    with modelfile.editing(model) as known:
        before, after = known.calibration, known.calibration.at(false_acceptance)
        known.calibration = after
    rates = f"{100 * before.false_acceptance:g} % before, {100 * after.false_acceptance:g} % now"
    refused = f"{100 * (1 - (before.accepted or 0)):.0f} % before, {100 * (1 - (after.accepted or 0)):.0f} % now"
    show.say(f"unknown photos taken for known: {rates}; known photos that are not sure: {refused}")
    show.say(f"as measured on {after.photos} held-out base photos; fscil evaluate measures it on yours")


def card(model: Saved, /) -> None:
    """Say what a model is, what it knows and how good it is."""
    from fscil.teach.outputs.card import card as lines
    from fscil.teach.storage import modelfile

    for line in lines(modelfile.load(model)):
        show.say(line)


def export(model: Saved, /, *, onnx: Annotated[Path, Parameter(help="folder to write into")]) -> None:
    """Write a model as one ONNX graph: image in, class scores out."""
    from fscil.teach.outputs.export import to_onnx
    from fscil.teach.storage import modelfile

    show.say(to_onnx(modelfile.load(model), onnx))


def explain(
    model: Saved,
    photo: Annotated[Path, Parameter(help="photo to explain")],
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="picture to write")] = Path("why.png"),
) -> None:
    """Draw what each relation looks at in a photo."""
    from fscil.teach.outputs.explain import explain as draw
    from fscil.teach.storage import modelfile

    show.say(draw(modelfile.load(model), photo, output))


def _found(paths: list[Path]) -> list[Path]:
    """The photos that are meant by files and folders."""
    from fscil.teach.seeing.photos import expanded

    photos = expanded(paths)
    if not paths:
        raise FscilError("no photo is given; name photos, or folders of photos")
    if not photos:
        raise FscilError(f"there are no photos in {', '.join(map(str, paths))}")
    return photos


def _tell(lesson: "Lesson", total: int) -> None:
    from fscil.teach.seeing.photos import summary

    if lesson.unreadable:
        show.say(summary(lesson.unreadable, total))
    for sentence in lesson.advice:
        show.say(sentence)
    for review in lesson.reviews:
        show.say(review.text())


def _complain(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        show.complain(sentence)


VERBS = (learn, teach, predict, forget, rename, undo, classes, evaluate, adjust, card, export, explain)


def register(app: App) -> None:
    """Adds these verbs to the command line."""
    for verb in VERBS:
        app.command(verb)
