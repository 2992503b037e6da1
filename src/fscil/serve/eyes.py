"""Looking at photos for many at once: decoded in a small pool, encoded by one thread that uses all cores."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fscil.data.framing import Framing, finish
from fscil.data.pictures import centre
from fscil.serve.problems import Problem
from fscil.serve.tasks import Cut, Job, Task, Turns
from fscil.teach.knowledge.album import small_picture
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import AT_ONCE
from fscil.teach.lessons.looking import Seen, are_plain
from fscil.teach.seeing.photos import Unreadable, Upload, digests, read, size

DECODERS = min(4, os.cpu_count() or 1)
BESIDE = max(1, DECODERS // 2)  # photos decoded while others are encoded
GIANT = 16_000_000  # pixels; such photos wait for each other and for nobody else, and so does their memory


class Eyes:
    """Reads and encodes photos; more than `most` may not wait."""

    def __init__(self, most: int):
        self._most, self._waiting = most, 0
        self._pool = ThreadPoolExecutor(DECODERS, "decoder")
        self._giants = ThreadPoolExecutor(1, "decoder of giants")
        self._turns = Turns(BESIDE)
        self._tasks: queue.SimpleQueue[Task | Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="encoder", daemon=True)

    @property
    def waiting(self) -> int:
        """Photos that wait for an answer."""
        return self._waiting

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def open(self) -> None:
        """Begins to work."""
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MOST_PIXELS decides
        self._thread.start()

    def close(self) -> None:
        """Ends after what was accepted."""
        self._pool.shutdown()
        self._giants.shutdown()
        self._tasks.put(None)
        self._thread.join()

    async def look(self, model: Model, photos: Sequence[Upload], small: bool, then: Callable[[Seen], Any]) -> Any:
        """What `then` makes, in the thread of the encoder, of what learning and answering need of photos.

        With small pictures, if they are wanted. Called by the event loop alone.
        """
        if model.framing is None:
            raise Problem(409, "this model was made from ready features; it cannot look at photos")
        self._enter(len(photos))
        try:
            task = Task(model, model.framing, photos, small, then)
            for _ in range(min(DECODERS, len(photos))):
                self._pool.submit(self._decode_one, task)
            if not photos:
                self._tasks.put(task)
            return await asyncio.wrap_future(task.result)
        finally:
            self._waiting -= len(photos)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Has other work done by the thread of the encoder; it counts as one photo."""
        self._enter(1)
        try:
            job = Job(work, Future())
            self._tasks.put(job)
            return await asyncio.wrap_future(job.result)
        finally:
            self._waiting -= 1

    def _enter(self, photos: int) -> None:
        if self._waiting + photos > self._most:
            raise Problem(503, "too many photos wait for an answer; try again soon", headers={"Retry-After": "1"})
        self._waiting += photos

    def _decode_one(self, task: Task) -> None:
        """Decodes a photo of a request; its next one waits behind those of others."""
        position = task.begin()
        if position is None:
            return
        if size(task.photos[position], task.framing.pixels) > GIANT:
            self._giants.submit(self._decode, task, position)
        else:
            with self._turns.decoding():
                self._decode(task, position)

    def _decode(self, task: Task, position: int) -> None:
        if task.result.done():  # who asked has gone, or was told of a problem
            return
        try:
            if task.finish(position, _cut_or_problem(task, position)):
                self._tasks.put(task)  # from here, not by way of the event loop, which has enough to do
            else:
                self._pool.submit(self._decode_one, task)
        except BaseException as problem:
            task.fail(problem)

    def _work(self) -> None:
        following: Task | Job | None = None
        while True:
            first, following = following or self._tasks.get(), None
            if first is None:
                return
            if isinstance(first, Job):
                _finish(first)
                continue
            tasks, following = self._gathered(first)
            tasks = [task for task in tasks if task.result.set_running_or_notify_cancel()]
            if tasks:
                with self._turns.encoding():
                    _answer(tasks)

    def _gathered(self, first: Task) -> tuple[list[Task], Task | Job | None]:
        """Tasks that can be encoded together, and what comes after them."""
        tasks, size = [first], len(first.crops)
        while size < AT_ONCE:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                break
            if task is None:
                self._tasks.put(None)
                break
            if isinstance(task, Job) or not same_eyes(task.model, first.model):
                return tasks, task
            tasks.append(task)
            size += len(task.crops)
        return tasks, None


def _cut_or_problem(task: Task, position: int) -> Cut | Unreadable:
    try:
        return _cut(task.photos[position], task.framing, task.small)
    except Unreadable as problem:
        return problem


def _cut(photo: Upload, framing: Framing, small: bool) -> Cut:
    picture = read(photo, framing.pixels)
    array: np.ndarray = centre(picture, framing.pixels, framing.margin, framing.resampling).copy()
    crops = torch.from_numpy(array)[None]
    return Cut(crops[0], digests(crops)[0], are_plain(crops)[0], small_picture(crops[0]) if small else None)


def _finish(job: Job) -> None:
    if job.result.set_running_or_notify_cancel():
        try:
            job.result.set_result(job.work())
        except Exception as problem:
            job.result.set_exception(problem)


def _answer(tasks: Sequence[Task]) -> None:
    sizes = [len(task.crops) for task in tasks]
    try:
        features = _encoded(tasks[0].model, [crop for task in tasks for crop in task.crops])
    except Exception as problem:
        for task in tasks:
            task.fail(problem)
        return
    for task, *parts in zip(tasks, *(f.split(sizes) for f in features), strict=True):
        task.answer(parts)


def _encoded(model: Model, crops: Sequence[Tensor]) -> list[Tensor]:
    """The features of crops, one (n, dim) per branch."""
    if not crops:
        return [torch.empty(0, branch.encoder.dim) for branch in model.branches]
    assert model.framing is not None
    return model.embed(finish(torch.stack(list(crops)), model.framing, None))


def same_eyes(one: Model, other: Model) -> bool:
    """Whether two models make the same features of a photo."""
    if one is other:
        return True
    if len(one.branches) != len(other.branches) or one.framing != other.framing:
        return False
    pairs = list(zip(one.branches, other.branches, strict=True))
    settings = ("views", "unit", "unit_means", "length", "stretched")
    if any(a.encoder is not b.encoder or any(getattr(a, n) != getattr(b, n) for n in settings) for a, b in pairs):
        return False
    parts = ("whitening", "centre", "feature_scale")
    return all(
        (x := getattr(a, part)) is (y := getattr(b, part)) or torch.equal(x, y) for a, b in pairs for part in parts
    )
