"""The benchmarks of peers and of unknown photos: what they compare, on features made up for it."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from fscil.data.images import TensorImages
from fscil.errors import FscilError
from fscil.nn.branches import Views
from fscil.teach.base import learning
from fscil.teach.base.fitting import fit_readout
from fscil.teach.knowledge import backbones
from fscil.teach.lessons import looking

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"
TINY = 16  # features of the encoder "tiny"

pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="the benchmarks are not part of the source distribution")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_peer_learns_base_and_later_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peers = script("peers")
    monkeypatch.setattr(peers, "RANDOM", 60)
    rng = np.random.RandomState(0)
    centres = rng.rand(6, 20)

    def some(classes: range, photos: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.array(classes), photos)
        X = centres[labels] + 0.05 * rng.randn(len(labels), 20)
        return X / np.linalg.norm(X, axis=1, keepdims=True), labels

    data = peers.Data(some(range(4), 12), some(range(4, 6), 5), some(range(6), 10))
    result = peers.run("made up", data, "tiny", "one")
    assert len(result["peers"]) == 7
    assert {row["keeps"] for row in result["peers"][:2]} == {"class means"}
    for row in result["peers"]:
        assert row["base"] > 90
        assert row["new"] > (50 if "neighbours" in row["peer"] else 80)
    again = peers.kept(tmp_path / "features.npz", "tiny", lambda: data)
    assert again is data
    stored = peers.kept(tmp_path / "features.npz", "tiny", lambda: pytest.fail("looked at the photos again"))
    assert np.array_equal(stored.later[0], data.later[0])
    with pytest.raises(FscilError, match="holds features by tiny, not by other; name another file, or delete it"):
        peers.kept(tmp_path / "features.npz", "other", lambda: data)


def test_two_encoders_are_read_by_a_branch_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """fscil does what `fscil learn` does with NAME+NAME; the others are given both features side by side."""
    peers, rng = script("peers"), np.random.RandomState(0)
    labels = np.repeat(np.arange(6), 8)
    sides = [rng.rand(6, dim)[labels] + 0.1 * rng.randn(48, dim) for dim in (10, 12)]
    X = np.concatenate([side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides], 1).astype(np.float32)
    ours = peers.Ours([10, 12])
    ours.fit(X, labels)
    model = backbones.of_features(22)
    model.branches = [b for dim in (10, 12) for b in backbones.pair(backbones.Features(dim), "one", unit=True)]
    parts = [torch.from_numpy(X[:, :10]), torch.from_numpy(X[:, 10:])]
    features = fit_readout(model.branches, [parts[0], parts[0], parts[1], parts[1]], torch.from_numpy(labels))
    model.begin(labels.tolist(), features)
    model._read()
    torch.testing.assert_close(ours.model.scores(ours._seen(X)), model.scores(features))
    assert (ours.predict(X) == labels).mean() > 0.9


@pytest.mark.parametrize(
    ("name", "tried"), [("RanPAC-like ridge", "PENALTIES"), ("logistic regression, retrained", "STRENGTHS")]
)
def test_rivals_choose_their_strength_on_held_out_base_photos(
    name: str, tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen one is the best of those that are tried alone, and later classes do not change it."""
    peers, rng = script("peers"), np.random.RandomState(0)
    monkeypatch.setattr(peers, "RANDOM", 80)
    labels = np.repeat(np.arange(5), 20)
    X = rng.rand(5, 30)[labels] + 0.6 * rng.randn(100, 30)
    base, apart = labels < 4, peers.held_out(labels)
    assert apart.reshape(5, 20).sum(1).tolist() == [4] * 5

    def strength(peer: object) -> float:
        return peer.penalty if tried == "PENALTIES" else peer.estimator.C

    right = {}
    for one in getattr(peers, tried):
        monkeypatch.setattr(peers, tried, (one,))
        alone = peers.peers([30])[name]
        alone.fit(X[base & ~apart], labels[base & ~apart])
        right[one] = (alone.predict(X[base & apart]) == labels[base & apart]).sum()
    assert len(set(right.values())) > 1
    monkeypatch.setattr(peers, tried, tuple(right))
    peer = peers.peers([30])[name]
    peer.fit(X[base], labels[base])
    chosen = strength(peer)
    assert right[chosen] == max(right.values())
    peer.add(X[~base], labels[~base])
    assert strength(peer) == chosen


def test_a_folder_of_photos_is_compared(
    album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every third class comes later from five photos; of each class every third photo is asked about."""
    peers, out = script("peers"), tmp_path / "out.json"
    monkeypatch.setattr(peers, "RANDOM", 60)
    words = [out, "--folder", album, "--encoder", "tiny", "--pixels", 32, "--features", tmp_path / "seen.npz"]
    monkeypatch.setattr(sys, "argv", ["peers.py", *map(str, words)])
    peers.main()
    result = json.loads(out.read_text("utf-8"))
    assert result["photos"] == {"base": 4 * 6, "later": 2 * 5, "test": 6 * 4}
    assert result["classes"] == {"base": 4, "later": 2, "test": 6}
    assert result["settings"]["encoder"] == "tiny"
    assert result["peers"][0]["accuracy"] > 50
    assert "\n".join(peers.table(result)) in capsys.readouterr().out
    monkeypatch.setattr(peers, "encoded", lambda *given: pytest.fail("looked at the photos again"))
    peers.main()
    for other in (["--glyphs"], ["--folder", str(album / "owl")]):
        monkeypatch.setattr(sys, "argv", ["peers.py", str(out), *other, *map(str, words[3:])])
        with pytest.raises(FscilError, match=f"holds features by tiny, .*, of {album}, not by .*; name another file"):
            peers.main()


def test_unknown_classes_are_never_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = script("unknown")
    pixels = torch.arange(200, dtype=torch.uint8).repeat_interleave(3).view(600, 1, 1, 1).expand(600, 3, 2, 2)
    images = TensorImages(pixels, torch.arange(200).repeat_interleave(3))
    monkeypatch.setattr(unknown.cub200, "load", lambda *_: SimpleNamespace(train=images, test=images))
    monkeypatch.setattr(unknown.cifar100, "load", lambda *_: SimpleNamespace(train=images, test=images))
    looked: list[str] = []

    def look(photos: list[np.ndarray], title: str) -> torch.Tensor:
        looked.append(title)
        return torch.tensor([[float(photo[0, 0, 0])] for photo in photos])

    few, again, many = unknown.birds(Path(), look, 2)
    assert len(looked) == len(set(looked))  # however many draws there are
    assert set(few.learned.classes.tolist()) != set(again.learned.classes.tolist())
    for test, known, others in ((few, 10, 20), (many, 100, 100)):
        assert torch.equal(test.learned.features[:, 0].long(), test.learned.classes)
        species = set(test.learned.classes.tolist())
        assert len(species) == known
        assert set(test.known.classes.tolist()) == species
        assert len(set(test.unknown.classes.tolist()) - species) == others
        assert not species & set(range(100))  # on which the choices were made
    (things,) = unknown.things(Path(), look, 1)
    assert len(things.learned.classes.unique()) == 7
    assert not set(things.learned.classes.tolist()) & set(things.unknown.classes.tolist())


@pytest.mark.parametrize("views", ["one", "flip", "negative"])
def test_a_model_of_stored_features_is_that_of_the_photos(album: Path, tmp_path: Path, views: Views) -> None:
    unknown, seen, photos = script("unknown"), script("seen"), sorted(album.glob("*/*.png"))
    model, names = backbones.of_encoder("tiny", pixels=32, views=views), [photo.parent.name for photo in photos]
    learning.learn(model, photos, names, "prototypes")
    look = seen.averaged(seen.encoded("tiny", views, 32), [TINY], views)
    raw, rows = look(photos, "birds"), torch.tensor([sorted(set(names)).index(name) for name in names])
    stored = unknown.learned(seen.Photos(raw, rows), [TINY])
    assert stored.calibration.threshold == pytest.approx(model.calibration.threshold, abs=1e-5)
    shown = looking.glance(model, photos).features
    torch.testing.assert_close(stored.evidence(stored.embed(raw)), model.evidence(shown), atol=1e-4, rtol=1e-4)


def test_photos_and_other_views_are_kept_from_one_pass(album: Path, tmp_path: Path) -> None:
    seen, photos, file = script("seen"), sorted(album.glob("owl/*.png")), tmp_path / "seen.npz"
    both, _ = (
        seen.kept(file, seen.encoded("tiny", views, 32), "tiny", views)(photos, "birds")
        for views in ("flip", "negative")
    )
    one, flip, negative = (
        seen.averaged(seen.kept(file, pytest.fail, "tiny", stored), [TINY], views)(photos, "birds")
        for stored, views in (("flip", "one"), ("flip", "flip"), ("negative", "negative"))
    )
    assert torch.equal(one, both[0])
    assert not torch.allclose(flip, one)
    for views, expected in (("one", one), ("flip", flip), ("negative", negative)):
        model = backbones.of_encoder("tiny", pixels=32, views=views)
        learning.look_at_lengths(model.branches)
        torch.testing.assert_close(looking.glance(model, photos).features[0], expected)


def test_what_is_kept_of_other_views_or_encoders_is_not_taken_for_this(tmp_path: Path) -> None:
    seen, file = script("seen"), tmp_path / "seen.npz"
    np.savez(file, birds=torch.rand(2, 3, 4).numpy())  # a file of before, which did not say of what
    wanted = [("a", "one"), ("a", "flip"), ("a", "negative"), ("b", "flip")]
    made = [torch.rand(2, 3, 4) for _ in wanted]
    for (encoder, views), features in zip(wanted, made, strict=True):
        assert torch.equal(seen.kept(file, lambda *_, f=features: f, encoder, views)([], "birds"), features)
    for (encoder, views), features in zip(wanted, made, strict=True):
        assert torch.equal(seen.kept(file, pytest.fail, encoder, views)([], "birds"), features)


def test_features_are_kept_in_a_file_of_any_name(tmp_path: Path) -> None:
    """numpy adds .npz to a name that lacks it: the file would be looked for elsewhere, and written over each time."""
    seen, peers, file = script("seen"), script("peers"), tmp_path / "features"
    made = [torch.rand(1, 3, 4) for _ in range(2)]
    for title, features in zip("ab", made, strict=True):
        seen.kept(file, lambda *_, f=features: f, "tiny", "one")([], title)
    for title, features in zip("ab", made, strict=True):
        assert torch.equal(seen.kept(file, pytest.fail, "tiny", "one")([], title), features)
    data = peers.Data(*[(np.zeros((2, 3)), np.arange(2))] * 3)
    peers.kept(tmp_path / "peers", "tiny", lambda: data)
    peers.kept(tmp_path / "peers", "tiny", lambda: pytest.fail("looked at the photos again"))


def test_mirror_images_of_several_encoders_are_averaged_apart() -> None:
    seen = script("seen")
    found = torch.rand(2, 5, 8)
    whole = seen.averaged(lambda *_: found, [3, 5], "flip")([], "")
    parts = found.split([3, 5], 2)
    sides = [seen.averaged(lambda *_, part=part: part, part.shape[2:], "flip")([], "") for part in parts]
    assert torch.equal(whole, torch.cat(sides, 1))


def test_stored_features_of_two_encoders_are_one_branch_each() -> None:
    unknown, seen, rng = script("unknown"), script("seen"), torch.Generator().manual_seed(0)
    rows = torch.arange(12).repeat_interleave(6)
    dims = [8, 10]
    sides = [torch.randn(12, d, generator=rng)[rows] + 0.3 * torch.randn(72, d, generator=rng) for d in dims]
    model = unknown.learned(seen.Photos(torch.cat(sides, 1), rows), dims)
    embedded = model.embed(torch.cat(sides, 1))
    assert {(f.shape[1], branch.encoder.columns.start) for f, branch in zip(embedded, model.branches, strict=True)} == {
        (8, 0),
        (10, 8),
    }
    assert (model.scores(embedded).argmax(1) == rows).all()


def test_bounds_are_counted_over_draws() -> None:
    rows = [(7.0, 40.0), (9.0, 40.0), (7.0, 46.0), (8.0, 45.0)]
    found = [{"set": f"some, draw {i}", "accepted": a, "refused": r, "auroc": 0.8} for i, (a, r) in enumerate(rows)]
    told = script("unknown").spread(found)
    assert (told["set"], told["draws"], told["accepted"], told["refused"]) == ("some", 4, 7.75, 42.75)
    assert (told["accepted_kept"], told["refused_kept"], told["both_kept"]) == (75.0, 75.0, 50.0)
