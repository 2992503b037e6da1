"""Recipes: which of them ship for a method on a data set, and the settings that they change, layer by layer.

One file per method, and `shared.toml` for what all methods take. The table `[small.cifar100]` is the recipe `small` on
CIFAR-100; it is laid over `[small.any]`, which holds for every data set.
"""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fscil.errors import FscilError
from fscil.settings.fields import dotted
from fscil.settings.names import suggestion
from fscil.settings.strict import shown

RECIPES = Path(__file__).parent.parent / "recipes"
SHARED = "shared"  # file of the part of a recipe that every method takes
ANY = "any"  # table that every data set inherits
DEFAULTS = "paper"  # the recipe that is the dataclass defaults unless a table says otherwise
SMALL = "small"  # the recipe sized for two CPU cores
BELOW = "recipe"  # what names, in a file of the user's or in a table of a recipe, the recipe that it changes

Tables = dict[str, dict[str, Mapping[str, object]]]  # by recipe, then by data set


@dataclass(frozen=True)
class Layer:
    """The settings that one table, or one file of the user's, changes."""

    source: str  # file and table, for error messages
    changes: Mapping[str, object]  # by dotted name


def recipe_names(method: str, dataset: str) -> tuple[str, ...]:
    """Names of the recipes that ship for a method on a data set."""
    names = {
        recipe
        for owner in (SHARED, method)
        for recipe, tables in shipped(owner).items()
        if tables.keys() & {dataset, ANY}
    }
    return tuple(sorted({DEFAULTS} | names))


def default_recipe(method: str, dataset: str) -> str:
    """The recipe to take when none is named: the one for two CPU cores where it ships, else the defaults."""
    return SMALL if SMALL in recipe_names(method, dataset) else DEFAULTS


def recipe_layers(method: str, dataset: str, recipe: str | Path) -> list[Layer]:
    """The layers of a recipe, each changing those before: shared, then the method's own; none for the defaults.

    A file of the user's comes last, on top of the recipe that it names with `recipe = "small"`, else on top of `paper`.
    """
    if isinstance(recipe, Path) or recipe.endswith(".toml"):
        return _user_layers(method, dataset, Path(recipe))
    names = recipe_names(method, dataset)
    if recipe not in names:
        raise FscilError(f"unknown recipe {recipe!r} for {method} on {dataset}: {suggestion(recipe, names)}")
    below = _below(method, dataset, recipe)
    layers = recipe_layers(method, dataset, below) if below else []
    return [*layers, *(layer for owner in (SHARED, method) for layer in _shipped_layers(owner, dataset, recipe))]


def _below(method: str, dataset: str, recipe: str) -> str | None:
    """The shipped recipe that another one changes: on this data set, where its table names one, else everywhere."""
    files = [_recipes(owner).get(recipe, {}) for owner in (SHARED, method)]
    named = [file[dataset].get(BELOW) for file in files if dataset in file] + [file.get(BELOW) for file in files]
    return next((str(name) for name in named if name), None)


def shipped(owner: str) -> Tables:
    """The tables in the file of a method, or in the one that all share; none without a file."""
    return {
        recipe: {
            scope: {name: value for name, value in table.items() if name != BELOW}
            for scope, table in scopes.items()
            if scope != BELOW
        }
        for recipe, scopes in _recipes(owner).items()
    }


def _recipes(owner: str) -> dict[str, Mapping[str, Any]]:
    """What stands in a shipped file: for each recipe the tables of data sets, and the recipe that it changes."""
    file = _file(owner)
    recipes = _read(file) if file.is_file() else {}
    return {recipe: _checked(file, recipe, scopes) for recipe, scopes in recipes.items()}


def _checked(file: Path, recipe: str, scopes: object) -> Mapping[str, Any]:
    if not isinstance(scopes, Mapping):
        raise FscilError(f"{file}: {recipe!r} stands in no table: write it below [RECIPE.{ANY}] or [RECIPE.DATASET]")
    loose = next((name for name, table in scopes.items() if name != BELOW and not isinstance(table, Mapping)), None)
    if loose is not None:
        raise FscilError(f"{file} [{recipe}]: {loose!r} stands outside of [{recipe}.{ANY}] and [{recipe}.DATASET]")
    return scopes


def _shipped_layers(owner: str, dataset: str, recipe: str) -> Iterator[Layer]:
    tables = shipped(owner).get(recipe, {})
    for scope in (ANY, dataset):
        if scope in tables:
            yield Layer(f"{_file(owner)} [{recipe}.{scope}]", dotted(tables[scope]))


def _user_layers(method: str, dataset: str, file: Path) -> list[Layer]:
    names = recipe_names(method, dataset)
    if file.stem in names:
        raise FscilError(
            f"{file} has the name of a shipped recipe, and its runs would be taken for it; rename the file"
        )
    tree = dict(_read(file))
    below = tree.pop(BELOW, DEFAULTS)
    if below not in names:
        raise FscilError(f"{file}: {BELOW} = {shown(below)} is no shipped recipe: {suggestion(str(below), names)}")
    return [*recipe_layers(method, dataset, str(below)), Layer(str(file), dotted(tree))]


def _file(owner: str) -> Path:
    return RECIPES / f"{owner}.toml"


def _read(file: Path) -> Mapping[str, object]:
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FscilError(f"cannot read the recipe {file}: {error.strerror}") from error
    except ValueError as error:  # includes TOMLDecodeError and UnicodeDecodeError
        raise FscilError(f"{file} is not a valid TOML file: {error}") from error


@functools.cache  # a list of all methods asks for the shared tables a hundred times
def _parsed(text: str) -> Mapping[str, object]:
    return tomllib.loads(text)
