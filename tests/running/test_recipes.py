"""The recipes that ship: known names, a claim on every table, exact types, and nothing written twice."""

import re

import pytest
import torch

from fscil import data, methods
from fscil.data import glyphs
from fscil.data.images import TensorImages
from fscil.data.sessions import Session
from fscil.nn import encoders
from fscil.running.planning import stage_macs
from fscil.settings import recipe_names, resolve
from fscil.settings.fields import flatten
from fscil.settings.recipes import ANY, RECIPES, SHARED, recipe_layers, shipped

FILES = sorted(file.stem for file in RECIPES.iterdir())
DATA_SETS = (*data.names(), "a folder of one's own")


@pytest.mark.parametrize("owner", FILES)
def test_a_file_is_named_by_its_method_and_its_tables_by_data_sets(owner: str) -> None:
    assert owner == SHARED or owner in methods.names()
    scopes = {scope for tables in shipped(owner).values() for scope in tables}
    assert scopes
    assert scopes <= {ANY, *data.names()}


@pytest.mark.parametrize("owner", FILES)
def test_every_table_has_a_claim_and_names_its_settings_as_the_command_line_does(owner: str) -> None:
    lines = (RECIPES / f"{owner}.toml").read_text("utf-8").splitlines()
    assert not [line for line in lines if len(line) > 120]
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("["):
            assert re.fullmatch(r"\[\w+(\.\w+)?]", line), line
            assert above.startswith("# "), line


@pytest.mark.parametrize("method", methods.names())
def test_every_recipe_fits_the_settings_of_its_method(method: str) -> None:
    for dataset in DATA_SETS:
        for recipe in recipe_names(method, dataset):
            assert resolve(methods.load(method).Config, method, dataset, recipe) is not None


def test_no_setting_equals_what_it_inherits() -> None:
    idle: dict[tuple[str, str], bool] = {}
    for method in methods.names():
        defaults = {name: leaf.value for name, leaf in flatten(methods.load(method).Config()).items()}
        for dataset in DATA_SETS:
            for recipe in recipe_names(method, dataset):
                _mark_idle(method, dataset, recipe, defaults, idle)
    assert [setting for setting, nowhere_needed in idle.items() if nowhere_needed] == []


def _mark_idle(
    method: str, dataset: str, recipe: str, defaults: dict[str, object], idle: dict[tuple[str, str], bool]
) -> None:
    """Notes for each setting of the recipe whether it changes nothing; one change, anywhere, is enough to need it."""
    values = dict(defaults)
    for layer in recipe_layers(method, dataset, recipe):
        for name, value in layer.changes.items():
            exact = tuple(value) if isinstance(value, list) else value
            place = (layer.source, name)
            idle[place] = idle.get(place, True) and values[name] == exact
            values[name] = exact


def test_a_recipe_may_change_another_one() -> None:
    small, large = (resolve(methods.load("cosine").Config, "cosine", "cifar100", name) for name in ("small", "large"))
    assert (large.encoder, large.base.epochs) == ("fast_large", 28)
    assert (large.base.lr, large.shrinkage, large.augment) == (small.base.lr, small.shrinkage, small.augment)


def test_the_demo_costs_at_most_15_tera_multiply_adds() -> None:
    config = resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "glyphs", "small")
    method = methods.load("kt_rcnet").Method(config, encoders.build(config.encoder, config.pixels))
    shape = {"classes": tuple(range(glyphs.BASE_CLASSES)), "mean": (0.5,) * 3, "std": (0.5,) * 3, "flips": False}
    empty = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)

    def images(per_class: int) -> TensorImages:
        labels = torch.arange(glyphs.BASE_CLASSES).repeat_interleave(per_class)
        return TensorImages(empty, labels, torch.zeros(len(labels), dtype=torch.int64))

    train = images(glyphs.TRAIN - config.held_out)
    base = Session(index=0, train=train, held_out=images(config.held_out), **shape)
    macs = sum(stage_macs(stage, method.f1) for stage in method.plan(base))
    shots = 5 * (len(glyphs.CHARACTERS) - glyphs.BASE_CLASSES)
    later = 2 * shots * method.f1.macs(config.pixels)  # by both nets
    assert macs + later <= 0.015e15
