"""Configurations as JSON values, back again, and what differs between two of them."""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path

from fscil.settings.changes import checked, replaced
from fscil.settings.fields import dotted, flatten


def to_dict(config: object) -> dict[str, typing.Any]:
    """A configuration as nested dictionary of JSON values."""
    return {name: _plain(value) for name, value in vars(config).items()}


def from_dict(config_class: type, tree: Mapping[str, object]) -> typing.Any:
    """The configuration of which `to_dict` made this dictionary."""
    changes = checked(dotted(tree), flatten(config_class()), "", f"of {config_class.__module__}")
    return replaced(config_class(), changes)


def differences(there: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """What differs between two nested dictionaries, one line per setting: "base.epochs: 16 there, 20 here"."""
    a, b = ({name: _plain(value) for name, value in dotted(tree).items()} for tree in (there, here))
    texts = {name: [str(tree[name]) if name in tree else "absent" for tree in (a, b)] for name in {**a, **b}}
    return [
        f"{name}: {one} there, {other} here"
        for name, (one, other) in texts.items()
        if (name in a) != (name in b) or a[name] != b[name]
    ]


def _plain(value: object) -> typing.Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
