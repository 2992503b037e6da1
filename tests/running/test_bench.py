"""The benchmark of the training loop: the plain way computes the same, and its rows say what they measure."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fscil import methods, settings
from fscil.methods.shared.base import train_classifier
from fscil.nn import winograd
from quick import LEARNS
from tiny import TINY_RESA

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "training.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not part of the source distribution")


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, in this process alone."""
    spec = importlib.util.spec_from_file_location("training", SCRIPT)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "WORKERS", 0)
    monkeypatch.setattr(made, "ROUNDS", 1)
    return made


@pytest.fixture
def bench(training, tiny, tmp_path):
    still = {"augment.crop": "none", "augment.flip": False, "augment.padding": 0, "augment.brightness": 0.0}
    config = settings.resolve(
        methods.load("kt_rcnet").Config, "kt_rcnet", "tiny", "small", {**LEARNS, **TINY_RESA, **still}
    )
    return training.Bench(tiny, config, "float32", tmp_path)


def test_the_plain_way_trains_the_same_net(training, bench):
    batch = len(bench.base.train)  # all images in one step, whatever their order
    settled = replace(
        bench.config.base, epochs=1, batch=batch, schedule="step", optimizer="sgd"
    )  # muon enlarges rounding
    ours, plain_net = bench.net(), bench.net()
    train_classifier(bench.method(), "base", ours, bench.base, settled, bench.run)
    training.PlainWay(plain_net, bench.base, settled, bench.config).train()
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(plain_net.state_dict()[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_the_plain_way_encodes_the_same_images(training, bench, tiny):
    net, tests = bench.net(), tiny.test(0)
    plain = training.PlainWay(net, bench.base, bench.config.base, bench.config).encode(tests)
    ours = training.encoded(net.encoder, tests, bench.method().test_framing(bench.base))
    torch.testing.assert_close(plain, ours, rtol=1e-4, atol=1e-5)


def test_a_whole_run_counts_every_test_image_once_and_in_the_plain_way_once_per_session(training, bench, tiny):
    tests = [60, 20, 20, 20]
    trained = bench.config.base.epochs * len(tiny.base(bench.config.held_out).train)
    again = 60 + 80 + 100 + 120
    ours, plain = training.Speed(2.0, 1.0), training.Speed(3.0, 4.0)
    expected = (trained * 3 + again * 4) / (trained * 2 + sum(tests) * 1)
    assert training.whole_run(tiny, bench.config, ours, plain) == pytest.approx(expected)


def test_two_rows_are_printed(training, bench):
    share, plain = training.lines(bench)
    shares = [int(number) for number in re.findall(r"(-?\d+) %", share)]
    assert len(shares) == 2
    assert all(number <= 100 for number in shares)
    assert len(re.findall(r"\d+\.\d\d times", plain)) == 3


def test_the_gain_of_a_short_way_is_a_ratio_of_times(training, monkeypatch):
    monkeypatch.setattr(winograd, "keep_freed_memory", lambda: None)  # other tests measure memory
    for precision in (torch.float32, torch.bfloat16):
        assert 0.05 < training.gain(precision, images=2) < 20
