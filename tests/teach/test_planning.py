"""What is announced before learning: the time it takes, on a clock of its own."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from albums import BIRDS, QUICK, empty_model
from commands import Fscil
from fscil.command import learn
from fscil.nn.branches import Branch
from fscil.teach.base import learning, transfer
from fscil.teach.knowledge.model import Model
from fscil.teach.seeing import photos


class Clock:
    """A clock that stands still but for what is charged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 1000.0
        self.patch = monkeypatch
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def charge(self, owner: Any, name: str, seconds: Any) -> None:
        """Every call of a function takes some seconds, which may depend on its arguments."""
        function = getattr(owner, name)

        def slow(*given: Any, **named: Any) -> Any:
            self.now += seconds(*given)
            return function(*given, **named)

        self.patch.setattr(owner, name, slow)


@pytest.mark.parametrize(
    ("strength", "photo", "fit", "task"),
    [
        ("prototypes", 0.5, 1.0, 1.0),
        ("prototypes", 0.01, 20.0, 1.0),
        ("auto", 0.5, 1.0, 0.04),  # a map is tried
        ("auto", 0.5, 1.0, 10.0),  # a map would take too long
        ("transfer", 0.5, 1.0, 10.0),
    ],
)
def test_learning_takes_about_as_long_as_announced(
    album: Path, monkeypatch: pytest.MonkeyPatch, strength: Any, photo: float, fit: float, task: float
) -> None:
    clock, starts = Clock(monkeypatch), iter([30.0])
    clock.charge(Model, "embed", lambda model, images: photo * len(images) + next(starts, 0.0))
    clock.charge(Branch, "whiten", lambda *given: fit)
    clock.charge(transfer, "task_loss", lambda *given: task)
    sources, told = sorted(album.glob("*/*.png")), []
    names, began = [source.parent.name for source in sources], clock.now
    clock.now += 5.0  # the encoder was loaded
    learning.learn(empty_model(), sources, names, strength, settings=QUICK, tell=told.append, began=began)
    assert ("map is tried" in told[0]) == (task == 0.04)
    assert (clock.now - began) / 2 < _announced(told[0]) < 2 * (clock.now - began)


def test_photos_of_all_classes_are_timed(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first class need not be like the others."""
    clock, told = Clock(monkeypatch), []
    clock.charge(photos, "read", lambda source, *rest: 0.01 if source.parent.name == BIRDS[0] else 1.0)
    sources, began = sorted(album.glob("*/*.png")), clock.now
    learning.learn(empty_model(), sources, [source.parent.name for source in sources], "prototypes", tell=told.append)
    assert (clock.now - began) / 2 < _announced(told[0]) < 2 * (clock.now - began)


def test_the_command_counts_what_comes_before_the_photos(
    fscil_command: Fscil, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer with a few photos waits for torch, not for the photos."""
    clock = Clock(monkeypatch)
    clock.charge(learn, "_check_place", lambda *given: 7.0)  # stands for the imports, which tests have behind them
    clock.charge(Model, "embed", lambda model, images: 0.01 * len(images))
    _, said, _ = fscil_command("learn", album, "--save", "birds.fscil", "--encoder", "tiny", "--pixels", 32)
    (taken,) = re.findall(r"learned 6 classes from 60 photos in ([\d.]+) s", said)
    assert float(taken) > 7
    assert float(taken) / 2 < _announced(said) < 2 * float(taken)


def _announced(sentence: str) -> float:
    return float(re.findall(r"about (\d+) s", sentence)[0])
