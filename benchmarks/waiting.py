"""What people wait for: seconds to learn a folder, of one answer as a command, and of ONNX Runtime beside torch.

    python benchmarks/waiting.py results/teaching/waiting.json
    python benchmarks/waiting.py out.json --folder photos/

Drawn photos, unless a folder with one sub-folder per class is given: three classes of eight, as in docs/teach.md, and
ten classes of 30. Each is learned by `fscil learn` and by `Classifier.fit` in a process of its own, with an empty cache
of encoder graphs and with a filled one (the user's own cache is not touched). `fscil predict` answers one photo with
and without torch, and the encoder runs in ONNX Runtime and in torch, in turn, so that a noisy moment of the machine
meets both. Run it when nothing else does.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image, ImageDraw

import resultfile
from fscil.nn.compute import Meter
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.recogniser import AT_ONCE
from fscil.teach.seeing.folders import class_folders
from fscil.teach.seeing.runtime import quick

DRAWN = {"3 classes of 8": (3, 8), "10 classes of 30": (10, 30)}
COLOURS = ("red", "green", "brown", "gold", "navy", "purple", "teal", "orange", "black", "olive")
IMAGES = 64  # that are encoded by each runtime in each round
FIT = """import sys, time
from fscil import Classifier
began = time.perf_counter()
Classifier(sys.argv[2], pixels=int(sys.argv[3]) or None).fit(sys.argv[1])
print(time.perf_counter() - began)"""
LIGHT = """import sys
from pathlib import Path
from fscil.teach.seeing import light
print(light.replies(Path(sys.argv[1]), [Path(sys.argv[2])]) is not None)"""


def draw(folder: Path, classes: int, each: int) -> Path:
    """JPEG photos of coloured shapes, 240 x 240 pixels, as those of docs/teach.md."""
    rng = random.Random(0)
    for kind in range(classes):
        (folder / f"thing {kind}").mkdir(parents=True)
        for number in range(each):
            photo = Image.new("RGB", (240, 240), tuple(rng.randrange(180, 256) for _ in range(3)))
            x, y, r = rng.randrange(90, 150), rng.randrange(90, 150), rng.randrange(50, 80)
            pen, colour = ImageDraw.Draw(photo), COLOURS[kind % len(COLOURS)]
            if kind % 3:
                pen.regular_polygon((x, y, r), 2 + kind % 3, rng.randrange(90), fill=colour)
            else:
                pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
            photo.save(folder / f"thing {kind}" / f"{number}.jpg")
    return folder


def drawn(folder: Path) -> dict[str, Path]:
    return {name: draw(folder / name, *sizes) for name, sizes in DRAWN.items()}


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Desk:
    """Runs commands as a user would, each in a process of its own, with a cache below a folder of this desk."""

    def __init__(self, folder: Path, encoder: str, pixels: int | None):
        self.folder, self.encoder, self.pixels = folder, encoder, pixels

    def run(self, cache: str, *words: object, runtime: str = "auto") -> str:
        """What a command prints; `words` follow the interpreter."""
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / cache), "FSCIL_RUNTIME": runtime}
        command = [sys.executable, *map(str, words)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout

    def learn(self, photos: Path, cache: str) -> dict[str, float]:
        """Seconds of `fscil learn` from outside, and those that it announces and says it took."""
        pixels = ("--pixels", self.pixels) if self.pixels else ()
        words = ("learn", photos, "--save", self.model, "--overwrite", "--encoder", self.encoder, *pixels)
        began = time.perf_counter()
        said = self.run(cache, "-m", "fscil", *words)
        seconds = time.perf_counter() - began
        announced, took = (float(re.findall(form, said)[-1]) for form in (r"about (\d+) s", r"photos in ([\d.]+) s"))
        return {"command": seconds, "announced": announced, "took": took}

    def fit(self, photos: Path, cache: str) -> float:
        """Seconds of `Classifier.fit`, without the imports."""
        return float(self.run(cache, "-c", FIT, photos, self.encoder, self.pixels or 0))

    def predict(self, photo: Path, cache: str, runtime: str) -> float:
        """Seconds of `fscil predict`, start of Python included."""
        return timed(lambda: self.run(cache, "-m", "fscil", "predict", self.model, photo, runtime=runtime))

    @property
    def model(self) -> Path:
        return self.folder / "things.fscil"


def learning(desk: Desk, name: str, photos: Path, times: int) -> list[dict[str, Any]]:
    """How long a folder is learned, with an empty and a filled cache."""
    found = class_folders(photos)
    told = {"photos": sum(map(len, found.values())), "classes": len(found)}
    result = []
    for cache in ("empty", "filled"):
        caches = [f"{name} {turn} {part}" for turn in range(times) for part in ("learn", "fit")]
        if cache == "filled":
            caches = ["full"] * len(caches)
            desk.learn(photos, "full")
        learned = [desk.learn(photos, place) for place in caches[::2]]
        fits = [desk.fit(photos, place) for place in caches[1::2]]
        lists = {key: [one[key] for one in learned] for key in learned[0]}
        result.append({"set": name, **told, "cache": cache, "n": times, **lists, "fit": fits})
    return result


def answering(desk: Desk, photo: Path, times: int) -> dict[str, Any]:
    """Seconds of one answer by the model that was learned last, with and without torch, in turn."""
    rounds = [[desk.predict(photo, "full", runtime) for runtime in ("auto", "torch")] for _ in range(times)]
    light, torch_ = (list(seconds) for seconds in zip(*rounds, strict=True))
    without = desk.run("full", "-c", LIGHT, desk.model, photo).strip() == "True"
    return {"n": times, "without_torch": without, "light": light, "torch": torch_}


@torch.no_grad()
def encoding(encoder: str, pixels: int | None, times: int) -> dict[str, Any]:
    """Seconds of one encoder in ONNX Runtime and in torch for the same images, in turn; batches as for photos."""
    model = backbones.of_encoder(encoder, pixels=pixels)
    net = model.branches[0].encoder
    p = net.pixels
    images = torch.rand(IMAGES, 3, p, p, generator=torch.Generator().manual_seed(0))
    images = images.to(memory_format=torch.channels_last)
    ways = []
    for choice in ("onnx", "torch"):
        os.environ["FSCIL_RUNTIME"] = choice
        ways.append(quick(net, encoder))
    works = [lambda way=way: [way(batch) for batch in images.split(AT_ONCE)] for way in ways]
    for work in works:
        work()  # the first images take longer than all others
    rounds = [[timed(work) for work in works] for _ in range(times)]
    onnx, torch_ = (list(seconds) for seconds in zip(*rounds, strict=True))
    return {"name": encoder, "n": times, "images": IMAGES, "onnx": onnx, "torch": torch_}


def middle(seconds: Sequence[float], digits: int) -> str:
    """Median with least and most, in seconds."""
    centre, least, most = (f"{value:.{digits}f}" for value in (median(seconds), min(seconds), max(seconds)))
    return f"{centre} s ({least} to {most})"


def tables(result: dict[str, Any]) -> list[str]:
    """The lines of the two tables of docs/teach.md."""
    cells = [["photos", "cache of graphs", "`fscil learn`", "it announces", "it says it took", "`Classifier.fit`", "n"]]
    for one in result["learn"]:
        digits = {"command": 1, "announced": 0, "took": 1, "fit": 1}
        seconds = [middle(one[key], places) for key, places in digits.items()]
        cells.append([one["set"], one["cache"], *seconds, str(one["n"])])
    asked, ran = result["predict"], result["encoder"]
    ratios = [a / b for a, b in zip(ran["onnx"], ran["torch"], strict=True)]
    share = f"{median(ratios):.2f} of the time of torch ({min(ratios):.2f} to {max(ratios):.2f})"
    more = [
        ["what", "median (least to most)", "n"],
        ["`fscil predict` of one photo, without torch", middle(asked["light"], 2), str(asked["n"])],
        ["the same with torch (`FSCIL_RUNTIME=torch`)", middle(asked["torch"], 2), str(asked["n"])],
        [f"{ran['name']} in ONNX Runtime, {ran['images']} images", share, str(ran["n"])],
    ]
    return [*resultfile.table(cells), "", *resultfile.table(more)]


def run(given: argparse.Namespace) -> dict[str, Any]:
    began, meter = time.perf_counter(), Meter()
    with tempfile.TemporaryDirectory() as place:
        desk = Desk(Path(place), given.encoder, given.pixels)
        folders = {"photos": given.folder} if given.folder else drawn(desk.folder / "drawn")
        learned = [one for name, photos in folders.items() for one in learning(desk, name, photos, given.times)]
        photo = next(path for found in class_folders(list(folders.values())[-1]).values() for path in found)
        asked = answering(desk, photo, given.questions)
        os.environ["XDG_CACHE_HOME"] = str(desk.folder / "full")
        alone = backbones.DEFAULT if given.encoder == backbones.AUTO else given.encoder
        ran = encoding(alone, given.pixels, given.rounds)
    return {
        "kind": "fscil waiting",
        "dataset": "folder" if given.folder else "drawn",
        "seed": 0,
        "settings": {"encoder": given.encoder, "pixels": given.pixels},
        **resultfile.facts(began, meter),
        "learn": learned,
        "predict": asked,
        "encoder": ran,
        "metrics": {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--folder", type=Path, help="one sub-folder of photos per class, instead of drawn photos")
    parser.add_argument("--encoder", default=backbones.AUTO)
    parser.add_argument("--pixels", type=int, help="size of the images [default: the encoder's own]")
    parser.add_argument("--times", type=int, default=3, help="that each folder is learned, for each cache")
    parser.add_argument("--questions", type=int, default=7, help="that are asked with and without torch")
    parser.add_argument("--rounds", type=int, default=15, help="of ONNX Runtime and torch in turn")
    given = parser.parse_args()
    result = run(given)
    resultfile.write(result, given.out)
    print("\n".join(tables(result)))
    if not result["predict"]["without_torch"]:
        print("torch answered both times: is the extra onnx installed?", file=sys.stderr)


if __name__ == "__main__":
    main()
