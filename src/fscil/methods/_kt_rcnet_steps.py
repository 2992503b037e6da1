"""How long a step of a map takes: its arm makes a few on random features, before there are any of images."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fscil.data.sessions import Session
from fscil.methods._kt_rcnet_arms import decides_f2, make_steps
from fscil.methods._kt_rcnet_students import Map, Mapped, Student
from fscil.methods._kt_rcnet_twins import TURNS
from fscil.methods.shared.resa import Cached
from fscil.running.training import Run

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Method

STEPS = 4  # of each epoch that is tried
EPOCHS = 100  # at most; the first also warms up
TIMED: dict[str, float] = {}  # once per process: the cells of an experiment have few kinds of steps


def step_seconds(method: Method, base: Session, run: Run) -> float:
    """About the seconds of one step of a map in complementary learning, from a run that makes few of them.

    They are made at rate 0, so that no loss diverges.
    """
    c, device = method.config, run.devices.device
    few = replace(c.transfer, epochs=EPOCHS, lr=0.0, rest_lr=0.0)
    brief = replace(c, transfer=few, tasks=STEPS, stop_after=0, whiten_first=False)
    size = [method.f2.dim, len(base.classes), len(base.train)]
    kind = json.dumps([decides_f2(brief), size, run.precision, str(device)])
    if kind not in TIMED:
        another = type(method)(brief, method.f1).to(device)  # whose settings are the brief ones
        means = torch.rand(len(base.classes), method.f2.dim, generator=run.rng("means"))
        another.W2.add(torch.tensor(base.classes), means)
        student = Tried(another, base, run)
        make_steps(student)
        student.begin()
        _, *warm = student.began
        TIMED[kind] = (warm[-1] - warm[0]) / (len(warm) - 1) / STEPS  # the mean: other processes may take turns
    return TIMED[kind]


class Tried(Mapped):
    """A map on as many features as the base session has images, all of them the same; it notes when epochs begin."""

    def __init__(self, method: Method, base: Session, run: Run):
        Student.__init__(self, method, base, run)
        self.device = run.devices.device
        n, d = len(base.train), method.f2.dim
        upright, *twins = torch.rand(1 + len(TURNS), d, generator=run.rng("features")).to(self.device)
        turned = torch.stack(twins).expand(n, -1, -1) if method.config.asks_for_twins else None
        self.cached = Cached(upright.expand(n, -1), turned, self.label_rows[base.train.labels])
        self.means = method.W2.means()
        self.twin_means = [self.means for _ in twins]
        self.map = self.trains = self.keeps = Map(d).to(self.device)
        self.began: list[float] = []

    def begin(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.began.append(time.perf_counter())
