"""Figure 5: where the relations of a finished run look in test images of old and new classes, hits and misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fscil import data, methods
from fscil.data import Protocol
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.experiments.figures import files, for_page
from fscil.experiments.page import picture, plain_table
from fscil.files import write_bytes
from fscil.methods.shared.method import Frozen
from fscil.nn import encoders
from fscil.nn.gradcam import heat
from fscil.report.html.blocks import card
from fscil.report.html.page import document
from fscil.report.published import dataset_title
from fscil.running.runfolder import RunFolder
from fscil.settings import from_dict

NAME = "gradcam"
EACH = 4  # old classes, and as many new ones; half of them hits, where there are as many of both
RELATIONS = ["cosine", "euclid"]  # the base relation, and the complementary one
MEANING = (
    "Heat: where the score of the true class comes from, by Grad-CAM, in the base relation, the complementary relation "
    "and both together, each minus its mean over the classes. So few images show no rate."
)
ROWS = ("image", "base relation", "complementary relation", "both")


@dataclass(frozen=True)
class Example:
    """A test image with what it is and what it is taken for."""

    position: int
    truth: int
    answer: int
    new: bool


def draw(folder: Path, root: Path | None, out: Path) -> list[Path]:
    """Writes the figure of a run folder as a page, as SVG and as PNG; gives the files."""
    run = RunFolder(folder, writable=False)
    facts = run.described()
    if not facts:
        raise FscilError(f"{folder} is no run folder: give that of a finished run of kt_rcnet")
    sessions = data.benchmark(facts["dataset"], root, from_dict(Protocol, facts["protocol"]))
    now = sessions.fingerprint()
    if facts.get("benchmark_fingerprint", now) != now:
        where = root or data.default_root()
        raise FscilError(
            f"{folder} was measured on other images than {where} holds now: give the folder of those images by --root"
        )
    last = sessions.session_count - 1
    method = restored(run, facts, last)
    shown = examples(run.predictions(last), sessions.first_seen)
    drawn = {NAME: figure(method, sessions, shown)}
    contents = {f"{NAME}.html": page(facts, sessions, shown, for_page(drawn)[NAME]).encode(), **files(drawn)}
    for name, content in contents.items():
        write_bytes(out / name, content)
    return [out / name for name in contents]


def page(facts: Mapping[str, Any], sessions: Benchmark, shown: Sequence[Example], svg: str) -> str:
    """The figure with what it shows, as an HTML file that needs nothing but itself."""
    names = sessions.class_names
    rows = [
        [names[example.truth], _age(example), names[example.answer], "hit" if _hit(example) else "miss"]
        for example in shown
    ]
    run = f"{facts['method']} · {facts['recipe']}, seed {facts['seed']}, {dataset_title(facts['dataset'])}"
    table = plain_table(["class", "learned in the", "taken for", ""], rows)
    note = f'<p class="note">{escape(MEANING)}</p>'
    return document("Where the relations look", card(f"{run} (Figure 5 of the paper)", picture(svg), note, table))


def restored(run: RunFolder, facts: dict[str, Any], last: int) -> Frozen:
    """The method as the last session has left it."""
    config = from_dict(methods.load(facts["method"]).Config, facts["settings"])
    method = methods.load(facts["method"]).Method(config, encoders.build(config.encoder, config.pixels))
    if not isinstance(method, Frozen) or [branch.relation for branch in method.branches] != RELATIONS:
        raise FscilError(f"{run.path}: {facts['method']} has no complementary relation; take a run of kt_rcnet")
    if not (run.path / f"state-{last:02d}.safetensors").exists():
        raise FscilError(f"{run.path} keeps no state of session {last}: finish the run, or take one of `fscil run`")
    run.open(facts)
    run.restore(method, last)
    return method.eval()


def examples(predictions: dict[str, np.ndarray], first_seen: dict[int, int]) -> list[Example]:
    """Images of different classes: old ones, then new ones, of each first hits, then misses; always the same."""
    truth, answers = predictions["truth"].tolist(), predictions["predicted"].tolist()
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = [Example(i, truth[i], answers[i], first_seen[truth[i]] > 0) for i in order]
    chosen: list[Example] = []
    for new in (False, True):
        own: list[Example] = []
        for hit, count in ((True, EACH // 2), (False, EACH), (True, EACH)):  # hits again where too little was missed
            group = [e for e in shuffled if e.new == new and _hit(e) == hit]
            own += _of_different_classes(group, own, count - len(own))
        chosen += sorted(own, key=_hit, reverse=True)
    return chosen


def _of_different_classes(group: list[Example], taken: list[Example], count: int) -> list[Example]:
    """The first examples of classes that were not taken."""
    by_class = {example.truth: example for example in reversed(group)}
    known = {example.truth for example in taken}
    return [example for label, example in reversed(by_class.items()) if label not in known][:count]


def figure(method: Frozen, sessions: Benchmark, shown: list[Example]) -> Figure:
    """A column for each example: the image, then Grad-CAM of each relation to its true class and of their sum."""
    images, framing = sessions.test(sessions.session_count - 1), method.test_framing(sessions.base())
    inputs = next(images.batches([torch.tensor([example.position for example in shown])], framing))
    B, C = method.branches[0], method.branches[1]
    drawing = Figure(figsize=(1.6 * len(shown), 7.2), layout="constrained")
    planes = drawing.subplots(len(ROWS), len(shown), squeeze=False)
    for column, (example, x) in enumerate(zip(shown, inputs, strict=True)):
        place = method.classes.index(example.truth)
        maps = [None, *(heat(parts, x[None], place) for parts in ([B], [C], [B, C]))]
        for plane, drawn in zip(planes[:, column], maps, strict=True):
            plane.imshow(unnormalised(x, framing.mean, framing.std))
            if drawn is not None:
                plane.imshow(drawn, cmap="inferno", alpha=0.55, vmin=0, vmax=1)
            plane.set(xticks=[], yticks=[])
        planes[0, column].set_title(caption(example, sessions.class_names), fontsize=7, parse_math=False)
    for name, plane in zip(ROWS, planes[:, 0], strict=True):
        plane.set_ylabel(name, fontsize=8)
    return drawing


def unnormalised(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """A normalised image (3, p, p) as (p, p, 3), values 0..1."""
    plain: np.ndarray = (x.permute(1, 2, 0) * torch.tensor(std) + torch.tensor(mean)).clamp(0, 1).numpy()
    return plain


def caption(example: Example, names: tuple[str, ...]) -> str:
    kind = "new" if example.new else "old"
    taken = "hit" if _hit(example) else f"taken for\n{names[example.answer]}"
    return f"{kind}: {names[example.truth]}\n{taken}"


def _hit(example: Example) -> bool:
    return example.truth == example.answer


def _age(example: Example) -> str:
    return "later sessions" if example.new else "base session"
