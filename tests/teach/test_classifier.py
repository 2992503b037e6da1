"""Classifier: scikit-learn's manners, and a partial_fit that welcomes classes nobody has announced."""

import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fscil
from albums import BIRDS, photos, picture
from fscil import Classifier
from fscil.errors import FscilError
from fscil.teach.base import transfer
from fscil.teach.knowledge.journal import UNDOABLE
from fscil.teach.lessons.looking import look

# Checks of scikit-learn that cannot hold here, each with its reason.
EXPECTED = {
    "check_methods_subset_invariance": "relations are float32 products: the batch size may change the last digit",
}


def tiny(**given: object) -> Classifier:
    return Classifier("tiny", pixels=32, **given)


def album_of(kinds: int, numbers: range) -> tuple[list[Image.Image], list[str]]:
    pairs = [(picture(kind, number), BIRDS[kind]) for kind in range(kinds) for number in numbers]
    return [shown for shown, _ in pairs], [name for _, name in pairs]


@pytest.fixture(scope="module")
def fitted() -> Classifier:
    return tiny(strength="prototypes").fit(*album_of(4, range(6)))


def test_scikit_learns_own_checks() -> None:
    results = check_estimator(Classifier(encoder=None), on_fail=None, on_skip=None, expected_failed_checks=EXPECTED)
    assert len(results) > 40
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []


def test_the_constructor_only_stores() -> None:
    made = Classifier("nonsense", strength="absurd", views="none", false_acceptance=7)
    assert made.get_params()["encoder"] == "nonsense"
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(encoder=None, strength="auto").encoder is None
    assert fscil.Classifier is Classifier


def test_features_in_a_pipeline_and_cross_validation() -> None:
    X, y = make_blobs(120, 6, centers=6, cluster_std=1.5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), Classifier(encoder=None, strength="prototypes"))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    search = GridSearchCV(Classifier(encoder=None), {"strength": ["prototypes"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9


def test_transfer_on_features_learns_what_matters() -> None:
    rng = np.random.RandomState(0)
    y = np.arange(240) % 8
    X = np.hstack(
        [rng.randn(8, 4)[y] + 0.3 * rng.randn(240, 4), 3 * rng.randn(240, 12)]
    )  # four features tell, twelve do not
    score = {}
    for strength in ("prototypes", "transfer"):
        model = Classifier(encoder=None, strength=strength).fit(X[:160], y[:160])
        assert model.model_.origin.strength == strength
        gained = [said for said in model.told_ if "% without and" in said]
        assert len(gained) == (strength == "transfer")
        score[strength] = model.score(X[160:], y[160:])
    assert score["transfer"] > score["prototypes"] + 0.1


def test_every_kind_of_x_gives_the_same_answer(fitted: Classifier, tmp_path: Path) -> None:
    shown, names = album_of(4, range(30, 32))
    pixels = np.stack([np.asarray(one) for one in shown])
    paths = [tmp_path / f"{i}.png" for i in range(len(shown))]
    for one, path in zip(shown, paths, strict=True):
        one.save(path)
    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    forms = [shown, paths, [str(path) for path in paths], pixels, list(pixels), tensor, tensor / 255]
    answers = [fitted.predict_proba(X) for X in forms]
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], atol=2e-6)
    assert fitted.predict(shown).tolist() == names
    assert fitted.score(paths, names) == 1.0
    assert fitted.predict(shown[0]).tolist() == names[:1]
    assert fitted.predict(paths[0]).tolist() == names[:1]


def test_a_folder_brings_its_classes(album: Path) -> None:
    model = tiny(strength="prototypes").fit(album)
    assert model.classes_.tolist() == list(BIRDS)
    assert model.predict(album / "owl").tolist() == ["owl"] * 10
    with pytest.raises(ValueError, match="y"):
        tiny().fit([picture(0, 0)])


def test_partial_fit_welcomes_new_classes_and_moves_none() -> None:
    shown, names = album_of(4, range(6))
    model = tiny(strength="prototypes").fit(shown, names)
    assert model.classes_.tolist() == ["crow", "jay", "kite", "owl"]
    model.partial_fit([picture(7, i) for i in range(5)], ["ara"] * 5)
    assert model.classes_.tolist() == ["crow", "jay", "kite", "owl", "ara"]
    assert model.predict([picture(7, 20), picture(1, 20)]).tolist() == ["ara", "jay"]
    assert model.predict_proba([picture(7, 20)]).shape == (1, 5)
    model.forget("jay").rename("ara", "parrot")
    assert model.classes_.tolist() == ["crow", "kite", "owl", "parrot"]
    assert model.undo().undo().classes_.tolist() == ["crow", "jay", "kite", "owl", "ara"]
    model.forget("ara", erase=True)
    with pytest.raises(FscilError, match="final"):
        model.undo()


@settings(max_examples=15)
@given(order=st.permutations(range(5)), parts=st.integers(1, 4))
def test_the_order_of_teaching_does_not_matter(order: list[int], parts: int) -> None:
    X = np.random.RandomState(0).randn(20, 4)
    y = np.arange(20) % 5
    whole = Classifier(encoder=None, strength="prototypes").fit(X[:2], y[:2])
    pieces = clone(whole).fit(X[:2], y[:2])
    rows = [i for c in order for i in range(2, 20) if y[i] == c]
    whole.partial_fit(X[2:], y[2:])
    for part in np.array_split(rows, parts):
        pieces.partial_fit(X[part], y[part])
    columns = [list(pieces.classes_).index(c) for c in whole.classes_]
    np.testing.assert_allclose(pieces.predict_proba(X)[:, columns], whole.predict_proba(X), atol=1e-6)


def test_predict_always_answers_and_is_known_doubts() -> None:
    model = tiny(strength="prototypes").fit(*album_of(6, range(10)))
    strangers = [picture(kind, 0) for kind in range(60, 70)]
    assert set(model.predict(strangers)) <= set(BIRDS)
    assert model.is_known(album_of(6, range(40, 44))[0]).mean() > 0.8 > 0.5 > model.is_known(strangers).mean()


def test_probabilities_scores_and_answers_agree(fitted: Classifier) -> None:
    shown, _ = album_of(4, range(30, 32))
    p, scores = fitted.predict_proba(shown), fitted.decision_function(shown)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)
    assert (p.argmax(1) == scores.argmax(1)).all()
    assert scores.shape == (8, 4)


def test_numbers_stay_numbers_in_a_file(tmp_path: Path) -> None:
    X, y = make_blobs(40, 3, centers=4, random_state=0)
    model = Classifier(encoder=None).fit(X, y + 10)
    model.save(tmp_path / "blobs.fscil")
    loaded = Classifier.load(tmp_path / "blobs.fscil")
    assert loaded.classes_.dtype.kind == "i"
    assert loaded.classes_.tolist() == [10, 11, 12, 13]
    assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.n_features_in_ == 3
    with pytest.raises(FscilError, match="is of another kind"):
        loaded.partial_fit(X[:1], ["wren"])
    with pytest.raises(ValueError, match="3 features"):
        loaded.predict(X[:, :2])


def test_saving_never_overwrites_another_model_unless_told(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.fscil")
    fitted.save(tmp_path / "a.fscil")
    other = tiny(strength="prototypes").fit(*album_of(2, range(3)))
    with pytest.raises(FscilError, match="holds another model"):
        other.save(tmp_path / "a.fscil")
    other.save(tmp_path / "a.fscil", overwrite=True)
    assert Classifier.load(tmp_path / "a.fscil").classes_.tolist() == ["crow", "jay"]


def test_a_loaded_classifier_can_be_taught_and_pickled(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "b.fscil")
    loaded = Classifier.load(tmp_path / "b.fscil").partial_fit([picture(9, i) for i in range(5)], ["ara"] * 5)
    again = pickle.loads(pickle.dumps(loaded))
    assert again.predict([picture(9, 9)]).tolist() == ["ara"]
    assert "ara" not in fitted.classes_


def test_unreadable_photos_warn_when_learned_and_stop_a_prediction(fitted: Classifier, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_text("no photo")
    paths = [*photos(tmp_path / "x", 3, range(4)), *photos(tmp_path / "y", 4, range(4)), tmp_path / "broken.jpg"]
    with pytest.warns(UserWarning, match=r"1 of 9 photos skipped: .*broken.jpg is no picture"):
        model = tiny().fit(paths, ["x"] * 4 + ["y"] * 5)
    assert model.predict(paths[:1]).tolist() == ["x"]
    with pytest.raises(FscilError, match=r"nothing was predicted: 1 of 2 photos"):
        model.predict([paths[0], tmp_path / "broken.jpg"])


def test_a_class_without_a_readable_photo_is_named(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.fscil")
    (tmp_path / "broken.jpg").write_text("no photo")
    model = Classifier.load(tmp_path / "a.fscil")
    shown = [*photos(tmp_path / "x", 7, range(3)), tmp_path / "broken.jpg", tmp_path / "broken.jpg"]
    with pytest.warns(UserWarning, match="2 of 5 photos skipped") as warned:
        model.partial_fit(shown, ["x"] * 3 + ["y", "crow"])
    named = [str(one.message) for one in warned if "has no photo that could be used" in str(one.message)]
    assert named == ["class 'y' has no photo that could be used and is skipped"]


def test_the_name_of_a_photo_reaches_no_terminal_raw(tmp_path: Path) -> None:
    shown = photos(tmp_path / "x", 3, range(4))
    broken = tmp_path / "red\x1b[31m.jpg"
    broken.write_text("no photo")
    with pytest.warns(UserWarning, match="1 of 5 photos skipped") as warned:
        tiny(strength="prototypes").fit([*shown, broken], ["x"] * 5)
    told = " ".join(str(one.message) for one in warned)
    assert r"red\x1b[31m.jpg" in told
    assert "\x1b" not in told


def test_asking_before_learning_is_scikit_learns_error() -> None:
    from sklearn.exceptions import NotFittedError

    for ask in (lambda m: m.predict([picture(0, 0)]), lambda m: m.forget("x"), lambda m: m.save("nowhere")):
        with pytest.raises(NotFittedError):
            ask(tiny())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"strength": "absurd"}, "strength is 'absurd', but must be one of auto, prototypes, transfer"),
        ({"views": "none"}, "views is 'none', but must be one of one, flip"),
        ({"false_acceptance": 7}, "false_acceptance is 7, but must lie between 0 and 1"),
        ({"random_state": None}, "random_state is None, but must be a whole number from 0 to 4294967295"),
        ({"random_state": 2**70}, "random_state is 1180591620717411303424, but must be a whole number"),
    ],
)
def test_fit_refuses_settings_that_mean_nothing(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tiny(**wrong).fit(*album_of(2, range(3)))


def test_photos_of_two_learned_classes_are_known() -> None:
    birds = tiny(strength="prototypes").fit(*album_of(2, range(12)))
    shown, _ = album_of(2, range(20, 30))
    assert birds.is_known(shown).mean() > 0.8


def test_one_picture_as_an_array_is_one_photo(fitted: Classifier) -> None:
    shown = picture(2, 40)
    array = np.asarray(shown)
    assert fitted.predict(array).tolist() == fitted.predict([shown]).tolist()
    assert fitted.predict(torch.from_numpy(array.copy()).permute(2, 0, 1)).tolist() == fitted.predict([shown]).tolist()


def test_nothing_left_to_predict_is_said(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "all.fscil")
    empty = Classifier.load(tmp_path / "all.fscil")
    assert (empty.pixels, empty.views) == (32, "one")
    for name in BIRDS[:4]:
        empty.forget(name)
    with pytest.raises(FscilError, match="every class was forgotten"):
        empty.predict([picture(0, 0)])


def test_fit_forgets_of_what_kind_the_classes_were() -> None:
    X = np.random.RandomState(0).randn(8, 3)
    model = Classifier(encoder=None, strength="prototypes").fit(X, [0, 1] * 4).fit(X, ["a", "b"] * 4)
    assert model.classes_.tolist() == ["a", "b"]
    with pytest.raises(FscilError, match="called like 'a'; 3 is of another kind"):
        model.rename("a", 3)


def test_photos_that_are_left_out_of_fit_are_named(tmp_path: Path) -> None:
    crows, jays = photos(tmp_path / "crow", 0, range(4)), photos(tmp_path / "jay", 1, range(4))
    with pytest.warns(UserWarning, match=r"skipped, because the same photo was taught as another class: .*3.png"):
        tiny().fit([*crows, *jays, crows[3]], ["crow"] * 4 + ["jay"] * 5)


def test_no_photo_at_all_is_refused_in_one_sentence(fitted: Classifier) -> None:
    with pytest.raises(FscilError, match="there are no photos to learn from; give some of each class"):
        fitted.fit([], [])
    assert fitted.classes_.tolist()  # what it knew


@pytest.mark.parametrize("encoder", [None, "tiny"])
def test_a_map_that_was_asked_for_and_dropped_is_named(encoder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "train", lambda cached, means, *rest: torch.zeros(means.shape[1], means.shape[1]))
    shown, names = album_of(6, range(6))
    X = shown if encoder else np.eye(6).repeat(6, 0) + 0.1 * np.random.RandomState(0).randn(36, 6)
    with pytest.warns(UserWarning, match="(?:map is not used|no map is trained)"):
        Classifier(encoder, pixels=32, strength="transfer").fit(X, names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Classifier(encoder, pixels=32).fit(X, names)


def test_a_folder_needs_an_encoder(album: Path) -> None:
    with pytest.raises(ValueError, match="encoder=None takes a table of features; choose an encoder"):
        Classifier(encoder=None).fit(album)


def test_the_present_folder_can_be_asked(fitted: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path, 3, range(30, 32))
    monkeypatch.chdir(tmp_path)
    assert fitted.predict(".").tolist() == ["owl", "owl"]


def test_many_corrections_are_made_all_or_none(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.fscil")
    model = Classifier.load(tmp_path / "a.fscil")
    before = model.predict_proba([picture(1, 40)])
    shown = [*(picture(0, 100 + i) for i in range(UNDOABLE + 5)), tmp_path / "gone.jpg"]
    with pytest.raises(FscilError, match=r"gone\.jpg"):
        model.correct(shown, [f"class {i}" for i in range(len(shown))])
    assert model.classes_.tolist() == fitted.classes_.tolist()
    assert len(model.model_.journal.steps) == len(fitted.model_.journal.steps)
    np.testing.assert_array_equal(model.predict_proba([picture(1, 40)]), before)


def test_what_was_learned_with_given_weights_is_not_learned_anew_with_others(
    fitted: Classifier, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "a.fscil")
    loaded = Classifier.load(tmp_path / "a.fscil")
    assert loaded.get_params()["weights"] is None
    for told, weights in (("file mine.safetensors", "mine.safetensors"), ("cosine trained on cub200",) * 2):
        loaded.model_.origin = replace(loaded.model_.origin, weights=told)
        loaded.save(tmp_path / "a.fscil")
        assert Classifier.load(tmp_path / "a.fscil").get_params()["weights"] == weights


def test_photos_are_taken_back_corrected_and_refused(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.fscil")
    model = Classifier.load(tmp_path / "a.fscil")
    model.model_.calibration = replace(model.model_.calibration, threshold=None)  # of so few photos, many are not sure
    shown = [picture(9, i) for i in range(5)]
    model.partial_fit(shown, ["ara"] * 5).unteach(shown[3:], ["ara"] * 2)
    assert model.model_.branches[0].prototypes.take(model.model_.label("ara")).photos == 3
    model.correct([picture(0, 0), picture(1, 0)], ["jay", "ara"])
    counts = {name: len(model.model_.photos[label]) for label, name in model.model_.names.items()}
    assert counts == {"crow": 5, "jay": 6, "kite": 6, "owl": 6, "ara": 4}
    features = look(model.model_, [picture(2, 91)]).features
    assert not model.model_.rejected(features).any()
    model.teach_none([picture(2, 91)])
    assert model.model_.rejected(features).all()
    assert not model.is_known([picture(2, 91)]).any()
    for _ in range(5):
        model.undo()
    assert model.classes_.tolist() == fitted.classes_.tolist()
    with pytest.raises(FscilError, match="was not taught as 'jay' but as 'crow'"):
        model.unteach([picture(0, 0)], ["jay"])
    ready = Classifier(encoder=None, strength="prototypes").fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    with pytest.raises(FscilError, match="ready features keeps no photos"):
        ready.unteach([[0.0, 1.0]], ["a"])


@pytest.mark.parametrize("change", ["unteach", "correct"])
def test_of_several_classes_all_are_corrected_or_none(change: str, fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.fscil")
    model = Classifier.load(tmp_path / "a.fscil")
    steps, names = len(model.model_.journal.steps), ["crow", "jay"] if change == "unteach" else ["jay", "a\x1bra"]
    with pytest.raises(FscilError):  # the second: not taught as jay; a name with a control character
        getattr(model, change)([picture(0, 0), picture(2, 0)], names)
    assert len(model.model_.journal.steps) == steps
    assert model.model_.photos == fitted.model_.photos


def test_names_that_no_command_could_spell_are_refused_in_one_sentence(fitted: Classifier, tmp_path: Path) -> None:
    """`fscil teach` and folders would make a second class of the same name."""
    fitted.save(tmp_path / "a.fscil")
    model, shown = Classifier.load(tmp_path / "a.fscil"), [picture(0, 0), picture(0, 1)]
    for name, spelt in (("crow ", "crow"), (" none of the crows", "none of the crows"), ("Ko\u0308nig", "K\u00f6nig")):
        said = f"the class name '{name}' is not spelt as commands and folders spell it; give '{spelt}', which"
        for attempt in (
            lambda name=name: tiny(strength="prototypes").fit(shown, ["a", name]),
            lambda name=name: Classifier(encoder=None).fit(np.eye(2), ["a", name]),
            lambda name=name: model.partial_fit(shown, [name] * 2),
            lambda name=name: model.correct(shown, [name] * 2),
            lambda name=name: model.unteach(shown, [name] * 2),
            lambda name=name: model.forget(name),
            lambda name=name: model.rename(name, "rook"),
            lambda name=name: model.rename("crow", name),
        ):
            with pytest.raises(FscilError, match=said):
                attempt()
    assert model.classes_.tolist() == fitted.classes_.tolist()
    model.model_.names[0] = "crow "  # of a model that was made before such names were refused
    assert model.rename("crow ", "crow").classes_.tolist() == fitted.classes_.tolist()


def test_transform_gives_the_features_that_are_compared(fitted: Classifier) -> None:
    shown = [picture(0, 50), picture(1, 50)]
    features = fitted.transform(shown)
    assert features.shape == (2, fitted.model_.branches[0].encoder.dim)
    np.testing.assert_allclose(features, look(fitted.model_, shown).features[0].numpy(), atol=1e-6)


def test_fit_tells_what_was_chosen_and_why(fitted: Classifier) -> None:
    assert [said.partition("; about")[0] for said in fitted.told_] == ["prototypes: as asked"]


def test_what_auto_chose_is_what_a_file_brings_back(tmp_path: Path) -> None:
    tiny().fit(*album_of(3, range(4))).save(tmp_path / "a.fscil")
    assert Classifier.load(tmp_path / "a.fscil").strength == "prototypes"


def test_a_loaded_classifier_knows_how_it_was_made(tmp_path: Path) -> None:
    made = tiny(strength="prototypes", views="flip", random_state=7, keep_features="none", false_acceptance=0.2)
    made.fit(*album_of(3, range(4))).save(tmp_path / "a.fscil")
    loaded = Classifier.load(tmp_path / "a.fscil")
    assert loaded.get_params() == made.get_params()
    assert fscil.FscilError is FscilError
