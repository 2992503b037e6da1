"""Settings: defaults < recipe < overrides; strict types; misspellings are named with the right spelling."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from fscil import settings
from fscil.command import choices
from fscil.errors import FscilError
from fscil.settings import recipes as recipe_files
from fscil.settings.fields import Setting, dotted, flatten
from fscil.settings.names import suggestion
from fscil.settings.strict import cast


@dataclass(frozen=True, kw_only=True)
class Descent:
    epochs: int = 100  # passes over the images
    lr: float = 0.1  # learning rate
    schedule: Literal["step", "cosine"] = "step"  # how the rate falls


@dataclass(frozen=True, kw_only=True)
class Training(Descent):
    batch: int = 128  # images per step


@dataclass(frozen=True, kw_only=True)
class Config:
    scale: float = 16.0  # s, the factor inside the softmax
    flip: bool = True  # whether images are mirrored
    weights: str | None = None  # local file
    limit: int | None = 7
    sizes: tuple[int, ...] = ()  # image sizes # in order
    pair: tuple[float, float] = (0.5, 0.5)
    base: Training = field(default_factory=lambda: Training(epochs=20))  # the base session

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError("scale must be positive")


TOY = """
[small.any]
scale = 5.5
flip = false

[small.glyphs]
scale = 4
base.epochs = 3
sizes = [8, 16]

[official.any]
base.schedule = "cosine"

[compare.glyphs]
scale = 6
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "toy.toml").write_text(TOY)
    monkeypatch.setattr(recipe_files, "RECIPES", folder)
    return folder


def resolve(
    recipe: str | Path = "paper", overrides: dict[str, object] | None = None, dataset: str = "glyphs"
) -> Config:
    return settings.resolve(Config, "toy", dataset, recipe, overrides or {})


def add(folder: Path, owner: str, table: str) -> None:
    """Adds a table to the file of a method, or to the one that all share."""
    file = folder / f"{owner}.toml"
    file.write_text(f"{file.read_text() if file.exists() else ''}\n{table}\n")


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_paper_is_the_defaults(recipes: Path) -> None:
    assert resolve("paper") == Config()


def test_a_table_may_say_what_paper_means_on_one_data_set(recipes: Path) -> None:
    add(recipes, "toy", "[paper.cub200]\nbase.epochs = 9")
    assert resolve("paper", dataset="cub200").base.epochs == 9
    assert resolve("paper", dataset="glyphs") == Config()


def test_recipe_changes_defaults_and_overrides_change_the_recipe(recipes: Path) -> None:
    config = resolve("small", {"base.epochs": 5})
    assert config == Config(scale=4.0, flip=False, sizes=(8, 16), base=Training(epochs=5))
    assert isinstance(config.scale, float)


def test_the_table_of_a_data_set_is_laid_over_the_one_for_any(recipes: Path) -> None:
    assert resolve("small", dataset="glyphs") == Config(scale=4.0, flip=False, sizes=(8, 16), base=Training(epochs=3))
    assert resolve("small", dataset="cub200") == Config(scale=5.5, flip=False)
    assert resolve("small", dataset="any data set") == Config(scale=5.5, flip=False)
    assert resolve("official").base == Training(epochs=20, schedule="cosine")


def test_the_table_of_a_data_set_takes_back_what_the_one_for_any_changes(recipes: Path) -> None:
    add(recipes, "toy", "[small.cub200]\nflip = true")
    assert resolve("small", dataset="cub200") == Config(scale=5.5)


def test_an_empty_table_inherits_the_one_for_any(recipes: Path) -> None:
    add(recipes, "toy", "[small.cub200]")
    assert resolve("small", dataset="cub200") == Config(scale=5.5, flip=False)


def test_the_methods_own_tables_are_laid_over_the_shared_ones(recipes: Path) -> None:
    add(recipes, "shared", "[small.any]\nbase.lr = 1\nbase.batch = 7\n[small.glyphs]\nscale = 9\nbase.batch = 8")
    assert resolve("small").scale == 4.0
    assert resolve("small").base == Training(epochs=3, lr=1.0, batch=8)
    assert resolve("small", dataset="cub200").base == Training(epochs=20, lr=1.0, batch=7)
    add(recipes, "shared", "[small.cub200]\nscale = 9")
    assert resolve("small", dataset="cub200").scale == 5.5  # the method's [small.any] comes after the shared data set


def test_a_table_may_change_another_recipe_on_its_data_set_alone(recipes: Path) -> None:
    add(recipes, "shared", '[compare.cub200]\nrecipe = "small"\nbase.lr = 1')
    assert resolve("compare", dataset="cub200") == Config(scale=5.5, flip=False, base=Training(epochs=20, lr=1.0))
    assert resolve("compare", dataset="glyphs") == Config(scale=6.0)


def test_recipe_names_are_those_of_the_method_of_all_and_of_the_data_set(recipes: Path) -> None:
    assert settings.recipe_names("toy", "glyphs") == ("compare", "official", "paper", "small")
    assert settings.recipe_names("toy", "cub200") == ("official", "paper", "small")
    assert settings.recipe_names("stranger", "glyphs") == ("paper",)
    add(recipes, "shared", "[tiny.glyphs]\nscale = 1")
    assert settings.recipe_names("stranger", "glyphs") == ("paper", "tiny")
    assert settings.recipe_names("stranger", "cub200") == ("paper",)


def test_a_recipe_is_unknown_where_it_has_no_table(recipes: Path) -> None:
    with pytest.raises(FscilError, match="unknown recipe 'compare' for toy on cub200"):
        resolve("compare", dataset="cub200")


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ("[small.cub200]\nbase.epochs = 3.5", ["toy.toml [small.cub200]: base.epochs = 3.5", "whole number"]),
        ("[tiny.any]\nbase.epoch = 3", ["toy.toml [tiny.any]: ", "'base.epoch'", "did you mean 'base.epochs'?"]),
        ("[tiny.any]\nscale = -1", ["toy.toml [tiny.any]: ", "scale must be positive"]),
        ("[tiny]\nscale = 3", ["toy.toml [tiny]: 'scale' stands outside of [tiny.any] and [tiny.DATASET]"]),
        ("[[tiny]]\nscale = 3", ["toy.toml: 'tiny' stands in no table", "[RECIPE.any]"]),
        ("[small.any]", ["toy.toml is not a valid TOML file"]),
    ],
)
def test_a_wrong_table_is_named_with_its_file(recipes: Path, table: str, parts: list[str]) -> None:
    add(recipes, "toy", table)
    with pytest.raises(FscilError) as caught:
        resolve("small" if "small" in table else "tiny", dataset="cub200")
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_small_is_taken_where_it_ships(recipes: Path) -> None:
    assert settings.default_recipe("toy", "glyphs") == "small"
    assert settings.default_recipe("stranger", "glyphs") == "paper"


def test_recipe_from_a_file(recipes: Path, tmp_path: Path) -> None:
    file = write(tmp_path, "flip = false")
    assert resolve(file).flip is False
    assert resolve(str(file)).flip is False


def test_a_file_names_settings_by_path_or_below_their_group(recipes: Path, tmp_path: Path) -> None:
    assert resolve(write(tmp_path, "base.epochs = 7")) == Config(base=Training(epochs=7))
    assert resolve(write(tmp_path, "[base]\nepochs = 7")) == Config(base=Training(epochs=7))


def test_a_file_names_the_recipe_that_it_changes(recipes: Path, tmp_path: Path) -> None:
    add(recipes, "toy", "[paper.glyphs]\nscale = 9")
    assert resolve(write(tmp_path, 'recipe = "small"\nbase.epochs = 7')) == Config(
        scale=4.0, flip=False, sizes=(8, 16), base=Training(epochs=7)
    )
    assert resolve(write(tmp_path, "base.epochs = 7")) == Config(scale=9.0, base=Training(epochs=7))


def test_a_file_that_poses_as_a_shipped_recipe_is_refused(recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("scale = 3\n")
    with pytest.raises(FscilError, match=r"small\.toml has the name of a shipped recipe.*rename"):
        resolve(tmp_path / "small.toml")


def test_none_is_written_as_text(recipes: Path, tmp_path: Path) -> None:
    assert resolve(write(tmp_path, 'limit = "none"')).limit is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("base.epochs = 3.5", ["mine.toml", "base.epochs = 3.5", "whole number"]),
        ('base.epochs = "3"', ['base.epochs = "3"', "whole number"]),
        ("base.epochs = true", ["base.epochs = true", "whole number"]),
        ("flip = 1", ["flip = 1", "true or false"]),
        ('scale = "big"', ['scale = "big"', "a number"]),
        ("weights = 3", ["weights = 3", "a text or 'none'"]),
        ('base.schedule = "cosin"', ["cosin", "one of step, cosine"]),
        ("sizes = 3", ["sizes = 3", "list"]),
        ("sizes = [1, 2.5]", ["sizes = [1, 2.5]", "whole number"]),
        ("pair = [1.0]", ["pair", "2 values"]),
        ("base.epoch = 3", ["mine.toml", "'base.epoch'", "did you mean 'base.epochs'?"]),
        ("[bas]\nlr = 3", ["'bas.lr'", "did you mean 'base.lr'?"]),
        ("[bsae]", ["'bsae'", "mine.toml"]),
        ('recipe = "smal"', ["mine.toml", 'recipe = "smal"', "did you mean 'small'?"]),
        ("recipe = 3", ["mine.toml", "recipe = 3", "known: compare, official"]),
        ("zzz = 3", ["'zzz'", "known: base.batch, base.epochs"]),
        ("base = 3", ["'base'", "group", "base.epochs"]),
        ("scale = -1", ["mine.toml", "scale must be positive"]),
        ("scale = ", ["mine.toml", "TOML"]),
    ],
)
def test_wrong_recipe_is_one_clear_sentence(recipes: Path, tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(FscilError) as caught:
        resolve(write(tmp_path, text))
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_recipe_that_is_not_text_or_not_there(recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FscilError, match=r"bytes\.toml is not a valid TOML file"):
        resolve(tmp_path / "bytes.toml")
    with pytest.raises(FscilError, match=r"cannot read the recipe .*missing\.toml: No such file"):
        resolve(tmp_path / "missing.toml")


def test_unknown_recipe_suggests(recipes: Path) -> None:
    with pytest.raises(FscilError, match=r"unknown recipe 'smal' for toy on glyphs: did you mean 'small'?"):
        resolve("smal")


def test_many_known_names_are_not_all_listed() -> None:
    assert suggestion("zzz", [f"n{i:02d}" for i in range(23)]).endswith("n18, n19 and 3 more")
    assert suggestion("scal", ["flip", "scale"]) == "did you mean 'scale'?"
    assert suggestion("zzz", ["b", "a"]) == "known: a, b"


@pytest.mark.parametrize(
    "line",
    [
        "kt_rcnet cifar100 --recipe compare",
        "kt_rcnet --recipe compare cifar100",
        "--recipe compare kt_rcnet cifar100",
        "kt_rcnet --plan --seeds 2 --recipe=compare cifar100",
    ],
)
def test_options_may_stand_between_method_and_data_set(line: str) -> None:
    offered = {parameter.name: parameter.default for parameter in choices.method_options(["run", *line.split()])}
    chosen = choices.config("kt_rcnet", "cifar100", "compare", {})
    assert offered["base__epochs"] == chosen.base.epochs
    assert offered["way"] == chosen.way


def test_a_recipe_without_a_data_set_is_looked_for_among_those_for_any() -> None:
    assert choices.method_options(["run", "kt_rcnet", "--recipe", "paper"])
    with pytest.raises(FscilError, match="unknown recipe 'compare' for kt_rcnet on any data set"):
        choices.method_options(["run", "kt_rcnet", "--recipe", "compare"])


@pytest.mark.parametrize("overrides", [{"base.epochs": 3.5}, {"base.epochs": "3"}, {"base.epoch": 3}])
def test_overrides_are_as_strict(recipes: Path, overrides: dict[str, object]) -> None:
    with pytest.raises(FscilError, match=r"base\.epoch"):
        resolve("paper", overrides)


def test_flatten_describes_every_leaf() -> None:
    leaves = flatten(Config())
    assert list(leaves)[:4] == ["scale", "flip", "weights", "limit"]
    assert leaves["scale"].help == "s, the factor inside the softmax"
    assert leaves["limit"].help == ""
    assert leaves["sizes"].help == "image sizes # in order"
    assert leaves["base.epochs"] == Setting("base.epochs", int, 20, "passes over the images", "the base session")
    assert leaves["base.batch"].help == "images per step"


def test_to_dict_is_json_and_resolves_back(recipes: Path) -> None:
    config = resolve("small", {"weights": "w.safetensors"})
    stored = json.loads(json.dumps(settings.to_dict(config)))
    assert stored["base"]["epochs"] == 3
    assert stored["sizes"] == [8, 16]
    assert resolve("paper", dotted(stored)) == config


def test_differences_name_both_sides(recipes: Path) -> None:
    there, here = settings.to_dict(resolve("small")), settings.to_dict(resolve("small", {"base.epochs": 20}))
    assert settings.differences(there, here) == ["base.epochs: 3 there, 20 here"]
    assert settings.differences(there, json.loads(json.dumps(there))) == []
    assert settings.differences({"a": None}, {}) == ["a: None there, absent here"]
    assert settings.differences({"a": (1, 2)}, {"a": [1, 2]}) == []


configs = st.builds(
    Config,
    scale=st.floats(0.1, 100),
    flip=st.booleans(),
    weights=st.none() | st.text().filter(lambda text: text != "none"),
    limit=st.none() | st.integers(),
    sizes=st.lists(st.integers()).map(tuple),
    base=st.builds(Training, epochs=st.integers(), lr=st.floats(0, 1), schedule=st.sampled_from(["step", "cosine"])),
)


@trials(deadline=None)
@given(configs)
def test_every_configuration_survives_storage(config: Config) -> None:
    stored = json.loads(json.dumps(settings.to_dict(config)))
    flat = {name: value for name, value in dotted(stored).items() if value is not None or name in ("weights", "limit")}
    assert settings.resolve(Config, "toy", "glyphs", "paper", flat) == config
    assert settings.differences(stored, settings.to_dict(config)) == []


@trials(deadline=None)
@given(st.sampled_from([int, float, bool, str]), st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text())
def test_cast_never_changes_a_value(hint: type, value: object) -> None:
    try:
        result = cast(value, hint)
    except ValueError:
        assert type(value) is not hint
    else:
        assert type(result) is hint
        assert type(value) is hint or (type(value) is int and float(value) == result)


def test_configs_are_frozen_after_resolving(recipes: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve("small").scale = 3.0  # type: ignore[misc]
