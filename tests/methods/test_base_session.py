"""What the shared base session may do beside cross-entropy on upright images."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fscil import methods
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import cosine, kt_rcnet
from fscil.methods.shared import base
from fscil.methods.shared.base import Net, Teacher, fit_cosine_classifier, turned
from fscil.nn import encoders
from fscil.nn.heads import CosineHead
from fscil.running.training import Run
from fscil.settings import resolve
from quick import LEARNS, OWN
from tiny import tiny_encoder
from untrained import untrained as of_name

TURNED = {"base.turned": 0.5}


def untrained(**changes: object) -> cosine.Method:
    config = resolve(cosine.Config, "cosine", "tiny", "paper", {**LEARNS, "base.epochs": 2, **changes})
    return cosine.Method(config, tiny_encoder().to(memory_format=torch.channels_last))


def counted(method: cosine.Method | kt_rcnet.Method, tiny: Benchmark, run: Run) -> int:
    with run.learning(0) as cost:
        method.learn_base(tiny.base(), run)
    return cost.macs


def planned(method: cosine.Method | kt_rcnet.Method, tiny: Benchmark) -> int:
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


def nets_of(method: cosine.Method | kt_rcnet.Method) -> list[dict[str, Tensor]]:
    return [branch.encoder.state_dict() for branch in method.branches]


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_loss_of_a_taught_net_by_hand(tiny: Benchmark) -> None:
    net = Net(tiny_encoder(), CosineHead(16, 3, 4.0, torch.Generator().manual_seed(0))).eval()
    images, logits = torch.randn(5, 3, 16, 16), torch.randn(5, 3, requires_grad=True)
    loss = Teacher(net, 0.25).mixed(torch.tensor(2.0), logits, images)
    with torch.no_grad():
        f = F.normalize(net.encoder(images), dim=1)
        told = (4.0 * f @ F.normalize(net.head.weight, dim=1).T / 2).softmax(1)
    divergence = (told * (told.log() - (logits / 2).log_softmax(1))).sum(1).mean()
    torch.testing.assert_close(loss, 0.75 * 2.0 + 0.25 * 4 * divergence)
    loss.backward()
    assert logits.grad is not None
    assert all(p.grad is None for p in net.parameters())


def test_a_second_net_is_taught_by_the_first_which_stands_still(
    tiny: Benchmark, new_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    teachers: list[tuple[bool, bool]] = []
    mixed = Teacher.mixed

    def watched(teacher: Teacher, *rest: Tensor) -> Tensor:
        modules, parameters = teacher.net.modules(), teacher.net.parameters()
        teachers.append((any(m.training for m in modules), any(p.requires_grad for p in parameters)))
        return mixed(teacher, *rest)

    monkeypatch.setattr(Teacher, "mixed", watched)
    taught, run = untrained(nets=2, distil=0.5, **TURNED), new_run()
    assert counted(taught, tiny, run) == planned(taught, tiny)
    encoded = planned(taught, tiny) - planned(untrained(nets=2), tiny)
    assert encoded == 2 * len(tiny.base().train) * taught.encoder.macs(16)
    assert set(teachers) == {(False, False)}
    files = set(run.cache.iterdir())
    changes = {**LEARNS, **TURNED, "base.epochs": 2, "start": "own", "distil": 0.5, "complement": "tied"}
    config = resolve(kt_rcnet.Config, "kt_rcnet", "tiny", "paper", changes)
    pair = kt_rcnet.Method(config, tiny_encoder().to(memory_format=torch.channels_last))
    assert counted(pair, tiny, new_run()) == planned(pair, tiny)
    assert set(run.cache.iterdir()) == files  # both nets were there
    assert all(equal(mine, its) for mine, its in zip(nets_of(taught), nets_of(pair), strict=True))


def test_distil_changes_the_second_net_alone(tiny: Benchmark, new_run: Callable[[], Run]) -> None:
    plain, half, quarter = (untrained(nets=2, distil=share) for share in (0.0, 0.5, 0.25))
    for method in (plain, half, quarter):
        method.learn_base(tiny.base(), new_run())
    assert equal(nets_of(plain)[0], nets_of(half)[0])
    assert not equal(nets_of(plain)[1], nets_of(half)[1])
    assert not equal(nets_of(half)[1], nets_of(quarter)[1])


def test_without_a_teacher_the_second_net_is_what_it_was(tiny: Benchmark, silent: Run) -> None:
    """Trained by plain cross-entropy, written down here."""
    plain, by_hand = untrained(nets=2), untrained(nets=2)
    plain.learn_base(tiny.base(), silent)
    base_images, encoder, training = tiny.base(), by_hand.branches[1].encoder, by_hand.config.base
    base.another_start(by_hand, encoder, silent)
    net = Net(encoder, CosineHead(16, len(base_images.classes), by_hand.config.scale, silent.rng("head of f2"))).train()
    for epoch in silent.epochs(base.OWN_BASE, net, net, training, -(-len(base_images.train) // training.batch)):
        for x, y in epoch.batches(base_images.train, by_hand.train_framing(base_images), training.batch):
            epoch.step(base.cross_entropy(net(x), y, training))
    assert equal(nets_of(plain)[1], encoder.state_dict())


@pytest.mark.parametrize(("name", "repair"), [("cosine", "--nets 2"), ("kt_rcnet", "--start own")])
def test_without_a_second_base_session_distil_is_refused(name: str, repair: str) -> None:
    with pytest.raises(FscilError, match=repair):
        resolve(methods.load(name).Config, name, "tiny", "paper", {"distil": 0.5})


@pytest.mark.parametrize(
    ("name", "changes"),
    [("fact", {}), ("f2m", {}), ("sppr", {"pretrain": False}), ("joint", {"restart": True}), ("cosine", {})],
)
def test_an_encoder_that_was_given_weights_keeps_its_first_layer(
    tiny: Benchmark, silent: Run, name: str, changes: dict[str, object]
) -> None:
    net = encoders.build("fast", 16)
    (stem,) = net.stems
    before = stem.filters.clone()
    method = of_name(name, net, **{"base.epochs": 0, **changes})
    method.config = replace(method.config, weights="net.safetensors")
    sessions = list(tiny.sessions())
    with silent.learning(0):
        method.learn_base(sessions[0], silent)
    assert torch.equal(stem.filters, before)
