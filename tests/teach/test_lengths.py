"""Features that keep how long the encoder made them: what they change, and what they must leave as it was."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from albums import empty_model
from fscil import Classifier
from fscil.nn.branches import Branch
from fscil.teach.base import learning
from fscil.teach.knowledge import calibration
from fscil.teach.knowledge.backbones import Features
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.rehearsal import Rehearsal, folds, hiding_turns
from fscil.teach.lessons import corrections, looking, teaching
from fscil.teach.lessons.review import review_class
from fscil.teach.outputs import export
from fscil.teach.outputs.card import card
from fscil.teach.seeing import light
from fscil.teach.storage import modelfile


@pytest.fixture
def stretched(album: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model that keeps lengths, though drawings are better off without."""
    monkeypatch.setattr(calibration, "MISLED", 1.0)
    model, shown = empty_model(), sorted(album.glob("*/*.png"))
    learning.learn(model, shown, [photo.parent.name for photo in shown], "prototypes")
    assert model.branches[0].stretched
    return model


def raw(photos: list[Path]) -> Tensor:
    """What the encoder itself makes of photos."""
    model = empty_model()
    learning.look_at_lengths(model.branches)
    return looking.look(model, photos).features[0]


def test_length_is_evidence_and_changes_no_score(stretched: Model, hoopoes: list[Path]) -> None:
    branch, features = stretched.branches[0], looking.look(stretched, hoopoes).features
    torch.testing.assert_close(features[0].norm(dim=1), raw(hoopoes).norm(dim=1) / branch.length, atol=1e-4, rtol=1e-4)
    shorter = [f / 2 for f in features]
    torch.testing.assert_close(stretched.scores(shorter), stretched.scores(features))
    bias = stretched.evidence([0 * f for f in features])
    torch.testing.assert_close(stretched.evidence(shorter) - bias, (stretched.evidence(features) - bias) / 2)


def test_mirror_images_count_alike_and_lengths_are_averaged() -> None:
    branch = Branch("B", Features(2), "cosine", "flip", unit=True, directed=True)
    long, short = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(branch.average([long, short]), torch.full((1, 2), 2.0 * 0.5**0.5))


def test_class_means_are_those_of_directions(stretched: Model, album: Path) -> None:
    features = looking.look(stretched, sorted((album / "owl").iterdir())).features[0]
    row = stretched.branches[0].prototypes.rows(torch.tensor([stretched.label("owl")]))
    mean = stretched.branches[0].prototypes.means(row)[0]
    torch.testing.assert_close(mean, F.normalize(features, dim=1).mean(0), atol=1e-5, rtol=1e-4)


def test_a_photo_is_taken_back_exactly(stretched: Model, hoopoes: list[Path]) -> None:
    teaching.teach(stretched, ["hoopoe"] * 4, hoopoes[:4])
    bank, label = stretched.branches[0].prototypes, stretched.label("hoopoe")
    before = bank.take(label).total
    teaching.teach(stretched, ["hoopoe"], hoopoes[4:5])
    last = stretched.photos[label][-1]
    corrections.unteach(stretched, "hoopoe", [last])
    assert torch.equal(bank.take(label).total, before)
    teaching.teach(stretched, ["hoopoe"], hoopoes[4:5])
    seen = looking.look(stretched, hoopoes[4:5])
    stretched.memory.keep_only(())
    corrections.unteach(stretched, "hoopoe", [last], seen.features)
    torch.testing.assert_close(bank.take(label).total, before, atol=1e-5, rtol=1e-5)


def test_leave_one_out_takes_the_direction_out(stretched: Model, hoopoes: list[Path]) -> None:
    teaching.teach(stretched, ["hoopoe"] * 5, hoopoes[:5])
    review = review_class(stretched, "hoopoe")
    assert review is not None
    features = looking.look(stretched, hoopoes[4:5]).features
    corrections.unteach(stretched, "hoopoe", [stretched.photos[stretched.label("hoopoe")][-1]])
    said = looking.answers(stretched, features)[0]
    assert (said.known, said.best[0][0]) == (review.answers[4].known, review.answers[4].best[0][0])
    assert said.best[0][1] == pytest.approx(review.answers[4].best[0][1], abs=1e-5)


def test_a_file_keeps_lengths(stretched: Model, hoopoes: list[Path], tmp_path: Path) -> None:
    features = looking.look(stretched, hoopoes).features
    modelfile.save(stretched, tmp_path / "model.fscil")
    loaded = modelfile.load(tmp_path / "model.fscil")
    torch.testing.assert_close(looking.look(loaded, hoopoes).features[0], features[0])
    assert torch.equal(loaded.evidence(features), stretched.evidence(features))
    compared = Classifier.load(tmp_path / "model.fscil").transform(hoopoes)
    np.testing.assert_allclose(np.linalg.norm(compared, axis=1), 1, atol=1e-5)


def test_files_of_format_2_have_features_of_length_one(birds_file: Path, hoopoes: list[Path]) -> None:
    model, notes = modelfile.load(birds_file), modelfile._read(birds_file)[1]
    for branch in model.branches:
        branch.directed, branch.stretched, branch.length = False, False, None
    notes["format"] = 2
    for told in notes["branches"]:
        del told["length"], told["stretched"]
    del notes["revision"], notes["calibration"]["counted"], notes["calibration"]["encoders"]
    notes["revision"] = modelfile._revision(notes, modelfile._kept(model))
    save_file(load_file(birds_file), birds_file, {"notes": json.dumps(notes)})
    old = modelfile.load(birds_file)
    features = looking.look(old, hoopoes).features
    torch.testing.assert_close(features[0].norm(dim=1), torch.ones(8))
    assert torch.equal(features[0], looking.look(model, hoopoes).features[0])
    before = old.calibration
    teaching.teach(old, ["hoopoe"] * 5, hoopoes[:5])
    assert old.calibration == before
    kept = "its evidence, which does not look at the lengths of features, and its threshold of 'not sure'"
    told = f"This model was made by an earlier version and keeps {kept}; only fscil learn brings the new ones."
    assert told in list(card(old))
    modelfile.save(old, birds_file)
    again = modelfile.load(birds_file)
    assert (again.branches[0].directed, again.branches[0].stretched) == (False, False)
    assert torch.equal(again.evidence(features), old.evidence(features))


@pytest.mark.usefixtures("graph_cache")
def test_without_torch_the_answers_are_the_same(stretched: Model, album: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra fscil[onnx]")
    photos = sorted(album.glob("*/7.png"))
    looking.glance(stretched, photos)
    modelfile.save(stretched, tmp_path / "model.fscil")
    ours, theirs = light.replies(tmp_path / "model.fscil", photos), looking.replies(stretched, photos)
    assert ours is not None
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.answer is not None
        assert its.answer is not None
        assert mine.answer.known == its.answer.known
        assert [p for _, p in mine.answer.best] == pytest.approx([p for _, p in its.answer.best], abs=1e-4)


def test_the_exported_graph_knows_lengths(stretched: Model, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="export needs the extra fscil[onnx]")
    pytest.importorskip("onnxscript", reason="export needs the extra fscil[onnx]")
    export.to_onnx(stretched, tmp_path)
    images = np.random.RandomState(0).rand(3, 3, 32, 32).astype(np.float32)
    scores, evidence = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"image": images})
    assert stretched.framing is not None
    mean, std = (torch.tensor(n).view(1, 3, 1, 1) for n in (stretched.framing.mean, stretched.framing.std))
    features = stretched.embed((torch.from_numpy(images) - mean) / std)
    np.testing.assert_allclose(scores, stretched.scores(features).numpy(), atol=1e-4)
    np.testing.assert_allclose(evidence, stretched.evidence(features).numpy(), atol=1e-4)


def test_turned_photos_are_seen_as_the_map_sees_the_others(album: Path) -> None:
    model, shown = empty_model(), sorted((album / "owl").iterdir())
    learning.look_at_lengths(model.branches)
    turned = looking.look(model, shown, turn=range(3)).turned
    torch.testing.assert_close(torch.stack(list(turned.values())).norm(dim=2), torch.ones(3, 3))


def test_lengths_are_left_alone_where_they_mislead() -> None:
    truth = torch.tensor([0, 1, -1, -1])
    plain = torch.tensor([[0.4, 0.0], [0.0, 0.3], [0.2, 0.0], [0.1, 0.0]])
    helpful = Rehearsal([], plain, truth, torch.tensor([[0.4, 0.0], [0.0, 0.1], [0.2, 0.0], [0.1, 0.0]]))
    misleading = Rehearsal([], helpful.without_lengths, truth, plain)
    assert not calibration.misled_by_lengths([helpful])
    assert calibration.misled_by_lengths([misleading])
    assert not calibration.misled_by_lengths([Rehearsal([], None, truth)])


def test_drawings_are_better_off_without_lengths(birds: Model, hoopoes: list[Path]) -> None:
    assert (birds.branches[0].stretched, birds.branches[0].directed) == (False, True)
    torch.testing.assert_close(looking.look(birds, hoopoes).features[0].norm(dim=1), torch.ones(8))


def test_relatives_are_hidden_together_in_every_other_fold() -> None:
    rng = torch.Generator().manual_seed(0)
    families = torch.randn(10, 30, generator=rng).repeat_interleave(5, 0)
    turns = hiding_turns(families + 0.1 * torch.randn(50, 30, generator=rng), 10)
    assert turns.bincount().tolist() == [5] * 10
    for turn in range(10):
        assert len({label // 5 for label in (turns == turn).nonzero()[:, 0].tolist()}) == (1 if turn % 2 else 5)
    rows = torch.arange(50).repeat_interleave(4)
    away = [set(range(50)) - set(rows[f.fitted].tolist()) for f in folds(rows, means=families)]
    assert sorted(label for some in away for label in some) == list(range(50))


@pytest.mark.parametrize("classes", [2, 3, 5, 7, 11])
def test_every_class_is_hidden_once(classes: int) -> None:
    rows = torch.arange(classes).repeat_interleave(4)
    means = torch.randn(classes, 8, generator=torch.Generator().manual_seed(classes))
    made = folds(rows, means=means)
    away = [set(range(classes)) - set(rows[fold.fitted].tolist()) for fold in made]
    assert all(away)
    assert sorted(label for some in away for label in some) == list(range(classes))
