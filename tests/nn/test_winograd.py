"""Winograd's algorithm: the same numbers as an ordinary convolution, forwards and backwards, and where it is taken."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from fscil.errors import FscilError
from fscil.nn import encoders, winograd
from fscil.nn.winograd import WinogradConvolution, use_winograd
from fscil.running.planning import layer_bytes
from untrained import untrained

WIDE = (128, 256)


@pytest.fixture(autouse=True)
def _other_tests_measure_memory(monkeypatch):
    monkeypatch.setattr(winograd, "keep_freed_memory", lambda: None)


def pair(inputs: int = WIDE[0], outputs: int = WIDE[1]) -> tuple[nn.Conv2d, nn.Conv2d]:
    """An ordinary convolution, and the same one by Winograd's algorithm."""
    torch.manual_seed(0)
    ordinary = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    short = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    short.load_state_dict(ordinary.state_dict())
    use_winograd(short)
    return ordinary, short


@pytest.mark.parametrize(("height", "width"), [(8, 8), (1, 1), (3, 4), (7, 5), (15, 15)])
def test_results_and_gradients_are_those_of_an_ordinary_convolution(height, width):
    ordinary, short = pair()
    x = torch.randn(3, WIDE[0], height, width).to(memory_format=torch.channels_last).requires_grad_()
    y = ordinary(x)
    g = torch.randn_like(y)
    expected = torch.autograd.grad(y, [x, ordinary.weight], g)
    made = torch.autograd.grad(short(x), [x, short.weight], g)
    for got, wanted in zip((short(x), *made), (y, *expected), strict=True):
        assert got.shape == wanted.shape
        assert (got - wanted).norm() < 1e-5 * wanted.norm()
    assert short(x).is_contiguous(memory_format=torch.channels_last)


def test_the_gradient_is_that_of_the_function(monkeypatch):
    for name in ("OF_TILES", "OF_KERNELS", "OF_RESULTS"):
        monkeypatch.setattr(winograd, name, getattr(winograd, name).double())
    images, kernels = torch.randn(2, 3, 5, 4).double(), torch.randn(2, 3, 3, 3).double()
    assert gradcheck(winograd._Convolution.apply, [images.requires_grad_(), kernels.requires_grad_()])


def test_second_derivatives_are_refused_rather_than_wrong():
    _, short = pair()
    x = torch.randn(1, WIDE[0], 4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(short(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
    with pytest.raises(FscilError, match="set --no-winograd or --no-second_order"):
        untrained("meta_fscil", winograd=True, second_order=True)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.Conv2d(256, 256, 3, 2, padding=1, bias=False),
        nn.Conv2d(256, 256, 1, bias=False),
        nn.Conv2d(256, 256, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(256, 256, 3, padding=2, dilation=2, bias=False),
    ],
    ids=["narrow", "bias", "stride", "1x1", "groups", "dilation"],
)
def test_other_layers_stay_as_they_are(layer):
    use_winograd(layer)
    assert type(layer) is nn.Conv2d


def test_bfloat16_takes_the_ordinary_way():
    ordinary, short = pair()
    x = torch.randn(2, WIDE[0], 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ordinary(x), short(x))


def test_a_network_keeps_its_names_and_its_count_of_multiply_adds_and_tells_of_its_memory():
    plain, short = (encoders.build("fast_large", 32) for _ in range(2))
    names, before = list(short.state_dict()), layer_bytes(short, 32)[0]
    use_winograd(short)
    assert sum(isinstance(layer, WinogradConvolution) for layer in short.modules()) == 8
    assert list(short.state_dict()) == names
    assert short.macs(32) == plain.macs(32)
    assert layer_bytes(short, 32)[0] > before
