"""The verbs that change what a model knows: teach, forget, rename, undo, and the threshold of "not sure"."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fscil.command import show
from fscil.command.options import Share
from fscil.command.photos import (
    FITTED,
    WITHOUT_FEATURES,
    Class,
    Erase,
    Keep,
    Saved,
    Strict,
    be_strict,
    knows,
    photos_in,
    tell_lesson,
)
from fscil.errors import FscilError


def teach(
    model: Saved,
    name: Annotated[str | None, Parameter(help="name of the class; omitted with --none")] = None,
    /,
    *photos: Annotated[Path, Parameter(help="photos, or folders of photos")],
    none: Annotated[
        bool, Parameter(help="the photos show none of the classes: like them is not sure", negative=())
    ] = False,
    keep_features: Keep | None = None,
    strict: Strict = False,
) -> None:
    """Teach a class from a few photos, or add photos to a class; no old photos are needed."""
    from fscil.teach.lessons import correcting, teaching
    from fscil.teach.names import NONE, check_name, class_name
    from fscil.teach.storage import modelfile
    from fscil.text import count

    called = "" if none else class_name(_given_class(name))
    if not none:
        check_name(called)
    found = photos_in([*([Path(name)] if none and name else []), *photos])
    with modelfile.editing(model) as known:
        if keep_features is not None:
            known.memory.keep = keep_features == "all"
        meant = None if none else known.name_of(called)
        lesson = (
            correcting.teach_none(known, found) if meant is None else teaching.teach(known, [meant] * len(found), found)
        )
    tell_lesson(lesson, len(found))
    if keep_features == "none":
        show.say(WITHOUT_FEATURES)
    if none:
        kept, there = count(lesson.taught, "photo"), count(len(known.negatives), "photo")
        show.say(f"kept {kept} as {NONE}; {model} has {there} of {NONE}")
    else:
        show.say(f"taught {called!r} from {count(lesson.taught, 'photo')}; {model} {knows(known)}")
    be_strict(strict, len(lesson.unreadable), len(found))


def _given_class(name: str | None) -> str:
    """The class that photos are taught as; a photo in its place was meant as a photo."""
    from fscil.teach.seeing.folders import PHOTO_SUFFIXES

    advice = "name the class before the photos: fscil teach MODEL CLASS PHOTOS"
    if name is None:
        raise FscilError(f"no class is given; {advice}")
    if Path(name).suffix.lower() in PHOTO_SUFFIXES and Path(name).is_file():
        raise FscilError(f"{name} is a photo and no class; {advice}")
    return name


def forget(
    model: Saved,
    name: Class,
    /,
    *,
    erase: Erase = False,
) -> None:
    """Forget a class; undo brings it back, unless it was erased."""
    from fscil.teach.names import class_name
    from fscil.teach.storage import modelfile

    name = class_name(name)
    gone: set[int] = set()
    with modelfile.editing(model) as known:
        if erase:
            gone = known.erase(name)
        else:
            known.forget(name)
    show.say(f"{'erased' if erase else 'forgot'} {name!r}; {model} {knows(known)}")
    if any(label < known.base for label in gone):
        show.say(f"it was a base class: {FITTED}")


def rename(model: Saved, name: Class, new: Annotated[str, Parameter(help="the new name")], /) -> None:
    """Give a class another name."""
    from fscil.teach.names import check_name, class_name
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
    show.say(f"undone: {step.text()}; {model} {knows(known)}")


def adjust(
    model: Saved,
    /,
    *,
    false_acceptance: Annotated[Share, Parameter(help="share of unknown photos that may be taken for known")],
) -> None:
    """Move the threshold of "not sure" and say what that costs."""
    from fscil.teach.storage import modelfile
    from fscil.text import count

    with modelfile.editing(model) as known:
        before, accepted = known.calibration, known.accepted or 0
        known.adjust(false_acceptance)
    after, now = known.calibration, len(known.names)
    was, promised = (f"{100 * c.false_acceptance:g} %" for c in (before, after))
    show.say(f"promised: at most {was} of unknown photos taken for known before, {promised} now")
    refused = f"{100 * (1 - accepted):.0f} % before, {100 * (1 - (known.accepted or 0)):.0f} % now"
    moved = f" for {count(after.classes, 'class', 'classes')} and moved to {now}" if after.shift(now) else ""
    taught = f" and {count(after.rechecked, 'taught class', 'taught classes')}" if after.rechecked else moved
    measured = f"on {count(after.photos, 'held-out base photo')}{taught}"
    show.say(f"measured {measured}: known photos that are not sure: {refused}; fscil evaluate measures both on yours")


VERBS = (teach, forget, rename, undo, adjust)
