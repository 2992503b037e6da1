"""Changes of a configuration by dotted name: checked against its types, then made."""

import dataclasses
import typing
from collections.abc import Mapping

from fscil.errors import FscilError
from fscil.settings.fields import Setting
from fscil.settings.names import suggestion
from fscil.settings.strict import cast, describe, shown


def checked(values: Mapping[str, object], leaves: Mapping[str, Setting], where: str, whose: str) -> dict[str, object]:
    """The values with their exact types; `where` (a file) and `whose` (a method) are only for the error messages."""
    return {name: _value(name, value, leaves, where, whose) for name, value in values.items()}


def replaced(config: typing.Any, changes: Mapping[str, object]) -> typing.Any:
    """A copy of nested dataclasses with leaves changed by dotted name."""
    mine = {name: value for name, value in changes.items() if "." not in name}
    nested: dict[str, dict[str, object]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if rest:
            nested.setdefault(head, {})[rest] = value
    return dataclasses.replace(config, **mine, **{n: replaced(getattr(config, n), c) for n, c in nested.items()})


def _value(name: str, value: object, leaves: Mapping[str, Setting], where: str, whose: str) -> object:
    if name not in leaves:
        inside = [leaf for leaf in leaves if leaf.startswith(f"{name}.")]
        if inside:
            raise FscilError(f"{where}{name!r} is a group of settings, not a value: set one of {', '.join(inside)}")
        raise FscilError(f"{where}unknown setting {name!r} {whose}: {suggestion(name, leaves)}")
    try:
        return cast(value, leaves[name].hint)
    except (ValueError, OverflowError) as error:
        raise FscilError(f"{where}{name} = {shown(value)} is not {describe(leaves[name].hint)}") from error
