"""Joint-CNN: everything is kept, a restart is a base session, and the balanced softmax undoes the imbalance."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from fscil.data.sessions import Benchmark
from fscil.methods import joint
from fscil.methods.joint import balanced_softmax
from fscil.methods.shared.base import Net, train_classifier
from fscil.running.training import Run
from fscil.settings import recipe_names, resolve
from untrained import untrained


def state(net: Net) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in net.encoder.state_dict().items()}


def test_trains_on_all_images_of_all_sessions(tiny: Benchmark, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(method, stage, net, session, training, run, loss=None):
        seen.append((stage, len(session.train), session.classes))
        train_classifier(method, stage, net, session, training, run, loss)

    monkeypatch.setattr(joint, "train_classifier", watched)
    method = untrained("joint", **{"base.epochs": 0, "new.epochs": 0})
    for session in tiny.sessions(oracle=True):
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
    assert seen == [("joint", 180 + 10 * t, tiny.order[: 6 + 2 * t]) for t in (1, 2, 3)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_session_starts_from_the_last_one_or_with_restart_untrained(tiny: Benchmark, run: Run, restart: bool) -> None:
    method = untrained("joint", restart=restart, **{"new.epochs": 0})
    fresh = state(method.net)
    base, new, *_ = tiny.sessions(oracle=True)
    with run.learning(0):
        method.learn_base(base, run)
    trained, rows = state(method.net), method.head.weight.detach().clone()
    with run.learning(1):
        method.learn_new(new, run)
    start = fresh if restart else trained
    assert all(torch.equal(value, start[key]) for key, value in method.encoder.state_dict().items())
    assert torch.equal(method.head.weight[:6], rows) != restart
    assert method.classes == tiny.order[:8]


def test_a_restart_on_the_base_session_is_the_base_session(tiny: Benchmark, run: Run) -> None:
    base = next(tiny.sessions(oracle=True))
    one, two = (
        untrained("joint", restart=True, **{"new.step_epochs": 40, "new.weight_decay": 5e-4}),
        untrained("joint", restart=True),
    )
    with run.learning(0):
        one.learn_base(base, run)
    for file in run.folder.path.glob("stage-*"):
        file.unlink()
    with run.learning(0):
        two.retrain("base", base, run)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "glyphs", "mini_imagenet"])
@pytest.mark.parametrize("recipe", ["official", "paper"])
def test_sessions_train_as_the_base_session_did(recipe: str, dataset: str) -> None:
    c = resolve(joint.Config, "joint", dataset, recipe)
    assert c.new == c.base


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "glyphs", "mini_imagenet"])
def test_sessions_end_at_the_size_at_which_they_are_read(dataset: str) -> None:
    """A net that ends at smaller images loses base classes, although it has all their images."""
    for recipe in recipe_names("joint", dataset):
        c = resolve(joint.Config, "joint", dataset, recipe)
        assert (c.new.pixels or (c.pixels,))[-1] == c.pixels, recipe


def test_sessions_at_224_px_need_no_more_memory_than_the_base_session() -> None:
    c = resolve(joint.Config, "joint", "cub200", "small")
    assert c.new.batch <= c.base.batch
    assert c.new.optimizer == c.base.optimizer
    assert max(c.new.pixels, default=c.pixels) <= max(c.base.pixels)


def test_balanced_softmax_equals_plain_where_classes_are_equal() -> None:
    logits, rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    plain = F.cross_entropy(logits, rows)
    torch.testing.assert_close(balanced_softmax(logits, rows, torch.full((3,), 7.0)), plain)
    prior = torch.tensor([500.0, 500.0, 5.0])
    torch.testing.assert_close(balanced_softmax(logits - prior.log(), rows, prior), plain)


def test_balanced_joint_training_learns_new_classes_better(tiny: Benchmark, run: Run) -> None:
    """500 images against 5 in small: plain cross-entropy prefers the old classes."""
    base, new, *_ = tiny.sessions(oracle=True)
    shares = {}
    for balanced in (False, True):
        method = untrained("joint", balanced=balanced, **{"new.epochs": 4, "base.epochs": 3})
        with run.learning(0):
            method.learn_base(base, run)
        for file in run.folder.path.glob("stage-*"):
            file.unlink()
        with run.learning(1):
            method.learn_new(new, run)
        with torch.no_grad():
            x = next(new.train.batches([torch.arange(10)], method.test_framing(new)))
            shares[balanced] = float(method.scores(x).softmax(1)[:, 6:].sum(1).mean())
        for file in run.folder.path.glob("stage-*"):
            file.unlink()
    assert shares[True] > 1.5 * shares[False]


def test_the_measured_row_shows_the_imbalance() -> None:
    """Few of 500 : 5 images are of new classes: the accuracy is about the base session's times its share of classes."""
    file = Path(__file__).parent.parent.parent / "results" / "compare" / "cifar100" / "joint-compare-seed0.json"
    if not file.exists():
        pytest.skip("the results are not part of the source distribution")
    measured = json.loads(file.read_text("utf-8"))["metrics"]["sum"]
    accuracy, base = measured["accuracy"], measured["base"]
    assert accuracy[1] == pytest.approx(accuracy[0] * 60 / 65, abs=1)  # read at the size of its sessions
    for t in range(1, len(accuracy)):
        share = 60 / (60 + 5 * t)
        assert accuracy[t] == pytest.approx(base[t] * share, abs=2)  # far above it, new classes would have leaked
        assert base[0] - 1 < base[t] < base[0] + 6  # each session trains the base images further
