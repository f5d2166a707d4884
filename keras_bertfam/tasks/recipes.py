"""The published settings of fine-tuning, by family: facts, no code."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class FineTuningRecipe:
    """What a paper searched over, or the released code has.

    Attributes:
        learning_rates: peak rates to try.
        batch_sizes: to try.
        epochs: to try; the greatest with early stopping.
        warmup_steps: part of the steps.
        weight_decay: float.
        layer_decay: see `keras_bertfam.optimizers.layerwise_scales`, as the next two.
        layer_offset: int.
        scale_embeddings: bool.
        sequence_length: int, or `None` for that of the task's preprocessor.
        end_head: of `SpanQuestionAnswering`.

    Example:

    ```python
    recipe = keras_bertfam.tasks.FINE_TUNING_RECIPES["bert"]
    recipe.learning_rates  # (5e-05, 3e-05, 2e-05)
    ```
    """

    learning_rates: tuple = (5e-5, 3e-5, 2e-5)
    batch_sizes: tuple = (16, 32)
    epochs: tuple = (2, 3, 4)
    warmup_steps: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    layer_offset: int = 0
    scale_embeddings: bool = True
    sequence_length: int | None = None
    end_head: str = "independent"


def _with(recipe, **changes):
    return dataclasses.replace(recipe, **changes)


_BERT = FineTuningRecipe()
_BERT_MINIATURE = FineTuningRecipe((3e-4, 1e-4, 5e-5, 3e-5), (8, 16, 32, 64, 128), (4,))
_ROBERTA = FineTuningRecipe((1e-5, 2e-5, 3e-5), (16, 32), (10,), 0.06, 0.1)
_ALBERT = FineTuningRecipe(
    (3e-5, 2e-5, 1e-5), (16, 32), (3,), 0.06, sequence_length=512
)
_ELECTRA = FineTuningRecipe(
    (1e-4,), (32,), (3,), layer_decay=0.8, layer_offset=2, end_head="conditional"
)
_ELECTRA_LARGE = _with(_ELECTRA, learning_rates=(5e-5,), layer_decay=0.9)
_XLNET = FineTuningRecipe(
    (2e-5, 3e-5), (32, 48), (3,), scale_embeddings=False, end_head="conditional"
)
_SPANBERT = FineTuningRecipe((2e-5,), (32,), (4,), sequence_length=512)


def _fixed(rate, batch_size, epochs, **changes):
    return {
        "learning_rates": (rate,),
        "batch_sizes": (batch_size,),
        "epochs": (epochs,),
        **changes,
    }


# `family`, or `family/task` where a task has its own. BERT: appendix A.3 and sections
# 4.2 to 4.4; its miniatures: the released grid. RoBERTa: table 10. ALBERT: table 14,
# whose steps are epochs here; its dropout in the trunk, by task, isn't set.
# ELECTRA: table 7 (base; the released code for the decay of rates). XLNet and
# SpanBERT: the released code.
FINE_TUNING_RECIPES = {
    "bert": _BERT,
    "bert_miniature": _BERT_MINIATURE,
    "bert/squad": _with(_BERT, **_fixed(5e-5, 32, 3)),
    "bert/squad_v2": _with(_BERT, **_fixed(5e-5, 48, 2)),
    "bert/swag": _with(_BERT, **_fixed(2e-5, 16, 3)),
    "roberta": _ROBERTA,
    "roberta/race": _with(_ROBERTA, **_fixed(1e-5, 16, 4)),
    "roberta/squad": _with(_ROBERTA, **_fixed(1.5e-5, 48, 2, weight_decay=0.01)),
    "roberta/squad_v2": _with(_ROBERTA, **_fixed(1.5e-5, 48, 2, weight_decay=0.01)),
    "albert": _ALBERT,
    "albert/cola": _with(_ALBERT, **_fixed(1e-5, 16, 10)),
    "albert/stsb": _with(_ALBERT, **_fixed(2e-5, 16, 10)),
    "albert/sst2": _with(_ALBERT, **_fixed(1e-5, 32, 10)),
    "albert/mnli": _with(_ALBERT, **_fixed(3e-5, 128, 3, warmup_steps=0.1)),
    "albert/qnli": _with(_ALBERT, **_fixed(1e-5, 32, 10)),
    "albert/qqp": _with(_ALBERT, **_fixed(5e-5, 128, 5, warmup_steps=0.07)),
    "albert/rte": _with(_ALBERT, **_fixed(3e-5, 32, 10, warmup_steps=0.25)),
    "albert/mrpc": _with(_ALBERT, **_fixed(2e-5, 32, 7, warmup_steps=0.25)),
    "albert/wnli": _with(_ALBERT, **_fixed(2e-5, 16, 50, warmup_steps=0.125)),
    "albert/squad": _with(
        _ALBERT, **_fixed(5e-5, 48, 2, warmup_steps=0.1, sequence_length=384)
    ),
    "albert/squad_v2": _with(_ALBERT, **_fixed(3e-5, 48, 3, warmup_steps=0.1)),
    "albert/race": _with(_ALBERT, **_fixed(2e-5, 32, 4, warmup_steps=0.083)),
    "distilbert": _BERT,
    "electra": _ELECTRA,
    "electra_large": _ELECTRA_LARGE,
    **{
        f"{family}/{task}": _with(recipe, epochs=(epochs,))
        for family, recipe in (("electra", _ELECTRA), ("electra_large", _ELECTRA_LARGE))
        for task, epochs in (("rte", 10), ("stsb", 10), ("squad", 2), ("squad_v2", 2))
    },
    "xlnet": _XLNET,
    "xlnet/stsb": _with(_XLNET, learning_rates=(5e-5,)),
    "xlnet/squad": _with(_XLNET, **_fixed(3e-5, 48, 3), layer_decay=0.75),
    "xlnet/squad_v2": _with(_XLNET, **_fixed(3e-5, 48, 3), layer_decay=0.75),
    "xlnet/race": _with(_XLNET, **_fixed(2e-5, 32, 4)),
    "spanbert": _SPANBERT,
}


def fine_tuning_recipe(family, task=None):
    """The recipe of a family for a task, or the family's where it has no own.

    Args:
        family: str, a family's name, or the name of a backbone's class.
        task: name of a task in `keras_bertfam.datasets.TASKS`, or `None`.

    Returns:
        `FineTuningRecipe`.

    Raises:
        ValueError: for an unknown family.

    Example:

    ```python
    keras_bertfam.tasks.fine_tuning_recipe("electra", "rte").epochs  # (10,)
    ```
    """
    name = family.removesuffix("Backbone").lower()
    recipe = FINE_TUNING_RECIPES.get(f"{name}/{task}", FINE_TUNING_RECIPES.get(name))
    if recipe is None:
        families = sorted({key.split("/")[0] for key in FINE_TUNING_RECIPES})
        raise ValueError(f"`family` must be one of {families}. Received: {family!r}.")
    return recipe
