"""What the shared base session may do beside cross-entropy on upright images."""

import pytest
import torch
from torch import Tensor

from fscil import methods
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import cosine
from fscil.methods.shared import base
from fscil.methods.shared.base import fit_cosine_classifier, turned
from fscil.running.training import Run
from fscil.settings import resolve
from quick import LEARNS, OWN
from tiny import tiny_encoder

TURNED = {"base.turned": 0.5}


def untrained(**changes: object) -> cosine.Method:
    config = resolve(cosine.Config, "cosine", "tiny", "paper", {**LEARNS, "base.epochs": 2, **changes})
    return cosine.Method(config, tiny_encoder().to(memory_format=torch.channels_last))


def counted(method: cosine.Method, tiny: Benchmark, run: Run) -> int:
    with run.learning(0) as cost:
        method.learn_base(tiny.base(), run)
    return cost.macs


def planned(method: cosine.Method, tiny: Benchmark) -> int:
    return sum((3 * row.trained + row.encoded) * method.encoder.macs(row.pixels) for row in method.plan(tiny.base()))


def test_the_last_images_of_a_batch_are_turned_and_each_turn_has_rows_of_its_own() -> None:
    corner = torch.zeros(10, 3, 4, 4).to(memory_format=torch.channels_last)
    corner[:, :, 0, 1] = torch.arange(1.0, 11)[:, None]
    rows = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    images, labels = turned(corner, rows, 0.6, classes=5)
    assert labels.tolist() == [0, 1, 2, 3, 5 + 4, 5 + 0, 10 + 1, 10 + 2, 15 + 3, 15 + 4]
    places = [(0, 1)] * 4 + [(2, 0)] * 2 + [(3, 2)] * 2 + [(1, 3)] * 2  # against the clock, from the top
    for number, (image, place) in enumerate(zip(images, places, strict=True), 1):
        assert [tuple(p) for p in image[0].nonzero().tolist()] == [place]
        assert image[(0, *place)] == number
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_without_turned_a_batch_is_what_it_was() -> None:
    images, rows = torch.zeros(4, 3, 2, 2), torch.arange(4)
    assert turned(images, rows, 0.0, 4) == (images, rows)


def test_callers_get_the_rows_of_upright_classes_and_pay_nothing(tiny: Benchmark, run: Run, monkeypatch) -> None:
    seen: list[Tensor] = []
    plain = base.cross_entropy
    monkeypatch.setattr(base, "cross_entropy", lambda logits, rows, t: (seen.append(rows), plain(logits, rows, t))[1])
    method = untrained(**TURNED)
    with run.learning(0) as cost:
        learned = fit_cosine_classifier(method, method.encoder, tiny.base(), run)
    classes = len(tiny.base().classes)
    assert learned.shape == (classes, method.encoder.dim)
    assert {int(row) // classes for rows in seen for row in rows} == {0, 1, 2, 3}
    assert cost.macs == 3 * 2 * len(tiny.base().train) * method.encoder.macs(16)


def test_the_plan_of_two_nets_with_rotation_classes_is_kept(tiny: Benchmark, run: Run) -> None:
    two = untrained(**TURNED, nets=2)
    assert counted(two, tiny, run) == planned(two, tiny)
    assert not torch.equal(*(branch.prototypes.means() for branch in two.branches))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in ("eeil", "f2m", "fact", "finetune", "icarl", "mcnet", "softnet", "topic")),
        ("cosine", {"head": "linear"}),
        ("c_fscil", {"pretrain": "linear"}),
        ("ncm", {"base_session": "lucir"}),
        ("ncm", {"base_session": "shared", "reduction.on": True}),
        ("sppr", {"pretrain": False}),
    ],
)
def test_a_base_session_without_rows_for_turned_images_refuses_them(name: str, changes: dict[str, object]) -> None:
    given = {**LEARNS, **OWN.get(name, {}), **changes}
    resolve(methods.load(name).Config, name, "tiny", "paper", given)
    with pytest.raises(FscilError, match=r"--base\.turned 0"):
        resolve(methods.load(name).Config, name, "tiny", "paper", {**given, **TURNED})


@pytest.mark.parametrize(("name", "stage"), [("joint", "new"), ("sppr", "transfer"), ("eeil", "balanced")])
def test_later_stages_refuse_turned_images(name: str, stage: str) -> None:
    with pytest.raises(FscilError, match=rf"--{stage}\.turned 0"):
        resolve(methods.load(name).Config, name, "tiny", "paper", {**LEARNS, f"{stage}.turned": 0.5})
