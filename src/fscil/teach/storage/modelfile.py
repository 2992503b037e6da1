"""The model file: one safetensors file with JSON metadata. Loading executes nothing and checks everything."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
from torch import Tensor

import fscil
from fscil.data.framing import Framing
from fscil.errors import FscilError, UnknownEncoder
from fscil.teach.knowledge.album import album_tensors, read_album
from fscil.teach.knowledge.calibration import Calibration
from fscil.teach.knowledge.journal import Journal
from fscil.teach.knowledge.memory import memory_tensors, read_memory
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.names import NONE
from fscil.teach.seeing.light import OLDER
from fscil.teach.storage import lightfile
from fscil.teach.storage.branchfile import (
    branch_notes,
    branch_tensors,
    encoder_notes,
    encoders_of,
    part_of,
    read_branch,
    read_encoders,
)
from fscil.teach.storage.journalfile import known_tensors, photo_tensors, read_photos, read_steps, step_notes
from fscil.teach.storage.locks import locked
from fscil.teach.storage.stored import stored
from fscil.tensors import digest, write_tensors

FORMAT = 6
READABLE = (1, 2, 3, 4, 5, 6)
# They stay as they are. 1: "not sure" by scores; 2: features of length 1; 3: none is `counted`; 4: nor `encoders`.
# 5: no views called "negative", which earlier versions do not know.
FRAMING = ("pixels", "mean", "std", "margin", "resampling")
RETIRED = ("odd",)  # what the calibration in files of before says and nobody asks for
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


def save(model: Model, path: str | Path) -> None:
    """Writes a model, and keeps what an answer without torch needs."""
    write(model, path)
    lightfile.keep(model)


def keep_shortcut(model: Model, path: str | Path) -> None:
    """Keeps what an answer without torch needs of a model that was loaded, unless it has been changed meanwhile."""
    lightfile.keep(model)
    if _revision_at(Path(path)) != model.revision:
        lightfile.forget(model.revision)


def write(model: Model, path: str | Path) -> None:
    """Writes a model in one step: a reader finds the old file or the new one, never half of it."""
    shared = encoders_of(model)
    place = {id(encoder): i for i, encoder in enumerate(shared)}
    weights = [stored(encoder) for encoder in shared]
    notes = {
        "format": FORMAT,
        "program": f"fscil {fscil.__version__}",
        "origin": asdict(model.origin),
        "encoders": encoder_notes(shared, weights),
        "branches": [branch_notes(branch, place[id(branch.encoder)]) for branch in model.branches],
        "view": None if model.framing is None else _view(model.framing),
        "classes": [[label, name] for label, name in model.names.items()],
        "base": model.base,
        "calibration": dict(vars(model.calibration)),
        "journal": step_notes(model.journal),
        "keep_features": model.memory.keep,
        "negatives": [photo.hex() for photo in model.negatives],
        **({"thumbnails": True} if model.album.keep else {}),  # files without are those of before
    }
    model.tidy()
    kept = _kept(model)
    revision = _revision(notes, kept)
    frozen = {f"encoder.{i}.{name}": part for i, one in enumerate(weights) for name, part in one.parts.items()}
    before = {model.revision, _revision_at(Path(path))} - {revision}
    for old in before:  # before the new file: what is erased must not outlive it
        lightfile.forget(old)
    write_tensors(Path(path), {**frozen, **kept}, {**notes, "revision": revision})
    for old in before:  # and after it: somebody may have asked the old one meanwhile
        lightfile.forget(old)
    model.revision = revision


def save_over(model: Model, path: str | Path) -> None:
    """Saves where nothing is lost: at a new place, or over the very file the model was loaded from or last saved to."""
    path = Path(path)
    if not path.exists():
        save(model, path)
        return
    with held(path):
        there = _read(path)[1].get("revision")
        if there is None or there != model.revision:
            advice = "load it again, save elsewhere, or overwrite it"
            raise FscilError(f"{path} holds another model, or was changed since this one was loaded; {advice}")
        save(model, path)


def replace(model: Model, path: str | Path) -> None:
    """Saves over whatever is there, but not while another process changes it."""
    path = Path(path)
    with held(path) if path.exists() else nullcontext():
        save(model, path)


@contextmanager
def editing(path: str | Path) -> Iterator[Model]:
    """The model in a file, locked against other processes and saved at the end; an error leaves the file as it was."""
    path = Path(path)
    with held(path):
        model = load(path)
        yield model
        save(model, path)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds a model file against other processes, without what killed ones left beside it."""
    with locked(path):
        _remove_partial(Path(os.path.realpath(path)))
        yield


def _remove_partial(path: Path) -> None:
    """Removes what a process that was killed left of this file; another model may be called FILE.more."""
    ours = re.compile(re.escape(path.name) + r"\.\d+\.partial")
    try:
        for file in path.parent.iterdir():
            if ours.fullmatch(file.name):
                file.unlink(missing_ok=True)
    except OSError as problem:  # it may hold what is about to be erased
        advice = "remove what ends in .partial, or allow it"
        raise FscilError(f"what is left beside {path} cannot be removed ({problem.strerror}); {advice}") from problem


def load(path: str | Path, like: Model | None = None) -> Model:
    """The model in a file; where its encoders are those of another model, that has read them, they are shared."""
    path = Path(path)
    tensors, notes = _read(path, like)
    if notes.get("format") not in READABLE:
        newer = isinstance(notes.get("format"), int) and notes["format"] > FORMAT
        update = "a newer version of fscil wrote it; update with pip install -U fscil"
        hint = update if newer else "it is no model of fscil"
        raise FscilError(f"{path} cannot be opened: {hint}")
    try:
        return _model(tensors, notes, like)
    except UnknownEncoder as problem:
        advice = "if it was made elsewhere, update with pip install -U fscil timm"
        raise FscilError(f"{path} cannot be opened: {problem}; {advice}") from problem
    except FscilError as problem:
        raise FscilError(f"{path} is damaged: {problem}; take an older copy of it") from problem
    except DAMAGE as problem:
        raise FscilError(f"{path} is damaged: {_damage(problem)}; take an older copy of it") from problem


def revision_in(file: BinaryIO) -> str:
    """The revision that the beginning of a model file names; nothing else is read or checked."""
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return str(json.loads(header["__metadata__"]["notes"])["revision"])


def _damage(problem: Exception) -> str:
    """What an error that was met while reading says about the file."""
    if isinstance(problem, KeyError) and problem.args:
        return f"it has no {problem.args[0]!r}"
    return "a part of it is missing or is not what it should be"


def _kept(model: Model) -> dict[str, Tensor]:
    """All tensors of a model but the weights of its encoders."""
    kept = {name: tensor for branch in model.branches for name, tensor in branch_tensors(branch).items()}
    kept |= photo_tensors(model.photos) | memory_tensors(model.memory, model.branches) | album_tensors(model.album)
    return kept | known_tensors(model.journal, [branch.name for branch in model.branches])


def _revision(notes: Mapping[str, Any], kept: Mapping[str, Tensor]) -> str:
    return hashlib.sha256((json.dumps(notes) + digest(kept)).encode()).hexdigest()


def _view(framing: Framing) -> dict[str, Any]:
    return {name: getattr(framing, name) for name in FRAMING}


def _read(path: Path, like: Model | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of a file, without the weights of encoders that another model has."""
    try:
        path.open("rb").close()  # of a file that may not be read safetensors says that it does not exist
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "null"))
            skipped = "encoder." if _same_encoders(notes, like) else ()
            wanted = [name for name in file.keys() if not name.startswith(skipped)]  # noqa: SIM118 (not a dict)
            tensors = {name: file.get_tensor(name) for name in wanted}
    except PermissionError as problem:
        raise FscilError(f"{path} may not be read ({problem.strerror}); allow it, or give another model") from problem
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as problem:
        reason = "does not exist" if isinstance(problem, FileNotFoundError) else "is no model file, or half of one"
        raise FscilError(f"{path} {reason}; fscil learn PHOTOS --save FILE makes one") from problem
    return tensors, notes if isinstance(notes, dict) else {}


def _revision_at(path: Path) -> str | None:
    """The revision of the model in a file; None: there is none."""
    try:
        with path.open("rb") as file:
            return revision_in(file)
    except (OSError, MemoryError, *DAMAGE):
        return None


def _same_encoders(notes: Any, like: Model | None) -> bool:
    """Whether a file says that its encoders, and how they are shown photos, are those of a model."""
    if like is None or like.framing is None or not isinstance(notes, dict):
        return False
    there = notes.get("encoders"), notes.get("view"), notes.get("origin", {}).get("encoder")
    shared = encoders_of(like)
    ours = encoder_notes(shared, [stored(encoder) for encoder in shared])
    return there == (ours, json.loads(json.dumps(_view(like.framing))), like.origin.encoder)


def _model(tensors: dict[str, Tensor], notes: dict[str, Any], like: Model | None) -> Model:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.sum().isfinite()):  # faster than to look at each number
            raise FscilError(f"{name} holds numbers that are not finite")
    origin, framing = Origin(**notes["origin"]), None
    if notes["view"] is not None:
        pixels, mean, std, margin, resampling = ({**OLDER, **notes["view"]}[name] for name in FRAMING)
        mean, std = tuple(map(float, mean)), tuple(map(float, std))
        framing = Framing(int(pixels), mean, std, margin=float(margin), resampling=resampling)
    lent = like if _same_encoders(notes, like) else None
    made = encoders_of(lent) if lent else read_encoders(tensors, notes["encoders"], origin, framing)
    parts = [(told, part_of(tensors, f"branch.{told['name']}.")) for told in notes["branches"]]
    branches = [read_branch(told, made[told["encoder"]], kept) for told, kept in parts]
    names = {int(label): name for label, name in notes["classes"]}
    ordered = list(names) == sorted(names)
    if not branches or not ordered or any(branch.prototypes.classes != tuple(names) for branch in branches):
        raise FscilError("its classes are not those of its prototypes")
    if len(set(map(repr, names.values()))) != len(names):
        raise FscilError("two of its classes have the same name")
    if not all(isinstance(name, str | int | float) for name in names.values()):
        raise FscilError("the name of a class is neither a text nor a number")
    steps = read_steps(notes["journal"], tensors, [branch.name for branch in branches])
    photos = read_photos(tensors)
    if not set(photos) <= set(names):
        raise FscilError("it remembers photos of classes that it does not know")
    told = {name: value for name, value in notes["calibration"].items() if name not in RETIRED}
    fitted: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
    calibration = Calibration(**fitted)
    base, revision = int(notes["base"]), str(notes["revision"])
    memory = read_memory(tensors, branches, bool(notes.get("keep_features", True)))
    negatives = tuple(map(bytes.fromhex, notes.get("negatives", ())))
    if not all(photo in memory for photo in negatives):
        raise FscilError(f"it keeps no features of its photos of {NONE}")
    about = (calibration, memory, negatives, Journal(steps), names, photos, base, revision)
    model = Model(branches, framing, origin, *about)
    model.album = read_album(tensors, bool(notes.get("thumbnails", False)))
    model.compute_like(lent or model)
    if _revision({name: told for name, told in notes.items() if name != "revision"}, _kept(model)) != revision:
        raise FscilError("what it holds is not what was saved")
    return model
