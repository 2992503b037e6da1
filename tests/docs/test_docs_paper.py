"""docs/paper.md is true: names, settings and commands in it exist, and the recipes settle disagreements as it says."""

import re
import shlex
from functools import cache, reduce
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from fscil.command.cli import application
from fscil.data import Protocol
from fscil.errors import FscilError
from fscil.methods.kt_rcnet import Config, Conventional
from fscil.settings import resolve
from fscil.settings.fields import flatten

PAGE = (Path(__file__).parent.parent.parent / "docs" / "paper.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"`([^`\n]+)`", PAGE)
NAMES = sorted({quoted for quoted in QUOTED if re.fullmatch(r"fscil[\w.]*:[\w.]+", quoted)})
COMMANDS = sorted({quoted for quoted in QUOTED if quoted.startswith("fscil ")})
OPTIONS = sorted({option for quoted in QUOTED for option in re.findall(r"--([\w.-]+)", quoted)})


def section(title: str) -> list[list[str]]:
    """The rows of the table below a heading, without its header."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_page_exists_in_the_code(name: str) -> None:
    module, _, attribute = name.partition(":")
    reduce(getattr, attribute.split("."), import_module(module))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_page_is_understood(command: str) -> None:
    """Parsed as the command line parses them, with every value checked, but not executed."""
    tokens = shlex.split(command)[1:]
    function, _, _ = application(tokens).parse_args(tokens, exit_on_error=False, print_error=False)
    assert callable(function)


def test_a_command_with_a_wrong_setting_would_be_noticed() -> None:
    for command in ("run kt_rcnet cub200 --wy 5", "run kt_rcnet cub200 --synthesis mixdown", "runn kt_rcnet cub200"):
        with pytest.raises((CycloptsError, FscilError)):
            application(command.split()).parse_args(command.split(), exit_on_error=False, print_error=False)


def test_tables_4_and_5_compare_what_begins_as_f1() -> None:
    rows = [row for row in section("Tables") if row[0].startswith(("4 row", "5 row")) and "run kt_rcnet" in row[1]]
    assert len(rows) == 10
    assert [row[0] for row in rows if "--start f1" not in row[1]] == []


def test_every_option_in_the_page_is_a_setting() -> None:
    settings = {name.replace("_", "-") for name in flatten(Config())} | {
        name.replace("_", "-") for name in vars(Protocol())
    }
    of_the_command = {"recipe", "seeds", "out", "save"}
    of_other_methods = {"restart", "nets"}
    assert not {option.replace("_", "-") for option in OPTIONS} - settings - of_the_command - of_other_methods


def test_every_setting_of_the_method_is_explained() -> None:
    """Settings that are KT-RCNet's own (those that all methods share are in docs/recipes.md)."""
    own = Config.__annotations__.keys() - {"transfer", "conventional"} | {
        f"conventional.{name}" for name in vars(Conventional())
    }
    assert not own - set(OPTIONS)


def test_every_equation_line_table_and_figure_is_listed() -> None:
    assert [row[0] for row in section("Equations")][:12] == [str(number) for number in range(1, 13)]
    assert [row[0].split()[0] for row in section("Algorithm 1, line by line")] == [str(n) for n in range(1, 13)]
    assert {row[0].split()[0] for row in section("Tables")} >= set("12345")
    assert [row[0].split()[0] for row in section("Figures")] == ["1", "2", "3", "3", "4", "5"]
    rows = [row[0] for row in section("Tables")]
    assert sum(row.startswith("4 row") for row in rows) == 5
    assert sum(row.startswith("5 row") for row in rows) == 6


@cache
def settings_of(dataset: str, recipe: str) -> dict[str, object]:
    return {leaf.name: leaf.value for leaf in flatten(resolve(Config, "kt_rcnet", dataset, recipe)).values()}


# data set, setting, value in the recipe paper, value in the recipe official
DISAGREEMENTS = [
    ("cifar100", "W1", "means", "learned"),
    ("cub200", "W1", "means", "learned"),
    ("mini_imagenet", "W1", "means", "learned"),
    ("cifar100", "local_smoothing", 0.0, 0.1),
    ("cifar100", "scale", 16.0, 12.0),
    ("cub200", "scale", 16.0, 16.0),
    ("mini_imagenet", "scale", 12.0, 12.0),
    ("cifar100", "transfer.gamma", 0.1, 0.5),
    ("cub200", "transfer.gamma", 0.1, 0.5),
    ("cub200", "transfer.lr", 0.03, 2e-4),
    ("cub200", "transfer.weight_decay", 1e-4, 5e-4),
    ("cub200", "transfer.epochs", 80, 50),
    ("cifar100", "transfer.epochs", 80, 80),
    ("cifar100", "base.batch", 64, 128),
    ("mini_imagenet", "base.batch", 64, 128),
    ("cub200", "base.batch", 128, 128),
    ("cub200", "base.epochs", 50, 50),
    ("cub200", "base.lr", 0.03, 0.1),
    ("cub200", "base.weight_decay", 1e-4, 5e-4),
    ("cifar100", "base.epochs", 150, 150),
    ("cifar100", "base.step_epochs", 40, 40),
    ("cifar100", "augment.brightness", 63 / 255, 63 / 255),
    ("cifar100", "pixels", 224, 224),
    ("cub200", "weights", "pretrained", "pretrained"),
    ("cifar100", "weights", None, None),
    ("cub200", "global_weight", 1.5, 1.5),
    ("cub200", "local_weight", 2.0, 2.0),
    ("cifar100", "local_weight", 1.0, 1.0),
    ("cifar100", "base_relation", 1.0, 1.0),
    ("cifar100", "batch_norm", "train", "train"),
    ("cifar100", "start", "f1", "f1"),
    ("cifar100", "task_pixels", 0, 0),
    ("cifar100", "feature_scale", 1.0, 1.0),
    ("cifar100", "unit_features", False, False),
    ("cifar100", "complement_weight", 1.0, 1.0),
    *(("cifar100", name, value, value) for name, value in (("way", 25), ("shot", 10), ("query", 15))),
    *(("mini_imagenet", name, value, value) for name, value in (("way", 15), ("shot", 20), ("query", 15))),
    *(("cub200", name, value, value) for name, value in (("way", 5), ("shot", 20), ("query", 5))),
]


@pytest.mark.parametrize(("dataset", "setting", "paper", "official"), DISAGREEMENTS)
def test_recipes_settle_the_disagreements_as_told(dataset: str, setting: str, paper: object, official: object) -> None:
    found = [settings_of(dataset, recipe)[setting] for recipe in ("paper", "official")]
    assert found == [paper, official]


def test_paper_and_official_add_nothing_of_their_own() -> None:
    """One test view, no whitening, no bonus, no images held out, SGD with steps: as published."""
    published = {
        "encoder": "resnet18",
        "views": "one",
        "shrinkage": 1.0,
        "new_bonus": 0.0,
        "held_out": 0,
        "base.optimizer": "sgd",
        "base.schedule": "step",
        "base.label_smoothing": 0.0,
        "transfer.optimizer": "sgd",
        "transfer.schedule": "step",
        "transfer.step_epochs": 20,
        "tasks": 200,
        "synthesis": "rotate",
        "complement": "resa",
        "augment.crop": "resized",
        "augment.flip": True,
    }
    for dataset in ("cifar100", "mini_imagenet", "cub200"):
        for recipe in ("paper", "official"):
            assert settings_of(dataset, recipe) | published == settings_of(dataset, recipe)
