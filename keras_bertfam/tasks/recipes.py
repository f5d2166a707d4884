"""The published settings of pre-training and fine-tuning, from families' records."""

from collections.abc import Iterator, Mapping

from keras_bertfam.arguments import checked
from keras_bertfam.presets.families import FAMILIES, Family
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)


class _Recipes(Mapping[str, FineTuningRecipe]):
    """`family`, or `family/task` where a task has its own, of all records there are."""

    def _all(self) -> dict[str, FineTuningRecipe]:
        return {
            f"{name}/{task}" if task else name: recipe
            for name, recipes in _fine_tuning().items()
            for task, recipe in recipes.items()
        }

    def __getitem__(self, key: str) -> FineTuningRecipe:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


FINE_TUNING_RECIPES = _Recipes()


def _fine_tuning() -> dict[str, Mapping[str, FineTuningRecipe]]:
    """Collect recipes by task, by the names of families and of their variants."""
    recipes = {}
    for name, record in FAMILIES.items():
        recipes[name] = record.fine_tuning
        for ending, variant in record.variants.items():
            recipes[f"{name}_{ending}"] = variant.fine_tuning
    return recipes


def _record(family: str) -> Family:
    """Find a record by its family's name, or the name of a backbone's class."""
    for name, record in FAMILIES.items():
        if family in (name, record.backbone):
            return record
    names = sorted({*FAMILIES, *_fine_tuning()})
    raise ValueError(f"`family` must be one of {names}. Received: {family!r}.")


@checked
def fine_tuning_recipe(
    family: str, task: str | None = None, hidden_dim: int | None = None
) -> FineTuningRecipe:
    """Find the recipe of a family for a task, or the family's where it has no own.

    Args:
        family: str, a family's name, or the name of a backbone's class.
        task: name of a task in `keras_bertfam.datasets.TASKS`, or `None`.
        hidden_dim: int or `None`. The width of the backbone: some sizes, such as
            BERT's miniatures, have recipes of their own.

    Returns:
        `FineTuningRecipe`.

    Raises:
        ValueError: for an unknown family.

    Example:

    ```python
    keras_bertfam.tasks.fine_tuning_recipe("electra", "rte").epochs  # (10,)
    ```
    """
    recipes = _fine_tuning().get(family)
    if recipes is None or (hidden_dim is not None and family in FAMILIES):
        recipes = _record(family).fine_tuning_recipes(hidden_dim)
    return recipes.get(task or "", recipes[""])


def pretraining_recipe(family: str, size: str | None = None) -> PretrainingRecipe:
    """Tell how the authors of a family pre-trained it.

    Args:
        family: str, a family's name, or the name of a backbone's class.
        size: name of a published size, or `None`: those that have no recipe of
            their own have the family's.

    Returns:
        `PretrainingRecipe`.

    Raises:
        ValueError: for an unknown family, one that isn't a published one, or a size
            that isn't the family's.

    Example:

    ```python
    keras_bertfam.tasks.pretraining_recipe("albert").optimizer  # "lamb"
    ```
    """
    record = _record(family)
    recipes = record.pretraining
    if size is not None and size not in record.sizes:
        raise ValueError(
            f"`size` must be one of {sorted(record.sizes)}. Received: {size!r}."
        )
    if not recipes:
        raise ValueError(
            "`family` must be one whose pre-training was published. "
            f"Received: {family!r}."
        )
    return recipes.get(size or "", recipes[""])
