"""The pieces that methods share: encoders, their compute and weights, prototypes, Muon."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.nn import encoders, hub
from fscil.nn.branches import Branch, test_views
from fscil.nn.compute import Meter, counting
from fscil.nn.encoders import Encoder, build
from fscil.nn.folding import folded
from fscil.nn.muon import Muon, is_kernel, orthogonalise
from fscil.nn.prototypes import Prototypes
from fscil.nn.scratch import WhiteningStem

test_views.__test__ = False  # a function of the package, not a test

DIMENSIONS = {
    "resnet18": 512,
    "resnet18_small": 512,
    "resnet20": 64,
    "resnet12": 640,
    "fast": 256,
    "fast_large": 512,
    "efficientnet_lite0": 1280,
    "efficientnet_lite1": 1280,
    "efficientnet_lite2": 1280,
    "timm:mobilenetv3_small_050": 1024,
    "timm:resnet10t": 512,
}


@pytest.fixture(scope="module")
def built() -> Callable[[str], Encoder]:
    """Each encoder once, for images of 32 pixels."""
    made: dict[str, Encoder] = {}
    return lambda name: made.setdefault(name, made.get(name) or build(name, 32)).eval()


# ---- encoders ------------------------------------------------------------------------------------------------------


def test_every_encoder_is_tested_here() -> None:
    shipped = {
        name for name, make in encoders.BUILDERS.items() if make.__module__.startswith("fscil.")
    }  # not the tests' own
    layouts = {f"efficientnet_lite{number}_layout" for number in range(3)}  # test_pretrained.py has these
    assert shipped <= {*DIMENSIONS, *layouts}


@pytest.mark.parametrize("name", DIMENSIONS)
def test_encoders_keep_the_contract(built: Callable[[str], Encoder], name: str) -> None:
    """stages is a Sequential, pool turns its output into (n, dim) float32, and the encoder is the two together."""
    encoder = built(name)
    assert isinstance(encoder.stages, nn.Sequential)
    assert encoder.dim == DIMENSIONS[name]
    assert encoder.pixels == 32
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = encoder(x)
        by_hand = x
        for stage in encoder.stages:
            by_hand = stage(by_hand)
        torch.testing.assert_close(features, encoder.pool(by_hand))
    assert features.shape == (2, encoder.dim)
    assert features.dtype == torch.float32
    assert not torch.equal(features[0], features[1])


@pytest.mark.parametrize("name", ["resnet20", "timm:mobilenetv3_small_050"])
def test_copies_of_an_encoder_are_independent(built: Callable[[str], Encoder], name: str) -> None:
    """f2 is a deep copy of f1: changing one must not show in the other, pooling included."""
    one = built(name)
    other = deepcopy(one)
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = one(x)
        for parameter in other.parameters():
            parameter.mul_(0.5).add_(0.01)
        assert torch.equal(one(x), before)
        assert not torch.allclose(other(x), before)


def test_resnet18_is_timms(tmp_path: Path) -> None:
    import timm

    net = timm.create_model("resnet18", num_classes=10).eval()
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    encoder = build("resnet18", 32, str(tmp_path / "weights.safetensors")).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = net.forward_head(net.forward_features(x), pre_logits=True)
        torch.testing.assert_close(encoder(x), expected)


def test_bfloat16_is_used_inside_and_float32_comes_out(built: Callable[[str], Encoder]) -> None:
    encoder = deepcopy(built("resnet20"))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = encoder(x)
        encoder.precision = torch.bfloat16
        rounded = encoder(x)
    assert rounded.dtype == torch.float32
    assert not torch.allclose(rounded, exact, rtol=1e-5, atol=1e-5)
    assert F.cosine_similarity(rounded, exact).min() > 0.99


def test_features_are_pooled_in_float32() -> None:
    encoder = Encoder(nn.Sequential(nn.Identity()), 3, 8)
    encoder.register_parameter("unused", nn.Parameter(torch.zeros(1)))
    encoder.precision = torch.bfloat16
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoder(x), x.mean((2, 3)), rtol=1e-6, atol=0)


def test_the_whitening_stem_sees_all_patches() -> None:
    stem, x = WhiteningStem(2, 1), torch.randn(120, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    stem.fit(3 * x)
    with torch.no_grad():
        white = stem(3 * x).transpose(0, 1).flatten(1)[:12]
    torch.testing.assert_close(white @ white.T / white.shape[1], torch.eye(12), rtol=0, atol=0.01)


def test_folded_batch_norms_compute_the_same() -> None:
    encoder = build("efficientnet_lite0", 64)
    rng = torch.Generator().manual_seed(0)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=rng)
            module.running_var.uniform_(0.5, 2, generator=rng)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    images = torch.randn(3, 3, 64, 64, generator=rng)
    quick = folded(encoder)
    with torch.no_grad():
        torch.testing.assert_close(quick(images), encoder.eval()(images), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_many_large_images_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, sizes = build("resnet20", 32).eval(), []
    encoder.stages[0].register_forward_hook(lambda stage, given, made: sizes.append(len(made)))
    x = torch.rand(10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = encoder(x)
        monkeypatch.setattr(encoders, "PIXELS", 4 * 32 * 32)
        torch.testing.assert_close(encoder(x), whole)
    assert sizes == [10, 4, 4, 2]
    sizes.clear()
    encoder(x)  # with gradients, and
    with torch.no_grad():
        encoder.train()(x)  # where statistics are taken, all at once
    assert sizes == [10, 10]


def test_unknown_encoders_are_refused_with_a_suggestion() -> None:
    with pytest.raises(FscilError, match=r"'resnet81'.*did you mean 'resnet18'\?"):
        build("resnet81", 32)
    with pytest.raises(FscilError, match=r"'zzz'.*known: .*efficientnet_lite0, .*resnet12, "):
        build("zzz", 32)
    with pytest.raises(FscilError, match=r"timm has no model 'resnet19'; did you mean 'resnet18'\?"):
        build("timm:resnet19", 32)
    with pytest.raises(FscilError, match=r"timm has no model 'resnet18.tv_in2k'; did you mean 'resnet18.tv_in1k'\?"):
        build("timm:resnet18.tv_in2k", 32)


def test_a_timm_model_may_be_named_with_the_tag_of_its_weights(built: Callable[[str], Encoder]) -> None:
    tagged = build("timm:resnet10t.c3_in1k", 32)
    assert tagged.dim == 512
    assert tagged.state_dict().keys() == built("timm:resnet10t").state_dict().keys()


def test_pretrained_resnet18_has_torchvisions_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    asked, create = [], timm.create_model

    def without_download(
        name: str, pretrained: bool = False, pretrained_cfg_overlay: object = None, **settings: object
    ) -> nn.Module:
        asked.append((name, pretrained, pretrained_cfg_overlay))
        return create(name, **settings)

    monkeypatch.setattr(timm, "create_model", without_download)
    monkeypatch.setattr(hub, "weights_file", lambda repository, name: Path(repository))
    build("resnet18", 32, "pretrained")
    build("timm:resnet18.a1_in1k", 32, "pretrained")
    names = ("resnet18.tv_in1k", "resnet18.a1_in1k")
    assert asked == [(name, True, {"file": f"timm/{name}"}) for name in names]


@pytest.mark.parametrize(("name", "pixels"), [("resnet12", 8), ("fast", 8), ("resnet20", 4)])
def test_images_too_small_for_an_encoder_are_refused(name: str, pixels: int) -> None:
    with pytest.raises(FscilError, match=rf"\b{pixels}\b.*--pixels"):
        build(name, pixels)


# ---- weights -------------------------------------------------------------------------------------------------------


def test_weights_that_cannot_be_loaded_are_refused_by_name(tmp_path: Path) -> None:
    absent, text, note, foreign, listed = (
        tmp_path / name for name in ("absent.pth", "text.safetensors", "text.pth", "other.pth", "list.pt")
    )
    for file in (text, note):
        file.write_text("these are no weights")
    torch.save({"conv1.weight": torch.zeros(3)}, foreign)
    torch.save([torch.zeros(3)], listed)
    for file, reason in (
        (absent, "there is no weights file"),
        (text, "not a readable weights file, or half of one; give a .safetensors file"),
        (note, "not a readable weights file, or half of one; give a .safetensors file"),
        (foreign, "does not fit ResNet: 'conv1.weight'"),
        (listed, "no table of weights"),
    ):
        with pytest.raises(FscilError, match=reason) as caught:
            build("resnet18", 32, str(file))
        assert str(file) in str(caught.value)
        assert "Error" not in str(caught.value)  # the words of Python and torch


def test_encoders_without_pretrained_weights_say_so(tmp_path: Path) -> None:
    for name in ("resnet18_small", "resnet20", "resnet12", "fast"):
        with pytest.raises(FscilError, match=f"{name} has no pretrained weights"):
            build(name, 32, str(tmp_path / "some.pth"))


# ---- compute -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pixels", "giga"),
    [("resnet18", 224, 1.814), ("resnet18", 84, 0.296), ("resnet18_small", 32, 0.555), ("resnet20", 32, 0.041)],
)
def test_known_numbers_of_multiply_adds(built: Callable[[str], Encoder], name: str, pixels: int, giga: float) -> None:
    assert built(name).macs(pixels) / 1e9 == pytest.approx(giga, rel=0.015)


def test_multiply_adds_by_hand() -> None:
    """A 3x3 convolution from 3 to 5 channels on 6x6 positions and a 5 x 7 matrix."""
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 7))
    assert Encoder(nn.Sequential(net), 7, 8, nn.Identity()).macs(8) == 27 * 5 * 36 + 35


def test_images_trained_on_count_three_times() -> None:
    encoder = Encoder(nn.Sequential(nn.Conv2d(3, 4, 1)), 4, 8)
    one, x, meter = encoder.macs(8), torch.zeros(5, 3, 8, 8), Meter()
    encoder(x)  # nobody counts
    with counting(meter):
        encoder(x)
        with torch.no_grad():
            encoder(x)
        encoder.requires_grad_(False)(x)
    assert meter.macs == (3 + 1 + 1) * 5 * one
    assert meter.trained == 5


# ---- prototypes ----------------------------------------------------------------------------------------------------


def bank_of(**features: list[list[float]]) -> Prototypes:
    """Two-dimensional prototypes, from c7=[[...], ...]."""
    bank = Prototypes(2)
    for name, rows in features.items():
        bank.add(torch.full((len(rows),), int(name[1:])), torch.tensor(rows))
    return bank


def test_prototypes_are_means_in_the_order_of_arrival() -> None:
    bank = Prototypes(2)
    bank.add(torch.tensor([9, 4, 9]), torch.tensor([[1.0, 0], [5, 5], [3, 2]]))
    assert bank.classes == (9, 4)
    assert bank.means().tolist() == [[2, 1], [5, 5]]
    assert bank.means().dtype == torch.float32
    assert bank.rows(torch.tensor([4, 9, 4])).tolist() == [1, 0, 1]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), parts=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_means_are_exact_when_photos_arrive_later(seed: int, parts: list[int]) -> None:
    """In any portions, between photos of other classes, the mean is that of all photos at once."""
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(sum(parts), 3, generator=rng)
    bank = Prototypes(3)
    for i, part in enumerate(features.split(parts)):
        bank.add(torch.full((len(part),), 5), part)
        bank.add(torch.tensor([100 + i]), torch.randn(1, 3, generator=rng))
    assert torch.equal(bank.means()[bank.row(5)], (features.double().sum(0) / len(features)).float())


def test_many_classes_outgrow_the_spare_rows() -> None:
    bank, features = Prototypes(2), torch.arange(400.0).view(200, 2)
    for label in range(200):
        bank.add(torch.tensor([label]), features[label : label + 1])
    assert torch.equal(bank.means(), features)
    assert bank.classes == tuple(range(200))


def test_with_rows_replaces_by_label_and_leaves_the_bank_alone() -> None:
    bank = bank_of(c9=[[1, 1]], c4=[[2, 2]], c6=[[3, 3]])
    replaced = bank.with_rows(torch.tensor([6, 9]), torch.tensor([[60.0, 0], [90, 0]]))
    assert replaced.tolist() == [[90, 0], [2, 2], [60, 0]]
    assert bank.means().tolist() == [[1, 1], [2, 2], [3, 3]]


def test_set_replaces_a_prototype_or_adds_one() -> None:
    bank = bank_of(c9=[[1, 1], [3, 3]])
    bank.set(9, torch.tensor([8.0, 8]))
    bank.set(2, torch.tensor([7.0, 7]))
    assert bank.classes == (9, 2)
    assert bank.means().tolist() == [[8, 8], [7, 7]]


def test_remove_forgets_one_class_completely() -> None:
    bank = bank_of(c9=[[1, 1]], c4=[[2, 2]], c6=[[3, 3]])
    bank.remove(4)
    assert bank.classes == (9, 6)
    assert bank.means().tolist() == [[1, 1], [3, 3]]
    assert not (bank.sums == 2).any()
    bank.add(torch.tensor([8]), torch.tensor([[7.0, 7]]))
    bank.remove(8)  # the last row, where nothing moves up
    assert not (bank.sums == 7).any()
    bank.add(torch.tensor([6, 4]), torch.tensor([[5.0, 5], [0, 4]]))
    assert bank.classes == (9, 6, 4)
    assert bank.means().tolist() == [[1, 1], [4, 4], [0, 4]]
    with pytest.raises(FscilError, match="no prototype of class 77"):
        bank.remove(77)


def test_a_bias_stays_with_its_class() -> None:
    bank = bank_of(c9=[[1, 1]])
    bank.add(torch.tensor([4, 6]), torch.ones(2, 2), 0.25)
    bank.add(torch.tensor([4, 9]), torch.ones(2, 2), 0.5)  # known classes keep theirs
    assert bank.biases().tolist() == [0, 0.25, 0.25]
    other = Prototypes(2)
    other.load_state_dict(bank.state_dict())
    other.remove(9)
    assert other.biases().tolist() == [0.25, 0.25]


def test_rescale_makes_every_prototype_longer() -> None:
    bank = bank_of(c9=[[1, 1], [3, 3]], c4=[[2, 0]])
    bank.rescale(1.5)
    assert bank.means().tolist() == [[3, 3], [3, 0]]


def test_clear_forgets_every_class() -> None:
    bank = bank_of(c9=[[1, 1]])
    bank.clear()
    assert bank.classes == ()
    assert bank.means().shape == (0, 2)
    bank.add(torch.tensor([3]), torch.tensor([[2.0, 2]]))
    assert bank.means().tolist() == [[2, 2]]


def test_state_goes_into_a_bank_of_any_size_and_learning_goes_on() -> None:
    bank = bank_of(c9=[[1, 1], [3, 3]], c4=[[2, 2]])
    state = bank.state_dict()
    assert len(state["sums"]) == 2  # no spare rows on disk
    for other in (Prototypes(2), bank_of(c1=[[0, 0]], c2=[[0, 0]], c3=[[0, 0]])):
        other.load_state_dict(state)
        assert other.classes == (9, 4)
        assert torch.equal(other.means(), bank.means())
        other.add(torch.tensor([9, 5]), torch.tensor([[5.0, 5], [7, 7]]))
        assert other.means().tolist() == [[3, 3], [2, 2], [7, 7]]
    assert bank.means().tolist() == [[2, 2], [2, 2]]  # the states share no memory
    with pytest.raises(RuntimeError, match="2 dimensions, expected 3"):
        Prototypes(3).load_state_dict(state)
    with pytest.raises(RuntimeError, match="counts"):
        Prototypes(2).load_state_dict({"sums": state["sums"], "labels": state["labels"]})


# ---- branches ------------------------------------------------------------------------------------------------------


def test_test_views_are_the_image_its_mirror_image_and_both_shifted_or_its_negative() -> None:
    x = torch.arange(9.0).view(1, 1, 3, 3)
    assert [len(test_views(x, views)) for views in ("one", "flip", "flip+shift", "negative")] == [1, 2, 6, 2]
    assert torch.equal(test_views(x, "negative")[1], -x)
    assert torch.equal(test_views(x, "flip")[1], x.flip(-1))
    centres = [view[0, 0, 1, 1].item() for view in test_views(x, "flip+shift")]
    assert centres == [4, 0, 8, 4, 0, 8]


class LeftColumn(nn.Module):
    """The two pixels at the left of 2x2 images as features."""

    dim = 2

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, :, 0]


def test_features_are_averaged_over_the_views() -> None:
    """Here (3, 0) and, mirrored, (0, 4); brought to unit length before that where asked for."""
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).expand(1, 3, 2, 2)
    for unit, expected in ((False, [1.5, 2.0]), (True, [0.5, 0.5])):
        branch = Branch("X", LeftColumn(), "euclid", views="flip", unit=unit)
        assert branch.embed(x)[0].tolist() == pytest.approx(expected)
        branch.feature_scale.fill_(4.0)
        assert branch.embed(x)[0].tolist() == pytest.approx([4 * value for value in expected])


@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_whitening_levels_the_spread_within_classes(shrinkage: float) -> None:
    """Without shrinkage the spread becomes the same in all directions, with all of it nothing changes."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(250)
    features = 5 * torch.randn(4, 2, generator=rng)[labels] + torch.randn(1000, 2, generator=rng) @ torch.tensor(
        [[2.0, 0.5], [0.0, 0.3]]
    )
    branch = Branch("X", LeftColumn(), "euclid")
    white = branch.whiten(features, labels, shrinkage)
    before, after = (within_class_variances(f, labels) for f in (features, white))
    assert before[1] / before[0] > 20
    if shrinkage == 1.0:
        torch.testing.assert_close(white, features, rtol=1e-4, atol=1e-4)
    assert (after[1] / after[0] < 1.5) == (shrinkage == 0.01)
    assert after[1] / after[0] <= before[1] / before[0] * 1.001


def test_one_image_of_each_class_whitens_nothing() -> None:
    branch, features = Branch("X", LeftColumn(), "euclid"), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert torch.equal(branch.whiten(features, torch.tensor([0, 1]), 0.5), features)
    assert torch.equal(branch.whitening, torch.eye(2))


def within_class_variances(features: Tensor, labels: Tensor) -> Tensor:
    """Variances along the principal directions, ascending."""
    rest = torch.cat([features[labels == label] - features[labels == label].mean(0) for label in range(4)])
    return torch.linalg.eigvalsh(rest.T @ rest / len(rest))


# ---- Muon ----------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=st.integers(0, 999), rows=st.integers(2, 20), columns=st.integers(2, 60))
def test_orthogonalise_pushes_singular_values_towards_one(seed: int, rows: int, columns: int) -> None:
    """Directions stay, and with enough steps every singular value that is not tiny lands near one."""
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    U, S, Vh = torch.linalg.svd(matrix, full_matrices=False)
    matrix = U @ torch.diag(S.clamp(min=0.1 * float(S[0]))) @ Vh
    result = orthogonalise(1000 * matrix, steps=5)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    core = U.T @ result @ Vh.T
    assert (core - torch.diag(core.diagonal())).abs().max() < 0.02


def test_three_steps_already_level_the_singular_values() -> None:
    matrix = torch.diag(torch.tensor([1.0, 0.5, 0.2]))
    values = torch.linalg.svdvals(orthogonalise(matrix))
    assert values.max() / values.min() < 2


def test_orthogonalising_in_bfloat16_comes_as_close() -> None:
    matrix = torch.randn(32, 90, generator=torch.Generator().manual_seed(0))
    exact, coarse = orthogonalise(matrix), orthogonalise(matrix, precision=torch.bfloat16)
    assert coarse.dtype == torch.float32
    assert 0 < (coarse - exact).norm() < 0.05 * exact.norm()


def test_muon_takes_the_convolutions_and_sgd_the_rest() -> None:
    shapes = {
        (8, 4, 3, 3): True,
        (8, 4, 1, 1): False,
        (8, 3, 3, 3): False,
        (8, 1, 3, 3): False,
        (5, 8): False,
        (8,): False,
    }
    for shape, muon in shapes.items():
        assert is_kernel(torch.zeros(shape)) is muon


def test_muon_step_is_an_orthogonal_step_from_a_weight_of_fixed_norm() -> None:
    kernel = nn.Parameter(torch.randn(6, 5, 3, 3, generator=torch.Generator().manual_seed(0)))
    optimiser = Muon(
        [kernel], lr=0.1, rest_lr=0.0, momentum=0.0, rest_momentum=0.0, weight_decay=0.0, precision=torch.float32
    )
    start = kernel.detach() * 6**0.5 / kernel.detach().norm()
    kernel.grad = torch.randn(kernel.shape, generator=torch.Generator().manual_seed(1))
    optimiser.step()
    expected = start - 0.1 * orthogonalise(kernel.grad.flatten(1)).view_as(kernel)
    torch.testing.assert_close(kernel.detach(), expected)


def test_muon_with_rate_0_moves_nothing_but_keeps_norms_in_a_step_of_rate_0() -> None:
    """The first step of a warm-up has rate 0 too; there a kernel gets its norm, as ever."""
    moved = []
    for lr in (0.0, 0.1):
        kernel = nn.Parameter(torch.randn(6, 5, 3, 3, generator=torch.Generator().manual_seed(0)))
        start = kernel.detach().clone()
        optimiser = Muon(
            [kernel], lr=lr, rest_lr=0.0, momentum=0.6, rest_momentum=0.0, weight_decay=0.0, precision=torch.float32
        )
        optimiser.param_groups[0]["lr"] = 0.0
        kernel.grad = torch.ones_like(kernel)
        optimiser.step()
        moved.append(not torch.equal(start, kernel.detach()))
    assert moved == [False, True]


def test_the_rest_follows_sgd_with_nesterov_momentum() -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0, 0.5])) for _ in range(2))
    muon = Muon(
        [ours], lr=9.0, rest_lr=0.1, momentum=0.0, rest_momentum=0.85, weight_decay=0.01, precision=torch.float32
    )
    sgd = torch.optim.SGD([theirs], lr=0.1, momentum=0.85, weight_decay=0.01, nesterov=True)
    for optimiser, parameter in ((muon, ours), (sgd, theirs)):
        for _ in range(4):
            optimiser.zero_grad()
            parameter.square().sum().backward()
            optimiser.step()
    torch.testing.assert_close(ours, theirs)


def test_muon_lowers_the_loss() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 4, 6, 6, generator=rng), torch.arange(40) % 4
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))
    optimiser = Muon(
        net.parameters(),
        lr=0.1,
        rest_lr=0.05,
        momentum=0.6,
        rest_momentum=0.85,
        weight_decay=0.0,
        precision=torch.float32,
    )
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
