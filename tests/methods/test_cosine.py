"""The baseline with one net and with two."""

from dataclasses import replace

import pytest
import torch

from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import cosine, icarl, kt_rcnet
from fscil.nn import encoders
from fscil.running.training import Run
from fscil.settings import resolve
from quick import LEARNS


def untrained(**changes: object) -> cosine.Method:
    config = resolve(
        cosine.Config, "cosine", "tiny", "paper", {**LEARNS, "encoder": "resnet20", "base.epochs": 1, **changes}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cosine.Method(config, encoders.build("resnet20", 16))


def test_two_nets_are_those_of_kt_rcnet_and_their_cosines_are_added(tiny: Benchmark, run: Run) -> None:
    two = untrained(nets=2)
    with run.learning(0) as cost:
        two.learn_base(tiny.base(), run)
    planned = sum((3 * row.trained + row.encoded) * two.encoder.macs(row.pixels) for row in two.plan(tiny.base()))
    assert planned == cost.macs
    assert [branch.name for branch in two.branches] == ["B", "B2"]
    x = next(tiny.test(0).batches([torch.arange(20)], two.test_framing(tiny.base())))
    with torch.no_grad():
        first, second = (branch.relate(branch.embed(x)) for branch in two.eval().branches)
        torch.testing.assert_close(two.scores(x), first + second, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(first, second, atol=1e-3)
    shared = {name: value for name, value in vars(two.config).items() if name in vars(kt_rcnet.Config())}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = kt_rcnet.Config(**shared, start="own", complement="tied")
        pair = kt_rcnet.Method(config, encoders.build("resnet20", 16))
    pair.learn_base(tiny.base(), run)  # which takes both nets from the cache
    for mine, its in zip(two.branches, (pair.f1, pair.f2), strict=True):
        assert all(torch.equal(value, its.state_dict()[name]) for name, value in mine.encoder.state_dict().items())


def test_one_net_has_the_state_it_always_had() -> None:
    assert {name.split(".")[1] for name in untrained().state_dict()} == {"0"}


def test_three_nets_are_refused() -> None:
    with pytest.raises(FscilError, match="nets"):
        replace(untrained().config, nets=3)


def test_class_means_on_the_linear_base_share_the_base_of_icarl(tiny: Benchmark, run: Run) -> None:
    means = untrained(head="linear", feature_length=8.0)
    means.learn_base(tiny.base(), run)
    [file] = run.cache.glob("base-*.safetensors")
    shared = {**LEARNS, "encoder": "resnet20", "base.epochs": 1, "feature_length": 8.0, "memory": 24}
    config = resolve(icarl.Config, "icarl", "tiny", "paper", {**shared, "base_loss": "cross-entropy"})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = icarl.Method(config, encoders.build("resnet20", 16))
    other.learn_base(tiny.base(), run)
    assert list(run.cache.glob("base-*.safetensors")) == [file]
    state = other.encoder.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in means.encoder.state_dict().items())


def test_two_linear_nets_are_refused() -> None:
    with pytest.raises(FscilError, match="--head cosine"):
        replace(untrained().config, nets=2, head="linear")
