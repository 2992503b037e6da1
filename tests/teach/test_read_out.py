"""The read-out of frozen encoders: what is learned, what decides on "not sure", what old files keep."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from albums import BIRDS, empty_model, picture
from commands import Fscil
from fscil import Classifier
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods.shared.method import compared_features, embed_all
from fscil.nn import encoders
from fscil.nn.branches import Branch
from fscil.nn.published import HUB
from fscil.nn.readout import Evidence
from fscil.nn.relations import evidence_form, tightness
from fscil.running.training import Run
from fscil.teach.base import choosing, learning
from fscil.teach.base.fitting import Wish
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin
from fscil.teach.lessons import teaching
from fscil.teach.lessons.looking import look
from fscil.teach.outputs.card import card
from fscil.teach.storage import modelfile
from tiny import tiny_encoder
from untrained import untrained


def test_learned_features_are_whitened_and_of_length_one(birds: Model, hoopoes: list[Path]) -> None:
    (cosine,) = birds.branches
    assert (cosine.unit_means, float(cosine.weight)) == (True, 1.0)
    features = look(birds, hoopoes).features
    torch.testing.assert_close(features[0].norm(dim=1), torch.ones(8))
    pooled = look(empty_model(), hoopoes).features[0]
    expected = F.normalize((pooled - cosine.centre) @ cosine.whitening, dim=1)
    torch.testing.assert_close(features[0], expected, atol=1e-4, rtol=1e-3)
    W = F.normalize(cosine.prototypes.means(), dim=1)
    torch.testing.assert_close(birds.scores(features), features[0] @ W.T, atol=1e-5, rtol=1e-4)


def test_tightness_is_the_mean_cosine_of_two_photos() -> None:
    photos = F.normalize(torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0)), dim=2)
    cosines = photos @ photos.mT
    expected = (cosines.sum((1, 2)) - 7) / (7 * 6)
    torch.testing.assert_close(tightness(photos.mean(1), torch.full((3,), 7)), expected)


def test_evidence_does_not_depend_on_how_many_photos_show_a_class() -> None:
    """Means of few photos are longer; the evidence of photos of the class must not become less with it."""
    rng = torch.Generator().manual_seed(0)
    centre = torch.zeros(200)
    centre[0] = 1.0
    photos = F.normalize(centre + 0.1 * torch.randn(4000, 200, generator=rng), dim=1)
    found = []
    for count in (5, 2000):
        means = photos[:2000].view(-1, count, 200).mean(1)
        form = evidence_form(means, torch.full((len(means),), count), 0.33)
        found.append(float((photos[2000:] @ form.keys.T + form.bias).mean()))
    assert found[0] == pytest.approx(found[1], abs=0.03)


def test_evidence_follows_classes_that_change(birds: Model, hoopoes: list[Path]) -> None:
    features = look(birds, hoopoes).features
    before = birds.evidence(features)
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    birds.forget("crow")
    cosine = birds.branches[0]
    fresh = Evidence([cosine], birds.calibration.tightness).scores([features[0]])
    torch.testing.assert_close(birds.evidence(features), fresh)
    torch.testing.assert_close(birds.evidence(features)[:, :5], before[:, 1:])
    assert fresh.shape == (8, 6)


def test_the_card_says_for_how_many_classes_the_promise_was_measured(birds: Model, hoopoes: list[Path]) -> None:
    said = list(card(birds))
    accepts = f"as measured, it accepts {100 * (birds.calibration.accepted or 0):.1f} % of the known ones."
    assert f"The threshold is meant to let 5 % of unknown photos pass; {accepts}" in said
    assert "This was measured for 6 classes." in said
    assert any("base classes that nothing was fitted to" in line for line in said)
    assert not any("too good" in line for line in said)  # its encoder is frozen
    teaching.teach(birds, ["hoopoe"] * 5, hoopoes[:5])
    again = "This was measured for 6 classes, and again with 1 class taught later; it knows 7."
    assert again in list(card(birds))


def test_the_threshold_is_moved_by_a_command(fscil_command: Fscil, birds_file: Path) -> None:
    code, said, _ = fscil_command("adjust", birds_file, "--false-acceptance", "0.3")
    assert code == 0
    promised, measured = said.splitlines()
    assert promised == "promised: at most 5 % of unknown photos taken for known before, 30 % now"
    assert re.fullmatch(
        r"measured on \d+ held-out base photos: known photos that are not sure: \d+ % before, \d+ % now; "
        "fscil evaluate measures both on yours",
        measured,
    )
    assert modelfile.load(birds_file).calibration.false_acceptance == 0.3
    code, _, complaints = fscil_command("adjust", birds_file, "--false-acceptance", "2")
    assert code == 2
    assert "is 2.0, but must lie between 0 and 1" in complaints


def test_a_classifier_is_adjusted_too(birds_file: Path) -> None:
    model = Classifier.load(birds_file)
    low, high = (model.adjust(rate).model_.calibration.threshold for rate in (0.5, 0.01))
    assert low < high
    assert model.false_acceptance == 0.01


def test_a_moved_threshold_is_a_step_that_can_be_undone(
    fscil_command: Fscil, birds_file: Path, hoopoes: list[Path]
) -> None:
    fscil_command("teach", birds_file, "hoopoe", *hoopoes[:5])
    before = modelfile.load(birds_file).calibration
    fscil_command("adjust", birds_file, "--false-acceptance", "0.3")
    assert "moved the threshold of not sure to a false acceptance of 30 %" in fscil_command("classes", birds_file)[1]
    code, said, _ = fscil_command("undo", birds_file)
    assert code == 0
    assert said.startswith("undone: moved the threshold of not sure to a false acceptance of 30 %; ")
    after = modelfile.load(birds_file)
    assert after.calibration == before
    assert "hoopoe" in after.classes  # the lesson before it stays


def test_erasing_makes_a_moved_threshold_final(birds: Model) -> None:
    birds.adjust(0.3)
    birds.erase("crow")
    assert [step.not_sure for step in birds.journal.steps] == [None] * 3
    assert birds.calibration.false_acceptance == 0.3
    with pytest.raises(FscilError, match="cannot be undone: it erased a class"):
        birds.undo()


def test_a_classifier_takes_a_moved_threshold_back(birds_file: Path) -> None:
    model = Classifier.load(birds_file)
    before = model.model_.calibration
    model.adjust(0.5).adjust(0.01).undo()
    assert model.false_acceptance == 0.5
    model.undo()
    assert (model.false_acceptance, model.model_.calibration) == (0.05, before)


def test_files_of_before_keep_their_read_out(birds: Model, tmp_path: Path, hoopoes: list[Path]) -> None:
    """A file of format 1: no centre, no unit means, and numbers of a calibration by scores."""
    model = empty_model()
    features = look(model, hoopoes).features
    model.begin(["a"] * 4 + ["b"] * 4, features)
    modelfile.save(model, tmp_path / "old.fscil")
    notes = modelfile._read(tmp_path / "old.fscil")[1]
    notes["format"] = 1
    for branch in notes["branches"]:
        del branch["unit_means"]
    numbers = {name: notes["calibration"][name] for name in ("temperature", "margin", "accuracy", "auroc")}
    notes["calibration"] = numbers | {
        "odd": 0.1,
        "threshold": 1.9,
        "photos": 8,
        "accepted": 0.5,
        "false_acceptance": 0.05,
    }
    notes["calibration"] |= {"accuracy": 0.9, "auroc": 0.8}
    del notes["revision"]
    notes["revision"] = modelfile._revision(notes, modelfile._kept(model))
    save_file(load_file(tmp_path / "old.fscil"), tmp_path / "old.fscil", {"notes": json.dumps(notes)})
    old = modelfile.load(tmp_path / "old.fscil")
    assert torch.equal(old.scores(features), model.scores(features))
    assert torch.equal(old.evidence(features), old.scores(features))
    assert torch.equal(old.known(features), old.scores(features).amax(1) >= 1.9)
    kept = "its read-out and its threshold of 'not sure'"
    told = f"This model was made by an earlier version and keeps {kept}; only fscil learn brings the new ones."
    assert told in list(card(old))
    with pytest.raises(FscilError, match="an earlier version made it"):
        old.calibration.at(0.1)


def test_two_encoders_are_added(album: Path, tmp_path: Path) -> None:
    model = backbones.of_encoder("tiny+tiny", pixels=32)
    assert [branch.name for branch in model.branches] == ["B", "C", "B2", "C2"]
    shown = sorted(album.glob("*/*.png"))
    learning.learn(model, shown, [photo.parent.name for photo in shown])
    one = empty_model()
    learning.learn(one, shown, [photo.parent.name for photo in shown], "prototypes")
    assert [branch.name for branch in model.branches] == ["B", "B2"]
    features = look(model, shown).features
    torch.testing.assert_close(model.scores(features), 2 * one.scores(features[:1]), atol=1e-4, rtol=1e-3)
    modelfile.save(model, tmp_path / "two.fscil")
    assert torch.equal(modelfile.load(tmp_path / "two.fscil").scores(features), model.scores(features))
    with pytest.raises(FscilError, match="holds the weights of one encoder, but tiny"):
        backbones.of_encoder("tiny+tiny", "weights.pt")


def test_the_card_names_the_weights_of_each_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "build", lambda name, pixels, weights: tiny_encoder())
    model = backbones.of_encoder("dinov2_small+dinov2_base")
    small, base = (HUB[name].timm for name in ("dinov2_small", "dinov2_base"))
    told = f"weights: {small} of the model hub, {base} of the model hub (licence: apache-2.0)."
    assert told in "\n".join(card(model))
    assert backbones.of_encoder("tiny+tiny", pixels=32).origin.weights == "ImageNet"  # once


def test_best_chooses_the_encoder_itself(fscil_command: Fscil, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for chosen in (("--encoder", "tiny"), ("--views", "negative")):
        code, _, complaints = fscil_command("learn", album, "--save", "best.fscil", "--best", *chosen)
        assert code == 2
        assert "--best chooses the encoder and the views; omit" in complaints
    monkeypatch.setattr(backbones, "TWO", "tiny+tiny")
    monkeypatch.setattr(choosing, "_suiting", lambda *_: choosing.Chosen(backbones.of_encoder("tiny", pixels=32)))
    code, said, _ = fscil_command("learn", album, "--save", "best.fscil", "--best", "--pixels", 32)
    assert code == 0
    assert "tiny+tiny with mirror images: " in said
    model = modelfile.load("best.fscil")
    assert model.branches[0].views == "flip"
    assert "tiny+tiny, 32 px and mirror images, weights: " in "\n".join(card(model))


def test_unknown_photos_are_refused_and_known_ones_are_not(birds: Model) -> None:
    """Patterns that nobody has seen, and new photos of what was learned."""
    known = look(birds, [picture(kind, number) for kind in range(len(BIRDS)) for number in range(50, 60)]).features
    unknown = look(birds, [picture(kind, number) for kind in range(60, 80) for number in range(3)]).features
    assert float(birds.known(known).float().mean()) > 0.5
    assert float(birds.known(unknown).float().mean()) < 0.1


def test_a_branch_without_weight_has_no_say() -> None:
    branch = Branch("C", backbones.Features(3), "euclid", weight=0.0)
    model = Model([Branch("B", backbones.Features(3), "cosine"), branch], None, empty_model().origin)
    features = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    model.begin(list("abab"), [features, torch.full((4, 3), torch.inf)])
    assert bool(model.scores([features, torch.full((4, 3), torch.nan)]).isfinite().all())


def test_the_research_side_reads_features_out_alike(tiny: Benchmark, silent: Run) -> None:
    """`fscil run cosine … --shrinkage 0 --unit_means true`: the read-out is one implementation."""
    method = untrained("cosine", shrinkage=0.0, unit_means=True)
    base, new, *_ = tiny.sessions()
    framing, asked = method.test_framing(base), tiny.test(1)
    method.teach_base(base, silent)
    method.learn_new(new, silent)
    first, second, shown = (embed_all(method.encoder, some, framing, silent) for some in (base.train, new.train, asked))

    branches = backbones.pair(backbones.Features(method.encoder.dim), "one", unit=True)
    model = Model(branches, None, Origin("features", "", ""))
    learning.look_at_lengths(model.branches)
    learning.learn_table(model, first, base.train.labels.tolist(), Wish(strength="prototypes"))
    model.teach(new.train.labels.tolist(), model.embed(second))

    order = [model.classes.index(label) for label in method.classes]
    scores = method.relate(compared_features(method.branches, asked, framing, silent))
    torch.testing.assert_close(model.scores(model.embed(shown))[:, order], scores, atol=1e-5, rtol=0)
    assert method.branches[0].whitens
