"""From a method's defaults to its configuration: the recipe's layers, then the user's overrides."""

import types
import typing
from collections.abc import Mapping
from pathlib import Path

from fscil.errors import FscilError
from fscil.settings.changes import checked, replaced
from fscil.settings.fields import flatten
from fscil.settings.recipes import recipe_layers


def resolve(
    config_class: type,
    method: str,
    dataset: str,
    recipe: str | Path,
    overrides: Mapping[str, object] = types.MappingProxyType({}),
) -> typing.Any:
    """The configuration of a method: its defaults, changed by the recipe, changed by `overrides` ("base.epochs": 3).

    A recipe is what all methods share (encoder, images, base session), then what is the method's own; in each, the
    table of the data set is laid over the one for any.
    """
    leaves = flatten(config_class())
    layers = recipe_layers(method, dataset, recipe)
    changes: dict[str, object] = {}
    for layer in layers:
        changes |= checked(layer.changes, leaves, f"{layer.source}: ", f"in a recipe of {method}")
    changes |= checked(overrides, leaves, "", f"of {method}")
    try:
        return replaced(config_class(), changes)
    except ValueError as error:
        raise FscilError(f"{f'{layers[-1].source}: ' if layers else ''}{method}: {error}") from error
