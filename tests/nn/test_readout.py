"""The kept classifier part gives the scores of the branches, whatever was taught, forgotten or restored meanwhile."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.nn.branches import Branch, embed_shared, fused_scores
from fscil.nn.readout import MANY, Readout
from fscil.teach.knowledge.backbones import Features, pair

DIM = 5
changes = st.lists(st.tuples(st.sampled_from(["add", "remove", "put", "ask"]), st.integers(0, 6)), max_size=14)


def branches(unit: bool, plain: bool) -> list[Branch]:
    made = pair(Features(DIM), "one", unit)
    rng = torch.Generator().manual_seed(3)
    made[1].feature_scale.fill_(2.5)
    made[1].weight.fill_(0.7)
    made[1].whitening.copy_(torch.eye(DIM) + 0.2 * torch.randn(DIM, DIM, generator=rng))
    if not plain:
        made[0].whitening.mul_(3)
    return made


@pytest.mark.parametrize(("unit", "plain"), [(True, True), (False, True), (True, False)])
@settings(max_examples=25)
@given(steps=changes)
def test_kept_scores_are_the_branches_scores(unit: bool, plain: bool, steps: list[tuple[str, int]]) -> None:
    made, rng = branches(unit, plain), torch.Generator().manual_seed(0)
    readout, taken = Readout(made), {}
    images = torch.randn(4, DIM, generator=rng)
    for what, label in [("add", 2), *steps, ("ask", 0)]:
        known = label in made[0].prototypes.classes
        if what == "add":
            for branch, f in zip(made, embed_shared(made, torch.randn(2, DIM, generator=rng)), strict=True):
                branch.prototypes.add(torch.tensor([label, label]), f, bias=0.1 * label)
            readout.changed([label])
        elif what == "remove" and known:
            taken[label] = [branch.prototypes.take(label) for branch in made]
            for branch in made:
                branch.prototypes.remove(label)
            readout.changed([label])
        elif what == "put" and label in taken:
            for branch, row in zip(made, taken[label], strict=True):
                branch.prototypes.put(label, row)
            readout.changed([label])
        elif what == "ask" and made[0].prototypes.classes:
            features = embed_shared(made, images)
            expected = fused_scores(made, features)
            torch.testing.assert_close(readout.scores(features), expected, rtol=1e-4, atol=1e-5)
            separate = sum(branch(images) for branch in made)
            torch.testing.assert_close(expected, separate, rtol=1e-4, atol=1e-5)


def test_one_unit_feature_needs_one_product_of_its_length() -> None:
    for unit, plain, length in ((True, True, DIM), (False, True, 2 * DIM), (True, False, 2 * DIM)):
        made = branches(unit, plain)
        for branch, f in zip(made, embed_shared(made, torch.ones(2, DIM)), strict=True):
            branch.prototypes.add(torch.tensor([0, 1]), f)
        assert Readout(made)._form_of(torch.tensor([0, 1])).keys.shape == (2, length)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_question_to_many_classes_is_shared_out_among_threads(threads: int) -> None:
    made, rng, before = branches(True, True), torch.Generator().manual_seed(1), torch.get_num_threads()
    labels = torch.arange(MANY * 3 + 7)
    for branch, f in zip(made, embed_shared(made, torch.randn(len(labels), DIM, generator=rng)), strict=True):
        branch.prototypes.add(labels, f)
    readout, features = Readout(made), embed_shared(made, torch.randn(2, DIM, generator=rng))
    together = readout.scores(features)
    torch.set_num_threads(threads)
    try:
        alone = torch.cat([readout.scores([f[i : i + 1] for f in features]) for i in range(2)])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)
