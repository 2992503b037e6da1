"""What later sessions compute is known before anything is learned, whatever the settings; and the steps of maps."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_contract import NAMES, Strict, build, counted_later, execute, planned_later, variant

from fscil import methods, settings
from fscil.data import Protocol
from fscil.data.images import Ingredients, TensorImages
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.methods import _kt_rcnet_steps
from fscil.methods.shared.method import Method, Prototypical
from fscil.nn import encoders
from fscil.running import trying
from fscil.running.planning import later_plans
from fscil.running.stages import Loop
from fscil.running.trying import trial
from fscil.settings.fields import flatten
from quick import OWN
from tiny import TINY, tiny_ingredients

ARMS = ("resa", "conventional", "means", "rotation")  # that train a map
CPU = torch.device("cpu")
RESULTS = Path(__file__).parent.parent.parent / "results" / "compare" / "cifar100"
TRAINS = [name for name in NAMES if not issubclass(methods.load(name).Method, Prototypical)]  # in later sessions too
BATCHES = ("eeil", "eeil_reduced", "finetune", "icarl", "icarl_reduced", "joint", "joint_restart", "ncm", "topic")
CHANGES: list[tuple[str, dict[str, object]]] = [
    *((name, {"views": "flip", "held_out": 3}) for name in TRAINS),
    *((name, {"new.batch": 4, "new.pixels": (12, 16)}) for name in BATCHES),
    ("eeil", {"memory": 12, "balanced.batch": 5, "balanced.pixels": (12, 16)}),
    ("eeil", {"memory": 2000}),
    ("eeil", {"balanced.epochs": 0}),
    ("eeil_reduced", {"reduction.per_new_class": 9, "reduction.anchors": 2000}),
    ("f2m", {"new.epochs": 0}),
    ("icarl", {"memory": 2000}),
    ("meta_fscil", {"bgm": "off", "inner.epochs": 3}),
    ("ncm", {"exemplars": 0}),
    ("ncm", {"exemplars": 9, "imprint": False}),
    ("ncm", {"base_session": "shared", "new.epochs": 0}),
    ("ncm_reduced", {"reduction.per_new_class": 0}),
    ("softnet", {"tuned": "statistics"}),
    ("softnet", {"minor": "zero"}),
    ("topic", {"anchored_to": "previous"}),
    ("topic", {"anchor": 0.0}),
]
RECIPES = [(name, recipe) for name in TRAINS for recipe in settings.recipe_names(name, "cifar100")]
# What the uneven classes below allow.
FEW: dict[str, dict[str, object]] = {
    "f2m": {"layers": 2, "per_class": 5},
    "mcnet": {"second": "tiny"},
    "meta_fscil": {"pseudo_base": 3, "pseudo_shots": 1, "pseudo_sessions": 1, "way": 1, "shot": 1, "query": 1},
    "topic": {"nodes": 18},
}


class Uneven(Strict):
    """One base class has few images; the last session has fewer classes than the others, all of three images."""

    def __init__(self) -> None:
        whole = tiny_ingredients()
        few = (whole.train.labels != 2) | (torch.arange(len(whole.train)) % 3 == 0)
        uneven = dataclasses.replace(whole, train=whole.train.select(few.nonzero()[:, 0]))
        Benchmark.__init__(self, "tiny", uneven, Protocol(ways=4, shots=3))
        self.doors = []


def planned_and_counted(make: Callable[[], Method], where: Path) -> tuple[list[int], list[int]]:
    """The compute of each later session, as planned and as a run has counted it, of a method made twice."""
    planned = planned_later(make(), Uneven())
    execute(make(), Uneven(), where)
    return planned, counted_later(where / "run")


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_whatever_the_settings(name: str, changes: dict[str, object], tmp_path: Path) -> None:
    brief = {"base.epochs": 0, **({"meta.epochs": 0} if name == "meta_fscil" else {})}
    own = {**FEW.get(variant(name)[0], {}), **brief, **changes}
    planned, counted = planned_and_counted(lambda: build(name, own), tmp_path)
    assert planned == counted
    assert len(planned) == 2


def of_recipe(name: str, recipe: str) -> Method:
    """A method as a recipe sets it, but for what is too large or too long for a test."""
    module = methods.load(name)
    epochs = [leaf for leaf in flatten(module.Config()) if leaf.split(".")[-1] == "epochs"]
    brief = {leaf: 0 if leaf in ("base.epochs", "meta.epochs") else 2 for leaf in epochs}
    own = {**TINY, **FEW.get(name, {}), **brief, "weights": None, "held_out": 3}
    c = settings.resolve(module.Config, name, "cifar100", recipe, own)
    return module.Method(c, encoders.build(c.encoder, c.pixels))


@pytest.mark.parametrize(("name", "recipe"), RECIPES)
def test_whatever_the_recipe(name: str, recipe: str, tmp_path: Path) -> None:
    planned, counted = planned_and_counted(lambda: of_recipe(name, recipe), tmp_path)
    assert planned == counted
    assert len(planned) == 2


@pytest.fixture(scope="module")
def cifar100() -> Benchmark:
    """The sessions of CIFAR-100, of empty images."""
    train, test = (
        TensorImages(torch.zeros(100 * k, 3, 8, 8, dtype=torch.uint8), torch.arange(100).repeat_interleave(k))
        for k in (500, 1)
    )
    names = tuple(str(label) for label in range(100))
    return Benchmark("cifar100", Ingredients(train, test, names, 32, (0.5,) * 3, (0.3,) * 3, True, 60, 5), Protocol())


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the source distribution")
@pytest.mark.parametrize("name", NAMES)
def test_as_the_committed_runs_have_counted(name: str, cifar100: Benchmark) -> None:
    result = json.loads((RESULTS / f"{name}-compare-seed0.json").read_text("utf-8"))
    module = methods.load(name)
    c = settings.from_dict(module.Config, result["settings"])
    planned = planned_later(module.Method(c, encoders.build(c.encoder, c.pixels)), cifar100)
    counted = [session["macs"] for session in result["learning"][1:]]
    assert planned == (pytest.approx(counted, rel=0.0005) if name == "mcnet" else counted)  # see below


def test_two_networks_of_different_compute_are_told_in_passes_of_the_first(tmp_path: Path) -> None:
    own = {**FEW["mcnet"], "encoder": "resnet20", "base.epochs": 0}
    planned, counted = planned_and_counted(lambda: build("mcnet", own), tmp_path)
    assert planned != counted
    assert planned == pytest.approx(counted, rel=0.005)  # to the nearest pass, of very few here


def test_a_method_that_does_not_tell_is_not_passed_over(tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("finetune")
    monkeypatch.setattr(method, "plan_new", lambda session: Method.plan_new(method, session))
    with pytest.raises(FscilError, match="finetune does not tell what its later sessions will compute; give it"):
        list(later_plans(method, tiny))


def test_what_came_before_has_to_be_told(tiny: Benchmark) -> None:
    _, session, *_ = tiny.sessions()
    with pytest.raises(TypeError, match="depends on those before it"):
        build("f2m", OWN["f2m"]).plan_new(session)


# ---- steps of a map --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
def test_a_map_makes_the_steps_that_are_planned(arm: str, tmp_path: Path) -> None:
    own = {"trains": "map", "complement": arm, "base.epochs": 0, "stop_after": 1}
    (planned,) = (stage for stage in build("kt_rcnet", own).plan(Strict().base(5)) if not stage.batch)
    execute(build("kt_rcnet", own), Strict(), tmp_path)
    stages = json.loads((tmp_path / "run" / "session-00.json").read_text())["stages"]
    (made,) = (stage for stage in stages if stage["name"] == planned.stage)
    assert made["steps"] == planned.steps > 0
    assert made["macs"] == planned.trained == planned.encoded == 0


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every step of training takes 0.02 seconds longer, the first a second; gives the stages of all steps made."""
    made: list[str] = []
    plain = Loop.descend

    def descend(loop: Loop, loss: torch.Tensor, done: int) -> None:
        time.sleep(0.02 if made else 1.0)
        made.append(loop.name)
        plain(loop, loss, done)

    monkeypatch.setattr(Loop, "descend", descend)
    monkeypatch.setattr(_kt_rcnet_steps, "TIMED", {})
    return made


@pytest.mark.parametrize("arm", ARMS)
def test_a_step_of_a_map_is_timed_as_its_arm_makes_it(arm: str, tiny: Benchmark, slow: list[str]) -> None:
    method = build("kt_rcnet", {"trains": "map", "complement": arm})
    before, noise = {name: value.clone() for name, value in method.state_dict().items()}, torch.get_rng_state()
    assert 0.02 <= method.step_seconds(tiny.base(5), trial(CPU, torch.float32)) < 0.2  # without the first
    assert set(slow) == {"RESA" if arm == "resa" else arm}
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert torch.equal(torch.get_rng_state(), noise)


def test_what_does_not_change_a_step_of_a_map_is_timed_once(tiny: Benchmark, slow: list[str]) -> None:
    alike = [
        {},
        {"transfer.epochs": 8, "tasks": 100, "transfer.lr": 1.0},
        {"views": "flip", "shrinkage": 0.5, "whiten_first": True},
    ]
    made = []
    for changes in [*alike, {"way": 3}]:
        build("kt_rcnet", {"trains": "map", **changes}).step_seconds(tiny.base(5), trial(CPU, torch.float32))
        made.append(len(slow))
    assert made[0] == made[1] == made[2] < made[3]


def test_a_step_of_a_map_that_takes_long_is_not_made_often(tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    monkeypatch.setattr(_kt_rcnet_steps, "TIMED", {})
    monkeypatch.setattr(trying, "PATIENCE", 0.0)
    monkeypatch.setattr(Loop, "descend", lambda loop, loss, done: steps.append(done))
    build("kt_rcnet", {"trains": "map"}).step_seconds(tiny.base(5), trial(CPU, torch.float32))
    assert len(steps) == trying.FEWEST * _kt_rcnet_steps.STEPS


def test_a_rate_at_which_a_map_would_diverge_does_not_spoil_its_plan(tiny: Benchmark) -> None:
    wild = {"trains": "map", "transfer.lr": 1e30, "transfer.optimizer": "sgd", "complement": "means"}
    assert build("kt_rcnet", wild).step_seconds(tiny.base(5), trial(CPU, torch.float32)) > 0
