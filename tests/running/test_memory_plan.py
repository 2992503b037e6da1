"""The memory of a run before it begins: what training keeps, and what images that are only encoded need."""

from pathlib import Path

import pytest

from apart import always_tiny as always_tiny  # a fixture
from apart import tiny_experiment
from fscil.methods.shared.method import PlannedStage
from fscil.nn import encoders
from fscil.running.experiment import plan
from fscil.running.planning import layer_bytes, pass_bytes

LAYER = 16 * 32 * 32 * 4  # bytes of an image in the widest layers of ResNet-20
IMAGE = 3 * 32 * 32 * 4


def test_images_that_are_only_encoded_need_a_portion_of_the_largest_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, stage = encoders.build("resnet20", 32), PlannedStage("prototypes", 32, 1, 500, 0, 30_000)
    kept, passing = layers = layer_bytes(encoder, 32)
    assert passing == 2 * LAYER  # what goes in and what comes out
    assert kept > 10 * passing
    assert pass_bytes(stage, layers) == 500 * (2 * IMAGE + passing)
    monkeypatch.setattr(encoders, "PIXELS", 10 * 32 * 32)
    assert pass_bytes(stage, layers) == 500 * 2 * IMAGE + 10 * passing
    assert pass_bytes(stage, layers, devices=2) == 2 * pass_bytes(stage, layers)  # each encodes all of them


def test_a_step_with_a_teacher_needs_what_is_kept_and_a_portion_beside_it() -> None:
    encoder = encoders.build("resnet20", 32)
    kept, passing = layers = layer_bytes(encoder, 32)
    alone, taught = (pass_bytes(PlannedStage("base", 32, 10, 50, 500, told), layers) for told in (0, 500))
    assert alone == 50 * (2 * IMAGE + kept)
    assert taught == alone + 50 * passing


def test_a_run_with_small_steps_needs_the_memory_of_its_prototypes(tmp_path: Path) -> None:
    """150 images are encoded at once, whatever the steps of training are."""
    tiny, smaller = (plan(tiny_experiment(tmp_path, "cosine", changes={"base.batch": n})) for n in (4, 2))
    assert tiny["memory_bytes"] == smaller["memory_bytes"] > 16 * tiny["parameters"] + 150 * 2 * 3 * 16 * 16 * 4
