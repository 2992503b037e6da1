"""The method that CONTRIBUTING.md shows is complete: it is taken from the page and learns the tiny benchmark."""

import importlib.util
import re
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from conftest import TINY
from fscil import protocol, settings
from fscil.data.sessions import Benchmark
from fscil.nn import encoders
from fscil.training import Run

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def centred(tmp_path: Path):
    """The module printed on the page."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = tmp_path / "centred.py"
    file.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location("centred", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_printed_method_learns(centred, tiny: Benchmark, run: Run) -> None:
    config = settings.resolve(centred.Config, "centred", "tiny", "paper", TINY)
    method = centred.Method(config, encoders.build(config.encoder, config.pixels))
    protocol.run(method, tiny, run)
    assert method.classes == tiny.order
    assert method.branches[0].centre.abs().sum() > 0
    last = load_file(run.folder.path / "predictions-03.safetensors")
    assert (last["predicted"] == last["truth"]).mean() > 2 / 12
    assert sum(stage.trained for stage in method.plan(next(tiny.sessions()))) == 3 * 180


def test_the_printed_method_has_a_setting_of_its_own(centred) -> None:
    leaves = settings.resolve(centred.Config, "centred", "tiny", "paper", {"strength": 0.5})
    assert leaves.strength == 0.5
