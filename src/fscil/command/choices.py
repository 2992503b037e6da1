"""What a command line chooses: methods, data set, recipe, protocol and settings."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cyclopts import Group

from fscil import data, methods, settings
from fscil.command.options import option, options, shared
from fscil.settings.fields import flatten

PROTOCOL = {field.name for field in dataclasses.fields(data.Protocol)}
FREE_TEXT = ("--root", "--recipe", "--out", "--split", "--weights")  # their values may read like a method or a data set


def method_names(text: str) -> list[str]:
    """The methods in "a,b" or "all", known to exist."""
    names = list(methods.names()) if text == "all" else text.split(",")
    for name in names:
        methods.load(name)
    return names


def config(method: str, dataset: str, recipe: str | None, given: Mapping[str, Any]) -> Any:
    """The configuration of a method under a recipe (None: the default one), changed by the options given."""
    own = {name: value for name, value in given.items() if name not in PROTOCOL}
    chosen = recipe or settings.default_recipe(method, dataset)
    return settings.resolve(methods.load(method).Config, method, dataset, chosen, own)


def protocol(given: Mapping[str, Any]) -> data.Protocol:
    """The protocol that the options given describe."""
    return data.Protocol(**{name: value for name, value in given.items() if name in PROTOCOL})


def protocol_options() -> list[inspect.Parameter]:
    """One option per field of the protocol."""
    group = Group.create_ordered("Sessions")
    fields = flatten(data.Protocol()).values()
    return [option(field, group, field.name.replace("_", "-")) for field in fields]


def method_options(tokens: Sequence[str]) -> list[inspect.Parameter]:
    """One option per setting of the methods that the command line names; none where it names no method."""
    words = _words(tokens) if tokens[:1] == ["run"] else []
    misspelt = [word for word in words[:1] if word == tokens[1]]  # where methods stand, before any option
    named = [word for word in words if _names_methods(word)] or misspelt
    if not named:
        return []
    later = words[words.index(named[0]) + 1 :]
    dataset = next((word for word in later if word in data.names()), "any data set")
    recipe = _value_of("--recipe", tokens)
    known = {name: flatten(config(name, dataset, recipe, {})) for name in method_names(named[0])}
    return options(shared(known, tokens), f"Settings of {', '.join(known)}")


def _words(tokens: Sequence[str]) -> list[str]:
    """What may be a method or a data set, after the verb: no option, and no text that is the value of one."""
    return [word for before, word in pairwise(tokens) if not word.startswith("-") and before not in FREE_TEXT]


def _names_methods(word: str) -> bool:
    return word == "all" or set(word.split(",")) <= set(methods.names())


def _value_of(name: str, tokens: Sequence[str]) -> str | None:
    """The value of an option before the command line is parsed."""
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.partition("=")[0] == name:
            return token.partition("=")[2] or following
    return None
