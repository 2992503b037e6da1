"""The card of a model: what it is, what it knows, how good it is."""

from __future__ import annotations

from collections.abc import Iterator

from fscil.nn.branches import SEEN_BESIDE
from fscil.teach.knowledge.model import Model
from fscil.teach.names import NONE
from fscil.text import count


def card(model: Model) -> Iterator[str]:
    """The card as Markdown, line by line."""
    origin, c = model.origin, model.calibration
    photos = int(model.branches[0].prototypes.counts[: len(model.names)].sum())
    taught = sum(label >= model.base for label in model.names)
    yield "# What it is"
    beside = SEEN_BESIDE[model.branches[0].views]
    size = f", {model.framing.pixels} px{f' and {beside}' if beside else ''}" if model.framing else ""
    yield f"Few-shot image classifier: {origin.encoder}{size}, weights: {origin.weights} (licence: {origin.licence})."
    relations = ", ".join(f"{b.name} {b.relation} x {float(b.weight):g}" for b in model.branches)
    yield f"Base classes learned by: {origin.strength or 'nothing yet'}. Relations: {relations}."
    yield "# What it knows"
    yield f"{count(len(model.names), 'class', 'classes')} from {count(photos, 'photo')}, {taught} of them taught later:"
    yield ", ".join(map(str, model.classes)) or "nothing"
    if model.negatives:
        yield f"Photos like {count(len(model.negatives), 'photo')} of {NONE} are 'not sure'."
    remembered = sum(photo in model.memory for known in model.photos.values() for photo in known)
    if remembered:
        yield f"It keeps the features of {count(remembered, 'photo')}; they allow photos to be taken back."
    else:
        but = f" but those of {NONE}" if model.negatives else ""
        yield f"It keeps no features of photos{but}; only photos that are at hand can be taken back."
    yield "# How good it is"
    if c.photos:
        photos_used = count(c.photos, "held-out base photo")
        right = f"{100 * (c.accuracy or 0):.1f} % right"
        yield f"{photos_used}, half of the classes known from at most five photos: {right}."
        trained = origin.strength == "full"  # on photos of every class, also of those that are hidden
        without = "whose means were left out" if trained else "that nothing was fitted to"
        how = f"photos of base classes {without}" if c.classes else "hiding the class of each photo"
        yield f"Unknown photos, imitated by {how}: AUROC {c.auroc:.3f}."
        meant = f"The threshold is meant to let {100 * c.false_acceptance:g} % of unknown photos pass"
        yield f"{meant}; as measured, it accepts {100 * (model.accepted or 0):.1f} % of the known ones."
        if trained:
            yield "But its encoder was trained on photos of these classes, so the promise is likely too good."
        yield from _promise(model)
    else:
        yield "Too few base photos to measure: probabilities are a guess and no photo is ever 'not sure'."
    yield "Measure it on photos of your own: fscil evaluate MODEL FOLDER."
    yield "# History"
    yield from (f"- {step.when} {step.text()}" for step in model.journal.steps)


def _promise(model: Model) -> Iterator[str]:
    """For how many classes "not sure" was measured, and what became of it since."""
    c, now = model.calibration, len(model.names)
    measured = f"This was measured for {count(c.classes, 'class', 'classes')}"
    if c.rechecked:
        yield f"{measured}, and again with {count(c.rechecked, 'class', 'classes')} taught later; it knows {now}."
    elif now == c.classes:
        yield f"{measured}."
    elif c.classes:
        yield f"{measured}; for {now} the threshold moved with their number, and was not measured again."
    if not c.encoders:
        had = _had_before(model)
        yield f"This model was made by an earlier version and keeps {had}; only fscil learn brings the new ones."


def _had_before(model: Model) -> str:
    """What a model of an earlier version has that is another today: that of format 1, 2, 3 or 4 of the model file."""
    if not model.calibration.classes:
        return "its read-out and its threshold of 'not sure'"
    if model.framing and any(branch.unit_means and not branch.directed for branch in model.branches):
        return "its evidence, which does not look at the lengths of features, and its threshold of 'not sure'"
    return "its threshold of 'not sure'" + ("" if model.calibration.counted else " and how that moves")
