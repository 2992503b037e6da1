"""Small images side by side: the numbers of an ordinary convolution, forwards and backwards, and where it is so."""

import pytest
import torch
from torch import nn

from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.side_by_side import ROW, SMALL, SideBySideConvolution, apart, side_by_side, use_side_by_side
from fscil.nn.winograd import WinogradConvolution

ROUNDING = 0.01  # of bfloat16, relative


def pair() -> tuple[nn.Conv2d, nn.Conv2d]:
    """An ordinary convolution, and the same one that takes images side by side."""
    torch.manual_seed(0)
    ordinary, joined = (nn.Conv2d(16, 24, 3, padding=1, bias=False) for _ in range(2))
    joined.load_state_dict(ordinary.state_dict())
    use_side_by_side(joined)
    return ordinary, joined


@pytest.mark.parametrize(("images", "count"), [(6, 3), (7, 3), (2, 5), (1, 1)])
def test_images_come_back_as_they_were(images, count):
    x = torch.randn(images, 4, 3, 5)
    rows = side_by_side(x, count)
    assert rows.shape == (-(-images // count), 4, 3, count * 6)
    assert rows[..., 5::6].abs().sum() == 0  # a column of zeros behind each
    assert torch.equal(apart(rows, images, count), x)


@pytest.mark.parametrize(("n", "height", "width"), [(40, 3, 3), (41, 7, 7), (7, 2, 5), (3, 1, 1)])
def test_results_and_gradients_are_those_of_an_ordinary_convolution(n, height, width):
    ordinary, joined = pair()
    x = torch.randn(n, 16, height, width).to(memory_format=torch.channels_last).requires_grad_()
    y = ordinary(x)
    g = torch.randn_like(y)
    expected = torch.autograd.grad(y, [x, ordinary.weight], g)
    with torch.autocast("cpu", torch.bfloat16):
        result = joined(x)
    assert result.dtype == torch.bfloat16
    assert result.is_contiguous(memory_format=torch.channels_last)
    made = torch.autograd.grad(result, [x, joined.weight], g.bfloat16())
    for got, wanted in zip((result, *made), (y, *expected), strict=True):
        assert got.shape == wanted.shape
        assert (got - wanted).norm() < ROUNDING * wanted.norm()


def sizes_convolved(monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> list[tuple[int, ...]]:
    """What torch's own convolution is given, in bfloat16."""
    _, joined = pair()
    seen: list[tuple[int, ...]] = []
    plain = nn.Conv2d._conv_forward

    def spy(self: nn.Conv2d, images: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.append(tuple(images.shape))
        return plain(self, images, *rest)

    monkeypatch.setattr(nn.Conv2d, "_conv_forward", spy)
    with torch.autocast("cpu", torch.bfloat16):
        joined(x)
    return seen


def test_rows_are_long_and_equally_full(monkeypatch):
    (shape,) = sizes_convolved(monkeypatch, torch.randn(32, 16, 7, 7))
    assert shape == (4, 16, 7, 8 * 8)  # four rows of eight, not three of ten and one of two
    assert shape[-1] <= ROW


def test_larger_images_stand_alone(monkeypatch):
    wide = torch.randn(4, 16, 3, SMALL + 1)
    assert sizes_convolved(monkeypatch, wide) == [wide.shape]


def test_in_float32_it_is_an_ordinary_convolution():
    ordinary, joined = pair()
    x = torch.randn(5, 16, 3, 3)
    assert torch.equal(joined(x), ordinary(x))


def test_second_derivatives_are_those_of_an_ordinary_convolution():
    def second(layer: nn.Conv2d, precision: torch.dtype) -> list[torch.Tensor]:
        x = torch.ones(4, 16, 3, 3).cumsum(3).requires_grad_()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            y = layer(x)
        (gradient,) = torch.autograd.grad(y.float().pow(3).sum(), x, create_graph=True)
        return list(torch.autograd.grad(gradient.float().square().sum(), [x, layer.weight]))

    ordinary, joined = pair()
    for got, wanted in zip(second(joined, torch.bfloat16), second(ordinary, torch.float32), strict=True):
        assert (got - wanted).norm() < 0.03 * wanted.norm()


def test_no_images_make_no_results():
    _, joined = pair()
    with torch.autocast("cpu", torch.bfloat16):
        assert joined(torch.zeros(0, 16, 3, 3)).shape == (0, 24, 3, 3)


def test_an_encoder_can_be_exported():
    _, joined = pair()
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(joined, (torch.randn(4, 16, 3, 3),), dynamic_shapes=({0: batch},))
    x = torch.randn(7, 16, 3, 3)
    torch.testing.assert_close(exported.module()(x), joined(x))


@pytest.mark.parametrize(
    ("precision", "winograd", "kind"),
    [
        (torch.bfloat16, False, SideBySideConvolution),
        (torch.bfloat16, True, SideBySideConvolution),
        (torch.float32, True, WinogradConvolution),
        (torch.float32, False, nn.Conv2d),
    ],
)
def test_the_precision_decides_which_way_is_taken(precision, winograd, kind, monkeypatch):
    monkeypatch.setattr("fscil.nn.winograd.keep_freed_memory", lambda: None)
    encoder = encoders.build("fast", 24, None)
    names = list(encoder.state_dict())
    set_arithmetic(encoder, precision, winograd)
    wide = [m for m in encoder.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) and m.in_channels > 64]
    assert {type(layer) for layer in wide} == {kind}
    assert encoder.precision == precision
    assert list(encoder.state_dict()) == names
