"""An experiment as its TOML file describes it: every name in it is checked before anything is run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fscil import data, methods
from fscil.errors import FscilError
from fscil.settings.fields import dotted, flatten
from fscil.settings.names import suggestion
from fscil.settings.strict import cast, describe, shown

SHIPPED = Path(__file__).parent / "shipped"
ALL = "all"  # as `methods`: every method there is

Settings = Mapping[str, object]  # by dotted name, of the method and of the sessions, as on the command line
TEXTS = {"title": "", "shows": "", "note": "", "dataset": "", "recipe": "", "method": "", "reference": ""}
TABLES = ("settings", "axes", "choices", "repeats", "arms")
DATASET, ARM = "dataset", "arm"  # may be asked for by `when`, as settings are; --only names arms so too
KEYS = (*TEXTS, *TABLES, "methods", "seeds", "exceptions", "omit")
OF_ARM = ("method", "of", "branch", "published")  # what an arm says beside its settings


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A named group of settings; or another arm's run, of which one branch is read."""

    name: str
    method: str
    settings: Settings = field(default_factory=dict)
    of: str = ""  # the arm whose runs it reads
    branch: str = ""  # the branch whose answers it reads; none: the method's own
    published: str = ""  # the row of the paper that stands beside


@dataclass(frozen=True, kw_only=True)
class Exceptional:
    """Settings for those cells in which other settings have certain values."""

    when: Settings
    settings: Settings


def holds(when: Settings, facts: Settings) -> bool:
    """Whether everything that `when` names has its value, or one of its values."""
    return all(
        name in facts and (facts[name] == value or (isinstance(value, list) and facts[name] in value))
        for name, value in when.items()
    )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms at every point of the axes, each repeated over seeds and what else it is averaged over."""

    name: str
    source: Path
    title: str
    shows: str  # the table or figure of the paper
    note: str
    dataset: str  # where the command names none
    recipe: str  # empty: the default one of each method
    seeds: int
    arms: tuple[Arm, ...]
    reference: str  # the arm that others are compared with; empty: the first
    settings: Settings  # of every cell
    axes: Mapping[str, tuple[object, ...]]
    choices: Mapping[str, Mapping[str, Settings]]  # like axes, but of values that are groups of settings
    repeats: Mapping[str, tuple[object, ...]]  # like axes, but averaged over, as seeds are
    exceptions: tuple[Exceptional, ...]
    omissions: tuple[Settings, ...]  # what cells have in common that are run only where --only asks for them

    @property
    def places(self) -> dict[str, tuple[object, ...]]:
        """Axes and choices, which together make the points."""
        return {**self.axes, **{name: tuple(groups) for name, groups in self.choices.items()}}

    def owner(self, arm: Arm) -> Arm:
        """The arm whose runs an arm reads: its own, or those of another."""
        return next(other for other in self.arms if other.name == arm.of) if arm.of else arm


def names() -> tuple[str, ...]:
    """The experiments that ship."""
    return tuple(sorted(file.stem for file in SHIPPED.glob("*.toml")))


def load(name: str) -> Experiment:
    """A shipped experiment by its name, or one of the user's by its file."""
    if name.endswith(".toml"):
        return _read_users(Path(name))
    if name not in names():
        advice = "or give a .toml file of your own"
        raise FscilError(f"unknown experiment {name!r}: {suggestion(name, (*names(), 'gradcam'))} {advice}")
    return read(SHIPPED / f"{name}.toml")


def _read_users(file: Path) -> Experiment:
    if file.stem in names() and file.resolve().parent != SHIPPED:
        raise FscilError(f"{file} has the name of a shipped experiment and would be taken for it; rename the file")
    return read(file)


def read(file: Path) -> Experiment:
    """The experiment in a file, known to name nothing that does not exist."""
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise FscilError(f"cannot read the experiment {file}: {problem.strerror}") from problem
    except ValueError as problem:  # includes TOMLDecodeError and UnicodeDecodeError
        raise FscilError(f"{file} is not a valid TOML file: {problem}") from problem
    try:
        experiment = _experiment(file, tree)
        _check(experiment)
    except FscilError as problem:
        raise FscilError(f"{file}: {problem}") from problem
    return experiment


def _experiment(file: Path, tree: Mapping[str, Any]) -> Experiment:
    _check_keys(tree, KEYS, "the file")
    texts = {name: _typed(tree, name, str, default) for name, default in TEXTS.items()}
    tables = {name: _typed_table(tree, name) for name in TABLES}
    return Experiment(
        name=file.stem,
        source=file,
        arms=_arms(tree, texts.pop("method"), tables["arms"]),
        settings=dotted(tables["settings"]),
        axes=_axes(tables["axes"], "axis"),
        choices=_choices(tables["choices"]),
        repeats=_axes(tables["repeats"], "repetition"),
        seeds=_typed(tree, "seeds", int, 1),
        exceptions=tuple(map(_exception, _typed_list(tree, "exceptions"))),
        omissions=tuple(map(_omission, _typed_list(tree, "omit"))),
        **texts,
    )


def _arms(tree: Mapping[str, Any], method: str, tables: Mapping[str, Any]) -> tuple[Arm, ...]:
    """An arm for each of a list of methods, then those of the file in their order; a method alone is the only arm."""
    made = tuple(_arm(name, _typed_table(tables, name), method) for name in tables)
    if "methods" not in tree:
        swept = {*_typed_table(tree, "axes"), *_typed_table(tree, "choices")}  # the paper's number is of one point
        return made or (Arm(name=method, method=method, published="" if swept else method),)
    if method:
        raise FscilError("'methods' makes an arm of each method: omit 'method', or omit 'methods'")
    listed = methods.names() if tree["methods"] == ALL else _typed(tree, "methods", tuple[str, ...], ())
    return (*(Arm(name=name, method=name, published=name) for name in listed), *made)


def _arm(name: str, table: Mapping[str, Any], method: str) -> Arm:
    facts = {key: _typed(table, key, str, "") for key in OF_ARM}
    own = dotted({key: value for key, value in table.items() if key not in OF_ARM})
    if facts["of"] and (own or facts["method"]):
        raise FscilError(f"arm {name!r} reads the runs of {facts['of']!r}: it has no method and settings of its own")
    return Arm(name=name, settings=own, **{**facts, "method": facts["method"] or method})


def _axes(table: Mapping[str, Any], kind: str) -> dict[str, tuple[object, ...]]:
    axes = dotted(table)
    for name, values in axes.items():
        if not isinstance(values, list):
            raise FscilError(f"{kind} {name!r} is {shown(values)}, but must be a list of values")
        if not values:
            raise FscilError(f"{kind} {name!r} has no values, so the experiment has no cells; give it one")
        if any(value in values[:place] for place, value in enumerate(values)):
            raise FscilError(f"{kind} {name!r} names a value twice; omit one of them")
    return {name: tuple(values) for name, values in axes.items()}


def _choices(table: Mapping[str, Any]) -> dict[str, dict[str, Settings]]:
    choices = {name: _typed_table(table, name) for name in table}
    for name, groups in choices.items():
        if not groups:
            raise FscilError(f"choice {name!r} has no groups, so the experiment has no cells; give it one")
    return {name: {group: dotted(_typed_table(groups, group)) for group in groups} for name, groups in choices.items()}


def _exception(table: Any) -> Exceptional:
    return Exceptional(**_conditional(table, "exceptions", ("when", "settings")))


def _omission(table: Any) -> Settings:
    when = _conditional(table, "omit", ("when",))["when"]
    if not when:
        raise FscilError("[[omit]] without 'when' would leave every cell out: say which")
    return when


def _conditional(table: Any, name: str, keys: tuple[str, ...]) -> dict[str, Settings]:
    """The inner tables of one of a list of tables that hold for some cells."""
    if not isinstance(table, Mapping):
        raise FscilError(f"{name} are tables: write [[{name}]] with {' and '.join(map(repr, keys))}")
    _check_keys(table, keys, f"[[{name}]]")
    return {key: dotted(_typed_table(table, key)) for key in keys}


def _check(experiment: Experiment) -> None:
    """Refuses names that nothing has, and what cannot be run."""
    if not experiment.arms:
        raise FscilError("the experiment has no cells: name a method, methods or arms")
    if experiment.seeds < 1:
        raise FscilError(f"seeds is {experiment.seeds}, but must be at least 1")
    data.check_name(experiment.dataset)
    named = [arm.name for arm in experiment.arms]
    if experiment.reference and experiment.reference not in named:
        raise FscilError(f"reference is no arm: {suggestion(experiment.reference, named)}")
    for arm in experiment.arms:
        _check_arm(arm, experiment)


def _check_arm(arm: Arm, experiment: Experiment) -> None:
    owners = [other.name for other in experiment.arms if not other.of]
    if arm.of and arm.of not in owners:
        raise FscilError(f"arm {arm.name!r} reads the runs of {arm.of!r}: {suggestion(arm.of, owners)}")
    method = experiment.owner(arm).method
    if not method:
        raise FscilError(f"arm {arm.name!r} has no method: write method = … in it, or for all arms above")
    known = settings_of(method)
    _check_settings(arm.settings, known, "setting", f"of {method} in arm {arm.name!r}")
    _check_settings(experiment.settings, known, "setting", f"of {method}")
    _check_settings(experiment.axes, known, "axis", f"of {method}")
    _check_settings(experiment.repeats, known, "repetition", f"of {method}")
    for groups in experiment.choices.values():
        for name, settings in groups.items():
            _check_settings(settings, known, "setting", f"of {method} in group {name!r}")
    for exceptional in experiment.exceptions:
        _check_settings(exceptional.settings, known, "setting", f"of {method} in an exception")
    for when in (*(exceptional.when for exceptional in experiment.exceptions), *experiment.omissions):
        _check_settings(when, known | {DATASET, ARM, *experiment.choices}, "setting", f"of {method} in 'when'")


def changes(texts: Iterable[str], experiment: Experiment) -> dict[str, object]:
    """Settings from texts such as "way=5" or "weights=net.safetensors", each known to a method of the experiment."""
    known = set().union(*(settings_of(experiment.owner(arm).method) for arm in experiment.arms))
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise FscilError(f"--set {text} is no NAME=VALUE; write it like --set base.epochs=3")
        _check_settings([name], known, "setting", "in --set")
        if name in {**experiment.axes, **experiment.repeats}:
            raise FscilError(f"--set {text}: the cells of {experiment.name} differ in {name}; take --only {name}=…")
        pairs[name] = _value(value)
    return pairs


def _value(text: str) -> object:
    """A value as TOML would read it; what is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def settings_of(method: str) -> set[str]:
    """The names, with dots, of the settings of a method and of the sessions."""
    return {*flatten(methods.load(method).Config()), *vars(data.PUBLISHED)}


def _check_settings(names: Iterable[str], known: set[str], kind: str, whose: str) -> None:
    for name in names:
        if name not in known:
            raise FscilError(f"unknown {kind} {name!r} {whose}: {suggestion(name, known)}")


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise FscilError(f"unknown entry {key!r} in {where}: {suggestion(key, known)}")


def _typed(table: Mapping[str, Any], key: str, hint: Any, default: Any) -> Any:
    if key not in table:
        return default
    try:
        return cast(table[key], hint)
    except ValueError as problem:
        raise FscilError(f"{key} = {shown(table[key])} is not {describe(hint)}") from problem


def _typed_table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise FscilError(f"{key} = {shown(inner)} is no table: write [{key}] and its entries below it")
    return inner


def _typed_list(table: Mapping[str, Any], key: str) -> list[Any]:
    inner = table.get(key, [])
    if not isinstance(inner, list):
        raise FscilError(f"{key} is no list of tables: write [[{key}]] above each of them")
    return inner
