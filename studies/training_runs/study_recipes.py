"""Recipes of the studies, found by name beside those that ship with the package."""

from collections.abc import Iterable
from pathlib import Path

from musigma.training.recipe import Recipe, is_file, load_recipe, shipped_recipes
from musigma.types import ConfigError, nearest, short_repr

FOLDER = Path(__file__).parents[1] / "recipes"


def study_recipes() -> dict[str, Path]:
    """Return the recipes of the studies, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load_study_recipe(name_or_path: str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe by its path, or by the name of a recipe of the studies or of the package.

    Example:
        >>> load_study_recipe("baseline-quantile", ["steps=10"]).steps
        10
    """
    own = study_recipes()
    known = {*own, *shipped_recipes()}
    if not is_file(Path(name_or_path)) and name_or_path not in known:
        hint = nearest(name_or_path, sorted(known))
        name = short_repr(name_or_path)
        raise ConfigError(f"there is no recipe file or recipe name {name}; {hint}")
    return load_recipe(own.get(name_or_path, name_or_path), overrides)
