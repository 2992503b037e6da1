"""Values as exactly the type they are declared with: no number from a text, no whole number from 3.5."""

import types
import typing
from collections.abc import Iterable


def cast(value: object, hint: object) -> object:
    """The value as the hinted type; ValueError unless it already is one (an int is also a float, a list a tuple)."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _cast_union(value, arguments)
    if origin is typing.Literal:
        matching = [choice for choice in arguments if type(choice) is type(value) and choice == value]
        if matching:
            return matching[0]
        raise ValueError(value)
    if origin is tuple:
        return _cast_tuple(value, arguments)
    if hint is float and type(value) is int:
        return float(value)
    if hint in (int, float, bool, str, types.NoneType) and type(value) is hint:
        return value
    raise ValueError(value)


def _cast_union(value: object, members: Iterable[object]) -> object:
    """The first member that fits; the text "none" stands for None, which TOML lacks."""
    members = tuple(members)
    if types.NoneType in members and value == "none":
        return None
    for member in members:
        try:
            return cast(value, member)
        except ValueError:
            continue
    raise ValueError(value)


def _cast_tuple(value: object, members: tuple[object, ...]) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(value)
    if members[-1:] == (Ellipsis,):
        members = members[:1] * len(value)
    return tuple(cast(item, member) for item, member in zip(value, members, strict=True))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", types.NoneType: "'none'"}


def describe(hint: object) -> str:
    """A type in words, for error messages."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if typing.get_origin(hint) is tuple:
        return f"a list, each {describe(arguments[0])}" if arguments[-1] is ... else f"{len(arguments)} values"
    if arguments:
        return " or ".join(describe(argument) for argument in arguments)
    return _WORDS.get(typing.cast(type, hint), str(hint))


def shown(value: object) -> str:
    """A value as TOML writes it, for error messages."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
