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


class CorrectionFacts(BaseModel):
    revision: str
    name: str = Field(alias="class", description="where the photos count now, or were taken out of; or: none of these")
    photos: int = Field(description="photos that were moved or taken out")
    sources: list[str] = Field(description="classes that photos were taken out of")
    gone: list[str] = Field(description="classes that lost their last photo and are forgotten")
    reviews: list[ReviewFacts] = Field(description="of the classes that changed and are left")


class NewName(BaseModel):
    name: str


class Renamed(BaseModel):
    revision: str
    name: str = Field(alias="class", description="as it is called now")


class Forgotten(BaseModel):
    revision: str
    name: str = Field(alias="class")
    erased: bool = Field(description="true: every trace is gone, and nothing before it can be undone")
    was_base: bool = Field(description="true: what was fitted to all base classes together stays")


class Undone(BaseModel):
    revision: str
    undone: str = Field(description="the change that was taken back, in words")


class PhotoFacts(BaseModel):
    digest: str
    thumbnail: bool = Field(description="whether a small picture of it is kept")
    without: str | None = Field(description="what would be said about it had it not been taught; null: not known")
    recognised: bool | None = Field(description="whether that would be right and sure; null: not known")


class ClassPhotos(BaseModel):
    revision: str
    name: str = Field(alias="class", description="or: none of these")
    photos: list[PhotoFacts] = Field(description="the newest first")
    text: str | None = Field(description="the leave-one-out line; null: there is nothing to ask about")


class Place(BaseModel):
    name: str = Field(alias="class")
    photos: int
    x: float = Field(description="from -1 to 1")
    y: float = Field(description="from -1 to 1")


class MapFacts(BaseModel):
    revision: str
    share: float = Field(description="share of the squared distances that two dimensions show")
    classes: list[Place]


class Row(BaseModel):
    """One test photo."""

    photo: str
    truth: str
    said: str
    known: bool
    probability: float = Field(ge=0, le=1)
    stranger: bool = Field(description="the model does not know the class of this photo")
    taught: bool = Field(False, description="this very photo was taught, so that it is no test")


class Confusion(BaseModel):
    truth: str
    said: str
    photos: list[str]


class EvaluationFacts(BaseModel):
    revision: str
    photos: int = Field(description="of classes that the model knows")
    right: int
    accuracy: float | None = Field(description="percent; null: no photo is of a class that the model knows")
    accuracy_interval_95: tuple[float, float] | None = Field(description="percent")
    not_sure: int = Field(description="photos of known classes that are not sure")
    taught: int = Field(description="photos that were taught, which are no test")
    strangers: int = Field(description="photos of classes that the model does not know")
    refused: int = Field(description="of these so many are not sure, as they should be")
    taken_for_known_interval_95: tuple[float, float] | None = Field(description="share of strangers, from 0 to 1")
    confused: list[Confusion] = Field(description="pairs of classes that are confused, most often first")
    results: list[Row] = Field(description="all photos so far; send them back as earlier with the next portion")
    unreadable: list[PhotoProblem]
