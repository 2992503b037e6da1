"""The leaves of a configuration: name, type, value, and the comment on the field's line as its help."""

import ast
import dataclasses
import functools
import inspect
import textwrap
import tokenize
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One leaf of a configuration, named by its dotted path."""

    name: str
    hint: object
    value: object
    help: str
    group: str  # comment of the nested dataclass it belongs to, "" at the top


def flatten(config: object) -> dict[str, Setting]:
    """All leaves of a configuration by dotted name, with type, value and the field's comment as help."""
    return {leaf.name: leaf for leaf in _leaves(config)}


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping) and value
        flat |= dotted(value, f"{prefix}{name}.") if inner else {prefix + name: value}
    return flat


def comments(config_class: type) -> dict[str, str]:
    """The comment on each field's own line, by field name, so that a setting is described once: in the source."""
    found: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(owner):
            found |= _own_comments(owner)
    return found


@functools.cache
def _own_comments(owner: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):  # defined where no source file exists
        return {}
    lines = iter(source.splitlines(keepends=True))
    on_line = {
        token.start[0]: token.string.lstrip("#: ")
        for token in tokenize.generate_tokens(lambda: next(lines, ""))
        if token.type == tokenize.COMMENT
    }
    body = typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    return {
        node.target.id: on_line[node.end_lineno]
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in on_line
    }


def _leaves(config: Any, prefix: str = "", group: str = "") -> Iterator[Setting]:
    helps, hints = comments(type(config)), typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, comment = getattr(config, field.name), helps.get(field.name, "")
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.", comment or group)
        else:
            yield Setting(prefix + field.name, hints[field.name], value, comment, group)
