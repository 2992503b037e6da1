"""Any sequence of teaching, correcting, forgetting, renaming, undoing, erasing and saving holds what it must."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch import Tensor

from fscil.errors import FscilError
from fscil.teach.knowledge import backbones, journal
from fscil.teach.knowledge.journal import Journal, Step
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import corrections
from fscil.teach.names import NONE
from fscil.teach.storage import modelfile

NAMES = st.sampled_from(["jay", "wren", "hoopoe", "blue jay", "Star"])
VECTORS = st.lists(st.integers(-50, 50), min_size=3, max_size=3)


@dataclass(frozen=True)
class Simple:
    """What must hold: classes in order, each with its feature vectors, and the vectors of none of these."""

    classes: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = ()
    negatives: tuple[tuple[int, ...], ...] = ()

    def names(self) -> list[str]:
        return [name for name, _ in self.classes]


class Changes(RuleBasedStateMachine):
    """The real model, saved and loaded now and then, against the simple one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "birds.fscil"
        self.real = backbones.of_features(3)
        vectors = [[1, 0, 0], [0, 1, 0], [0, 2, 1]]
        self.real.begin(["owl", "kite", "kite"], self.features(vectors), [bytes([i]) * 16 for i in range(3)])
        self.simple = Simple((("owl", ((1, 0, 0),)), ("kite", ((0, 1, 0), (0, 2, 1)))))
        self.past: list[Simple] = []
        self.number = 3
        self.erased: set[str] = set()

    def features(self, vectors: list[list[int]]) -> list[Tensor]:
        return self.real.embed(torch.tensor(vectors, dtype=torch.float32))

    def change(
        self,
        classes: list[tuple[str, tuple[tuple[int, ...], ...]]],
        negatives: tuple[tuple[int, ...], ...] | None = None,
    ) -> None:
        self.past.append(self.simple)
        same = self.simple.negatives if negatives is None else negatives
        self.simple = Simple(tuple((name, vectors) for name, vectors in classes if vectors), same)

    def photo(self, name: str, number: int) -> bytes:
        """The digest of one photo of a class, or of none of these."""
        photos = self.real.negatives if name == NONE else self.real.photos[self.real.label(name)]
        return photos[number]

    def without(self, name: str, number: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {n: v[:number] + v[number + 1 :] if n == name else v for n, v in self.simple.classes}

    @rule(name=NAMES, vectors=st.lists(VECTORS, min_size=1, max_size=3))
    def teach(self, name: str, vectors: list[list[int]]) -> None:
        digests = [(self.number + i).to_bytes(16, "big") for i in range(len(vectors))]
        self.number += len(vectors)
        self.real.teach([name] * len(vectors), self.features(vectors), digests)
        known = dict(self.simple.classes)
        known[name] = known.get(name, ()) + tuple(map(tuple, vectors))
        self.change(list(known.items()))
        self.erased.discard(name)

    @rule(name=NAMES | st.just("owl"))
    def forget(self, name: str) -> None:
        if name not in self.simple.names():
            with pytest.raises(FscilError, match="knows no class"):
                self.real.forget(name)
            return
        self.real.forget(name)
        self.change([pair for pair in self.simple.classes if pair[0] != name])

    @rule(name=NAMES, new=NAMES)
    def rename(self, name: str, new: str) -> None:
        names = self.simple.names()
        if name not in names or (new in names and new != name):
            with pytest.raises(FscilError):
                self.real.rename(name, new)
            return
        self.real.rename(name, new)
        self.change([(new if n == name else n, vectors) for n, vectors in self.simple.classes])
        self.erased.discard(new)

    @rule()
    def undo(self) -> None:
        if not self.past:
            with pytest.raises(FscilError, match=r"nothing to undo|cannot be undone"):
                self.real.undo()
            return
        self.real.undo()
        self.simple = self.past.pop()

    @rule(first=NAMES, second=NAMES, vectors=st.lists(VECTORS, min_size=2, max_size=2))
    def teach_two(self, first: str, second: str, vectors: list[list[int]]) -> None:
        digests = [(self.number + i).to_bytes(16, "big") for i in range(2)]
        self.number += 2
        self.real.teach([first, second], self.features(vectors), digests)
        known = dict(self.simple.classes)
        for name, vector in zip((first, second), vectors, strict=True):
            known[name] = (*known.get(name, ()), tuple(vector))
        self.change(list(known.items()))
        self.erased -= {first, second}

    @rule(name=NAMES | st.sampled_from(["owl", "kite"]), number=st.integers(0, 9))
    def unteach(self, name: str, number: int) -> None:
        known = dict(self.simple.classes)
        if name in known:
            number %= len(known[name])
            corrections.unteach(self.real, name, [self.photo(name, number)])
            self.change(list(self.without(name, number).items()))

    @rule(name=NAMES | st.just("kite"), number=st.integers(0, 9), new=NAMES)
    def correct(self, name: str, number: int, new: str) -> None:
        known = dict(self.simple.classes)
        if name in known and name != new:
            number %= len(known[name])
            corrections.correct(self.real, new, [self.photo(name, number)])
            left = self.without(name, number)
            left[new] = (*left.get(new, ()), known[name][number])
            self.change(list(left.items()))
            self.erased.discard(new)

    @rule(vector=VECTORS)
    def none_of_these(self, vector: list[int]) -> None:
        corrections.keep_as_none(self.real, [self.number.to_bytes(16, "big")], self.features([vector]))
        self.number += 1
        self.change(list(self.simple.classes), (*self.simple.negatives, tuple(vector)))

    @rule(number=st.integers(0, 9), new=NAMES | st.none())
    def a_photo_of_none_of_these_is_one_after_all(self, number: int, new: str | None) -> None:
        if not self.simple.negatives:
            return
        number %= len(self.simple.negatives)
        photo, known = self.photo(NONE, number), dict(self.simple.classes)
        if new is None:
            corrections.unteach(self.real, NONE, [photo])
        else:
            corrections.correct(self.real, new, [photo])
            known[new] = (*known.get(new, ()), self.simple.negatives[number])
            self.erased.discard(new)
        rest = self.simple.negatives[:number] + self.simple.negatives[number + 1 :]
        self.change(list(known.items()), rest)

    @rule(number=st.integers(0, 9))
    def erase_photo(self, number: int) -> None:
        name, vectors = self.simple.classes[-1] if self.simple.classes else (NONE, ())
        if len(vectors) < 2:
            return
        number %= len(vectors)
        corrections.erase_photos(self.real, name, [self.photo(name, number)])
        self.simple = Simple(tuple(self.without(name, number).items()), self.simple.negatives)
        self.past = []

    @rule(name=NAMES | st.sampled_from(["owl", "kite"]))
    def erase(self, name: str) -> None:
        try:
            self.real.erase(name)
        except FscilError:
            assert name not in self.simple.names()
            return
        self.simple = replace(self.simple, classes=tuple(pair for pair in self.simple.classes if pair[0] != name))
        self.past = []
        self.erased.add(name)

    @rule()
    def save_and_load(self) -> None:
        modelfile.save(self.real, self.file)
        self.real = modelfile.load(self.file)
        modelfile.save(self.real, self.file)
        content = self.file.read_bytes()
        for name in self.erased - {"jay"}:  # "blue jay" contains "jay"
            assert name.encode() not in content

    @invariant()
    def classes_are_those_of_the_simple_model(self) -> None:
        assert self.real.classes == self.simple.names()

    @invariant()
    def means_are_exact(self) -> None:
        for branch in self.real.branches:
            expected = [torch.tensor(v, dtype=torch.float64).mean(0) for _, v in self.simple.classes]
            if expected:
                scale = float(branch.feature_scale)
                assert torch.equal(branch.prototypes.means(), torch.stack(expected).mul(scale).float())

    @invariant()
    def every_photo_is_remembered_once(self) -> None:
        counts = [len(self.real.photos.get(label, ())) for label in self.real.names]
        assert counts == [len(vectors) for _, vectors in self.simple.classes]

    @invariant()
    def every_feature_is_remembered(self) -> None:
        for label, (_, vectors) in zip(self.real.names, self.simple.classes, strict=True):
            expected = self.features([list(vector) for vector in vectors])
            for kept, f in zip(self.real.memory.features(self.real.photos[label]), expected, strict=True):
                assert torch.equal(kept, f)
        assert len(self.real.negatives) == len(self.simple.negatives)
        if self.simple.negatives:
            expected = self.features([list(vector) for vector in self.simple.negatives])
            assert torch.equal(self.real.memory.features(self.real.negatives)[0], expected[0])

    @invariant()
    def scores_follow(self) -> None:
        if self.simple.classes:
            scores = self.real.scores(self.features([[3, 1, 2]]))
            assert scores.shape == (1, len(self.simple.classes))
            assert bool(scores.isfinite().all())

    def teardown(self) -> None:
        self.folder.cleanup()


Changes.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestChanges = Changes.TestCase


def birds(*names: str) -> Model:
    model = backbones.of_features(2)
    model.begin(list(names), model.embed(torch.eye(2)[[i % 2 for i in range(len(names))]]))
    return model


def taught(model: Model, name: str, times: int = 1) -> Model:
    for _ in range(times):
        model.teach([name], model.embed(torch.ones(1, 2)), [b"\7" * 16])
    return model


def test_a_class_comes_back_to_its_place() -> None:
    model = taught(birds("owl", "kite", "crow"), "jay")
    model.forget("kite")
    assert model.classes == ["owl", "crow", "jay"]
    assert model.undo().text() == "forgot 'kite'"
    assert model.classes == ["owl", "kite", "crow", "jay"]


def test_learning_itself_cannot_be_undone() -> None:
    model = birds("owl", "kite")
    with pytest.raises(FscilError, match="nothing to undo: the model is as it was learned"):
        model.undo()


def test_erasing_ends_the_way_back_and_says_so() -> None:
    model = taught(taught(birds("owl", "kite"), "jay"), "wren")
    model.erase("jay")
    with pytest.raises(FscilError, match="erased a class, which is final"):
        model.undo()
    assert [step.text() for step in model.journal.steps] == [
        "learned the base classes from 2 photos",
        "taught 'wren' from 1 photo",
        "erased a class",
    ]


def test_erasing_one_class_of_a_lesson_leaves_no_wrong_count() -> None:
    model = birds("owl", "kite")
    model.teach(["jay", "jay", "wren"], model.embed(torch.ones(3, 2)))
    assert model.journal.steps[-1].text() == "taught 'jay', 'wren' from 3 photos"
    model.erase("jay")
    assert model.journal.steps[-2].text() == "taught 'wren'"


def test_erasing_finds_a_class_that_was_renamed_or_forgotten(tmp_path: Path) -> None:
    model = taught(birds("owl", "kite"), "secret bird")
    model.rename("secret bird", "hidden bird")
    model.forget("hidden bird")
    modelfile.save(model, tmp_path / "a.fscil")
    content = (tmp_path / "a.fscil").read_bytes()
    assert b"secret bird" in content
    assert b"hidden bird" in content
    assert b"07" * 16 in content
    model.erase("secret bird")
    modelfile.save(model, tmp_path / "a.fscil")
    content = (tmp_path / "a.fscil").read_bytes()
    assert b"secret bird" not in content
    assert b"hidden bird" not in content
    assert b"07" * 16 not in content


def test_erasing_one_class_leaves_its_namesake_alone() -> None:
    model = taught(birds("owl", "kite"), "jay")
    model.rename("jay", "crow")
    taught(model, "jay")
    model.erase("jay")
    assert model.classes == ["owl", "kite", "crow"]
    assert "jay" not in "".join(step.text() for step in model.journal.steps)


def test_old_steps_can_no_longer_be_undone_and_are_at_last_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "UNDOABLE", 3)
    monkeypatch.setattr(journal, "REMEMBERED", 6)
    model = taught(birds("owl", "kite"), "jay", 8)
    assert len(model.journal.steps) == 6
    for _ in range(3):
        model.undo()
    with pytest.raises(FscilError, match="lies too far back"):
        model.undo()
    assert model.branches[0].prototypes.take(model.label("jay")).photos == 5


def test_a_misspelt_class_gets_a_suggestion() -> None:
    with pytest.raises(FscilError, match="did you mean 'kite'"):
        birds("owl", "kite").forget("kitee")


def test_an_empty_journal_has_nothing_to_take_back() -> None:
    with pytest.raises(FscilError, match="nothing to undo"):
        Journal().take_back()
    assert Journal([Step("learn")]).largest_label() == -1
