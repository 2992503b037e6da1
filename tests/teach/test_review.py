"""Leave-one-out: what would be said about each photo if it had not been taught, and which photo is odd."""

from pathlib import Path

import torch

from albums import photos
from fscil.nn.relations import cosine
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons import teaching
from fscil.teach.lessons.corrections import unteach
from fscil.teach.lessons.looking import Answer, answers, look
from fscil.teach.lessons.nearest import Taught, nearest
from fscil.teach.lessons.review import MOST, Review, odd_photos, review_class
from fscil.teach.storage import modelfile


def test_each_photo_is_asked_as_if_it_had_not_been_taught(learned_file: Path, hoopoes: list[Path]) -> None:
    model = modelfile.load(learned_file)
    lesson = teaching.teach(model, ["hoopoe"] * 4, hoopoes[:4])
    (review,) = lesson.reviews
    for left_out, said in enumerate(review.answers):
        never = modelfile.load(learned_file)
        teaching.teach(never, ["hoopoe"] * 3, [photo for i, photo in enumerate(hoopoes[:4]) if i != left_out])
        (expected,) = answers(never, look(never, [hoopoes[left_out]]).features, most=2)
        assert (said.known, said.best[0][0]) == (expected.known, expected.best[0][0])
        assert abs(said.best[0][1] - expected.best[0][1]) < 1e-4


def test_asking_changes_nothing(birds: Model, hoopoes: list[Path]) -> None:
    teaching.teach(birds, ["hoopoe"] * 4, hoopoes[:4])
    before = [branch.prototypes.sums.clone() for branch in birds.branches]
    scores = birds.scores(look(birds, hoopoes).features)
    review_class(birds, "hoopoe")
    assert all(torch.equal(a, b.prototypes.sums) for a, b in zip(before, birds.branches, strict=True))
    assert torch.equal(birds.scores(look(birds, hoopoes).features), scores)


def test_the_line_names_what_goes_wrong() -> None:
    right, wrong, unsure = (
        Answer(True, (("hoopoe", 0.9),)),
        Answer(True, (("jay", 0.7),)),
        Answer(False, (("hoopoe", 0.4),)),
    )
    said = Review("hoopoe", ("a.jpg", "dark.jpg", "far.jpg"), (right, wrong, unsure)).text()
    assert said == (
        "1 of 3 photos of 'hoopoe' would be recognised if they had not been taught; dark.jpg: looks like 'jay'; "
        "far.jpg: not sure; more photos would help"
    )
    assert Review("hoopoe", ("a.jpg",) * 5, (right,) * 5).text().endswith("not been taught; more would change little")
    many = Review("hoopoe", ("a.jpg",) * 30, (right,) * 29 + (wrong,), total=31).text()
    assert many.startswith("29 of the latest 30 photos of 'hoopoe' would be recognised")
    assert "more" not in many  # of so many photos it is not the number
    assert Review("hoopoe", ("a.jpg",) * 4, (right,) * 4).text().endswith("not been taught; more photos would help")


def test_a_photo_of_another_class_is_found(birds: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    (jay,) = photos(tmp_path / "dark", 1, range(40, 41))
    lesson = teaching.teach(birds, ["hoopoe"] * 6, [*hoopoes[:5], jay])
    (review,) = lesson.reviews
    assert review.recognised == 5
    assert f"{jay}: looks like 'jay'" in review.text()
    assert any(str(jay) in sentence and "unlike the other photos of 'hoopoe'" in sentence for sentence in lesson.advice)


def test_correct_photos_are_rarely_called_odd(birds: Model, tmp_path: Path) -> None:
    for kind in range(30, 50):
        shown = photos(tmp_path / str(kind), kind, range(5))
        teaching.teach(birds, [f"bird {kind}"] * 5, shown)
    odd = [kind for kind in range(30, 50) if odd_photos(birds, f"bird {kind}")]
    assert len(odd) <= 2


def test_earlier_photos_are_asked_too_and_the_latest_only(birds: Model, hoopoes: list[Path]) -> None:
    teaching.teach(birds, ["hoopoe"] * 3, hoopoes[:3])
    (review,) = teaching.teach(birds, ["hoopoe"] * 2, hoopoes[3:5]).reviews
    assert len(review.photos) == 5
    assert review.photos[0].startswith("photo ")
    assert review.photos[3:] == tuple(map(str, hoopoes[3:5]))
    features = [f.repeat(5, 1) for f in look(birds, hoopoes).features]
    birds.teach(["hoopoe"] * 40, features, [bytes([i]) * 16 for i in range(40)])
    review_of_many = review_class(birds, "hoopoe")
    assert review_of_many is not None
    assert len(review_of_many.photos) == MOST


def test_without_features_the_lesson_itself_is_asked(birds: Model, hoopoes: list[Path]) -> None:
    birds.memory.keep = False
    assert len(teaching.teach(birds, ["hoopoe"] * 4, hoopoes[:4]).reviews[0].photos) == 4
    assert len(teaching.teach(birds, ["hoopoe"] * 1, hoopoes[4:5]).reviews[0].photos) == 1
    assert teaching.teach(birds, ["lone bird"], hoopoes[5:6]).reviews == []


def test_the_nearest_taught_photos_of_an_answer(birds: Model, album: Path) -> None:
    asked = album / "owl" / "3.png"
    seen = look(birds, [asked, album / "jay" / "0.png"])
    first, second = nearest(birds, seen.features, most=4)
    assert (first[0].photo, second[0].photo) == tuple(seen.digests)
    assert first[0].likeness > 0.999
    assert {one.name for one in first} == {"owl"}
    assert {one.name for one in second} == {"jay"}
    assert [one.likeness for one in first] == sorted((one.likeness for one in first), reverse=True)


def test_the_nearest_are_those_with_the_largest_cosine(birds: Model, album: Path, hoopoes: list[Path]) -> None:
    """Also where a feature is remembered of a photo that is taught no more."""
    gone = look(birds, [album / "owl" / "3.png"])
    kept = birds.memory.features(gone.digests)
    unteach(birds, "owl", gone.digests)
    birds.memory.add(gone.digests, kept)
    asked, photos = look(birds, hoopoes[:2]).features, list(Taught(birds).places)
    assert gone.digests[0] not in photos
    parts = zip(asked, birds.memory.features(photos), strict=True)
    expected = torch.stack([cosine(f, rows) for f, rows in parts]).mean(0)
    for row, found in zip(expected, nearest(birds, asked, most=5), strict=True):
        values, columns = row.topk(5)
        assert [one.photo for one in found] == [photos[c] for c in columns.tolist()]
        assert torch.allclose(torch.tensor([one.likeness for one in found]), values, atol=1e-5)
