"""NCM (LUCIR): frozen old rows, imprinted new ones, and the weight of not forgetting."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import ncm
from fscil.methods.ncm import less_forget_weight, remove_last_activation
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.running.training import Run
from fscil.settings import resolve
from tiny import learn_two
from untrained import untrained


@pytest.mark.parametrize("base_session", ["lucir", "shared"])
def test_old_rows_stand_still_and_the_rest_moves(tiny: Benchmark, run: Run, base_session: str) -> None:
    method = untrained("ncm", base_session=base_session)
    before = learn_two(method, tiny, run)
    assert torch.equal(method.head.blocks[0], before["net.head.blocks.0"])
    assert float(method.head.scale) != float(before["net.head.scale"])
    assert not torch.equal(method.encoder.stages[0][0].weight, before["net.encoder.stages.0.0.weight"])


def test_new_rows_are_imprinted_where_nothing_is_trained(tiny: Benchmark, run: Run) -> None:
    method = untrained("ncm", **{"new.epochs": 0})
    before = learn_two(method, tiny, run)
    new = list(tiny.sessions())[1]
    with torch.no_grad():
        f = F.normalize(method.encoder(next(new.train.batches([torch.arange(10)], method.test_framing(new)))), dim=1)
    length = float(before["net.head.blocks.0"].norm(dim=1).mean())
    for row, label in zip(method.head.blocks[1], new.classes, strict=True):
        assert float(F.cosine_similarity(row, f[new.train.labels == label].mean(0), dim=0)) == pytest.approx(
            1, abs=1e-5
        )
        assert float(row.norm()) == pytest.approx(length, rel=1e-4)
    assert all(torch.equal(value, before[f"net.encoder.{key}"]) for key, value in method.encoder.state_dict().items())


def test_margins_among_old_classes_survive_imprinting_where_nothing_moves(tiny: Benchmark, run: Run) -> None:
    method = untrained("ncm", **{"new.lr": 0.0, "new.batch_norm": "frozen"})
    base, new, *_ = tiny.sessions()
    x = next(base.train.batches([torch.arange(0, 180, 5)], method.test_framing(base)))
    scores = []
    for session in (base, new):
        with run.learning(session.index):
            (method.learn_new if session.index else method.learn_base)(session, run)
        with torch.no_grad():
            scores.append(method.eval().scores(x))
    before, after = scores
    assert after.shape == (36, 8)
    torch.testing.assert_close(after[:, :6] - after[:, :1], before - before[:, :1], rtol=0, atol=1e-5)


def test_the_quota_of_each_class_is_kept(tiny: Benchmark, run: Run) -> None:
    method = untrained("ncm", exemplars=3)
    learn_two(method, tiny, run)
    assert torch.bincount(method.memory.labels).tolist() == [3] * 8


def test_without_exemplars_it_learns_from_the_new_images_alone(tiny: Benchmark, run: Run) -> None:
    method = untrained("ncm", exemplars=0)
    learn_two(method, tiny, run)
    assert len(method.memory) == 0
    assert method.classes == tiny.order[:8]
    assert all(bool(p.isfinite().all()) for p in method.parameters())


def test_the_weight_of_less_forget_is_that_of_the_paper() -> None:
    assert less_forget_weight(5, 60, 5) == pytest.approx(17.3205, abs=1e-4)


@given(st.integers(1, 200), st.integers(1, 50))
def test_the_weight_grows_with_what_there_is_to_forget(old: int, new: int) -> None:
    assert less_forget_weight(5, old, new) ** 2 * new == pytest.approx(25 * old)


@pytest.mark.parametrize("name", ["resnet18", "resnet20", "resnet12", "fast", "efficientnet_lite0"])
def test_features_become_signed(name: str) -> None:
    torch.manual_seed(0)
    encoder = encoders.build(name, 32)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)  # some start at zero, which switches their block off
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        lowest = float(encoder.stages(x).min())  # zero, or slightly negative behind a leaky ReLU
        assert remove_last_activation(encoder)
        assert float(encoder.stages(x).min()) < 2 * min(lowest, -0.01)


def test_an_encoder_without_activation_on_top_is_refused_before_training(tiny: Benchmark) -> None:
    normed = Encoder(nn.Sequential(nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.BatchNorm2d(16))), 16, 16)
    with pytest.raises(FscilError, match="--base-session shared"):
        untrained("ncm", normed).check(tiny)
    untrained("ncm", normed, base_session="shared").check(tiny)


@pytest.mark.parametrize("recipe", ["official", "paper"])
def test_recipes_hold_the_authors_settings(recipe: str) -> None:
    c = resolve(ncm.Config, "ncm", "cifar100", recipe)
    assert (c.base.epochs, c.base.batch, c.base.lr, c.base.milestones) == (160, 128, 0.1, (80, 120))
    assert [resolve(ncm.Config, "ncm", name, recipe).less_forget for name in ("mini_imagenet", "cub200")] == [10, 10]
