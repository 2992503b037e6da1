"""What the verbs for people with photos have in common: parameters, photos that are meant, words about lessons."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from fscil.command import show
from fscil.errors import FscilError
from fscil.text import count, few

if TYPE_CHECKING:
    from fscil.teach.knowledge.model import Model
    from fscil.teach.lessons.teaching import Lesson

Saved = Annotated[Path, Parameter(help="model file made by fscil learn")]
Class = Annotated[str, Parameter(help="name of the class")]
Folder = Annotated[Path, Parameter(help="folder with one sub-folder of photos per class")]
Strict = Annotated[bool, Parameter(help="end with an error if a photo cannot be read", negative=())]
Erase = Annotated[
    bool, Parameter(help="remove every trace but what was fitted to all base classes; this is final", negative=())
]
Keep = Annotated[
    Literal["all", "none"],
    Parameter(
        help="whether the file keeps a feature of each photo; "
        "unteach and correct by digest, nearest and photos MODEL CLASS need it"
    ),
]
FITTED = "what was fitted to all base classes together stays; learn again to remove that too"
WITHOUT_FEATURES = (
    "without features of photos, unteach and correct need the photo itself, nearest does not work, no photo is called "
    "unlike the others, only photos of the same lesson are asked about, and lessons do not measure not sure again; "
    "undo does not bring features back"
)


def photos_in(paths: list[Path]) -> list[Path]:
    """The photos that are meant by files and folders."""
    from fscil.teach.seeing.folders import expanded

    photos = expanded(paths)
    if not paths:
        raise FscilError("no photo is given; name photos, or folders of photos")
    if not photos:
        raise FscilError(f"there are no photos in {', '.join(map(str, paths))}")
    return photos


def about_loose(root: Path) -> list[str]:
    """A sentence about photos that lie beside the folders of classes, if there are any."""
    from fscil.teach.seeing.folders import loose_photos

    loose = loose_photos(root)
    names = few([photo.name for photo in loose])
    return [f"skipped {count(len(loose), 'photo')} beside the class folders of {root}: {names}"] if loose else []


def tell_lesson(lesson: "Lesson", total: int) -> None:
    """Says what is worth saying about a lesson from a number of photos."""
    for sentence in lesson.remarks(total):
        show.say(sentence)
    for review in lesson.reviews:
        show.say(review.text())


def be_strict(strict: bool, unreadable: int, total: int) -> None:
    """Ends a command that did what could be done with an error, if that was asked for."""
    if strict and unreadable:
        raise FscilError(f"{unreadable} of {total} photos could not be read, and --strict makes that an error")


def knows(model: "Model") -> str:
    """How many classes a model knows."""
    return f"knows {count(len(model.names), 'class', 'classes')}"


def complain(sentences: Iterable[str]) -> None:
    """Says sentences where they do not mix with the output."""
    for sentence in sentences:
        show.complain(sentence)
