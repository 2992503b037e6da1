"""Command-line options made from dataclasses: a field's type, value and comment become its option."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

from fscil.command.show import value_text
from fscil.errors import FscilError
from fscil.settings.fields import Setting


def _whole(_hint: object, tokens: Sequence[Token]) -> int:
    """An int and nothing else: cyclopts by itself rounds 3.5 to 4."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


def _number(_hint: object, tokens: Sequence[Token]) -> float:
    try:
        return float(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a number") from None


def _at_least_one(_hint: object, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError("It must be 1 or more.")


Whole = Annotated[int, Parameter(converter=_whole)]
Share = Annotated[float, Parameter(converter=_number)]
Count = Annotated[int, Parameter(converter=_whole, validator=_at_least_one)]


class Varied(Setting):
    """A setting that every method has, each with a value of its own."""


def _of_each_method(_value: object) -> str:
    return "that of each method"


def option(setting: Setting, group: Group, spelling: str) -> inspect.Parameter:
    """The option `--spelling` of a setting; the help shows its present value as default."""
    details = Parameter(
        name=f"--{spelling}",
        help=setting.help,
        group=group,
        show_default=_of_each_method if isinstance(setting, Varied) else value_text,
        negative_iterable=(),
        consume_multiple=1 if typing.get_origin(setting.hint) is tuple else None,
    )
    return inspect.Parameter(
        _identifier(setting.name),
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[_strict(setting.hint), details],
        default=setting.value,
    )


def options(settings: Mapping[str, Setting], title: str) -> list[inspect.Parameter]:
    """The options of a configuration, spelt as in recipe files; each nested dataclass is a panel of the help."""
    groups: dict[str, Group] = {}
    made = []
    for setting in settings.values():
        prefix = setting.name.rpartition(".")[0]
        heading = f"{title}, {prefix}: {setting.group}".rstrip(": ") if prefix else title
        group = groups.setdefault(prefix, Group.create_ordered(heading))
        made.append(option(setting, group, setting.name))
    return made


def with_options(command: Callable[..., None], extra: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The command with its parameter `given` replaced by options; those that the user gave arrive in it by name."""
    extra = tuple(extra)
    names = {parameter.name: parameter.name.replace(_DOT, ".") for parameter in extra}
    fixed = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]

    @functools.wraps(command)
    def widened(*positional: Any, **named: Any) -> None:
        given = {names[name]: named.pop(name) for name in names if name in named}
        command(*positional, given=given, **named)

    widened.__signature__ = inspect.Signature([*fixed, *extra])  # type: ignore[attr-defined]
    return widened


def shared(methods: Mapping[str, Mapping[str, Setting]], tokens: Iterable[str]) -> dict[str, Setting]:
    """The settings that all methods have; an option among the tokens that only some of them have is refused."""
    first, *others = methods.values()
    common = {name: s for name, s in first.items() if all(o.get(name, s).hint == s.hint and name in o for o in others)}
    for token in (token for token in tokens if token.startswith("--")):
        name = token.removeprefix("--").partition("=")[0].replace("-", "_")
        lacking = [method for method, settings in methods.items() if name not in settings]
        if name not in common and 0 < len(lacking) < len(methods):
            raise FscilError(f"--{name} is no setting of {', '.join(lacking)}: run the others without it")
    return {name: _common_value(name, setting, others) for name, setting in common.items()}


def _common_value(name: str, setting: Setting, others: Sequence[Mapping[str, Setting]]) -> Setting:
    if all(other[name].value == setting.value for other in others):
        return setting
    return Varied(**vars(setting))


_DOT = "__"


def _identifier(name: str) -> str:
    return name.replace(".", _DOT)


def _strict(hint: Any) -> Any:
    """The same type, with every int in it read by `_whole`."""
    if hint is int:
        return Whole
    arguments = tuple(_strict(argument) for argument in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return types.GenericAlias(tuple, arguments)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[arguments]  # noqa: UP007 (the members are known only here)
    return hint
