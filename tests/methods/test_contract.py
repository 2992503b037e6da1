"""What every method promises, also the one that is added tomorrow."""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from fscil import methods, settings
from fscil.data import Protocol
from fscil.data.images import Images, TensorImages
from fscil.data.sessions import Benchmark, Session
from fscil.errors import FscilError
from fscil.methods.shared.method import Method, Needs, Prototypical
from fscil.nn import encoders
from fscil.nn.arithmetic import set_arithmetic
from fscil.nn.branches import Branch
from fscil.nn.encoders import Encoder
from fscil.nn.heads import GrowingHead
from fscil.running import protocol
from fscil.running.devices import Devices
from fscil.running.planning import encoder_of, later_plans, stage_macs
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Epoch
from fscil.running.training import Run
from fscil.settings.fields import flatten
from fscil.settings.recipes import shipped
from fscil.tensors import read_tensors, write_tensors
from quick import LEARNS, OWN
from tiny import tiny_ingredients

NAMES = methods.names()
# Settings that make another method of one: its name, the recipe and data set they start from, and what they change.
REDUCTION = ("topic_reduction", "cifar100", {"reduction.anchors": 18, "new.epochs": 4, "new.lr": 0.02})
VARIANTS: dict[str, tuple[str, str, str, dict[str, object]]] = {
    "icarl_reduced": ("icarl", *REDUCTION),
    "eeil_reduced": ("eeil", *REDUCTION),
    "ncm_reduced": ("ncm", *REDUCTION),
    "ncm_shared": ("ncm", "small", "tiny", {"base_session": "shared"}),
    "hardnet": ("softnet", "small", "tiny", {"minor": "zero"}),
    "joint_restart": ("joint", "small", "tiny", {"restart": True}),
    "joint_balanced": ("joint", "small", "tiny", {"balanced": True}),
    "c_fscil_mode1": ("c_fscil", "small", "tiny", {"mode": 1}),
    "c_fscil_mode2": ("c_fscil", "small", "tiny", {"mode": 2}),
}
WITH_VARIANTS = (*NAMES, *VARIANTS)
PROTOTYPES = (
    "c_fscil_mode1",  # the other modes train a projection
    *(name for name in NAMES if issubclass(methods.load(name).Method, Prototypical) and name != "c_fscil"),
)

FORGETS = ("finetune",)  # old classes need not be better than chance
IMBALANCED = ("joint",)  # new classes need not be better than chance


def variant(name: str) -> tuple[str, str, str, dict[str, object]]:
    """Method, recipe, data set and changes of a method or of one of the variants."""
    return VARIANTS.get(name, (name, "small", "tiny", {}))


def config(name: str, changes: dict[str, object]) -> Any:
    method, recipe, dataset, own = variant(name)
    wanted = {**LEARNS, **OWN.get(method, {}), **own, **changes}
    return settings.resolve(methods.load(method).Config, method, dataset, recipe, wanted)


def build(name: str, changes: dict[str, object] | None = None, precision: torch.dtype = torch.float32) -> Method:
    c = config(name, changes or {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = encoders.build(c.encoder, c.pixels, c.weights).to(memory_format=torch.channels_last)
        set_arithmetic(encoder, precision, c.winograd)
        return methods.load(variant(name)[0]).Method(c, encoder)


# ---- images that notice who reads them ----------------------------------------------------------------------------


@dataclass
class Door:
    """Whether images may be read now, and how often they were read when they might not."""

    open: bool = True
    forbidden: int = 0


class Watched(TensorImages):
    """Images behind a door."""

    def __init__(self, images: TensorImages, door: Door):
        super().__init__(images._pixels, images.labels, images._rows)
        self.door = door

    def select(self, indices: Tensor) -> "Watched":
        return Watched(super().select(indices), self.door)

    def joined(self, other: TensorImages) -> "Watched":
        return Watched(super().joined(other), self.door)

    @property
    def pixels(self) -> Tensor:
        self.door.forbidden += not self.door.open
        return super().pixels

    def _crops(self, chunks, framing) -> Iterator[Tensor]:
        for crops in super()._crops(chunks, framing):
            self.door.forbidden += not self.door.open
            yield crops


class Strict(Benchmark):
    """Images of a session may be read while it is learned, test images while it is tested; other times are counted."""

    def __init__(self, protocol: Protocol | None = None, upto: int | None = None):
        super().__init__("tiny", tiny_ingredients(), protocol or Protocol())
        self.doors: list[Door] = []
        if upto is not None:
            self.session_classes = self.session_classes[: upto + 1]

    @property
    def violations(self) -> int:
        return sum(door.forbidden for door in self.doors)

    def _behind_a_door(self, images: Images) -> Watched:
        self.doors.append(Door())
        return Watched(images, self.doors[-1])

    def sessions(self, oracle: bool = False, held_out: int = 0) -> Iterator[Session]:
        for session in super().sessions(oracle, held_out):
            for door in self.doors:
                door.open = False
            shown = {name: getattr(session, name) for name in ("train", "held_out", "past")}
            watched = {name: self._behind_a_door(images) for name, images in shown.items() if images is not None}
            yield dataclasses.replace(session, **watched)

    def test(self, upto: int) -> Images:
        return self._behind_a_door(super().test(upto))


# ---- one run that most tests look at ------------------------------------------------------------------------------


@dataclass
class Learned:
    """What a method was after each session of an undisturbed run."""

    name: str
    benchmark: Strict
    folder: Path
    states: list[dict[str, Tensor]] = field(default_factory=list)
    classes: list[tuple[int, ...]] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Steps of all stages of all sessions."""
        records = [json.loads(file.read_text()) for file in self.folder.glob("session-*.json")]
        return sum(stage["steps"] for record in records for stage in record["stages"])

    def accuracy(self, new: bool) -> float:
        """Share of the test images of base classes, or of all later ones, that are right after the last session."""
        seen = load_file(self.folder / f"predictions-{len(self.states) - 1:02d}.safetensors")
        mine = [(self.benchmark.first_seen[label] > 0) == new for label in seen["truth"].tolist()]
        return float((seen["truth"] == seen["predicted"])[mine].mean())


def execute(method: Method, benchmark: Strict, where: Path, tell: Callable[[Session], None] | None = None) -> None:
    """Runs a method in a run folder, as a process of its own would."""
    folder = RunFolder(where / "run")
    folder.open({"format": 1})
    run = Run(folder, 0, where / "cache", fingerprint=benchmark.fingerprint())
    try:
        method.check(benchmark)
        protocol.follow(method, benchmark, run, tell)
    finally:
        folder.close()


def scores_of(method: Method, benchmark: Benchmark, session: Session) -> Tensor:
    """Scores (n, classes) of the test images up to a session."""
    method.eval()
    images = Benchmark.test(benchmark, session.index)
    with torch.no_grad():
        return method.scores(next(images.batches([torch.arange(len(images))], method.test_framing(session))))


def learn_all(name: str, where: Path) -> Learned:
    """Learns all sessions, remembering what the method was after each."""
    benchmark = Strict()
    result, method = Learned(name, benchmark, where / "run"), build(name)

    def tell(session: Session) -> None:
        result.states.append({key: value.clone() for key, value in method.state_dict().items()})
        result.classes.append(method.classes)
        result.scores.append(scores_of(method, benchmark, session))

    execute(method, benchmark, where, tell)
    return result


@pytest.fixture(scope="module")
def learn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Learned]:
    return functools.cache(lambda name: learn_all(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(params=NAMES)
def learned(request: pytest.FixtureRequest, learn: Callable[[str], Learned]) -> Learned:
    return learn(request.param)


def test_scores_have_a_column_for_each_class_seen_and_no_other(learned: Learned) -> None:
    for t, (classes, scores) in enumerate(zip(learned.classes, learned.scores, strict=True)):
        seen = [label for label, session in learned.benchmark.first_seen.items() if session <= t]
        assert sorted(classes) == sorted(seen)
        assert scores.shape == (10 * len(seen), len(classes))
        assert scores.dtype == torch.float32
        assert bool(scores.isfinite().all())


def test_better_than_chance_on_old_and_new_classes(learned: Learned) -> None:
    clearly = 1.5 / len(learned.benchmark.order)
    assert learned.name in FORGETS or learned.accuracy(new=False) > clearly
    assert learned.name in IMBALANCED or learned.accuracy(new=True) > clearly


def test_the_plan_is_what_the_base_session_computes(learned: Learned) -> None:
    method = build(learned.name)
    base = next(Strict().sessions(method.needs.oracle, method.config.held_out))
    planned = sum(stage_macs(stage, encoder_of(method)) for stage in method.plan(base))
    counted = json.loads((learned.folder / "session-00.json").read_text())["macs"]
    # MetaFSCIL's gates are part of the encoder whose passes are planned, but idle while its base is trained
    assert planned == (pytest.approx(counted, rel=0.02) if learned.name == "meta_fscil" else counted)


@pytest.mark.parametrize("learned", WITH_VARIANTS, indirect=True)
def test_the_plan_of_later_sessions_is_what_they_compute(learned: Learned) -> None:
    planned = planned_later(build(learned.name), Strict())
    assert planned == counted_later(learned.folder)
    assert len(planned) == 3
    assert all(macs > 0 for macs in planned)


def planned_later(method: Method, benchmark: Benchmark) -> list[int]:
    """The compute of each later session as planned."""
    plans = later_plans(method, benchmark)
    return [sum(stage_macs(stage, encoder_of(method)) for stage in stages) for stages in plans]


def counted_later(folder: Path) -> list[int]:
    """The compute of each later session as a run has counted it."""
    _, *later = sorted(folder.glob("session-*.json"))
    return [json.loads(file.read_text())["macs"] for file in later]


def test_reads_only_the_images_of_the_session(learned: Learned) -> None:
    assert len(learned.benchmark.doors) >= 2 * len(learned.states)
    assert learned.benchmark.violations == 0


def kept_images(state: dict[str, Tensor]) -> list[Tensor]:
    """Everything in a state that has the form of images."""
    return [image for value in state.values() if value.dtype == torch.uint8 and value.ndim == 4 for image in value]


def most_kept(needs: Needs, base: int, new: int, shots: int) -> int:
    """The most exemplars once `base` classes and, from `shots` images each, `new` ones are learned."""
    return int(needs.in_all + needs.per_class * (base + new) + min(needs.per_new_class, shots) * new)


@pytest.mark.parametrize("learned", WITH_VARIANTS, indirect=True)
def test_keeps_no_more_images_than_it_declares(learned: Learned) -> None:
    needs, benchmark = build(learned.name).needs, learned.benchmark
    for state, classes in zip(learned.states, learned.classes, strict=True):
        new = len(classes) - benchmark.base_classes
        assert len(kept_images(state)) <= most_kept(needs, benchmark.base_classes, new, benchmark.shots)
    declared = needs.exemplars not in ("", "nothing")
    assert bool(kept_images(learned.states[-1])) == declared


def test_keeps_only_images_it_was_shown(learned: Learned) -> None:
    shown = [session.train for session in Benchmark("tiny", tiny_ingredients(), Protocol()).sessions()]
    known = {image.numpy().tobytes() for images in shown for image in images.pixels}
    assert {image.numpy().tobytes() for image in kept_images(learned.states[-1])} <= known


@pytest.mark.parametrize("learned", WITH_VARIANTS, indirect=True)
def test_state_is_all_that_is_needed_to_predict(learned: Learned, tmp_path: Path) -> None:
    for session, state in zip(Strict().sessions(), learned.states, strict=True):
        method = build(learned.name)
        write_tensors(tmp_path / "state.safetensors", state, {})
        method.load_state_dict(read_tensors(tmp_path / "state.safetensors")[0])
        assert method.classes == learned.classes[session.index]
        assert torch.equal(scores_of(method, learned.benchmark, session), learned.scores[session.index])


def test_predicting_changes_nothing(learned: Learned) -> None:
    method, session = build(learned.name), list(Strict().sessions())[-1]
    method.load_state_dict(learned.states[-1])
    scores_of(method, learned.benchmark, session)
    assert_equal(method.state_dict(), learned.states[-1])


@pytest.mark.parametrize("learned", PROTOTYPES, indirect=True)
def test_what_is_frozen_stays_as_it_was(learned: Learned) -> None:
    method, states = build(learned.name), []
    for state in (learned.states[0], learned.states[-1]):
        method.load_state_dict(state)
        states.append({key: value.clone() for key, value in encoder_states(method).items()})
    assert states[0]
    assert_equal(*states)


@pytest.mark.parametrize("learned", PROTOTYPES, indirect=True)
def test_labels_and_their_order_do_not_matter_to_prototypes(learned: Learned, tmp_path: Path) -> None:
    method, other = build(learned.name), build(learned.name)
    session = list(Benchmark("tiny", tiny_ingredients(), Protocol()).sessions())[1]
    backwards = torch.arange(len(session.train)).flip(0)
    renamed = TensorImages(session.train.pixels[backwards], session.train.labels[backwards] + 100)
    classes = tuple(label + 100 for label in reversed(session.classes))
    twin = dataclasses.replace(session, classes=classes, train=renamed)
    run = Run(RunFolder(tmp_path, writable=False), 0, tmp_path)
    for learner, shown in ((method, session), (other, twin)):
        learner.load_state_dict(learned.states[0])
        with run.learning(1):
            learner.learn_new(shown, run)
    one, two = (scores_of(learner, learned.benchmark, session) for learner in (method, other))
    moved = [other.classes.index(label + 100 if label in session.classes else label) for label in method.classes]
    torch.testing.assert_close(one, two[:, moved], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_without_epochs_nothing_is_trained(name: str, tmp_path: Path) -> None:
    epochs = [leaf for leaf in flatten(config(name, {})) if leaf.split(".")[-1] == "epochs"]
    method = build(name, dict.fromkeys(epochs, 0))
    before = {key: value.clone() for key, value in encoder_states(method).items()}
    benchmark, rows = Strict(upto=1), []
    execute(method, benchmark, tmp_path, lambda session: rows.append(rows_of(method, benchmark.session_classes[0])))
    assert before
    assert_equal(encoder_states(method), before)
    assert rows[0]
    assert_equal(*rows)


@pytest.mark.parametrize("name", NAMES)
def test_one_image_of_one_class_is_a_session(name: str, tmp_path: Path) -> None:
    benchmark = Strict(Protocol(base_classes=10, ways=1, shots=1))
    method = build(name, {"base.epochs": 1})
    execute(method, benchmark, tmp_path)
    assert method.classes == benchmark.order
    assert bool(scores_of(method, benchmark, benchmark.base()).isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_gives_scores_in_float32(name: str, tmp_path: Path) -> None:
    benchmark = Strict(upto=1)
    method = build(name, {"base.epochs": 1}, torch.bfloat16)
    execute(method, benchmark, tmp_path)
    scores = scores_of(method, benchmark, list(benchmark.sessions())[1])
    assert scores.dtype == torch.float32
    assert bool(scores.isfinite().all())


class Killed(BaseException):
    """The end of a process, at any moment."""


@pytest.mark.parametrize("name", WITH_VARIANTS)
def test_same_seed_same_numbers_even_when_killed_twice(
    name: str, learn: Callable[[str], Learned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, calls, step = learn(name), 0, Epoch.step
    deadly = (undisturbed.steps // 2, undisturbed.steps)  # of the second process one step is made again

    def mortal(epoch: Epoch, loss: Tensor) -> None:
        nonlocal calls
        calls += 1
        epoch._loop.run.checkpoint_seconds = 0 if calls + 1 in deadly else math.inf
        if calls in deadly:
            raise Killed
        step(epoch, loss)

    monkeypatch.setattr(Epoch, "step", mortal)
    method = build(name)
    for _ in deadly:
        with pytest.raises(Killed):
            execute(method, Strict(), tmp_path)
        method = build(name)
    execute(method, Strict(), tmp_path)
    assert_equal(method.state_dict(), undisturbed.states[-1])
    for t in range(len(undisturbed.states)):
        file = f"predictions-{t:02d}.safetensors"
        assert (tmp_path / "run" / file).read_bytes() == (undisturbed.folder / file).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_method_says_what_it_keeps(name: str) -> None:
    assert methods.load(name).Method.needs.keeps()


@pytest.mark.parametrize("name", NAMES)
def test_official_is_no_less_complete_than_paper(name: str) -> None:
    paper, official = (shipped(name).get(recipe, {}).keys() for recipe in ("paper", "official"))
    assert "any" in official or paper <= official


@pytest.mark.parametrize("name", NAMES)
def test_the_comparison_is_offered_where_its_shared_part_ships(name: str) -> None:
    for dataset in ("cifar100", "cub200", "mini_imagenet", "glyphs"):
        assert "compare" in settings.recipe_names(name, dataset)
    assert "compare" not in settings.recipe_names(name, "folder")


@pytest.mark.parametrize(
    ("method", "rate"), [("eeil", "new.lr"), ("eeil", "balanced.lr"), ("f2m", "new.lr"), ("topic", "new.lr")]
)
def test_rates_chosen_on_pseudo_sessions_are_those_of_small_too(method: str, rate: str) -> None:
    chosen, small = (
        flatten(settings.resolve(methods.load(method).Config, method, "cifar100", recipe))[rate].value
        for recipe in ("compare", "small")
    )
    assert small == chosen


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "glyphs", "mini_imagenet"])
@pytest.mark.parametrize("recipe", ["official", "paper"])
@pytest.mark.parametrize(
    ("method", "scale"), [("cec", 16), ("fact", 16), ("meta_fscil", 16), ("mcnet", 16), ("ncm", 1), ("softnet", 1)]
)
def test_methods_with_a_scale_of_their_own_do_not_inherit_that_of_kt_rcnet(
    method: str, scale: float, recipe: str, dataset: str
) -> None:
    assert settings.resolve(methods.load(method).Config, method, dataset, recipe).scale == scale


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("c_fscil", {"shot": 0}),
        ("c_fscil", {"base_shots": 0}),
        ("c_fscil", {"way": 0}),
        ("cec", {"shot": 0}),
        ("cec", {"query": 0}),
        ("eeil", {"temperature": 0.0}),
        ("icarl", {"reduction.on": True, "reduction.anchors": 0}),
        ("meta_fscil", {"query": 0}),
        ("ncm", {"exemplars": -1}),
        ("ncm", {"hardest": 0}),
        ("sppr", {"pseudo_tasks": 0}),
        ("topic", {"nodes": 0}),
    ],
)
def test_settings_with_which_nothing_can_be_learned_are_refused(method: str, changes: dict[str, object]) -> None:
    setting, value = list(changes.items())[-1]
    with pytest.raises(FscilError, match=rf"the setting {setting.split('.')[-1]} is {value}, but must lie between"):
        config(method, changes)


@pytest.mark.parametrize("method", ["c_fscil", "cec", "kt_rcnet", "meta_fscil"])
def test_devices_that_cannot_share_the_queries_are_refused_before_training(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = Devices()
    devices.count = 4
    run = Run(RunFolder(tmp_path, writable=False), 0, tmp_path, devices)
    monkeypatch.setattr(Run, "cached", lambda *anything: pytest.fail("a base is trained"))
    with pytest.raises(FscilError, match="3 queries per class cannot be shared by 4 devices"):
        build(method, {"query": 3}).learn_base(Strict().base(), run)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_explained(name: str) -> None:
    assert [leaf for leaf, setting in flatten(methods.load(name).Config()).items() if not setting.help] == []


def encoder_states(method: Method) -> dict[str, Tensor]:
    """Parameters and buffers of every encoder inside a method."""
    found = {name: module for name, module in method.named_modules() if isinstance(module, Encoder)}
    return {f"{name}.{key}": value for name, module in found.items() for key, value in module.state_dict().items()}


def rows_of(method: Method, classes: tuple[int, ...]) -> dict[str, Tensor]:
    """What stands for some classes in every classifier and every Branch inside a method."""
    labels, parts = torch.tensor(classes), dict(method.named_modules())
    heads = {name: part.weight[part.rows(labels)] for name, part in parts.items() if isinstance(part, GrowingHead)}
    banks = {name: part.prototypes for name, part in parts.items() if isinstance(part, Branch)}
    return {**heads, **{name: bank.means(bank.rows(labels)) for name, bank in banks.items()}}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Bit by bit."""
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []
