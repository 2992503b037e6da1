"""The method that CONTRIBUTING.md shows is complete: it is taken from the page and judged like every other method."""

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import test_contract as contract
from safetensors.numpy import load_file

from fscil import methods, settings
from fscil.data.sessions import Benchmark
from fscil.nn import encoders
from fscil.running import protocol
from fscil.running.training import Run
from tiny import TINY

PAGE = Path(__file__).parent.parent.parent / "CONTRIBUTING.md"
NAME = "centred"
GIVEN = {"learn", "learned", "monkeypatch", "name", "tmp_path"}  # what a promise about one method asks for
PROMISES = [
    function
    for name, function in vars(contract).items()
    if name.startswith("test_") and set(inspect.signature(function).parameters) <= GIVEN
]


@pytest.fixture(scope="module")
def centred(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The module printed on the page, loaded as if its file stood among the methods."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = tmp_path_factory.mktemp("page") / f"{NAME}.py"
    file.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(NAME, file)
    module = importlib.util.module_from_spec(spec)
    load = methods.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, NAME, module)  # where the comments of its settings are looked for
        patch.setattr(methods, "load", lambda name: module if name == NAME else load(name))
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def learned(centred: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> contract.Learned:
    return contract.learn_all(NAME, tmp_path_factory.mktemp(NAME))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_printed_method_keeps(
    promise: Callable[..., None], learned: contract.Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"learn": lambda name: learned, "learned": learned, "name": NAME}
    given |= {"monkeypatch": monkeypatch, "tmp_path": tmp_path}
    promise(**{name: given[name] for name in inspect.signature(promise).parameters})


def test_the_whole_contract_is_asked_of_it() -> None:
    asked = {promise.__name__ for promise in PROMISES}
    assert {
        "test_scores_have_a_column_for_each_class_seen_and_no_other",
        "test_state_is_all_that_is_needed_to_predict",
        "test_same_seed_same_numbers_even_when_killed_twice",
        "test_reads_only_the_images_of_the_session",
        "test_what_is_frozen_stays_as_it_was",
    } <= asked


def test_the_printed_method_learns(centred: ModuleType, tiny: Benchmark, run: Run) -> None:
    config = settings.resolve(centred.Config, NAME, "tiny", "paper", TINY)
    method = centred.Method(config, encoders.build(config.encoder, config.pixels))
    protocol.follow(method, tiny, run)
    assert method.classes == tiny.order
    assert method.branches[0].centre.abs().sum() > 0
    last = load_file(run.folder.path / "predictions-03.safetensors")
    assert (last["predicted"] == last["truth"]).mean() > 2 / 12
    assert sum(stage.trained for stage in method.plan(tiny.base())) == 3 * 180


def test_the_printed_method_has_a_setting_of_its_own(centred: ModuleType) -> None:
    leaves = settings.resolve(centred.Config, NAME, "tiny", "paper", {"strength": 0.5})
    assert leaves.strength == 0.5
