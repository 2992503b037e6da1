"""The answers of the service as JSON; OpenAPI is made from them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from fscil.serve.problems import PhotoProblem


class Status(BaseModel):
    status: Literal["ok", "ready"]


class Bounds(BaseModel):
    body_bytes: int
    photos: int = Field(description="photos of one request")
    pixels: int = Field(description="of a photo that is no JPEG file")
    name_characters: int


class ModelFacts(BaseModel):
    revision: str
    file: str = Field(description="name of the model file")
    program: str
    encoder: str
    weights: str
    licence: str = Field(description="of the weights")
    classes: int
    base_classes: int
    photos: int = Field(description="photos that the classes were learned and taught from")
    none: int = Field(description="photos that are kept as none of these")
    steps: int = Field(description="lines of history")
    undo: str | None = Field(description="what undo would take back")
    keeps_features: bool = Field(description="whether single photos can be taken back without the photo itself")
    thumbnails: bool = Field(description="whether small pictures of taught photos are kept")
    explain: bool = Field(description="whether answers can be explained here")
    false_acceptance: float = Field(description="share of unknown photos that may be taken for known")
    token_for: Literal["nothing", "changes", "everything"]
    limits: Bounds


class ClassFacts(BaseModel):
    name: str
    photos: int
    learned: Literal["base", "taught"]
    latest: list[str] = Field(description="digests of its latest photos, the newest first")


class Classes(BaseModel):
    revision: str
    classes: list[ClassFacts]
    none: int = Field(description="photos that are kept as none of these")


class StepFacts(BaseModel):
    when: str
    kind: str
    text: str
    undoable: bool


class History(BaseModel):
    revision: str
    steps: list[StepFacts] = Field(description="the newest first")


class Guess(BaseModel):
    name: str = Field(alias="class")
    probability: float


class Near(BaseModel):
    digest: str
    name: str = Field(alias="class", description="or: none of these")
    likeness: float = Field(description="cosine of the features")


class Told(BaseModel):
    photo: str
    digest: str
    name: str = Field(alias="class", description="the most probable class")
    known: bool = Field(description="false: the model is not sure")
    like_none: bool = Field(description="a photo of none of these is closer than every class")
    taught_as: str | None = Field(description="the class this very photo was taught as, or: none of these")
    text: str = Field(description="the answer in words")
    best: list[Guess]
    nearest: list[Near] = Field(description="taught photos that are most like it; empty where no features are kept")


class Answers(BaseModel):
    revision: str
    answers: list[Told] = Field(description="of the photos that could be read, in their order")
    unreadable: list[PhotoProblem]


class Missed(BaseModel):
    photo: str
    said: str | None = Field(description="the class it would be taken for; null: not sure")


class ReviewFacts(BaseModel):
    """Each photo of a class asked about as if it had not been taught."""

    name: str = Field(alias="class")
    recognised: int
    photos: int
    missed: list[Missed]
    text: str = Field(description="the same in words")


class LessonFacts(BaseModel):
    revision: str
    name: str = Field(alias="class", description="or: none of these")
    taught: int
    digests: list[str] = Field(description="of the photos that were taught")
    unreadable: list[PhotoProblem]
    advice: list[str]
    review: ReviewFacts | None
