"""An answer without torch, whose import takes longer than the answer.

When a model is saved, `lightfile` keeps what an answer needs beside the graphs of the encoders: the graph of the
read-out up to the query, and the keys and biases of the classes and of photos of none of these. Where anything is
missing, torch answers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

import fscil
from fscil.data.pictures import centre
from fscil.teach.replies import Answer, Reply
from fscil.teach.seeing import graphs
from fscil.teach.seeing.photos import Unreadable, read

MOST = 32  # photos; for more the import of torch, which reads them in parallel, is soon paid back
PROGRAM = f"fscil {fscil.__version__}, graphs {graphs.VERSION}"  # others may keep other things, or for other graphs
BEST = 3  # classes that an answer names
OLDER = {"resampling": "bilinear"}  # how photos are shown to models whose files are of before and do not say it


def place(revision: str) -> Path:
    """Where the keys of a revision of a model are kept, whatever version of the program keeps them."""
    return graphs.folder() / f"{hashlib.sha256(revision.encode()).hexdigest()[:32]}.safetensors"


@dataclass(frozen=True)
class Light:
    """What is needed of a model to answer: sessions of its encoders and read-out, and the rows of its classes."""

    encoders: Sequence[Any]
    head: Any
    rows: Mapping[str, np.ndarray]  # keys (dims, classes) and bias (classes,): of scores, and of what else there is
    temperature: float
    margin: float
    threshold: float | None
    shift: float
    views: str = "one"  # whose features stand side by side: of the photo, and of its mirror image or negative

    def judged(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities (n, classes) of the encoders' features side by side (n, dims), which photos are known (n,) and
        to which a photo of none of these is closer than every class (n,).
        """
        query, offset, seen = self.head.run(None, {"features": features})
        scores = query @ self.rows["keys"] + self.rows["bias"] + offset[:, None]
        has_own = "evidence keys" in self.rows
        evidence = seen @ self.rows["evidence keys"] + self.rows["evidence bias"] if has_own else scores
        powers = np.exp(self.temperature * (scores - scores.max(1, keepdims=True)))
        rejected = np.zeros(len(scores), bool)
        if "none keys" in self.rows:
            none = query @ self.rows["none keys"] + self.rows["none bias"] + offset[:, None]
            rejected = none.max(1) >= scores.max(1)
        return powers / powers.sum(1, keepdims=True), self.known(evidence) & ~rejected, rejected

    def known(self, evidence: np.ndarray) -> np.ndarray:
        """As the calibration of the model: whether photos with this evidence (n, classes) belong to a class (n,)."""
        if self.threshold is None:
            return np.ones(len(evidence), bool)
        best = np.sort(evidence, 1)[:, ::-1]
        lead = best[:, 0] - best[:, 1] if evidence.shape[1] > 1 else np.zeros(len(evidence))
        fits: np.ndarray = best[:, 0] + self.margin * lead - self.shift >= self.threshold
        return fits


def replies(model: Path, photos: Sequence[Path]) -> list[Reply] | None:
    """What the model in a file says about photos, in their order; None where torch has to answer."""
    if graphs.choice() == "torch" or len(photos) > MOST:
        return None
    try:
        with safetensors.safe_open(model, "np") as file:
            notes = json.loads(file.metadata()["notes"])
        light = opened(place(notes["revision"]), threads=os.cpu_count() or 1)
        classes, view = [name for _, name in notes["classes"]], {**OLDER, **notes["view"]}
    except Exception:  # torch finds out, and says, what is wrong
        return None
    return [_reply(light, classes, view, photo, position) for position, photo in enumerate(photos)]


def opened(file: Path, threads: int) -> Light:
    """What `lightfile` has kept."""
    with safetensors.safe_open(file, "np") as kept:
        notes = json.loads(kept.metadata()["notes"])
        if notes["program"] != PROGRAM:
            raise ValueError(f"kept by {notes['program']}")
        rows = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118 (not a dict)
    graphs.note_use(file)
    sessions = [graphs.opened(graphs.folder() / name, threads) for name in (*notes["encoders"], notes["head"])]
    return Light(sessions[:-1], sessions[-1], rows, **notes["calibration"], views=notes["views"])


def _reply(light: Light, classes: Sequence[Any], view: dict[str, Any], photo: Path, position: int) -> Reply:
    try:
        picture = read(photo, view["pixels"], position)
    except Unreadable as problem:
        return Reply(photo, None, problem.reason)
    crop = centre(picture, view["pixels"], view["margin"], view["resampling"]).astype(np.float32)
    mean, std = (255 * np.array(view[name], np.float32) for name in ("mean", "std"))
    image = ((crop - mean) / std).transpose(2, 0, 1)
    others = {"one": [], "flip": [image[..., ::-1]], "negative": [-image]}[light.views]
    views = np.stack([image, *others])
    seen = np.concatenate([encoder.run(None, {"image": views})[0] for encoder in light.encoders], 1)
    probabilities, known, rejected = light.judged(seen.reshape(1, -1))
    best = np.argsort(-probabilities[0], kind="stable")[:BEST]
    told = tuple((classes[i], float(probabilities[0, i])) for i in best)
    return Reply(photo, Answer(bool(known[0]), told, bool(rejected[0])))
