"""What is said about a photo. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fscil.teach.names import NONE, Name
from fscil.text import printable


@dataclass(frozen=True)
class Answer:
    """What a model says about one photo."""

    known: bool
    best: tuple[tuple[Name, float], ...]  # the most probable classes with their probabilities
    rejected: bool = False  # whether a photo of none of these is closer than every class

    def text(self) -> str:
        """hoopoe 0.83, or: not sure (nearest: jay 0.31, wren 0.22)."""
        told = [f"{printable(str(name))} {probability:.2f}" for name, probability in self.best]
        like = f"like a photo of {NONE}; " if self.rejected else ""
        return told[0] if self.known else f"not sure ({like}nearest: {', '.join(told[:2])})"


@dataclass(frozen=True)
class Reply:
    """What was said about a photo, or why it could not be read."""

    photo: Path
    answer: Answer | None
    problem: str = ""
