"""Grad-CAM shows what speaks for a class, not what an image adds to its relations to all classes."""

import pytest
import torch
from torch import nn

from fscil.nn.branches import Branch, Views
from fscil.nn.encoders import Encoder
from fscil.nn.gradcam import heat
from fscil.nn.relations import Relation

pytest.importorskip("pytorch_grad_cam", reason="Grad-CAM needs the extra fscil[explain]")


def branch_of_colours(relation: Relation, views: Views = "one") -> Branch:
    """A branch that sees the mean colour of an image, with the classes red (0), green (1) and blue (2)."""
    same = nn.Conv2d(3, 3, 1, bias=False)
    same.weight.data = torch.eye(3)[:, :, None, None]
    branch = Branch("B", Encoder(nn.Sequential(same), 3, 8), relation, views).eval()
    branch.prototypes.add(torch.arange(3), torch.eye(3))
    return branch


@pytest.mark.parametrize("relation", ["cosine", "euclid"])
@pytest.mark.parametrize("brightness", [1.0, 8.0])  # a bright image is far from every class
def test_each_class_is_seen_where_its_colour_is(relation: Relation, brightness: float) -> None:
    image = torch.zeros(1, 3, 8, 8)
    image[:, 0, :, :4] = brightness  # red on the left
    image[:, 1, :, 4:] = 2 * brightness  # a brighter green on the right
    branch = branch_of_colours(relation)
    red, green = heat([branch], image, 0), heat([branch], image, 1)
    assert red[:, :4].mean() > 0.5 > 0.1 > red[:, 4:].mean()
    assert green[:, 4:].mean() > 0.5 > 0.1 > green[:, :4].mean()


@pytest.mark.parametrize("views", ["one", "flip", "negative"])
@pytest.mark.parametrize("shared", [True, False])
def test_the_map_of_a_sum_is_that_of_all_its_branches(shared: bool, views: Views) -> None:
    """Each encoder counts once, with the image as it is, whatever it sees beside it and for how many branches."""
    image = torch.zeros(1, 3, 8, 8)
    image[:, 0, :4, :4] = 1.0  # red above on the left
    image[:, 1, 4:, :4] = 2.0  # green below it; nothing on the right
    first, second = branch_of_colours("cosine", views), branch_of_colours("cosine", views)
    second.weight.fill_(5.0)
    second.prototypes.clear()
    second.prototypes.add(torch.arange(3), torch.eye(3)[[1, 0, 2]])  # what is called red is green
    if shared:
        second.encoder = first.encoder
    both = heat([first, second], image, 0)
    assert heat([first], image, 0)[:4, :4].mean() > 0.9
    assert both[4:, :4].mean() > 0.9
    assert both[:, 4:].mean() < 0.1
    red = both[:4, :4].mean()  # of several encoders Grad-CAM brings the map of each to the same height
    assert red < 0.1 if shared else red > 0.9
