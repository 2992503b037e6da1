"""What somebody with photos would pick instead, side by side on the same frozen features, in one run.

    python benchmarks/peers.py out.json --cub data/CUB_200_2011
    python benchmarks/peers.py out.json --folder photos/
    python benchmarks/peers.py out.json --glyphs
    python benchmarks/peers.py out.json --cub data/CUB_200_2011 --views flip \\
        --encoder efficientnet_lite0+efficientnet_lite2     # the encoders of fscil learn --best

Base classes are learned, then the other classes come from five photos each; the test photos of all classes are asked
at the end. CUB-200: 100 + 100 species as in the benchmark's sessions, the official test photos. Folder: every third
class comes later, and of each class every third photo is a test photo. Glyphs: 60 + 40 characters drawn as photos, a
domain that ImageNet does not know. `--features FILE` keeps the features, and reads them if they are there. Features of
several encoders, each of length 1, stand side by side for all; fscil reads each of them by a branch of its own.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

import fscil
import resultfile
from fscil.data import Protocol
from fscil.data.images import Images, TensorImages
from fscil.errors import FscilError
from fscil.metrics import harmonic_mean
from fscil.nn.branches import Views
from fscil.nn.compute import Meter, counting
from fscil.nn.pretrained import WHEELS
from fscil.report.results import rounded
from fscil.teach.base.fitting import Learned, Wish, fit
from fscil.teach.base.planning import rows_of
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.lessons.looking import glance
from fscil.teach.seeing.folders import class_folders
from fscil.teach.seeing.photos import Source
from seen import write_arrays

SHOTS, RANDOM = 5, 5000
# Tried on held-out base photos; the first among equals. C of logistic regression; penalties as shares of the mean of G.
STRENGTHS, PENALTIES = (100.0, 1.0, 10.0, 1000.0), (1.0, 0.01, 0.1, 10.0)
Array = NDArray[Any]
Look = Callable[[list[Source]], Array]


@dataclass(frozen=True)
class Data:
    """Features (n, dim) and classes (n,) of the base photos, of the photos that come later, and of the test photos."""

    base: tuple[Array, Array]
    later: tuple[Array, Array]
    test: tuple[Array, Array]


def encoded(encoder: str, views: Views, pixels: int | None = None) -> Look:
    """What looks at photos: frozen features (n, dims), unit length for each view, averaged; NAME+NAME side by side."""
    model = backbones.of_encoder(encoder, pixels=pixels, views=views)
    return lambda photos: torch.cat(glance(model, photos, "looking at photos").features[::2], 1).numpy()


def of_images(images: Images) -> tuple[list[Source], Array]:
    if isinstance(images, TensorImages):
        return [pixels.permute(1, 2, 0).numpy() for pixels in images.pixels], images.labels.numpy()
    return list(images.paths), images.labels.numpy()


def of_benchmark(name: str, root: Path, look: Look) -> Data:
    sessions = fscil.benchmark(name, root=root, protocol=Protocol())
    first, *others = sessions.sessions()
    parts = [of_images(session.train) for session in others]
    later = [photo for photos, _ in parts for photo in photos], np.concatenate([labels for _, labels in parts])
    groups = (of_images(first.train), later, of_images(sessions.test(sessions.session_count - 1)))
    return Data(*((look(photos), labels) for photos, labels in groups))


def of_folder(root: Path, look: Look) -> Data:
    groups: list[tuple[list[Source], list[int]]] = [([], []), ([], []), ([], [])]
    for label, photos in enumerate(class_folders(root).values()):
        learned = [photo for i, photo in enumerate(photos) if i % 3]
        new = label % 3 == 2
        parts = ([] if new else learned, learned[:SHOTS] if new else [], photos[::3])
        for (sources, labels), part in zip(groups, parts, strict=True):
            sources += part
            labels += [label] * len(part)
    return Data(*((look(sources), np.array(labels)) for sources, labels in groups))


class Ours:
    """The read-out of this package on the same features (n, sum of dims), of one or several encoders side by side.

    It alone needs class means; a model file also keeps a feature per photo, unless told not to, for corrections.
    """

    keeps = "class means"

    def __init__(self, dims: Sequence[int]):
        self.dims = list(dims)

    def fit(self, X: Array, y: Array) -> None:
        parts = [backbones.Features(dim) for dim in self.dims]
        branches = [branch for part in parts for branch in backbones.pair(part, "one", unit=True)]
        self.model = Model(branches, None, Origin("features", "none", "none"))
        names = y.tolist()
        seen, _ = fit(self.model, Learned(self._parted(X), rows_of(names)), Wish(strength="prototypes"))
        self.model.begin(names, seen)

    def add(self, X: Array, y: Array) -> None:
        self.model.teach(y.tolist(), self._seen(X))

    def predict(self, X: Array) -> Array:
        return np.array(self.model.classes)[self.model.scores(self._seen(X)).argmax(1).numpy()]

    def _seen(self, X: Array) -> list[torch.Tensor]:
        return [branch.whitened(f) for branch, f in zip(self.model.branches, self._parted(X), strict=True)]

    def _parted(self, X: Array) -> list[torch.Tensor]:
        """Of each branch the features (n, dim) of its encoder: two branches have one."""
        parts = torch.from_numpy(X).float().split(self.dims, 1)
        return [part for part in parts for _ in range(2)]


class Means:
    """Cosine to class means."""

    keeps = "class means"

    def fit(self, X: Array, y: Array) -> None:
        self.means: dict[int, Array] = {}
        self.add(X, y)

    def add(self, X: Array, y: Array) -> None:
        self.means |= {label: X[y == label].mean(0) for label in np.unique(y).tolist()}

    def predict(self, X: Array) -> Array:
        W = F.normalize(torch.from_numpy(np.stack(list(self.means.values()))).float(), dim=1).numpy()
        return np.array(list(self.means))[(X @ W.T).argmax(1)]


def held_out(y: Array) -> Array:
    """Of each class every fifth photo (n,): settings are chosen on these."""
    places = np.zeros(len(y), dtype=int)
    for label in np.unique(y):
        places[y == label] = np.arange((y == label).sum())
    return np.asarray(places % 5 == 4)


class Retrained:
    """An estimator of scikit-learn, fitted anew to all photos whenever a class comes.

    Of several candidates it is the one that names most of the held-out base photos right.
    """

    keeps = "all photos"

    def __init__(self, *candidates: Any):
        self.candidates = candidates

    def fit(self, X: Array, y: Array) -> None:
        self.estimator = self.candidates[0] if len(self.candidates) == 1 else self._best(X, y)
        self._retrain(X, y)

    def add(self, X: Array, y: Array) -> None:
        self._retrain(np.concatenate([self.X, X]), np.concatenate([self.y, y]))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.estimator.predict(X))

    def _best(self, X: Array, y: Array) -> Any:
        apart = held_out(y)
        if not apart.any():
            return self.candidates[0]
        fitted = [candidate.fit(X[~apart], y[~apart]) for candidate in self.candidates]
        return fitted[int(np.argmax([(one.predict(X[apart]) == y[apart]).sum() for one in fitted]))]

    def _retrain(self, X: Array, y: Array) -> None:
        self.X, self.y = X, y
        self.estimator.fit(X, y)


class Ridge:
    """As RanPAC: ridge regression on random features, from sums over all photos seen; every class weighs the same.

    The penalty is the one that names most of the held-out base photos right.
    """

    def __init__(self) -> None:
        self.keeps = f"sums over all photos ({RANDOM} x {RANDOM})"

    def fit(self, X: Array, y: Array) -> None:
        self.directions, apart = np.random.RandomState(0).randn(X.shape[1], RANDOM), held_out(y)
        self._begin(X[~apart], y[~apart])
        right = []
        for self.penalty in PENALTIES:
            self._solve()
            right.append((self.predict(X[apart]) == y[apart]).sum() if apart.any() else 0)
        self.penalty = PENALTIES[int(np.argmax(right))]
        self._begin(X, y)
        self._solve()

    def add(self, X: Array, y: Array) -> None:
        self._count(X, y)
        self._solve()

    def predict(self, X: Array) -> Array:
        return np.array(list(self.C))[(self._random(X) @ self.W).argmax(1)]

    def _begin(self, X: Array, y: Array) -> None:
        self.G, self.C = np.zeros((RANDOM, RANDOM)), dict[int, Array]()
        self._count(X, y)

    def _count(self, X: Array, y: Array) -> None:
        for label in np.unique(y).tolist():
            own = self._random(X[y == label])
            self.G += own.T @ own / len(own)
            self.C[label] = own.mean(0)

    def _solve(self) -> None:
        ridge = self.penalty * np.trace(self.G) / RANDOM
        self.W = np.linalg.solve(self.G + ridge * np.eye(RANDOM), np.stack(list(self.C.values())).T)

    def _random(self, X: Array) -> Array:
        return np.maximum(X @ self.directions, 0)


def peers(dims: Sequence[int]) -> dict[str, Any]:
    """By name; `dims` are those of the encoders whose features stand side by side."""
    logistic = [LogisticRegression(C=C, class_weight="balanced", max_iter=1000) for C in STRENGTHS]
    return {
        "fscil": Ours(dims),
        "cosine to class means": Means(),
        "RanPAC-like ridge": Ridge(),
        "nearest mean (scikit-learn)": Retrained(NearestCentroid()),
        "5 nearest neighbours": Retrained(KNeighborsClassifier(5, metric="cosine")),
        "linear discriminant, Ledoit-Wolf": Retrained(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "logistic regression, retrained": Retrained(*logistic),
    }


def measured(name: str, peer: Any, data: Data) -> dict[str, Any]:
    """Accuracy at the end, and how long the first and the last lesson took; all but one class come at once."""
    clock = [time.perf_counter()]
    peer.fit(*data.base)
    clock.append(time.perf_counter())
    X, y = data.later
    last = y == y[-1]
    if (~last).any():
        peer.add(X[~last], y[~last])
    clock.append(time.perf_counter())
    peer.add(X[last], y[last])
    clock.append(time.perf_counter())
    right, new = peer.predict(data.test[0]) == data.test[1], np.isin(data.test[1], y)
    base, taught = (100 * float(right[part].mean()) for part in (~new, new))
    return {
        "peer": name,
        "keeps": peer.keeps,
        "accuracy": rounded(100 * float(right.mean())),
        "base": rounded(base),
        "new": rounded(taught),
        "harmonic": rounded(harmonic_mean(base, taught)),
        "learn_seconds": clock[1] - clock[0],
        "add_seconds": clock[3] - clock[2],
    }


def kept(file: Path | None, made: str, load: Callable[[], Data]) -> Data:
    """Features from a file, or looked at now and kept there; `made` says by what."""
    if file is None or not file.exists():
        data = load()
        if file is not None:
            write_arrays(file, *data.base, *data.later, *data.test, made=made)
        return data
    with np.load(file) as stored:
        found = str(stored["made"]) if "made" in stored else "an earlier version of this script"
        if found != made:
            raise FscilError(f"{file} holds features by {found}, not by {made}; name another file, or delete it")
        a, b, c, d, e, f = (stored[f"arr_{i}"] for i in range(6))
    return Data((a, b), (c, d), (e, f))


def run(name: str, data: Data, encoder: str, views: str) -> dict[str, Any]:
    began, meter = time.perf_counter(), Meter()
    dims = [WHEELS[part].dim for part in encoder.split("+")] if "+" in encoder else [data.test[0].shape[1]]
    with counting(meter):
        rows = [measured(peer, made, data) for peer, made in peers(dims).items()]
    return {
        "kind": "fscil peers",
        "dataset": name,
        "seed": 0,
        "settings": {"encoder": encoder, "views": views, "shots": SHOTS},
        "photos": {part: len(getattr(data, part)[1]) for part in ("base", "later", "test")},
        "classes": {part: len(np.unique(getattr(data, part)[1])) for part in ("base", "later", "test")},
        **resultfile.facts(began, meter),
        "peers": rows,
        "metrics": {},
    }


def table(result: dict[str, Any]) -> list[str]:
    """The lines of the table of docs/photos.md."""
    cells = [["read-out", "all", "base", "taught", "harmonic mean", "one more class", "must be kept"]]
    for row in result["peers"]:
        shares = [f"{row[name]:.1f}" for name in ("accuracy", "base", "new", "harmonic")]
        cells.append([row["peer"], *shares, f"{row['add_seconds']:.3f} s", row["keeps"]])
    return resultfile.table(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cub", type=Path, help="folder CUB_200_2011")
    what.add_argument("--folder", type=Path, help="folder with one sub-folder of photos per class")
    what.add_argument("--glyphs", action="store_true", help="characters drawn as photos")
    parser.add_argument("--encoder", default=backbones.DEFAULT, help="NAME, or NAME+NAME of packages")
    parser.add_argument("--pixels", type=int, help="size of the images [default: the encoder's own]")
    parser.add_argument("--views", choices=("one", "flip", "negative"), default="one")
    parser.add_argument("--features", type=Path, help="file that keeps the features")
    given = parser.parse_args()
    name = "cub200" if given.cub else "glyphs" if given.glyphs else "folder"

    def load() -> Data:
        look = encoded(given.encoder, given.views, given.pixels)
        return of_folder(given.folder, look) if given.folder else of_benchmark(name, given.cub or Path(), look)

    photos = given.folder.resolve() if given.folder else name
    made = f"{given.encoder}, {given.pixels or 'its own'} pixels, views {given.views}, of {photos}"
    result = run(name, kept(given.features, made, load), given.encoder, given.views)
    resultfile.write(result, given.out)
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
