"""Taught classes: the threshold of "not sure" is measured again with them, and goes back with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from albums import photos, picture
from commands import Fscil
from fscil.teach.knowledge import recheck
from fscil.teach.knowledge.calibration import Calibration, Taught, counted_as
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recheck import taught_fits
from fscil.teach.lessons import corrections, teaching
from fscil.teach.lessons.looking import look
from fscil.teach.outputs.card import card
from fscil.teach.storage import modelfile


@pytest.fixture
def finches(tmp_path: Path) -> list[Path]:
    return photos(tmp_path / "finch", 71, range(5))


def fits_of(model: Model) -> Taught | None:
    return taught_fits(model, {label: known for label, known in model.photos.items() if label >= model.base})


def test_photos_are_asked_without_their_class_and_as_if_they_had_not_been_taught(
    birds: Model, hoopoes: list[Path], finches: list[Path]
) -> None:
    teaching.teach(birds, ["hoopoe"] * 5 + ["finch"] * 5, [*hoopoes[:5], *finches])
    found, features = fits_of(birds), look(birds, hoopoes[:5]).features
    assert found is not None
    assert found.classes == 2
    without = birds.copy()
    without.forget("hoopoe")
    np.testing.assert_allclose(found.unknown[:5], birds.calibration.fit_of(without.evidence(features)), atol=1e-4)
    less = birds.copy()
    corrections.unteach(less, "hoopoe", birds.photos[birds.label("hoopoe")][:1])
    first = birds.calibration.fit_of(less.evidence([f[:1] for f in features]))
    np.testing.assert_allclose(found.known[:1], first, atol=1e-4)
    assert len(found.known) == len(found.unknown) == 10


def test_relatives_raise_the_threshold(birds: Model, tmp_path: Path) -> None:
    alike = [photos(tmp_path / str(part), 71, range(5 * part, 5 * part + 5)) for part in range(4)]
    others = [photos(tmp_path / f"other {kind}", 80 + kind, range(5)) for kind in range(4)]
    thresholds = []
    for shown in (alike, others):
        model = birds.copy()
        model.adjust(0.3)  # at 0.05 no threshold is above the highest fit of a hidden class
        for name, files in enumerate(shown):
            teaching.teach(model, [f"finch {name}"] * 5, files)
        assert model.calibration.rechecked == 4
        thresholds.append(model.calibration.threshold)
    assert thresholds[0] > thresholds[1]


def test_taught_classes_count_beside_the_hidden_ones() -> None:
    """The more of them there are, the more the threshold follows them; with none it is that of the rehearsals."""
    known, unknown = np.linspace(1.0, 3.0, 401), np.linspace(-3.0, 3.0, 401)
    c = Calibration(classes=50, counted=counted_as(50), known_fits=tuple(known), unknown_fits=tuple(unknown)).at(0.05)
    raised = [c.at(0.05, Taught(n, unknown + 1, known - 1, 0.0)) for n in (1, 10, 100)]
    assert [one.rechecked for one in raised] == [1, 10, 100]
    thresholds = [c.threshold, *(one.threshold for one in raised)]
    assert thresholds == sorted(set(thresholds))
    assert c.at(0.05, Taught(10, unknown - 1, known - 1, 0.0)).threshold < c.threshold
    assert raised[-1].accepted < raised[0].accepted
    assert raised[-1].at(0.05) == c


def test_what_is_taken_back_gives_the_threshold_back(birds: Model, hoopoes: list[Path], finches: list[Path]) -> None:
    birds.calibration = birds.calibration.at(0.2)
    states: list[Calibration] = [birds.calibration]
    for name, files in (("hoopoe", hoopoes[:5]), ("finch", finches)):
        teaching.teach(birds, [name] * 5, files)
        states.append(birds.calibration)
    assert len({c.threshold for c in states}) == 3
    later = birds.copy()
    corrections.unteach(later, "finch", later.photos[later.label("finch")])
    assert later.calibration == states[1]
    later.undo()
    assert later.calibration == states[2]
    later.erase("finch")
    assert later.calibration == states[1]
    later.forget("hoopoe")
    assert later.calibration == states[0]
    for state in reversed(states[:-1]):
        birds.undo()
        assert birds.calibration == state


def test_a_moved_threshold_is_measured_with_taught_classes_too(
    birds: Model, hoopoes: list[Path], tmp_path: Path
) -> None:
    plain = birds.calibration.at(0.2)
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    before = birds.calibration
    birds.adjust(0.2)
    assert birds.calibration.rechecked == 1
    assert birds.calibration.threshold != plain.threshold
    modelfile.save(birds, tmp_path / "model.fscil")
    again = modelfile.load(tmp_path / "model.fscil")
    assert again.calibration == birds.calibration
    again.undo()
    assert again.calibration == before
    birds.forget("hoopoe")
    assert birds.calibration == plain


@pytest.mark.parametrize("kept_before", [False, True])
def test_without_features_the_threshold_only_moves_with_the_number(
    birds: Model, hoopoes: list[Path], finches: list[Path], kept_before: bool
) -> None:
    birds.memory.keep, before = kept_before, birds.calibration
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    birds.memory.keep = False
    teaching.teach(birds, ["finch"] * 5, finches)
    assert birds.calibration == before
    moved = "This was measured for 6 classes; for 8 the threshold moved with their number, and was not measured again."
    assert moved in list(card(birds))


def test_what_is_not_measured_again_is_moved_with_the_number_of_classes(
    fscil_command: Fscil, birds: Model, tmp_path: Path
) -> None:
    """With ten times the classes a photo has to fit better than when the base classes were learned."""
    birds.memory.keep = False
    birds.adjust(0.2)
    c, shown = birds.calibration, [picture(kind, number) for kind in range(6) for number in range(40, 50)]
    assert birds.accepted == c.accepted
    seen = look(birds, shown).features
    for kind in range(100, 154):
        birds.teach([f"bird {kind}"], look(birds, [picture(kind, 0)]).features)
    assert birds.calibration == c
    refused = float((~birds.known(seen)).float().mean())
    assert refused > 1 - (c.accepted or 0) + 0.2
    assert 1 - (birds.accepted or 0) == pytest.approx(refused, abs=0.15)
    assert f"as measured, it accepts {100 * (birds.accepted or 0):.1f} % of the known ones." in "\n".join(card(birds))
    modelfile.save(birds, tmp_path / "b.fscil")
    said = fscil_command("adjust", "b.fscil", "--false-acceptance", "0.2").out
    same = f"{100 * (1 - (birds.accepted or 0)):.0f} %"
    assert "held-out base photos for 6 classes and moved to 60: known" in said
    assert f"not sure: {same} before, {same} now" in said


def test_models_of_before_stay_as_they_are(birds: Model, hoopoes: list[Path]) -> None:
    birds.calibration = before = replace(birds.calibration, counted=0.0)
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    assert birds.calibration == before


def test_of_many_photos_some_are_asked(
    birds: Model, hoopoes: list[Path], finches: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "MOST", 4)
    teaching.teach(birds, ["hoopoe"] * 8 + ["finch"] * 5, [*hoopoes, *finches])
    found = fits_of(birds)
    assert found is not None
    assert (found.classes, len(found.unknown)) == (2, 4)


def test_the_command_says_what_the_cost_was_measured_on(
    fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]
) -> None:
    adjust = ("adjust", birds_file, "--false-acceptance", "0.2")
    assert "held-out base photos: known photos" in fscil_command(*adjust).out
    fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    assert "held-out base photos and 1 taught class: known photos" in fscil_command(*adjust).out
