"""Every equation of the paper, against numbers worked out by hand or with plain numpy loops."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fscil.data import Protocol
from fscil.data.episodes import Sampling, Task, rotate, synthesise
from fscil.data.images import Augment, Ingredients, TensorImages
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods import cosine, kt_rcnet
from fscil.methods.shared import resa
from fscil.nn.branches import Branch, fused_scores
from fscil.nn.encoders import Encoder
from fscil.nn.heads import CosineHead
from fscil.nn.relations import class_means, euclid
from fscil.running import protocol
from fscil.running.descent import Training
from fscil.running.stages import Epoch
from fscil.running.training import Run

PIXEL_AS_IT_IS = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}  # a normalisation that leaves the values 0..255 alone
PLAIN = Augment(crop="none", flip=False, margin=1.0)


def linear_encoder(matrix: Tensor, pixels: int = 1) -> Encoder:
    """f(x) = matrix . x, for images of 3 * pixels * pixels values."""
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
    layer.weight = nn.Parameter(matrix.clone())
    return Encoder(nn.Sequential(nn.Flatten(), layer), len(matrix), pixels, nn.Identity())


def method_with(f1: Tensor, f2: Tensor, pixels: int = 1, **settings: object) -> kt_rcnet.Method:
    """KT-RCNet with linear encoders."""
    config = kt_rcnet.Config(pixels=pixels, augment=PLAIN, **settings)
    method = kt_rcnet.Method(config, linear_encoder(f1, pixels))
    method.f2.stages[1].weight.data.copy_(f2)
    return method


def session_of(vectors: dict[int, list[tuple[int, int, int]]], index: int = 0) -> Session:
    """A session whose images are single pixels: label -> colours."""
    colours = torch.tensor([colour for images in vectors.values() for colour in images], dtype=torch.uint8)
    labels = torch.tensor([label for label, images in vectors.items() for _ in images])
    images = TensorImages(colours[:, :, None, None], labels)
    return Session(index=index, classes=tuple(vectors), train=images, flips=True, **PIXEL_AS_IT_IS)


def pictures(*classes: list[list[float]]) -> Tensor:
    """Single-pixel images (way, k, 3, 1, 1)."""
    return torch.tensor(classes)[..., None, None]


@pytest.fixture
def logits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """What the losses hand to the cross-entropy, in order: (logits, labels)."""
    seen: list[tuple[Tensor, Tensor]] = []
    plain = torch.nn.functional.cross_entropy

    def listening(scores: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        seen.append((scores.detach(), y))
        return plain(scores, y, label_smoothing=label_smoothing)

    monkeypatch.setattr(resa.F, "cross_entropy", listening)
    return seen


# ---- base model: Eq. 1 and 2 ---------------------------------------------------------------------------------------


def test_eq_1_base_score() -> None:
    """cos((3, 4), (1, 0)) = 0.6 and cos((3, 4), (0, 2)) = 0.8; with s = 10, P = (1, e^2) / (1 + e^2)."""
    head = CosineHead(2, 2, 10.0, torch.Generator())
    head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    P = head(torch.tensor([[3.0, 4.0]])).softmax(1)
    assert P.tolist()[0] == pytest.approx([0.1192029, 0.8807971], abs=1e-6)


def test_eq_2_base_loss(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first loss of the base session is the mean of -log P over the batch, here over all images."""
    losses: list[float] = []
    step = Epoch.step

    def listening(epoch: Epoch, loss: Tensor) -> None:
        losses.append(loss.item())
        step(epoch, loss)

    monkeypatch.setattr(Epoch, "step", listening)
    colours = {4: [(9, 1, 0), (8, 3, 1)], 1: [(0, 7, 2), (1, 9, 0)], 6: [(2, 0, 5), (0, 1, 6)]}
    session = session_of(colours)
    base = Training(epochs=1, batch=6, lr=0.0)
    method = cosine.Method(cosine.Config(pixels=1, scale=5.0, base=base, augment=PLAIN), linear_encoder(torch.eye(3)))
    W = CosineHead(3, 3, 5.0, run.rng("head")).weight.detach().double().numpy()
    method.learn_base(session, run)
    terms = []
    for row, images in enumerate(colours.values()):
        for x in images:
            P = softmax([5 * phi_1(x, w) for w in W])
            terms.append(-math.log(P[row]))
    assert losses == pytest.approx([float(np.mean(terms))], rel=1e-6)


# ---- weights: Eq. 3 and 4 ------------------------------------------------------------------------------------------


def test_eq_3_and_4_weights_are_class_means(run: Run) -> None:
    method = method_with(torch.eye(3), torch.diag(torch.tensor([0.5, 2.0, 10.0])))
    session = session_of({7: [(1, 0, 0), (3, 0, 4)], 2: [(0, 6, 0)], 5: [(0, 0, 3), (0, 3, 3), (3, 0, 3)]})
    method.weight_computing(method.branches[0], session, run)
    method.weight_computing(method.branches[1], session, run)
    assert method.W1.classes == method.W2.classes == (7, 2, 5)
    torch.testing.assert_close(method.W1.means(), torch.tensor([[2.0, 0, 2], [0, 6, 0], [1, 1, 3]]))
    torch.testing.assert_close(method.W2.means(), torch.tensor([[1.0, 0, 20], [0, 12, 0], [0.5, 2, 30]]))


def test_eq_3_and_4_weights_of_an_episode() -> None:
    features = torch.tensor([[[1.0, 0.0], [3.0, 2.0]], [[0.0, 4.0], [0.0, 8.0]]])
    assert class_means(features).tolist() == [[2.0, 1.0], [0.0, 6.0]]


# ---- one task worked out by hand -----------------------------------------------------------------------------------
# f1(x) = x, f2(x) = x / 2, s = d = 3, so that s * r1/d = cos and s * r2 = -||f2 - W2||^2.
# Base classes 9, 4 and 6; class 9 has prototypes (0, 0, 2) and, for f2, (0, 0, 1). The episode draws classes 6 and 4:
# support and query of 6 are (1, 0, 0), of 4 (0, 1, 0); their twins are (0, 0, 1) and (0, 0, 2).


def hand_made(**settings: object) -> tuple[kt_rcnet.Method, Task]:
    method = method_with(torch.eye(3), torch.eye(3) / 2, scale=3.0, **settings)
    for bank, nine in ((method.W1, [0.0, 0, 2]), (method.W2, [0.0, 0, 1])):
        bank.add(torch.tensor([9, 4, 6]), torch.tensor([nine, [7.0, 7, 7], [8.0, 8, 8]]))
    images = pictures([[1.0, 0, 0]] * 2, [[0.0, 1, 0]] * 2)
    twins = pictures([[0.0, 0, 1]] * 2, [[0.0, 0, 2]] * 2)
    return method, Task(images, twins, torch.tensor([6, 4]), shot=1)


# Query of class 6: class 6 gets 1 - 0, class 4 gets 0 - (0.25 + 0.25), class 9 gets 0 - (0.25 + 1); class 4 likewise.
L_GLOBAL = math.log(1 + math.exp(-1.5) + math.exp(-2.25))  # 0.28408
# Each real query: itself 0, the other -0.5, the twins -(0.25 + 0.25) and -(0.25 + 1).
REAL = math.log(1 + 2 * math.exp(-0.5) + math.exp(-1.25))  # 0.91612
# Twin (0, 0, 0.5): itself 0, the real classes -0.5 each, the other twin -0.25.
FIRST_TWIN = math.log(1 + 2 * math.exp(-0.5) + math.exp(-0.25))  # 1.09589
# Twin (0, 0, 1): itself 0, the real classes -1.25 each, the other twin -0.25.
SECOND_TWIN = math.log(1 + 2 * math.exp(-1.25) + math.exp(-0.25))  # 0.85519
L_LOCAL = (2 * REAL + FIRST_TWIN + SECOND_TWIN) / 4  # 0.94583


def test_the_losses_written_as_formulas_have_the_values_worked_out_by_hand() -> None:
    numbers = (L_GLOBAL, REAL, FIRST_TWIN, SECOND_TWIN, L_LOCAL)
    assert numbers == pytest.approx((0.28408, 0.91612, 1.09589, 0.85519, 0.94583), abs=2e-5)


def test_eq_5_base_relation() -> None:
    """Columns are the classes 9, 4, 6 of the bank; the prototypes of 4 and 6 come from the support."""
    method, task = hand_made()
    torch.testing.assert_close(method.base_relation(task), torch.tensor([[0.0, 0, 1], [0, 1, 0]]))


def test_eq_6_complementary_relation() -> None:
    method, task = hand_made()
    W2pg = method.W2.with_rows(task.classes, class_means(method.encode(task.S)))
    r2 = euclid(method.encode(task.Q).flatten(0, 1), W2pg)
    expected = -torch.tensor([[1.25, 0.5, 0], [1.25, 0, 0.5]]) / 3
    torch.testing.assert_close(r2, expected)


def test_eq_7_global_prediction(logits: list[tuple[Tensor, Tensor]]) -> None:
    method, task = hand_made(local_weight=0.0)
    method.loss(task)
    [(scores, y)] = logits
    torch.testing.assert_close(scores, torch.tensor([[-1.25, -0.5, 1.0], [-1.25, 1.0, -0.5]]))
    assert y.tolist() == [2, 1]
    assert scores.softmax(1)[0, 2].item() == pytest.approx(1 / (1 + math.exp(-1.5) + math.exp(-2.25)))


def test_eq_8_global_loss() -> None:
    method, task = hand_made(global_weight=1.0, local_weight=0.0)
    assert method.loss(task).item() == pytest.approx(L_GLOBAL, rel=1e-6)


def test_eq_9_local_prediction(logits: list[tuple[Tensor, Tensor]]) -> None:
    method, task = hand_made(global_weight=0.0)
    method.loss(task)
    [(scores, y)] = logits
    real, other = [0.0, -0.5, -0.5, -1.25], [-0.5, 0.0, -0.5, -1.25]
    expected = torch.tensor([real, other, [-0.5, -0.5, 0.0, -0.25], [-1.25, -1.25, -0.25, 0.0]])
    torch.testing.assert_close(scores, expected)
    assert y.tolist() == [0, 1, 2, 3]


def test_eq_10_local_loss() -> None:
    method, task = hand_made(global_weight=0.0, local_weight=1.0)
    assert method.loss(task).item() == pytest.approx(L_LOCAL, rel=1e-6)


def test_eq_11_total_loss() -> None:
    method, task = hand_made(global_weight=1.5, local_weight=2.0)
    assert method.loss(task).item() == pytest.approx(1.5 * L_GLOBAL + 2 * L_LOCAL, rel=1e-6)
    assert method.loss(task).item() == pytest.approx(2.31778, abs=5e-5)


def test_eq_12_inference(run: Run) -> None:
    """x = (3, 4, 0) against class 7 at (1, 0, 0) and, taught later, class 2 at (0, 5, 5), without scale and softmax."""
    method = method_with(torch.eye(3), torch.eye(3) / 2)
    method.teach_base(session_of({7: [(1, 0, 0)]}), run)
    method.learn_new(session_of({2: [(0, 4, 4), (0, 6, 6)]}, index=1), run)
    P = method.scores(torch.tensor([[3.0, 4.0, 0.0]])[..., None, None])
    cosines = [3 / 5, 4 / 5 / math.sqrt(2)]
    distances = [1.0**2 + 2.0**2, 1.5**2 + 0.5**2 + 2.5**2]  # f2(x) = (1.5, 2, 0), W2 = (0.5, 0, 0), (0, 2.5, 2.5)
    assert method.classes == (7, 2)
    assert P.dtype == torch.float32
    assert P[0].tolist() == pytest.approx([c - z / 3 for c, z in zip(cosines, distances, strict=True)], rel=1e-6)


# ---- random tasks against plain loops ------------------------------------------------------------------------------


def phi_1(a: object, b: object) -> float:
    a, b = np.asarray(a, float), np.asarray(b, float)
    return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))


def phi_2(a: np.ndarray, b: np.ndarray) -> float:
    return -float(((a - b) ** 2).sum()) / len(a)


def softmax(scores: list[float]) -> np.ndarray:
    e = np.exp(np.asarray(scores) - max(scores))
    return e / e.sum()


class Case:
    """Five base classes of 2x2-pixel images, d = 4, a task of three of them; and the paper's losses as loops."""

    way, shot, query, d, scale, feature_scale = 3, 2, 2, 4, 7.0, 1.5
    labels = (11, 3, 8, 0, 5)

    def __init__(self, seed: int, **settings: object):
        rng = torch.Generator().manual_seed(seed)
        A1, A2 = (0.2 * torch.randn(self.d, 12, generator=rng) for _ in range(2))
        self.method = method_with(A1, A2, pixels=2, scale=self.scale, **settings)
        self.method.branches[1].feature_scale.fill_(self.feature_scale)
        old1, old2 = (torch.randn(5, self.d, generator=rng) for _ in range(2))
        self.method.W1.add(torch.tensor(self.labels), old1)
        self.method.W2.add(torch.tensor(self.labels), old2)
        images = torch.randn(self.way, self.shot + self.query, 3, 2, 2, generator=rng)
        twins = synthesise(images, Sampling(self.way, self.shot, self.query), rng)
        self.task = Task(images, twins, torch.tensor([5, 11, 8]), self.shot)
        double = (A1, A2, old1, old2, images, twins)
        self.A1, self.A2, self.old1, self.old2, self.images, self.twins = (t.double().numpy() for t in double)

    def f1(self, x: np.ndarray) -> np.ndarray:
        return self.A1 @ x.flatten()

    def f2(self, x: np.ndarray) -> np.ndarray:
        return self.feature_scale * (self.A2 @ x.flatten())

    def prototype(self, f: Callable[[np.ndarray], np.ndarray], images: np.ndarray) -> np.ndarray:
        return np.mean([f(x) for x in images[: self.shot]], axis=0)

    def global_loss(self, base_relation: float = 1.0) -> float:
        """Eq. 5 to 8; base_relation is the factor of r1/d."""
        W1 = dict(zip(self.labels, self.old1, strict=True))
        W2 = dict(zip(self.labels, self.old2, strict=True))
        drawn = self.task.classes.tolist()
        for label, images in zip(drawn, self.images, strict=True):
            W1[label], W2[label] = self.prototype(self.f1, images), self.prototype(self.f2, images)
        terms = []
        for label, images in zip(drawn, self.images, strict=True):
            for x in images[self.shot :]:
                r1 = [phi_1(self.f1(x), W1[c]) for c in self.labels]
                r2 = [phi_2(self.f2(x), W2[c]) for c in self.labels]
                P = softmax([self.scale * (base_relation * a / self.d + b) for a, b in zip(r1, r2, strict=True)])
                terms.append(-math.log(P[self.labels.index(label)]))
        return float(np.mean(terms))

    def local_loss(self, smoothing: float = 0.0) -> float:
        """Eq. 9 and 10; `smoothing` of the target goes to the wrong classes."""
        classes = [*self.images, *self.twins]
        W = [self.prototype(self.f2, images) for images in classes]
        terms = []
        for true, images in enumerate(classes):
            for x in images[self.shot :]:
                logP = np.log(softmax([self.scale * phi_2(self.f2(x), w) for w in W]))
                target = np.full(len(W), smoothing / (len(W) - 1))
                target[true] = 1 - smoothing
                terms.append(-float(target @ logP))
        return float(np.mean(terms))


@pytest.mark.parametrize("seed", range(3))
def test_total_loss_equals_the_loops(seed: int) -> None:
    case = Case(seed, global_weight=1.5, local_weight=2.0)
    expected = 1.5 * case.global_loss() + 2 * case.local_loss()
    assert case.method.loss(case.task).item() == pytest.approx(expected, rel=1e-5)


def test_without_local_loss_it_is_ress() -> None:
    """lambda_2 = 0 leaves the global task alone: the synthesised twins do not even enter."""
    case = Case(0, local_weight=0.0)
    loss = case.method.loss(case.task)
    assert loss.item() == pytest.approx(case.global_loss(), rel=1e-5)
    assert case.method.config.twins == "none"
    alone = Task(case.task.images, None, case.task.classes, case.shot)
    assert case.method.loss(alone).item() == loss.item()


def test_without_global_loss_it_is_pil() -> None:
    """lambda_1 = 0 leaves the local task of real and rotated classes: neither f1 nor the bank of prototypes enters."""
    case = Case(1, global_weight=0.0, synthesis="rotate")
    loss = case.method.loss(case.task)
    assert loss.item() == pytest.approx(case.local_loss(), rel=1e-5)
    case.method.f1.stages[1].weight.data.fill_(math.nan)
    case.method.W1.clear()
    case.method.W2.clear()
    assert case.method.loss(case.task).item() == loss.item()


def test_no_loss_at_all_is_refused() -> None:
    with pytest.raises(FscilError, match="both 0"):
        kt_rcnet.Config(global_weight=0.0, local_weight=0.0)


def test_without_synthesis_the_local_task_is_among_the_real_classes() -> None:
    case = Case(2, global_weight=0.0)
    case.twins = case.twins[:0]
    task = Task(case.task.images, None, case.task.classes, case.shot)
    assert case.method.loss(task).item() == pytest.approx(case.local_loss(), rel=1e-5)


@pytest.mark.parametrize("factor", [0.0, 4.0])
def test_base_relation_is_a_factor_of_r1(factor: float) -> None:
    case = Case(3, local_weight=0.0, base_relation=factor)
    assert case.method.loss(case.task).item() == pytest.approx(case.global_loss(factor), rel=1e-5)


def test_local_smoothing_inside_the_loss() -> None:
    case = Case(4, global_weight=0.0, local_smoothing=0.1)
    assert case.method.loss(case.task).item() == pytest.approx(case.local_loss(0.1), rel=1e-5)


def test_smoothing_puts_nine_tenths_on_the_true_class() -> None:
    """The gradient of the cross-entropy is P - target: at equal logits, P = 1/K, it shows the target."""
    logits = torch.zeros(1, 4, requires_grad=True)
    resa.smooth_cross_entropy(logits, torch.tensor([2]), 0.1).backward()
    target = 0.25 - logits.grad[0]
    assert target.tolist() == pytest.approx([0.1 / 3, 0.1 / 3, 0.9, 0.1 / 3], abs=1e-6)


def test_a_sequence_is_judged_after_each_session_over_the_classes_seen_so_far() -> None:
    """Three classes in two sessions: two of them, then all; the third class's queries count in the second only."""
    logits, y = torch.tensor([[2.0, 1.0, 5.0], [0.0, 1.0, 7.0], [1.0, 1.0, 1.0]]), torch.tensor([0, 1, 2])
    rest = [math.log(sum(math.exp(x) for x in row)) for row in logits.tolist()]
    first = 2 * math.log(1 + math.exp(-1.0)) / 2
    second = (rest[0] - 2.0 + rest[1] - 1.0 + rest[2] - 1.0) / 3
    assert resa.local_loss(logits, y, 2, 0.0).item() == pytest.approx((first + second) / 2, rel=1e-6)
    assert resa.local_loss(logits, y, 1, 0.0).item() == pytest.approx(second, rel=1e-6)


def test_meta_learning_is_a_setting_of_the_same_trainer() -> None:
    case = Case(4, global_weight=0.0, pseudo_sessions=2)
    assert case.method.loss(case.task).item() < case.local_loss(0.0)  # fewer classes to be mistaken for
    with pytest.raises(FscilError, match="pseudo_sessions is 6, but must lie between 1 and 5"):
        kt_rcnet.Config(way=5, pseudo_sessions=6)


def test_pseudo_old_logits_do_not_depend_on_the_support(logits: list[tuple[Tensor, Tensor]]) -> None:
    case = Case(5, local_weight=0.0)
    other = case.task.images.clone()
    other[:, : case.shot] += 1.0
    case.method.loss(case.task)
    case.method.loss(Task(other, None, case.task.classes, case.shot))
    (before, _), (after, _) = logits
    pseudo_new = case.method.W2.rows(case.task.classes)
    pseudo_old = [row for row in range(5) if row not in pseudo_new.tolist()]
    assert torch.equal(before[:, pseudo_old], after[:, pseudo_old])
    assert not torch.isclose(before[:, pseudo_new], after[:, pseudo_new]).any()


def test_the_twins_of_the_case_are_rotations() -> None:
    case = Case(0)
    for images, twins in zip(case.task.images, case.task.twins, strict=True):
        assert any(torch.equal(twins, rotate(images[None], [turns])[0]) for turns in (1, 2, 3))


# ---- the fused product ---------------------------------------------------------------------------------------------


def two_branches(seed: int, classes: int, scale: float, weight: float) -> tuple[list[Branch], list[Tensor]]:
    """Branches with random prototypes of 6 and 9 dimensions, and features of four queries."""
    rng = torch.Generator().manual_seed(seed)
    branches, features = [], []
    for relation, dim, factor in (("cosine", 6, 1.0), ("euclid", 9, weight)):
        branch = Branch(relation, SimpleEncoder(dim), relation, weight=factor)
        branch.prototypes.add(torch.arange(classes), scale * torch.randn(classes, dim, generator=rng))
        branches.append(branch)
        features.append(scale * torch.randn(4, dim, generator=rng))
    return branches, features


class SimpleEncoder(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim


def plain_sum(branches: list[Branch], features: list[Tensor]) -> np.ndarray:
    """Eq. 12 with weights and biases, in double precision."""
    B, C = (branch.prototypes.means().double().numpy() for branch in branches)
    b, c = (f.double().numpy() for f in features)
    w1, w2 = (float(branch.weight) for branch in branches)

    def score(x: np.ndarray, y: np.ndarray) -> list[float]:
        return [w1 * phi_1(x, u) + w2 * phi_2(y, v) for u, v in zip(B, C, strict=True)]

    biases = sum(branch.prototypes.biases().double().numpy() for branch in branches)
    return np.array([score(x, y) for x, y in zip(b, c, strict=True)]) + biases


@settings(max_examples=30)
@given(
    seed=st.integers(0, 99),
    classes=st.integers(1, 70),
    scale=st.sampled_from([0.05, 1.0, 8.0]),
    weight=st.sampled_from([0.25, 1.0, 2.0]),
)
def test_fused_product_is_the_plain_sum(seed: int, classes: int, scale: float, weight: float) -> None:
    branches, features = two_branches(seed, classes, scale, weight)
    for extra in (classes, classes + 1):  # at once, and after classes were added
        fused = fused_scores(branches, features)
        assert fused.shape == (4, extra)
        expected = plain_sum(branches, features)
        tolerance = 2e-6 * (1 + scale**2)
        np.testing.assert_allclose(fused.numpy(), expected, atol=tolerance, rtol=2e-6)
        plain = sum(branch.relate(f) for branch, f in zip(branches, features, strict=True))
        np.testing.assert_allclose(plain.numpy(), expected, atol=tolerance, rtol=2e-6)
        for branch, f in zip(branches, features, strict=True):
            branch.prototypes.add(torch.tensor([1000]), f[:1], bias=0.3)


def test_feature_scale_enters_scores_and_prototypes_alike(run: Run) -> None:
    """Scaling f2 by g scales its distances by g^2 and leaves the cosine alone."""
    session = session_of({1: [(5, 1, 0)], 2: [(0, 4, 9)]})
    x = pictures([[3.0, 2.0, 1.0]])[0]
    cosines, scores = [], []
    for g in (1.0, 3.0):
        method = method_with(torch.eye(3), torch.eye(3))
        method.branches[1].feature_scale.fill_(g)
        method.teach_base(session, run)
        cosines.append(method.branches[0](x))
        scores.append(method.scores(x))
    torch.testing.assert_close(cosines[0], cosines[1])
    torch.testing.assert_close(scores[1] - cosines[1], 9 * (scores[0] - cosines[0]))


def test_bfloat16_encoders_do_not_cost_the_relations_any_digits() -> None:
    """Features may be rounded; their relations, scores and losses are float32."""
    case = Case(6)
    for encoder in (case.method.f1, case.method.f2):
        encoder.precision = torch.bfloat16
    features = [f.detach() for f in case.method.embed(case.task.Q.flatten(0, 1))]
    exact = case.A1 @ case.images[0, case.shot].flatten()
    assert not np.allclose(features[0][0].numpy(), exact, rtol=1e-6, atol=0)  # bfloat16 was really used
    assert [f.dtype for f in features] == [torch.float32] * 2
    scores = case.method.relate(features)
    assert scores.dtype == case.method.loss(case.task).dtype == torch.float32
    np.testing.assert_allclose(scores.numpy(), plain_sum(list(case.method.branches), features), rtol=1e-5, atol=1e-4)


def test_a_benchmark_of_single_pixels_goes_through_the_whole_protocol(run: Run) -> None:
    """Hand-made colours, no training: the nearest prototypes by the sum of both relations are predicted."""
    colours = torch.tensor([[200, 0, 0], [0, 200, 0], [0, 0, 200], [200, 200, 0]], dtype=torch.uint8)
    train, labels = colours.repeat_interleave(6, 0)[:, :, None, None], torch.arange(4).repeat_interleave(6)
    store = TensorImages(train, labels)
    sets = Ingredients(store, store, tuple("abcd"), 1, PIXEL_AS_IT_IS["mean"], PIXEL_AS_IT_IS["std"], True, 2, 1)
    method = method_with(torch.eye(3), torch.eye(3), complement="tied", base=Training(epochs=0))
    heard: list[int] = []
    protocol.follow(method, Benchmark("pixels", sets, Protocol()), run, lambda session: heard.append(session.index))
    assert heard == [0, 1, 2]
    assert method.classes == (0, 1, 2, 3)
    assert method.scores(train[::6].float()).argmax(1).tolist() == [0, 1, 2, 3]
