"""Recipes of pre-training, each choice a named argument, and the ones to compare."""

import ast
import dataclasses

HEADLINE = "published"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How our side trains; the defaults are what all sides have.

    Args:
        objective: `"masked_lm"`, or `"electra"`, of which the generator is scored.
        sequence_length: int.
        batch_size: int. Rows in a batch.
        learning_rate: float, the peak.
        warmup: float, the share of the budget that is warm-up.
        optimizer: `"adamw"`, `"muon"` or `"stable_adamw"`.
        weight_decay: float.
        dropout: float.
        norm_first: bool.
        initializer_range: float. Standard deviation of the initial weights.
        mask_selection_rate: float.
        strategy: str. Which positions are masked, see `MaskedLMPreprocessor`.
        packing: str, as in `dataset(packing=...)`; `""` for its default. With
            `"best_fit"` each paragraph is a document.
        vocabulary_size: int. 0 for the given vocabulary; else one of that many tokens
            is learned from the text, on the clock.
        short_rows: float, the share of the budget on rows of half the length, twice
            as many in a batch.
        small_batches: float, the share of the budget on batches of half the rows.
        many_masks: float, the share of the budget at twice the masking rate.
        backend: str. The Keras backend; `""` for that of the command line.
        precision: str. Keras's policy, such as `"mixed_bfloat16"`.
    """

    objective: str = "masked_lm"
    sequence_length: int = 128
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    optimizer: str = "adamw"
    weight_decay: float = 0.01
    dropout: float = 0.1
    norm_first: bool = False
    initializer_range: float = 0.02
    mask_selection_rate: float = 0.15
    strategy: str = "tokens"
    packing: str = ""
    vocabulary_size: int = 0
    short_rows: float = 0.0
    small_batches: float = 0.0
    many_masks: float = 0.0
    backend: str = ""
    precision: str = "float32"


def parse(text, base=None):
    """A recipe by `"dropout=0,norm_first=true"`.

    Args:
        text: str. Arguments of `Recipe` and their values; others are as in `base`.
        base: `Recipe`, by default that of the published values.

    Raises:
        ValueError: for a name that `Recipe` lacks, or a value of another type.
    """
    base = base or Recipe()
    kinds = {field.name: field.type for field in dataclasses.fields(Recipe)}
    given = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in kinds:
            raise ValueError(
                f"`--ours` must be of {', '.join(kinds)}. Received: {name!r}."
            )
        given[name] = _value(name, value, kinds[name])
    return dataclasses.replace(base, **given)


def _value(name, text, kind):
    if kind is str:
        return text
    try:
        value = ast.literal_eval(text.capitalize())
    except (SyntaxError, ValueError):
        value = None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"`{name}` must be of {kind.__name__}. Received: {text!r}.")
    return value


def phases(recipe):
    """List the parts of a run whose batches are made alike.

    Args:
        recipe: `Recipe`.

    Returns:
        List of tuples: the share of the budget at which a part ends, the length of
        its rows, their number in a batch, and the masking rate.
    """
    shares = recipe.short_rows, recipe.small_batches, recipe.many_masks
    ends = sorted({*shares, 1.0} - {0.0})
    parts = []
    for end in ends:
        length, rows = recipe.sequence_length, recipe.batch_size
        rate = recipe.mask_selection_rate
        if end <= recipe.short_rows:
            length, rows = length // 2, 2 * rows
        if end <= recipe.small_batches:
            rows = max(1, rows // 2)
        if end <= recipe.many_masks:
            rate *= 2
        parts.append((end, length, rows, rate))
    return parts


# Each is added to the recipe of the command line: one choice at a time.
CANDIDATES = {
    HEADLINE: "",
    "masked 20 %": "mask_selection_rate=0.2",
    "masked 30 %": "mask_selection_rate=0.3",
    "masked 40 %": "mask_selection_rate=0.4",
    "no dropout": "dropout=0",
    "norm first": "norm_first=true",
    "norm first, rate 2e-3": "norm_first=true,learning_rate=2e-3",
    "weights from 0.035": "initializer_range=0.035",
    "weights from 0.06": "initializer_range=0.06",
    "rate 5e-4": "learning_rate=5e-4",
    "rate 2e-3": "learning_rate=2e-3",
    "Muon": "optimizer=muon",
    "Muon, rate 2e-3": "optimizer=muon,learning_rate=2e-3",
    "Muon, rate 5e-3": "optimizer=muon,learning_rate=5e-3",
    "StableAdamW": "optimizer=stable_adamw",
    "batch of 16": "batch_size=16",
    "batch of 64": "batch_size=64",
    "half batches for 30 %": "small_batches=0.3",
    "30 %, later 15 % masked": "many_masks=0.5",
    "rows of 64": "sequence_length=64,batch_size=64",
    "rows of 64 for 70 %": "short_rows=0.7",
    "rows by best fit": "packing=best_fit",
    "8,000 words": "vocabulary_size=8000",
    "16,000 words": "vocabulary_size=16000",
    "ELECTRA": "objective=electra",
}


def read_candidates(path):
    """Candidates from lines of `name: arguments`; blank lines and `#` are left out."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in filter(None, (line.partition("#")[0].strip() for line in file)):
            name, _, text = line.partition(":")
            found[name.strip()] = text.strip()
    return found
