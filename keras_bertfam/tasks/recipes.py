"""Find published settings of training, the defaults of `compile()`."""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import inner
from keras_bertfam.optimizers.pretraining import OPTIMIZERS
from keras_bertfam.optimizers.schedules import COUNTING, check_accumulation
from keras_bertfam.presets.families import FAMILIES, Family
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.types import Model


def warn_of_small_batches(task: Model, rows: int | None) -> None:
    """Warn if the published rate is for steps with over four times as many rows.

    Args:
        task: a compiled `PretrainingTask`.
        rows: int, the rows of a batch; `None` if that isn't known.
    """
    recipe = task.published_recipe()
    if not isinstance(recipe, PretrainingRecipe):
        return  # published batches of fine-tuning are small
    if recipe.optimizer == "adafactor":
        return  # Adafactor's rates are relative to the weights
    rows = (rows or 0) * (inner(task.optimizer).gradient_accumulation_steps or 1)
    if not rows or 4 * rows >= recipe.batch_size:
        return
    root = recipe.learning_rate * math.sqrt(rows / recipe.batch_size)
    linear = recipe.learning_rate * rows / recipe.batch_size
    warnings.warn(
        f"The published learning rate, {recipe.learning_rate:g}, is for steps of "
        f"{recipe.batch_size} rows, and these have {rows}. Rates for Adam and LAMB "
        "usually scale with the square root of the batch size, "
        f"learning_rate={root:.2g} in `compile()`; those for SGD with the batch size, "
        f"{linear:.2g}. A small model in a short run learns more at a higher rate, "
        "such as 1e-3.",
        stacklevel=3,
    )


def training_facts(task: Model) -> dict[str, Any]:
    """Give the facts about a task's training for its model card, see `TaskPresets`."""
    optimizer = inner(task.optimizer)
    steps = 0
    if optimizer is not None:
        steps = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if not steps:
        return {}
    recipe = task.published_recipe()
    history = getattr(task, "history", None)
    epochs = history.history if history is not None else {}
    return {
        "steps": steps,
        "settings": used_settings(task, recipe),
        "source": recipe.source,
        "scores": {name: float(each[-1]) for name, each in epochs.items() if each},
    }


def checked_accumulation(steps: int | None, optimizer: Any) -> int | None:
    """Check how many batches a step of `compile()`'s own optimizer has; `None` is one.

    Raises:
        ValueError: if it isn't a positive int, or the optimizer isn't `"auto"`.
    """
    check_accumulation(steps)
    if steps in (None, 1):
        return None
    if optimizer != "auto":
        raise ValueError(
            "`gradient_accumulation_steps` must be given to the optimizer itself, "
            f'unless it is "auto". Received: optimizer={optimizer!r}, '
            f"gradient_accumulation_steps={steps}."
        )
    return int(steps)


def recipe_of(task: Model) -> PretrainingRecipe:
    """Find the recipe with which a task is compiled by default.

    If the backbone's family was trained with the task's objective, or the objective
    belongs to no single family, the recipe is that of the backbone's family, by its
    width. Otherwise it is that of the objective's family. If there is none, it is
    BERT's.

    Args:
        task: a `PretrainingTask`.

    Returns:
        `PretrainingRecipe`.
    """
    record = task.backbone.record
    width, names = task.backbone.hidden_dim, [b.__name__ for b in type(task).__mro__]
    own = record.pretraining_recipe(width, names) if _has(record) else None
    if own is not None and own.task in names:
        return own
    if task.recipe_family is not None:
        record = FAMILIES[task.recipe_family]
    elif own is None:
        record = FAMILIES["bert"]
    return record.pretraining_recipe(width)


def _has(record):
    return record is not None and record.pretraining


def compare_with_published(
    task: Model, recipe: PretrainingRecipe | FineTuningRecipe
) -> str:
    """Make a table of a compiled task's settings beside a recipe's.

    Args:
        task: a `PretrainingTask` or a `FineTuningTask`.
        recipe: what was published for it.

    Returns:
        String: a line for each setting, with `*` if it differs from the published one;
            then lines that explain these marks and the names of schedules.
    """
    published, used = recipe.settings(), used_settings(task, recipe)
    lines = [("", "used", "published")]
    for name, theirs in published.items():
        known = name in used
        ours = _short(used[name]) if known else "fit()'s" if name in _OF_FIT else "-"
        searched = theirs if isinstance(theirs, tuple) else (theirs,)
        texts = [_short(value) for value in searched]
        marked = f"{ours} *" if known and ours not in texts else ours
        lines.append((name, marked, ", ".join(texts)))
    widths = [max(len(line[i]) for line in lines) for i in range(2)]
    rows = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in lines]
    title = f"{type(task).__name__} of {type(task.backbone).__name__}"
    said = "\n".join(rows)
    notes = [
        f"{name}: {what}" for name, what in _MEANINGS.items() if f" {name}" in said
    ]
    if " *" in said:
        notes.insert(0, "*: differs from the published setting")
    return "\n".join([title, said, f"published in: {recipe.source}", *notes])


def used_settings(
    task: Model, recipe: PretrainingRecipe | FineTuningRecipe
) -> dict[str, Any]:
    """Collect those of a recipe's settings that a compiled task has.

    Args:
        task: a `PretrainingTask` or a `FineTuningTask`.
        recipe: what was published for it.

    Returns:
        Dict by the names of the recipe's settings, without unknown ones.
    """
    names = recipe.settings()
    used = {**_optimizer_settings(task.optimizer), **_data_settings(task, names)}
    return {name: used[name] for name in names if name in used}


# What names in such a table mean; other libraries may give the same settings other
# names.
_MEANINGS = {
    "join": "the rate climbs to its peak, and from there falls to 0 in equal steps",
    "hold": (
        "the fall counts all steps, the warm-up's included, so that the rate drops a "
        "little when the warm-up ends"
    ),
    "product": "the warm-up is multiplied by the fall, which begins with the first "
    "step",
    "cosine": "the rate falls as half a cosine wave",
    "stable": "the rate stays at the peak, and falls in the last decay_steps",
    "rsqrt": (
        "learning_rate divided by the square root of the step, or of warmup_steps "
        "before that step"
    ),
    "inverse_sqrt": (
        "the rate climbs to its peak, and falls with the square root of the step"
    ),
    "constant": "the rate stays at its peak after the warm-up",
    "adafactor": "rates are relative to the size of each weight",
    "fit()'s": "an argument of fit()",
}
_OF_FIT = ("total_steps", "batch_size", "epochs")


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _optimizer_settings(optimizer):
    """Collect an optimizer's settings by the names of its arguments."""
    optimizer = inner(optimizer)
    if optimizer is None:
        return {}
    # Keras's optimizers of the same name differ only in the settings below.
    names = {getattr(cls, "__name__", ""): name for name, cls in OPTIMIZERS.items()}
    called = type(optimizer).__name__.removeprefix("Bert")
    settings = {
        "optimizer": names.get(called, called),
        "bias_correction": getattr(optimizer, "bias_correction", True),
    }
    for name in ("weight_decay", "beta_2", "epsilon", "global_clipnorm"):
        settings[name] = getattr(optimizer, name, None)
    rate = optimizer._learning_rate
    if not isinstance(rate, COUNTING):
        scheduled = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
        if scheduled:
            named = {"learning_rate": type(rate).__name__, "schedule_form": None}
        else:
            named = {"learning_rate": float(rate), "schedule_form": "constant"}
        return {**settings, **named}
    never_falls = rate.form == "stable" and not rate.decay_steps
    settings |= {
        "learning_rate": rate.peak_learning_rate,
        "schedule_form": "constant" if never_falls else rate.form,
        "warmup_steps": rate.warmup_steps,
        "power": getattr(rate, "power", None),
        "decay_steps": getattr(rate, "decay_steps", None),
        "end_share": getattr(rate, "end_learning_rate", 0.0) / rate.peak_learning_rate,
    }
    if rate.total_steps not in (None, math.inf):
        settings["total_steps"] = rate.total_steps
    return settings


def _data_settings(task, names):
    """Collect settings of the preprocessor's masks, and arguments of the task."""
    settings = {}
    for name in names:
        for holder in (task, task.preprocessor):
            if hasattr(holder, name) and name not in ("optimizer", "batch_size"):
                settings[name] = getattr(holder, name)
    for name in {"strategy", "objective"} & settings.keys():
        settings[name] = settings[name].name
    return settings


class _Recipes(Mapping[str, FineTuningRecipe]):
    """Map `family`, or `family/task` if a task has its own recipe, to recipes."""

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
    family: str,
    task: str | None = None,
    hidden_dim: int | None = None,
    num_layers: int | None = None,
) -> FineTuningRecipe:
    """Find the recipe of a family for a task, or else the family's general one.

    Args:
        family: str, a family's name, or the name of a backbone's class.
        task: name of a task in `keras_bertfam.datasets.task_data.TASKS`, or `None`.
        hidden_dim: int or `None`. The width of the backbone. Some sizes, such as BERT's
            miniatures, have their own recipes.
        num_layers: int or `None`. The layers of the backbone. Some sizes of DeBERTa
            differ only in them.

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
        recipes = _record(family).fine_tuning_recipes(hidden_dim, num_layers)
    return recipes.get(task or "", recipes[""])


def pretraining_recipe(family: str, size: str | None = None) -> PretrainingRecipe:
    """Find the recipe by which the authors of a family pre-trained it.

    Args:
        family: str, a family's name, or the name of a backbone's class.
        size: name of a published size, or `None` for the family's recipe. A size
            without its own recipe has the family's.

    Returns:
        `PretrainingRecipe`.

    Raises:
        ValueError: for an unknown family, a family without published pre-training, or
            an unknown size.

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
