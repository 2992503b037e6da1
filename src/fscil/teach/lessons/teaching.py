"""Teaching a class from a few photos, and what is worth saying about these photos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.corrections import places
from fscil.teach.lessons.looking import Seen, answers, look
from fscil.teach.lessons.review import ENOUGH, Review, odd_photos, review, review_class
from fscil.teach.names import Name
from fscil.teach.seeing.photos import Source, Unreadable, name_of, summary
from fscil.text import count, few


@dataclass
class Lesson:
    """What came of teaching: how many photos were taken in, which could not be read, and advice in plain sentences."""

    taught: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)  # of the classes that were taught
    photos: list[bytes] = field(default_factory=list)  # digests of those that were taken in

    def remarks(self, total: int) -> list[str]:
        """What is worth saying about a lesson from `total` photos: which were skipped, and the advice."""
        return [*([summary(self.unreadable, total)] if self.unreadable else []), *self.advice]


def teach(model: Model, names: Sequence[Name], sources: Sequence[Source]) -> Lesson:
    """Adds each photo to the class of its name, new or known; photos that were taught before are skipped."""
    return teach_seen(model, names, [name_of(source, p) for p, source in enumerate(sources)], look(model, sources))


def teach_seen(model: Model, names: Sequence[Name], photos: Sequence[str], seen: Seen) -> Lesson:
    """As `teach`, with photos that were looked at before, and what they are called."""
    given, called = [names[p] for p in seen.positions], [photos[p] for p in seen.positions]
    taken, repeated, foreign = sort_out(seen.digests, given, places(model))
    lesson = Lesson(len(taken), seen.unreadable, photos=[seen.digests[i] for i in taken])
    lesson.advice += repeated_advice([called[i] for i in repeated], {called[i]: other for i, other in foreign.items()})
    if not taken:
        if repeated:
            return lesson  # every photo was known already: nothing to do, nothing wrong
        raise FscilError(f"none of the photos could be taught: {why_none(lesson.unreadable, lesson.advice)}")
    by_name: dict[Name, list[int]] = {}
    for i in taken:
        by_name.setdefault(given[i], []).append(i)
    for name, mine in by_name.items():
        lesson.advice += looks_like(model, name, [f[mine] for f in seen.features])
    dull = [called[i] for i in taken if seen.positions[i] in seen.plain]
    if dull:
        lesson.advice.append(f"{few(dull)}: almost one colour; a photo that shows the object teaches more")
    model.teach([given[i] for i in taken], [f[taken] for f in seen.features], lesson.photos)
    model.album.add(seen.small)
    lesson.advice += left_out(names, model.classes)
    for name, mine in by_name.items():
        titles = {seen.digests[i]: called[i] for i in mine}
        lesson.advice += unlike_the_others(model, name, titles) + few_photos(model, name)
        one = review_class(model, name, titles) or review(
            model, name, [f[mine] for f in seen.features], [*titles.values()]
        )
        lesson.reviews += [one] if one else []
    return lesson


def few_photos(model: Model, name: Name) -> list[str]:
    """A sentence when a class is known from few photos."""
    photos = model.branches[0].prototypes.take(model.label(name)).photos
    return (
        [f"{name!r} is known from {count(photos, 'photo')}; {ENOUGH} or more make it surer"] if photos < ENOUGH else []
    )


def sort_out(
    digests: Sequence[bytes], names: Sequence[Name], known: Mapping[bytes, Name]
) -> tuple[list[int], list[int], dict[int, Name]]:
    """Positions of photos that are new, of those known for the same class, and of those known for another class."""
    seen, taken, repeated, foreign = dict(known), [], [], {}
    for i, (digest, name) in enumerate(zip(digests, names, strict=True)):
        if digest not in seen:
            seen[digest] = name
            taken.append(i)
        elif seen[digest] == name:
            repeated.append(i)
        else:
            foreign[i] = seen[digest]
    return taken, repeated, foreign


def repeated_advice(repeated: Sequence[str], foreign: Mapping[str, Name]) -> list[str]:
    """What to say about photos that came more than once."""
    told = [f"{count(len(repeated), 'photo')} known already and counted once: {few(repeated)}"] if repeated else []
    if foreign:
        named = [f"{photo} ({other!r})" for photo, other in foreign.items()]
        told.append(f"skipped, because the same photo was taught as another class: {few(named)}; correct moves it")
    return told


def left_out(names: Sequence[Name], learned: Sequence[Name]) -> list[str]:
    """A sentence about each class that was given photos and is not known all the same."""
    known = set(learned)
    lost = [name for name in dict.fromkeys(names) if name not in known]
    return [f"class {name!r} has no photo that could be used and is skipped" for name in lost]


def looks_like(model: Model, name: Name, features: Sequence[Tensor]) -> list[str]:
    """A sentence when most of the photos would be taken, with some certainty, for another class."""
    if not [other for other in model.names.values() if other != name]:
        return []
    told = [answer.best[0] for answer in answers(model, features) if answer.known and answer.best[0][0] != name]
    counted = Counter(other for other, _ in told)
    if not counted:
        return []
    other, times = counted.most_common(1)[0]
    certainty = sum(p for n, p in told if n == other) / times
    if times * 2 <= len(features[0]) or certainty < 0.5:
        return []
    said = f"{times} of {count(len(features[0]), 'photo')} look like {other!r} {certainty:.2f}"
    return [f"{said}; if it is the same thing, undo and teach {other!r} instead"]


def unlike_the_others(model: Model, name: Name, titles: Mapping[bytes, str]) -> list[str]:
    """A sentence about photos of a lesson that are unlike the other photos of their class."""
    odd = [titles[photo] for photo in odd_photos(model, name) if photo in titles]
    return [f"{few(odd)}: unlike the other photos of {name!r}; unteach takes a wrong photo back"] if odd else []


def why_none(unreadable: Sequence[Unreadable], advice: Sequence[str]) -> str:
    """Why no photo could be taken in and what to do; photos of another class have their own advice, to move them."""
    why = "; ".join([*(str(problem) for problem in unreadable[:3]), *advice]) or "there are none"
    return why if advice and not unreadable else f"{why}; give other photos"
