"""Settings of a method: dataclass defaults < recipe < command line, strictly typed, misspellings named."""

from fscil.settings.recipes import DEFAULTS, SMALL, default_recipe, recipe_names
from fscil.settings.resolving import resolve
from fscil.settings.storage import differences, from_dict, to_dict

__all__ = ["DEFAULTS", "SMALL", "default_recipe", "differences", "from_dict", "recipe_names", "resolve", "to_dict"]
