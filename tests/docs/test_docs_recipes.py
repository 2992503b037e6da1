"""docs/recipes.md shows a recipe as it ships."""

import re
from pathlib import Path

from fscil.settings.recipes import RECIPES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "recipes.md").read_text("utf-8")


def test_the_printed_tables_are_those_that_ship() -> None:
    ((file, excerpt),) = re.findall(r"From `(\w+\.toml)`:\n\n```toml\n(.*?)```", PAGE, re.DOTALL)
    assert excerpt in (RECIPES / file).read_text("utf-8")
