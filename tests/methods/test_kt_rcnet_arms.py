"""KT-RCNet's settings beyond the paper: what is trained of f2, the controls of RESA, and the read-out of C."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import _kt_rcnet_arms, _kt_rcnet_fitted, _kt_rcnet_students, _kt_rcnet_twins, cosine, kt_rcnet
from fscil.methods.kt_rcnet import Conventional
from fscil.methods.shared import balance, resa
from fscil.methods.shared.resa import Cached
from fscil.nn import encoders
from fscil.nn.relations import euclid, mean_of_labels
from fscil.running.descent import Descent
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run
from tiny import tiny_encoder
from tiny_kt_rcnet import TINY_RESA

CONFIG = replace(TINY_RESA, tasks=3, held_out=6)
ARMS = ("resa", "conventional", "means", "rotation")
TASKS = Conventional(batches="tasks")


def untrained(**settings: object) -> kt_rcnet.Method:
    return kt_rcnet.Method(replace(CONFIG, **settings), tiny_encoder())


@pytest.fixture(scope="module")
def base(tiny: Benchmark) -> Session:
    return tiny.base(CONFIG.held_out)


@pytest.fixture
def learned(base: Session, new_run: Callable[[], Run]) -> Callable[..., kt_rcnet.Method]:
    def learn(**settings: object) -> kt_rcnet.Method:
        method = untrained(**settings)
        method.learn_base(base, new_run())
        return method

    return learn


def shown(base: Session, method: kt_rcnet.Method, pixels: int | None = None) -> Tensor:
    """All base images under the test framing."""
    return next(base.train.batches([torch.arange(len(base.train))], method.test_framing(base, pixels)))


@torch.no_grad()
def means_of_C(method: kt_rcnet.Method, base: Session, pixels: int | None = None) -> Tensor:
    f = method.eval().branches[1].embed(shown(base, method, pixels))
    return mean_of_labels(f, base.train.labels)[1]


# ---- the size of the tasks -------------------------------------------------------------------------------------------


def test_inside_resa_rows_have_the_size_of_the_tasks(
    learned: Callable[..., kt_rcnet.Method], base: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the resolution tells queries of 12 px from pseudo-old rows of 16 px."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    plain = kt_rcnet.Method.loss

    def looking(method: kt_rcnet.Method, task: object) -> Tensor:
        if not seen:
            with torch.no_grad():
                x = shown(base, method, 12)
                expected = (
                    mean_of_labels(f(x), base.train.labels)[1]
                    for f in (deepcopy(method.f1), deepcopy(method.f2).eval())
                )
                seen.append((method.W1.means() - next(expected), method.W2.means() - next(expected), method.W2.means()))
        return plain(method, task)

    monkeypatch.setattr(kt_rcnet.Method, "loss", looking)
    method = learned(task_pixels=12)
    [(W1_error, W2_error, W2)] = seen
    assert W1_error.abs().max() < 1e-5
    assert W2_error.abs().max() < 1e-5
    torch.testing.assert_close(method.W2.means(), means_of_C(method, base), rtol=1e-5, atol=1e-5)  # inference: 16 px
    assert not torch.allclose(W2, means_of_C(learned(complement="tied"), base), atol=1e-3)


# ---- what is trained of f2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
def test_the_last_stage_alone_moves(learned: Callable[..., kt_rcnet.Method], arm: str) -> None:
    method = learned(complement=arm, trains="last_stage")
    first, last = (
        {
            name: torch.equal(value, method.f1.state_dict()[name])
            for name, value in method.f2.state_dict().items()
            if name.startswith(f"stages.{i}")
        }
        for i in (0, 1)
    )
    assert all(first.values())
    assert not any(last[name] for name in last if name.endswith("weight"))
    assert not any(p.requires_grad for p in method.parameters())


@pytest.mark.parametrize("arm", ARMS)
def test_a_map_leaves_the_encoder_alone_and_predicts_through_its_branch(
    learned: Callable[..., kt_rcnet.Method], base: Session, arm: str
) -> None:
    method = learned(complement=arm, trains="map", tasks=10, feature_scale=0.0)
    assert all(torch.equal(value, method.f1.state_dict()[name]) for name, value in method.f2.state_dict().items())
    A = method.branches[1].whitening
    assert not torch.allclose(A, torch.eye(16), atol=1e-3)
    torch.testing.assert_close(method.W2.means(), means_of_C(method, base), rtol=1e-4, atol=1e-5)


def test_a_map_lowers_the_loss_of_tasks(base: Session, new_run: Callable[[], Run]) -> None:
    """Of RESA, on tasks it has not seen, against the identity it began with."""
    run = new_run()
    method = untrained(trains="map", tasks=60, feature_dropout=0.0, transfer=Descent(epochs=1, lr=0.1))
    method.weight_computing(method.branches[1], base, run)
    method.multiply_features(16.0)
    student = _kt_rcnet_students.Mapped(method, base, run)
    _kt_rcnet_arms.resa(student)
    rng = torch.Generator().manual_seed(1)
    pool = resa.pool_of(student.cached.rows, 5)
    tasks = [resa.sample(student.cached, 1.0, pool, student.sampling, 0.0, rng) for _ in range(20)]
    losses = [
        sum(float(resa.map_loss(task, A, student.means, method.config.objective)) for task in tasks)
        for A in (student.map.A.detach(), torch.eye(16))
    ]
    assert losses[0] < 0.98 * losses[1]


def test_a_map_of_the_control_of_means_does_not_ruin_what_features_have_in_common(
    base: Session, new_run: Callable[[], Run]
) -> None:
    """Distances to class means do not see it; without the gradient of the means the map would be pulled by it."""
    descent = Descent(epochs=1, optimizer="adamw", lr=0.01, weight_decay=0.0)
    method, run = (
        untrained(trains="map", complement="means", tasks=60, feature_dropout=0.0, transfer=descent),
        new_run(),
    )
    method.weight_computing(method.branches[1], base, run)
    student = _kt_rcnet_students.Mapped(method, base, run)
    rng, rows = torch.Generator().manual_seed(0), student.cached.rows
    classes, noise = torch.randn(6, 16, generator=rng), torch.randn(len(rows), 16, generator=rng)
    f = 10 + classes[rows] + noise
    student.cached, student.means = Cached(f, None, rows), mean_of_labels(f, rows)[1]
    _kt_rcnet_arms.against_means(student, turned=False)
    losses = [
        float(F.cross_entropy(method.config.scale * euclid(f @ A, student.means @ A), rows))
        for A in (student.map.A.detach(), torch.eye(16))
    ]
    assert losses[0] < 0.8 * losses[1]


@pytest.mark.parametrize("turned", [True, False])
def test_the_shares_of_devices_are_a_whole_batch_of_a_map(
    base: Session, new_run: Callable[[], Run], turned: bool
) -> None:
    """A turned batch of odd size is cut in two by its rows, which are twice its images."""
    method, run = untrained(trains="map", complement="rotation", way=3, tasks=1), new_run()
    method.weight_computing(method.branches[1], base, run)
    student = _kt_rcnet_students.Mapped(method, base, run)
    epoch = SimpleNamespace(start=0, rng=lambda purpose, step: torch.Generator().manual_seed(len(purpose)))

    def mean(rank: int, world: int) -> tuple[int, float]:
        """Size of a share, and its weighted mean of something in which images differ."""
        student.run = SimpleNamespace(rank=rank, world=world)
        (batch,) = student.batches(epoch, turned)
        return len(batch.rows), float(batch.weight * batch.features.detach().norm(dim=1).mean())

    whole, shares = mean(0, 1), [mean(rank, 4) for rank in range(4)]
    assert sum(count for count, _ in shares) == whole[0] == 30
    assert len({count for count, _ in shares}) == 2
    assert sum(value for _, value in shares) / 4 == pytest.approx(whole[1], rel=1e-5)


@pytest.mark.parametrize("synthesis", ["rotate", "mixup", "cutmix"])
def test_a_map_draws_twins_from_three_kinds(
    learned: Callable[..., kt_rcnet.Method], base: Session, new_run: Callable[[], Run], synthesis: str
) -> None:
    method = untrained(trains="map", synthesis=synthesis)
    method.weight_computing(method.branches[1], base, new_run())
    twins = _kt_rcnet_twins.twin_features(method, base, new_run(), method.test_framing(base))
    assert twins.shape == (len(base.train), 3, 16)
    assert len({tuple(kind.tolist()) for kind in twins[0]}) == 3
    if synthesis == "rotate":
        x = shown(base, method)[:4]
        with torch.no_grad():
            torch.testing.assert_close(twins[:4, 1], method.represent(x.rot90(2, (-2, -1))), rtol=1e-4, atol=1e-5)


def test_partners_are_of_another_class_or_of_the_same() -> None:
    labels = torch.arange(4).repeat_interleave(3)
    rng = torch.Generator().manual_seed(0)
    other, same = (_kt_rcnet_twins.partners_of(labels, inter, rng) for inter in (True, False))
    assert not bool((labels[other] == labels).any())
    assert torch.equal(labels[same], labels)
    assert not bool((same == torch.arange(12)).any())


def test_an_encoder_of_one_piece_has_no_last_stage(tiny: Benchmark) -> None:
    encoder = tiny_encoder()
    encoder.stages = torch.nn.Sequential(encoder.stages)
    with pytest.raises(FscilError, match="--trains encoder"):
        kt_rcnet.Method(replace(CONFIG, trains="last_stage"), encoder).check(tiny)


# ---- controls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trains", ["encoder", "last_stage", "map"])
@pytest.mark.parametrize("arm", ["resa", "conventional", "means", "rotation", "tied"])
@pytest.mark.parametrize(
    "extras",
    [
        {},
        {
            "whiten_first": True,
            "shrinkage": 0.5,
            "views": "flip",
            "statistics": "upright",
            "feature_scale": 0.0,
            "refit_scale": True,
            "complement_weight": 0.0,
            "task_pixels": 12,
            "row_images": 7,
            "stop_after": 1,
        },
    ],
)
def test_the_plan_is_what_is_computed(tmp_path: Path, base: Session, trains: str, arm: str, extras: dict) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open({"format": 1})
    run = Run(folder, 0, tmp_path / "cache")
    method = untrained(complement=arm, trains=trains, conventional=TASKS, **extras)
    with run.learning(0) as cost:
        method.learn_base(base, run)
    macs = {p: method.f1.macs(p) for p in (12, 16)}
    planned = sum((3 * row.trained + row.encoded) * macs[row.pixels] for row in method.plan(base))
    assert planned == cost.macs


@pytest.mark.parametrize("arm", ["conventional", "means", "rotation"])
def test_controls_show_as_many_images_in_as_many_steps(base: Session, new_run: Callable[[], Run], arm: str) -> None:
    costs = []
    for complement in ("resa", arm):
        run = new_run()
        untrained(complement=complement, conventional=TASKS).learn_base(base, run)
        costs.append((run.stages[-1].steps, run.stages[-1].images))
    assert costs[0] == costs[1]


def test_the_control_of_means_is_cross_entropy_to_exact_class_means(
    base: Session, new_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    plain = F.cross_entropy

    def looking(logits: Tensor, y: Tensor, **rest: object) -> Tensor:
        seen.append((logits.detach(), y))
        return plain(logits, y, **rest)

    method, run = untrained(complement="means"), new_run()
    method.start_f2(base, run)
    W = means_of_C(method, base)
    method.weight_computing(method.branches[1], base, run)
    student = _kt_rcnet_students.Encoded(method, base, run)
    batches = []
    student_batches = student.batches
    monkeypatch.setattr(student, "batches", lambda *a: (batches.append(b) or b for b in student_batches(*a)))
    monkeypatch.setattr(_kt_rcnet_arms.F, "cross_entropy", looking)
    _kt_rcnet_arms.against_means(student, turned=False)
    logits, y = seen[0]
    assert logits.shape == (2 * 4 * 5, 6)
    torch.testing.assert_close(logits, 4.0 * euclid(batches[0].features.detach(), W), rtol=1e-4, atol=1e-4)
    assert torch.equal(y, batches[0].rows)


def test_rotation_makes_each_quarter_turn_a_class(base: Session, new_run: Callable[[], Run]) -> None:
    method, run = untrained(complement="rotation"), new_run()
    method.weight_computing(method.branches[1], base, run)
    student = _kt_rcnet_students.Encoded(method, base, run)
    rows = student.rows(turned=True)
    assert rows.shape == (4 * 6, 16)
    with torch.no_grad():
        turned = method.represent(shown(base, method).rot90(3, (-2, -1)))
    torch.testing.assert_close(rows[18:], mean_of_labels(turned, base.train.labels)[1], rtol=1e-4, atol=1e-5)


def test_rows_may_be_the_means_of_some_images_of_each_class(base: Session, new_run: Callable[[], Run]) -> None:
    method, run = untrained(complement="rotation", row_images=7), new_run()
    method.weight_computing(method.branches[1], base, run)
    student = _kt_rcnet_students.Encoded(method, base, run)
    few = _kt_rcnet_students.some_of_each_class(base, 7, run.rng("rows"))
    assert torch.equal(few.train.labels.bincount(), torch.full((6,), 7))
    with torch.no_grad():
        f = method.represent(shown(few, method))
    expected = mean_of_labels(f, few.train.labels)[1]
    torch.testing.assert_close(student.rows(turned=True)[:6], expected, rtol=1e-4, atol=1e-5)


def test_conventional_learning_may_begin_as_in_the_authors_code(
    learned: Callable[..., kt_rcnet.Method], base: Session
) -> None:
    weights = [
        learned(complement="conventional", conventional=Conventional(rows=rows, relation=relation))
        .f2.stages[0][0]
        .weight
        for rows, relation in (("means", 0.0), ("random", 0.0), ("random", 500.0))
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


# ---- the start of f2 -------------------------------------------------------------------------------------------------


def test_f2_can_begin_with_the_given_weights(
    base: Session, new_run: Callable[[], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(pixels: int, weights: str | None) -> encoders.Encoder:
        encoder = tiny_encoder()
        with torch.no_grad():
            encoder.stages[0][0].weight.fill_(0.25)
        return encoder

    monkeypatch.setitem(encoders.BUILDERS, "given", given)
    config = replace(CONFIG, encoder="given", weights="some.safetensors", start="weights", complement="tied")
    method = kt_rcnet.Method(config, given(16, None))
    method.learn_base(base, new_run())
    assert torch.equal(method.f2.stages[0][0].weight, torch.full((8, 3, 4, 4), 0.25))
    assert not torch.equal(method.f1.stages[0][0].weight, method.f2.stages[0][0].weight)


def given_by_name(pixels: int, weights: str | None) -> encoders.Encoder:
    """The tiny encoder with a first layer that the name of its weights ends with."""
    encoder = tiny_encoder()
    with torch.no_grad():
        encoder.stages[0][0].weight.fill_(float(weights or 0))
    return encoder


@pytest.mark.parametrize("start", ["own", "weights"])
def test_f2_can_begin_with_other_weights_than_f1(
    base: Session, new_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setitem(encoders.BUILDERS, "given", given_by_name)
    training = replace(CONFIG.base, epochs=0)
    named = {"encoder": "given", "weights": "0.25", "start_weights": "0.5", "start": start, "complement": "tied"}
    method = kt_rcnet.Method(replace(CONFIG, base=training, **named), given_by_name(16, "0.25"))
    method.learn_base(base, new_run())
    assert [float(f.stages[0][0].weight[0, 0, 0, 0]) for f in (method.f1, method.f2)] == [0.25, 0.5]


def test_means_over_the_last_steps_are_not_taken_of_a_part(tiny: Benchmark) -> None:
    averaged = replace(CONFIG.transfer, epochs=3, average=0.5)
    with pytest.raises(FscilError, match="--stop_after makes the first; set one of them to 0"):
        untrained(transfer=averaged, stop_after=1).check(tiny)
    untrained(transfer=averaged).check(tiny)


def test_statistics_do_not_depend_on_portions(base: Session, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def variance() -> Tensor:
        encoder = tiny_encoder().eval()
        _kt_rcnet_fitted.estimate_statistics(encoder, base, untrained().test_framing(base), run)
        assert all(int(n.num_batches_tracked) == len(seen) for n in encoder.modules() if hasattr(n, "running_var"))
        return next(n.running_var for n in encoder.modules() if hasattr(n, "running_var"))

    seen: list[int] = []
    plain = encoders.Encoder.forward
    monkeypatch.setattr(encoders.Encoder, "forward", lambda e, x: (seen.append(len(x)), plain(e, x))[1])
    whole = variance()
    assert len(seen) == 1
    seen.clear()
    monkeypatch.setattr(encoders, "PIXELS", 50 * 16 * 16)
    parts = variance()
    assert max(seen) - min(seen) <= 1  # else images of a small rest would weigh more
    assert max(seen) <= 50
    torch.testing.assert_close(parts, whole, rtol=0.2, atol=0)


def test_a_start_that_would_secretly_be_f1_is_refused(tiny: Benchmark, tmp_path: Path) -> None:
    still, f1 = replace(CONFIG.base, epochs=0), str(tmp_path)  # f1: a run folder
    for settings, sentence in (
        ({"start": "own", "weights": f1, "base": still}, "it would be the first again"),
        ({"start": "own", "weights": "net.safetensors", "base": still}, "it would be the first again"),
        ({"start": "weights", "weights": f1}, "would begin f2 as f1; name the weights .* by --start_weights"),
        ({"start": "own", "start_weights": "net.safetensors"}, "has --weights too"),
        ({"start": "weights", "weights": "net.safetensors", "base": still}, "it would be the first again"),
        ({"start": "own", "weights": f1, "start_weights": f1, "base": still}, "it would be the first again"),
    ):
        with pytest.raises(FscilError, match=sentence):
            untrained(**settings).check(tiny)
    untrained(start="own", weights=f1, base=still, start_weights="net.safetensors").check(tiny)
    with pytest.raises(FscilError, match="an f2 that does not begin as f1; set --start weights"):
        untrained(start="f1", start_weights="net.safetensors")
    untrained(start="own", weights=f1).check(tiny)
    two = cosine.Config(nets=2, weights=f1, base=still, pixels=16)
    with pytest.raises(FscilError, match="it would be the first again"):
        cosine.Method(two, tiny_encoder()).check(tiny)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"start": "weights"}, "--weights"),
        ({"feature_dropout": 1.0}, "feature_dropout"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises((FscilError, ValueError), match=sentence):
        replace(CONFIG, **settings)


def test_nothing_can_be_whitened_first_without_whitening(tiny: Benchmark) -> None:
    with pytest.raises(FscilError, match="whiten_first whitens by --shrinkage"):
        untrained(whiten_first=True).check(tiny)
    untrained(whiten_first=True, shrinkage=0.5).check(tiny)


# ---- read-out --------------------------------------------------------------------------------------------------------


def test_whitened_first_C_is_trained_as_it_is_read(
    learned: Callable[..., kt_rcnet.Method], base: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    plain = kt_rcnet.Method.loss

    def looking(method: kt_rcnet.Method, task: object) -> Tensor:
        seen.append((method.branches[1].whitening.clone(), method.W2.means()))
        return plain(method, task)

    monkeypatch.setattr(kt_rcnet.Method, "loss", looking)
    method = learned(whiten_first=True, shrinkage=0.3)
    whitening, W2 = seen[0]
    assert not torch.allclose(whitening, torch.eye(16), atol=1e-2)
    assert torch.equal(whitening, method.branches[1].whitening)
    tied = learned(complement="tied", shrinkage=0.3)
    torch.testing.assert_close(W2, tied.W2.means(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(method.W2.means(), means_of_C(method, base), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def held_out_loss(method: kt_rcnet.Method, base: Session, factor: float) -> float:
    x = next(base.held_out.batches([torch.arange(len(base.held_out))], method.test_framing(base)))
    f, W = method.branches[1].embed(x), method.W2.means()
    return float(F.cross_entropy(CONFIG.scale * euclid(factor * f, factor * W), base.held_out.labels))


@pytest.mark.parametrize("settings", [{"refit_scale": True}, {"trains": "map"}])
def test_the_feature_scale_fits_f2_as_it_has_become(
    learned: Callable[..., kt_rcnet.Method], base: Session, settings: dict[str, object]
) -> None:
    method = learned(feature_scale=0.0, shrinkage=0.3, **settings)
    best = held_out_loss(method, base, 1.0)
    assert best <= min(held_out_loss(method, base, factor) for factor in (2**-0.25, 2**0.25, 2**-0.5, 2**0.5))


def test_batch_statistics_are_those_of_upright_images(learned: Callable[..., kt_rcnet.Method], base: Session) -> None:
    """Of the first layer: mean and variance of what it is shown; the weights stay as RESA left them."""
    trained, upright = learned(), learned(statistics="upright")
    conv, norm = upright.f2.stages[0][:2]
    with torch.no_grad():
        activations = conv(shown(base, upright))
    torch.testing.assert_close(norm.running_mean, activations.mean((0, 2, 3)), rtol=1e-3, atol=1e-4)
    assert torch.equal(trained.f2.stages[0][0].weight, conv.weight)
    assert not torch.allclose(trained.f2.stages[0][1].running_mean, norm.running_mean, atol=1e-4)
    assert norm.momentum == 0.1
    assert not norm.training


def test_the_weight_of_C_is_fitted_on_held_out_images(base: Session, new_run: Callable[[], Run]) -> None:
    """A relation that knows nothing gets the least weight, one that knows everything a large one."""
    method, run = untrained(complement="tied", complement_weight=0.0), new_run()
    method.learn_base(base, run)
    assert float(method.branches[1].weight) in [pytest.approx(float(w)) for w in balance.WEIGHTS]
    rng = torch.Generator().manual_seed(0)
    branches = method.branches
    for blind, expected in ((1, "low"), (0, "high")):
        clever = deepcopy(method)
        branch = clever.branches[blind]
        branch.prototypes.sums.copy_(branch.prototypes.sums[torch.randperm(len(branch.prototypes.sums), generator=rng)])
        weight = balance.fitted_weight(clever, base, run)
        assert weight < float(branches[1].weight) if expected == "low" else weight > 1


def test_a_given_weight_of_C_stands_after_the_read_out(base: Session, new_run: Callable[[], Run]) -> None:
    method = untrained(complement="tied", complement_weight=0.5)
    method.learn_base(base, new_run())
    assert float(method.branches[1].weight) == 0.5


def test_fitting_the_weight_needs_held_out_images(tiny: Benchmark) -> None:
    untrained(complement_weight=0.0).check(tiny)
    with pytest.raises(FscilError, match="--held_out"):
        untrained(complement_weight=0.0, held_out=0).check(tiny)


@pytest.mark.parametrize(("arm", "trains"), [("rotation", "encoder"), ("conventional", "map"), ("resa", "map")])
def test_a_stopped_arm_continues_to_the_same_end(
    tiny: Benchmark, base: Session, tmp_path: Path, arm: str, trains: str
) -> None:
    def learn(place: Path, stop: int | None = None) -> kt_rcnet.Method:
        folder = RunFolder(place)
        folder.open({"format": 1})
        run = Run(folder, 0, tmp_path / "cache", fingerprint=tiny.fingerprint(), checkpoint_seconds=0.0)
        method = untrained(complement=arm, trains=trains, feature_scale=0.0)
        with pytest.MonkeyPatch.context() as patch:
            if stop is not None:
                patch.setattr("fscil.running.stages.Loop.descend", stopping(stop))
            method.learn_base(base, run)
        folder.close()
        return method

    whole = learn(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "stopped", stop=4)  # in the second epoch; the base model is in the cache
    again = learn(tmp_path / "stopped")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())


def stopping(after: int) -> Callable[..., None]:
    """A step that stops the process after some."""
    from fscil.running.stages import Loop

    plain, count = Loop.descend, iter(range(after))

    def descend(loop: Loop, *rest: object) -> None:
        if next(count, None) is None:
            raise KeyboardInterrupt
        plain(loop, *rest)

    return descend
