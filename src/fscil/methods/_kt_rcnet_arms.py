"""The arms of complementary learning: RESA and its controls.

An arm is the loss that trains a student, the part of f2 that is trained. Every arm makes the steps of RESA and shows f2
as many images in each; `conventional` alone may go through the base session in batches, as the authors' code does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.data.sessions import Session
from fscil.methods._kt_rcnet_students import Encoded, Mapped, Student
from fscil.methods._kt_rcnet_twins import TURNS
from fscil.nn.heads import EuclidHead
from fscil.nn.relations import cosine, euclid
from fscil.running.training import Run, code_digest
from fscil.settings import to_dict
from fscil.settings.limits import within
from fscil.tensors import digest

if TYPE_CHECKING:
    from fscil.methods.kt_rcnet import Config, Method

STAGES = {"resa": "RESA"}  # the names of the stages that are not those of their arms
CODE = ("methods/kt_rcnet.py", "methods/_kt_rcnet*.py", "methods/shared/resa.py")  # decides f2, beside that of the base
code_digest(CODE)  # of what is imported now
AFTER_TRAINING = ("new_bonus", "statistics", "refit_scale", "complement_weight")  # settings that come into play then
READ_OUT = ("views", "shrinkage", "unit_means")


@dataclass(frozen=True, kw_only=True)
class Conventional:
    """The C-model that is trained by batches with a learned W2."""

    rows: Literal["means", "random"] = "means"  # W2 at the start: class means, or random as in the authors' code
    relation: float = 0.0  # factor of cos(f1, W1)/d in its logits (the authors' code: 1)
    batches: Literal["passes", "tasks"] = "passes"  # passes over the base session, or the steps and images of RESA

    def __post_init__(self) -> None:
        within(self, relation=(0, math.inf))


class Rows(nn.Module):
    """Class means W (rows, d) to which a control compares batches; a checkpoint holds them."""

    W: Tensor

    def __init__(self, count: int, dim: int):
        super().__init__()
        self.register_buffer("W", torch.zeros(count, dim))


def decides_f2(c: Config) -> dict[str, Any]:
    """The settings with which complementary learning is made; those of the read-out come later."""
    early = c.whiten_first or c.uses_W1  # W1 depends on how B reads
    late = {*AFTER_TRAINING, *(() if early else READ_OUT)}
    return {name: value for name, value in to_dict(c).items() if name not in late}


def complement(method: Method, base: Session, run: Run) -> None:
    """Trains f2 by the arm that the settings name; runs that differ in the read-out alone may share it."""
    if not run.keeps_trained:
        return train(method, base, run)
    c = method.config
    key = {**decides_f2(c), "code of f2": code_digest(CODE)}
    schedule = {**key, "stop_after": 0, "begins as": digest(method.branches[1].state_dict())}

    def fit() -> None:
        stage, goes_on = STAGES.get(c.complement, c.complement), c.trained_epochs < c.transfer.epochs
        with run.told_as_stage(), run.relay(stage, schedule, c.trained_epochs, goes_on):
            train(method, base, run)

    return run.cached("f2", key, method.branches[1], fit)


def train(method: Method, base: Session, run: Run) -> None:
    """Trains what the settings let train of f2, by the arm that they name."""
    c = method.config
    student = Mapped(method, base, run) if c.trains == "map" else Encoded(method, base, run)
    make_steps(student)
    student.finish()


def make_steps(student: Student) -> None:
    """All steps of the arm that the settings name."""
    arm = student.method.config.complement
    if arm == "resa":
        resa(student)
    elif arm == "conventional":
        conventional(student)
    else:
        against_means(student, turned=arm == "rotation")


def resa(student: Student) -> None:
    """Random Episode Sampling and Augmentation, Algorithm 1: f2 is trained on pseudo-incremental tasks."""
    method, run, c = student.method, student.run, student.method.config
    keeps = student.keeps if c.trains == "map" else method  # which has W2
    for epoch in run.epochs(STAGES["resa"], keeps, student.trains, c.transfer, c.tasks, c.stop_after):
        if epoch.fresh and epoch.number and c.trains != "map":
            method.weight_computing(method.branches[1], student.base, run)
        student.begin()
        for loss in student.task_losses(epoch):
            epoch.step(loss)


def against_means(student: Student, turned: bool) -> None:
    """Control: batches against the class means of all base classes, computed anew at every epoch.

    `turned`: each quarter turn of a class is a class of its own. The means of a map are exact in every step and move
    with it: without their gradient the map would change what all features have in common, at which the loss does not
    look, and ruin them.
    """
    method, c = student.method, student.method.config
    rows = Rows((1 + len(TURNS) * turned) * len(student.base.classes), method.f2.dim).to(student.device)
    keeps = nn.ModuleList([student.keeps, rows])
    for epoch in student.run.epochs(c.complement, keeps, student.trains, c.transfer, c.tasks, c.stop_after):
        if epoch.fresh:
            rows.W.copy_(student.rows(turned).detach())
        student.begin()
        for batch in student.batches(epoch, turned):
            W = student.rows(turned) if c.trains == "map" else rows.W
            epoch.step(batch.weight * F.cross_entropy(c.scale * euclid(batch.features, W), batch.rows))


def conventional(student: Student) -> None:
    """The C-model without RESA (ablation, rows 2 and 3): batches, and a learned W2 that class means replace."""
    method, c = student.method, student.method.config
    head = EuclidHead(first_rows(student), c.scale)
    trains, keeps = nn.ModuleList([student.trains, head]), nn.ModuleList([student.keeps, head])
    whole = isinstance(student, Encoded) and c.conventional.batches == "passes"
    steps = math.ceil(len(student.base.train) / c.base.batch) if whole else c.tasks
    for epoch in student.run.epochs(c.complement, keeps, trains, c.transfer, steps, c.stop_after):
        student.begin()
        for batch in student.passes(epoch) if whole else student.batches(epoch, turned=False):
            logits = head(batch.features)
            if batch.images is not None and c.uses_W1:
                logits = logits + c.scale * c.conventional.relation * base_relation(method, batch.images)
            epoch.step(batch.weight * F.cross_entropy(logits, batch.rows))


def first_rows(student: Student) -> Tensor:
    """W2 (classes, d) from which conventional learning begins."""
    W = student.g * student.method.W2.means()
    if student.method.config.conventional.rows == "means":
        return W
    uniform = torch.rand(W.shape, generator=student.run.rng("rows of W2")).to(W.device)
    return (2 * uniform - 1) / math.sqrt(W.shape[1])  # nn.Linear's


@torch.no_grad()
def base_relation(method: Method, images: Tensor) -> Tensor:
    """cos(f1, W1) / d of images (n, classes)."""
    return cosine(method.branches[0].encode(images), method.W1.means()) / method.f2.dim
