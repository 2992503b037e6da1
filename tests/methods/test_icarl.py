"""iCaRL: exemplars within the quota, and the nearest mean of them."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data.images import TensorImages
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import icarl
from fscil.methods.shared.topic_reduction import Reduced
from fscil.nn.prototypes import Prototypes
from fscil.nn.relations import cosine
from fscil.running.training import Run
from untrained import untrained


def learned(method: icarl.Method, tiny: Benchmark, run: Run, sessions: int = 4) -> icarl.Method:
    for session in list(tiny.sessions())[:sessions]:
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
    return method


def test_memory_is_the_quota_after_every_session(tiny: Benchmark, run: Run) -> None:
    method = untrained("icarl", memory=30)
    for session, quota in zip(tiny.sessions(), (5, 3, 3, 2), strict=True):
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
        assert torch.bincount(method.memory.labels, minlength=12).tolist() == [quota] * len(method.classes) + [0] * (
            12 - len(method.classes)
        )
        assert len(method.memory) <= 30


def test_a_memory_without_room_for_every_class_is_told_before_training(tiny: Benchmark) -> None:
    untrained("icarl", memory=12).check(tiny)
    with pytest.raises(FscilError, match="a memory of 11 images has no room for each of 12 classes; set --memory"):
        untrained("icarl", memory=11).check(tiny)


def test_rows_without_their_loss_are_refused() -> None:
    with pytest.raises(FscilError, match=r"nothing of iCaRL's distillation.*; set --new.old_rows frozen or trained"):
        untrained("icarl", **{"new.old_rows": "detached"})
    untrained("icarl", **{"new.old_rows": "detached", "reduction.on": True})


def test_a_class_of_five_shots_cannot_fill_a_larger_quota(tiny: Benchmark, run: Run) -> None:
    method = learned(untrained("icarl", memory=2000), tiny, run, 2)
    assert torch.bincount(method.memory.labels).tolist() == [30] * 6 + [5] * 2


def test_scores_are_cosines_to_the_means_of_unit_features_of_exemplars(tiny: Benchmark, run: Run) -> None:
    method = learned(untrained("icarl"), tiny, run, 2)
    session = list(tiny.sessions())[1]
    images = tiny.test(1)
    with torch.no_grad():
        x = next(images.batches([torch.arange(len(images))], method.test_framing(session)))
        kept = next(method.memory.images.batches([torch.arange(len(method.memory))], method.test_framing(session)))
        f, k = method.encoder(x), F.normalize(method.encoder(kept), dim=1)
        means = torch.stack([k[method.memory.labels == label].mean(0) for label in method.classes])
        torch.testing.assert_close(method.scores(x), cosine(f, means), rtol=1e-4, atol=1e-5)


def test_one_exemplar_per_class_is_the_nearest_neighbour(tiny: Benchmark, run: Run) -> None:
    method = learned(untrained("icarl", memory=8), tiny, run, 2)
    assert len(method.memory) == 8
    session = list(tiny.sessions())[1]
    with torch.no_grad():
        x = next(tiny.test(1).batches([torch.arange(80)], method.test_framing(session)))
        kept = next(method.memory.images.batches([torch.arange(8)], method.test_framing(session)))
        nearest = cosine(method.encoder(x), method.encoder(kept)).argmax(1)
        assert torch.equal(method.memory.labels[nearest], torch.tensor(method.classes)[method.scores(x).argmax(1)])


@given(st.floats(0.01, 100), st.integers(0, 1000))
@settings(max_examples=20)
def test_the_nearest_mean_does_not_depend_on_the_length_of_features(factor: float, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    f, bank = torch.randn(9, 5, generator=g), Prototypes(5)
    bank.add(torch.arange(3).repeat_interleave(2), F.normalize(torch.randn(6, 5, generator=g), dim=1))
    assert torch.equal(cosine(f, bank.means()).argmax(1), cosine(factor * f, bank.means()).argmax(1))
    unit, means = F.normalize(f, dim=1), F.normalize(bank.means(), dim=1)
    assert torch.equal(cosine(f, bank.means()).argmax(1), torch.cdist(unit, means).argmin(1))


def test_means_follow_the_rows_of_the_classifier_whatever_the_order_of_images(tiny: Benchmark, run: Run) -> None:
    base = tiny.base()
    order = torch.randperm(len(base.train), generator=torch.Generator().manual_seed(0))
    mixed = TensorImages(base.train.pixels[order], base.train.labels[order])
    method = untrained("icarl")
    with run.learning(0):
        method.learn_base(type(base)(**{**vars(base), "train": mixed}), run)
    assert method.means.classes == method.classes == base.classes


@pytest.mark.parametrize("name", ["icarl", "eeil", "ncm"])
def test_the_reduction_keeps_anchors_and_one_image_per_new_class(name: str, tiny: Benchmark, run: Run) -> None:
    terms = {"reduction.distill": 4.0, "reduction.classify": 0.1, "reduction.less_forget": 1.0}
    sizes = {"reduction.on": True, "reduction.anchors": 15, "base.epochs": 0, "new.epochs": 2, "new.part": "last_block"}
    method = untrained(name, **terms, **sizes)
    assert isinstance(method, Reduced)
    learned(method, tiny, run)
    assert len(method.memory) == 15 + 6
    assert torch.bincount(method.memory.labels, minlength=12)[6:].tolist() == [1] * 6
    assert method.classes == tiny.order


def test_terms_of_the_reduction_are_zero_where_nothing_changed(tiny: Benchmark, run: Run) -> None:
    terms = {"reduction.on": True, "reduction.distill": 4.0, "reduction.less_forget": 50.0}
    method = untrained("icarl", **terms)
    learned(method, tiny, run, 1)
    f = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = method.anchor_terms(f, torch.zeros(5, dtype=torch.int64), f.detach(), method.head(f).detach())
    (gradient,) = torch.autograd.grad(loss, f)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-5)
    assert gradient.abs().max() < 1e-5
