"""Settings of a method: dataclass defaults < recipe file < command line, strictly typed, misspellings named."""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from fscil.errors import FscilError
from fscil.settings.fields import Setting, dotted, flatten
from fscil.settings.names import suggestion
from fscil.settings.strict import cast, describe

RECIPES = Path(__file__).parent.parent / "recipes"
SHARED = "shared"  # folder of the part of a recipe that every method takes
DEFAULTS = "paper"  # the recipe that is the dataclass defaults unless a file says otherwise
SMALL = "small"  # the recipe sized for two CPU cores
BELOW = "recipe"  # what names, in a file of the user's, the recipe that the file changes


def recipe_names(method: str, dataset: str) -> tuple[str, ...]:
    """Names of the recipes that ship for a method on a data set."""
    files = [
        file
        for owner in (SHARED, method)
        for scope in (dataset, "any")
        for file in (RECIPES / owner).glob(f"{scope}.*.toml")
    ]
    return tuple(sorted({DEFAULTS} | {file.name.split(".")[1] for file in files}))


def default_recipe(method: str, dataset: str) -> str:
    """The recipe to take when none is named: the one for two CPU cores where it ships, else the defaults."""
    return SMALL if SMALL in recipe_names(method, dataset) else DEFAULTS


def resolve(
    config_class: type,
    method: str,
    dataset: str,
    recipe: str | Path,
    overrides: Mapping[str, object] = types.MappingProxyType({}),
) -> typing.Any:
    """The configuration of a method: its defaults, changed by the recipe, changed by `overrides` ("base.epochs": 3).

    A recipe is what all methods share on the data set (encoder, images, base session), then the method's own file. A
    file of the user's may name the recipe it changes, `recipe = "small"`; else it changes `paper`.
    """
    leaves = flatten(config_class())
    files = _recipe_files(method, dataset, recipe)
    changes: dict[str, object] = {}
    for file in files:
        tree = {name: value for name, value in _read(file).items() if name != BELOW}
        changes |= _checked(dotted(tree), leaves, f"{file}: ", f"in a recipe of {method}")
    changes |= _checked(overrides, leaves, "", f"of {method}")
    try:
        return _replace(config_class(), changes)
    except ValueError as error:
        raise FscilError(f"{f'{files[-1]}: ' if files else ''}{method}: {error}") from error


def to_dict(config: object) -> dict[str, typing.Any]:
    """A configuration as nested dictionary of JSON values."""
    return {name: _plain(value) for name, value in vars(config).items()}


def from_dict(config_class: type, tree: Mapping[str, object]) -> typing.Any:
    """The configuration of which `to_dict` made this dictionary."""
    changes = _checked(dotted(tree), flatten(config_class()), "", f"of {config_class.__module__}")
    return _replace(config_class(), changes)


def differences(there: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """What differs between two nested dictionaries, one line per setting: "base.epochs: 16 there, 20 here"."""
    a, b = ({name: _plain(value) for name, value in dotted(tree).items()} for tree in (there, here))
    told = {name: [str(tree[name]) if name in tree else "absent" for tree in (a, b)] for name in {**a, **b}}
    return [
        f"{name}: {one} there, {other} here"
        for name, (one, other) in told.items()
        if (name in a) != (name in b) or a[name] != b[name]
    ]


def _is_file(recipe: str | Path) -> bool:
    return isinstance(recipe, Path) or recipe.endswith(".toml")


def _recipe_files(method: str, dataset: str, recipe: str | Path) -> list[Path]:
    """The files of a recipe, the shared one first; none for the defaults."""
    if _is_file(recipe):
        return [*_below(method, dataset, Path(recipe)), Path(recipe)]
    files = [file for owner in (SHARED, method) if (file := _owned_recipe(owner, dataset, str(recipe)))]
    if files or recipe == DEFAULTS:
        return files
    raise FscilError(
        f"unknown recipe {recipe!r} for {method} on {dataset}: {suggestion(str(recipe), recipe_names(method, dataset))}"
    )


def _below(method: str, dataset: str, file: Path) -> list[Path]:
    """The files of the recipe that a user's file changes."""
    shipped = recipe_names(method, dataset)
    if file.stem in shipped:
        raise FscilError(
            f"{file} has the name of a shipped recipe, and its runs would be taken for it; rename the file"
        )
    name = _read(file).get(BELOW, DEFAULTS)
    if name not in shipped:
        raise FscilError(f"{file}: {BELOW} = {_shown(name)} is no shipped recipe: {suggestion(str(name), shipped)}")
    return _recipe_files(method, dataset, str(name))


def _owned_recipe(owner: str, dataset: str, recipe: str) -> Path | None:
    """The recipe's file for the data set, else the one for any data set."""
    candidates = [RECIPES / owner / f"{scope}.{recipe}.toml" for scope in (dataset, "any")]
    return next((file for file in candidates if file.is_file()), None)


def _read(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FscilError(f"cannot read the recipe {file}: {error.strerror}") from error
    except ValueError as error:  # includes TOMLDecodeError and UnicodeDecodeError
        raise FscilError(f"{file} is not a valid TOML file: {error}") from error


def _checked(values: Mapping[str, object], leaves: Mapping[str, Setting], where: str, whose: str) -> dict[str, object]:
    """The values with their exact types; `where` (a file) and `whose` (a method) are only for the error messages."""
    return {name: _value(name, value, leaves, where, whose) for name, value in values.items()}


def _value(name: str, value: object, leaves: Mapping[str, Setting], where: str, whose: str) -> object:
    if name not in leaves:
        inside = [leaf for leaf in leaves if leaf.startswith(f"{name}.")]
        if inside:
            raise FscilError(f"{where}{name!r} is a group of settings, not a value: set one of {', '.join(inside)}")
        raise FscilError(f"{where}unknown setting {name!r} {whose}: {suggestion(name, leaves)}")
    try:
        return cast(value, leaves[name].hint)
    except (ValueError, OverflowError) as error:
        raise FscilError(f"{where}{name} = {_shown(value)} is not {describe(leaves[name].hint)}") from error


def _replace(config: typing.Any, changes: Mapping[str, object]) -> typing.Any:
    """A copy of nested dataclasses with leaves changed by dotted name."""
    mine = {name: value for name, value in changes.items() if "." not in name}
    nested: dict[str, dict[str, object]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if rest:
            nested.setdefault(head, {})[rest] = value
    return dataclasses.replace(config, **mine, **{n: _replace(getattr(config, n), c) for n, c in nested.items()})


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: object) -> typing.Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
