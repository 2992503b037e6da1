"""Whitening: what differs within classes counts less, as far as the classes agree about it."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fscil.nn.branches import Branch
from fscil.nn.encoders import Encoder
from fscil.nn.whitening import spread, whitening


def clusters(classes: int, images: int, dim: int = 12, own: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features that differ within classes along the first four directions; `own`: how far each class has its own."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(images)
    stretch = torch.ones(classes, dim)
    stretch[:, :4] = 5.0
    stretch = torch.stack([row[torch.randperm(dim, generator=rng)] if own else row for row in stretch])
    centres = torch.randn(classes, dim, generator=rng)
    return centres[labels] + stretch[labels] * torch.randn(len(labels), dim, generator=rng), labels


def test_the_shrinkage_is_that_of_ledoit_and_wolf_where_classes_are_alike() -> None:
    from sklearn.covariance import ledoit_wolf_shrinkage

    features, labels = clusters(60, 30)
    rest = features - torch.stack([features[labels == c].mean(0) for c in range(60)])[labels]
    expected = ledoit_wolf_shrinkage(rest.numpy(), assume_centered=True)
    assert spread(features, labels).shrinkage ** 3 == pytest.approx(float(expected), rel=0.25)


@pytest.mark.parametrize("images", [5, 12, 40])
def test_the_shrinkage_is_that_of_the_classes_covariances(images: int) -> None:
    """Whichever of the two products of a class is smaller; it has twelve dimensions."""
    features, labels = clusters(60, images)
    covariances = torch.stack([features[labels == c].double().T.cov(correction=0) for c in range(60)])
    S = covariances.mean(0)
    error = (covariances - S).square().sum() / 60**2
    distance = (S - S.trace() / 12 * torch.eye(12)).square().sum()
    assert spread(features, labels).shrinkage ** 3 == pytest.approx(float(error / distance) * 60 / 59, rel=1e-5)


def test_no_product_is_larger_than_the_features() -> None:
    class Largest(TorchDispatchMode):
        values = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            self.values = max(self.values, made.numel() if isinstance(made, Tensor) else 0)
            return made

    features, labels = clusters(2, 500)
    with Largest() as seen:
        spread(features, labels)
    assert seen.values == features.numel()


def test_nothing_is_asked_of_the_data_where_a_shrinkage_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clusters(6, 10)
    expected = whitening(spread(features, labels), 0.3)
    monkeypatch.setattr("fscil.nn.whitening._shrinkage", None)
    branch = Branch("B", Encoder(nn.Sequential(), 12, 0, nn.Identity()), "cosine", unit_means=True)
    branch.whiten(features, labels, 0.3)
    assert torch.equal(branch.whitening, expected.matrix)
    assert torch.equal(branch.centre, expected.centre)


def test_classes_that_disagree_ask_for_more_shrinkage() -> None:
    alike, unlike = (spread(*clusters(20, 40, own=own)).shrinkage for own in (0.0, 1.0))
    assert alike < 0.4
    assert unlike > 1.5 * alike


def test_more_classes_ask_for_less_shrinkage() -> None:
    few, some, many = (spread(*clusters(classes, 8)).shrinkage for classes in (2, 8, 64))
    assert 1 >= few > some > many > 0


@pytest.mark.parametrize(("classes", "images"), [(1, 20), (9, 1)])
def test_one_class_or_one_image_of_each_is_plain_cosine(classes: int, images: int) -> None:
    features, labels = clusters(classes, images)
    branch = Branch("B", Encoder(nn.Sequential(), 12, 0, nn.Identity()), "cosine", unit_means=True)
    assert spread(features, labels).shrinkage == 1
    assert torch.equal(branch.whiten(features, labels), F.normalize(features, dim=1))


def test_what_is_fitted_changes_without_a_step() -> None:
    features, labels = clusters(6, 10)
    found = spread(features, labels)
    plain, nearly = whitening(found, 1.0), whitening(found, 1 - 1e-6)
    torch.testing.assert_close(plain.matrix, nearly.matrix, atol=1e-4, rtol=0)
    certain = [spread(*clusters(classes, 5)).centre.norm() / 0.96 for classes in (1, 2, 4)]
    whole = [clusters(classes, 5)[0].mean(0).norm() for classes in (1, 2, 4)]
    shares = [float(a / b) for a, b in zip(certain, whole, strict=True)]
    assert shares == pytest.approx([0, 1 - 1 / 4, 1 - 1 / 16], rel=1e-4)


def test_few_images_and_many_have_the_same_spread() -> None:
    """Fewer images than dimensions are decomposed in another way."""
    features, labels = clusters(4, 2)
    found, twice = spread(features, labels), spread(features.repeat(3, 1), labels.repeat(3))
    assert len(found.variances) < len(twice.variances) == 12
    for a, b in zip(whitening(found, 0.4)[:2], whitening(twice, 0.4)[:2], strict=True):
        torch.testing.assert_close(a / a.norm(), b / b.norm(), atol=1e-4, rtol=0)


def test_unit_means_are_means_of_features_of_length_one() -> None:
    features, labels = clusters(6, 10)
    branch = Branch("B", Encoder(nn.Sequential(), 12, 0, nn.Identity()), "cosine", unit_means=True)
    white = branch.whiten(features, labels, 0.3)
    torch.testing.assert_close(white.norm(dim=1), torch.ones(60))
    centre = (1 - 1 / 36) * (1 - 1 / 100) * torch.stack([features[labels == c].mean(0) for c in range(6)]).mean(0)
    torch.testing.assert_close(branch.centre, centre)
    torch.testing.assert_close(white, F.normalize((features - centre) @ branch.whitening, dim=1))


def test_states_of_before_there_was_a_centre_are_loaded() -> None:
    branch = Branch("B", Encoder(nn.Sequential(), 12, 0, nn.Identity()), "cosine")
    state = {name: value for name, value in branch.state_dict().items() if name != "centre"}
    branch.load_state_dict(state)
    assert not branch.centre.any()


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (11, 2)])
def test_any_matrix_but_the_identity_whitens(row: int, column: int) -> None:
    branch = Branch("B", Encoder(nn.Sequential(), 12, 0, nn.Identity()), "cosine")
    assert not branch.whitens
    branch.whitening[row, column] += 0.5
    assert branch.whitens
