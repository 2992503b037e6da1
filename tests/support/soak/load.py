"""How many questions and lessons a service answers, beside decoding and encoding alone; how its memory goes."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from fscil.data.framing import finish
from fscil.nn.allocation import keep_freed_memory
from fscil.serve.demo import make_demo
from fscil.serve.server import KEPT
from fscil.teach.knowledge.model import Model
from fscil.teach.seeing.photos import Upload, batches
from fscil.teach.storage import modelfile
from soak.crash import ENVIRONMENT, learned
from soak.lives import Life
from soak.rush import rush
from soak.visitor import ANY, FORM, Visitor, form, noise

CLIENTS = (1, 16, 64)
SIZE = (1024, 768)  # of the photos
GOAL = 0.85  # of the rate in one process, at 16 clients
TOGETHER = 16  # photos that one process encodes at once
MOST_TURNS = 1000
PORTIONS = 10  # of the requests, after each of which memory is read
GROWTH = 1.10  # of memory from the second portion on

Tell = Callable[[str], None]


def photograph(seed: int) -> bytes:
    """A JPEG with as much in it as a photo has."""
    draw = np.random.default_rng(seed)
    coarse = Image.fromarray(draw.integers(0, 255, (24, 32, 3), dtype=np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    grain = draw.integers(-12, 12, (SIZE[1], SIZE[0], 3))
    file = io.BytesIO()
    Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def alone(model: Model, photos: Sequence[bytes], seconds: float) -> float:
    """Photos a second that this process decodes and encodes, the next batch decoded while this one is encoded."""
    assert model.framing is not None
    uploads = [Upload(f"{i}.jpg", photo) for i, photo in enumerate(photos)]
    begin, number = 0.0, 0
    for batch in batches(uploads * MOST_TURNS, model.framing, TOGETHER):
        model.embed(finish(batch.crops, model.framing, None))
        if not begin:
            begin = time.monotonic()  # the first batch waits for its decoding
            continue
        number += len(batch.positions)
        if time.monotonic() > begin + seconds:
            break
    return number / (time.monotonic() - begin)


def measure(folder: Path, seconds: float, lessons: int, tell: Tell) -> list[str]:
    """Tells rates and waits at 1, 16 and 64 clients; what falls short of the goal is told, not a complaint."""
    keep_freed_memory(KEPT)  # as the service does: what is measured alone is treated as well
    file = make_demo(folder / "studio")
    model = modelfile.load(file)
    photos = [photograph(seed) for seed in range(32)]
    kind = f"{SIZE[0]} x {SIZE[1]}, {len(photos[0]) // 1000} kB"
    tell(f"photos of {kind}; {model.origin.encoder}, {len(model.names)} classes")
    life = Life(file, folder / "service.log")
    complaints = []
    try:
        bodies = [form([photo]) for photo in photos]
        rush(life.port, itertools.repeat("/v1/predict"), itertools.cycle(bodies), 2, 5.0, 16)
        for clients in CLIENTS:
            before = alone(model, photos, seconds)
            asked = rush(life.port, itertools.repeat("/v1/predict"), itertools.cycle(bodies), clients, seconds, 10**9)
            rate = (before + alone(model, photos, seconds)) / 2
            goal = f" (goal {GOAL:.0%})" if clients == 16 else ""
            cost = f"the clients took {asked.processor:.2f} s of processor time in {asked.seconds:.1f} s"
            told = f"{asked.text()}; {asked.rate / rate:.0%} of {rate:.1f}/s alone{goal}; {cost}"
            tell(f"predict, {clients} clients: {told}")
            fresh = (form([noise(1000 * clients + i, 256)]) for i in range(lessons))
            names = (f"/v1/classes/taught-{i % 8}/photos" for i in itertools.count())
            taught = rush(life.port, names, fresh, clients, 4 * seconds, lessons)
            tell(f"teach one photo, {clients} clients: {taught.text()}")
            for what in (asked, taught):
                complaints += [f"answered by {s}" for s in what.statuses if s not in (200, 201, 503)]
    finally:
        life.stop()
    return complaints


def remember(folder: Path, requests: int, seconds: float, tell: Tell) -> list[str]:
    """Tells how memory goes over many questions, lessons and undos; it may not grow."""
    life = Life(learned(folder), folder / "service.log", ENVIRONMENT)
    end, sizes, done = time.monotonic() + seconds, [], 0
    try:
        for portion in range(PORTIONS):
            bodies = itertools.cycle([form([noise(i)]) for i in range(64)])
            most = max(requests // PORTIONS - 20, 1)
            done += len(rush(life.port, itertools.repeat("/v1/predict"), bodies, 4, end - time.monotonic(), most).waits)
            visitor = Visitor(life.port)  # a new one: a connection that is not used is closed
            for i in range(10):
                body = form([noise(10_000 + 100 * portion + i)])
                visitor.ask("POST", "/v1/classes/seen/photos", body, FORM)
                visitor.ask("POST", "/v1/undo", headers=ANY)
                done += 2
            sizes.append(life.memory())
            if time.monotonic() > end:
                break
    finally:
        life.stop()
    tell(f"memory over {done} requests: {', '.join(f'{size / 1e6:.0f}' for size in sizes)} MB")
    if len(sizes) > 2 and sizes[-1] > GROWTH * sizes[1]:
        return [f"memory grew from {sizes[1] / 1e6:.0f} to {sizes[-1] / 1e6:.0f} MB"]
    return []
