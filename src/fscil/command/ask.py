"""The verbs that ask a model: what photos show, how good it is, what it is; and what others can use of it."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fscil.command import answers, show
from fscil.command.photos import Folder, Saved, Strict, about_loose, be_strict, complain, photos_in
from fscil.errors import FscilError
from fscil.files import check_writable, write_bytes


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
        _check_folder(sort_into, "--sort-into")
        check_writable(sort_into / "photo")
    from fscil.teach.seeing import light

    found = photos_in(list(photos))
    told = light.replies(model, found) if sort_into is None else None
    if told is None:
        from fscil.teach.lessons.looking import replies
        from fscil.teach.storage import modelfile

        known = modelfile.load(model)
        told = replies(known, found, "looking at photos" if len(found) > 100 else "")
        modelfile.keep_shortcut(known, model)
    unreadable = [reply for reply in told if reply.answer is None]
    (answers.print_json if as_json else answers.print_csv if as_csv else answers.say)(told)
    complain(f"{reply.photo} {reply.problem}" for reply in unreadable)
    if len(unreadable) == len(told):
        raise FscilError("none of the photos could be read")
    if sort_into is not None:
        from fscil.teach.outputs import sorting

        done = sorting.sort_into(sort_into, told, known.classes, link).text(sort_into)
        complain([done]) if as_json or as_csv else show.say(done)
    be_strict(strict, len(unreadable), len(told))


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
    from fscil.teach.seeing.folders import class_folders
    from fscil.teach.seeing.photos import summary
    from fscil.teach.storage import modelfile
    from fscil.text import few

    known, folders = modelfile.load(model), class_folders(photos)
    complain(about_loose(photos))
    result, total = evaluation.evaluate(known, folders), sum(map(len, folders.values()))
    if result.unreadable:
        complain([summary(result.unreadable, total)])
    complain(f"class {name!r} has no photo that could be read and is not tested" for name in result.untested)
    if result.metrics is None:
        some = few([str(name) for name in known.classes])
        complain([f"no folder is called like a class of the model ({some}): all photos count as unknown"])
    if html is not None:  # first: who reads only the beginning of what is printed still gets the page
        from fscil.teach.outputs.mistakes import page

        write_bytes(html, page(result, model, photos).encode("utf-8", "backslashreplace"))
    (answers.print_test_as_json if as_json else answers.print_test_as_csv if as_csv else answers.say_test)(result)
    if html is not None:
        complain([f"page: {html}"]) if as_json or as_csv else show.say(f"page: {html}")
    be_strict(strict, len(result.unreadable), total)


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

    _check_folder(onnx, "--onnx")
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


def _check_folder(path: Path, option: str) -> None:
    if path.exists() and not path.is_dir():
        raise FscilError(f"{path} is a file; give {option} a folder, new or known")


def _check_forms(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise FscilError("--json and --csv exclude each other; give one of them")


VERBS = (predict, evaluate, classes, card, export, explain)
