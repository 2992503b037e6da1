"""The verbs that correct a model: single photos are taken back, moved, listed, or found again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from fscil.command import show
from fscil.command.options import Count
from fscil.command.photos import FITTED, Erase, Saved
from fscil.errors import FscilError

if TYPE_CHECKING:
    from fscil.teach.knowledge.model import Model
    from fscil.teach.lessons.correcting import Correction
    from fscil.teach.names import Name

Named = Annotated[str, Parameter(help="photo, or the first digits of its digest (see fscil photos)")]
Nothing = Annotated[bool, Parameter(name="--none", help="instead of a class: the photos of none of these", negative=())]


def unteach(
    model: Saved,
    name: Annotated[str | None, Parameter(help="name of the class; omitted with --none")] = None,
    /,
    *photos: Named,
    none: Nothing = False,
    erase: Erase = False,
) -> None:
    """Take single photos back, as if they had never been taught; the photos need not be at hand."""
    from fscil.teach.lessons import correcting
    from fscil.teach.storage import modelfile

    if name is None and not none:
        raise FscilError("no class is given; name it before the photos: fscil unteach MODEL CLASS PHOTOS")
    given = [*([name] if none and name else []), *photos]
    if not given:
        other = "digits as fscil photos lists them" if none else "forget the class as a whole with fscil forget"
        raise FscilError(f"no photo is given; name photos, or {other}")
    with modelfile.editing(model) as known:
        place = _place(known, None if none else name)
        base = not none and known.label(place) < known.base
        done = correcting.unteach(known, place, given, erase)
    show.say(f"{'erased' if erase else 'took'} {_photos(done)} {'from' if erase else 'out of'} {_named(done.sources)}")
    if erase and base:
        show.say(f"{'it was' if done.photos == 1 else 'they were'} of a base class: {FITTED}")
    _tell(done)


def correct(
    model: Saved,
    photo: Named,
    name: Annotated[str | None, Parameter(help="the right class, new or known; omitted with --none")] = None,
    /,
    *,
    none: Nothing = False,
) -> None:
    """Correct a wrong answer: the photo is counted into the right class and out of any other."""
    from fscil.teach.lessons import correcting
    from fscil.teach.lessons.teaching import few_photos
    from fscil.teach.names import NONE
    from fscil.teach.storage import modelfile

    if none == (name is not None):
        raise FscilError("give the right class, or --none if the photo shows none of the classes")
    with modelfile.editing(model) as known:
        place = _place(known, name, new=True)
        new = place != NONE and place not in known.classes
        done = correcting.correct(known, place, [photo])
    where = _named([place])
    if not done.photos:
        show.say(f"{photo} counts as {where} already; nothing was changed")
        return
    before = f", no longer as {_named(done.sources)}" if done.sources else ""
    show.say(f"{photo} counts as {where}{before}; fscil undo takes it back")
    if new:
        show.say(f"{where} is a new class")  # who mistyped a known one should see it
    for advice in [] if place == NONE else few_photos(known, place):
        show.say(advice)
    _tell(done)


def photos(
    model: Saved,
    name: Annotated[str | None, Parameter(help="one class alone: also what would be said without each photo")] = None,
    /,
    *,
    none: Nothing = False,
) -> None:
    """List the photos a model was taught from, by their digests."""
    from fscil.teach.knowledge.memory import short
    from fscil.teach.lessons.corrections import places
    from fscil.teach.lessons.review import review_class
    from fscil.teach.storage import modelfile

    if none and name is not None:
        raise FscilError("give a class, or --none for the photos of none of these, but not both")
    known = modelfile.load(model)
    wanted = _place(known, None if none else name) if none or name is not None else None
    rows = [(short(photo), place) for photo, place in places(known).items() if wanted in (None, place)]
    review = review_class(known, wanted) if wanted is not None and not none else None
    if review is None:
        show.table(("photo", "class"), rows)
        return
    said = dict(zip(review.photos, review.answers, strict=True))
    titles = ((photo, said.get(f"photo {photo}")) for photo, _ in rows)
    show.table(("photo", "without it"), ((photo, answer.text() if answer else "") for photo, answer in titles))
    show.say("")
    show.say(review.text())


def nearest(
    model: Saved,
    photo: Annotated[Path, Parameter(help="photo to ask about")],
    /,
    *,
    most: Annotated[Count, Parameter(help="number of taught photos")] = 5,
) -> None:
    """Name the taught photos that a photo is most like: where its answer comes from."""
    from fscil.teach.knowledge.memory import short
    from fscil.teach.lessons.looking import answers, glance
    from fscil.teach.lessons.nearest import nearest as find
    from fscil.teach.storage import modelfile

    known = modelfile.load(model)
    seen = glance(known, [photo])
    if seen.unreadable:
        raise seen.unreadable[0]
    (near,) = find(known, seen.features, most)
    show.say(f"{photo}: {answers(known, seen.features)[0].text()}")
    show.table(("photo", "class", "cosine"), ((short(n.photo), n.name, f"{n.likeness:.3f}") for n in near), numbers=1)


def _place(model: "Model", name: str | None, new: bool = False) -> "Name":
    """The class that is meant, or NONE for no name."""
    from fscil.teach.names import NONE, class_name

    if name is None:
        return NONE
    return model.name_of(class_name(name)) if new else model.names[model.label(class_name(name))]


def _named(places: "list[Name]") -> str:
    from fscil.teach.names import NONE
    from fscil.text import few

    return few([NONE if place == NONE else repr(place) for place in places])


def _photos(done: "Correction") -> str:
    from fscil.text import count

    return count(done.photos, "photo")


def _tell(done: "Correction") -> None:
    for name in done.gone:
        show.say(f"{name!r} has no photo left and is forgotten; fscil undo brings it back, unless it was erased")
    for review in done.reviews:
        show.say(review.text())


VERBS = (unteach, correct, photos, nearest)
