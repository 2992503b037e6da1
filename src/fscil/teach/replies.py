"""What is said about a photo. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fscil.teach.journal import Name


@dataclass(frozen=True)
class Answer:
    """What a model says about one photo."""

    known: bool
    best: tuple[tuple[Name, float], ...]  # the most probable classes with their probabilities

    def text(self) -> str:
        """hoopoe 0.83, or: not sure (nearest: jay 0.31, wren 0.22)."""
        told = [f"{name} {probability:.2f}" for name, probability in self.best]
        return told[0] if self.known else f"not sure (nearest: {', '.join(told[:2])})"


@dataclass(frozen=True)
class Reply:
    """What was said about a photo, or why it could not be read."""

    photo: Path
    answer: Answer | None
    problem: str = ""
