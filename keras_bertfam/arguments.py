"""Checks of arguments, so that each is refused by its name."""

import inspect
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

_COUNT, _SIZE = (0, 2**31 - 1), (1, 2**31 - 1)
_RATE, _POSITIVE, _ANY = (0.0, 1.0), (0.0, math.inf), (-math.inf, math.inf)
# What numbers may be, by the names that arguments of models have: least and greatest,
# ints where they are ints. Longer lists, dicts and `None` are the models' own.
_NUMBERS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        "vocabulary_size num_heads hidden_dim intermediate_dim embedding_dim head_dim "
        "max_sequence_length num_groups lstm_dim divisor num_classes "
        "relative_distance batch_size num_inner_repetitions cell_dim "
        "max_characters num_sampled projection_dim max_answer_length n_best "
        "max_span_length position_dim".split(),
        _SIZE,
    ),
    **dict.fromkeys(
        "num_layers num_decoder_layers position_offset num_segments relative_buckets "
        "num_highways reuse_length memory_length".split(),
        _COUNT,
    ),
    **dict.fromkeys(
        "dropout attention_dropout activation_dropout output_dropout "
        "layer_norm_epsilon label_smoothing".split(),
        _RATE,
    ),
    **dict.fromkeys(
        "z_loss temperature ce_weight mlm_weight cosine_weight mse_weight "
        "masked_lm_weight sentence_weight retrieval_weight discriminator_weight "
        "span_boundary_weight generator_size cell_clip projection_clip "
        "initializer_range lm_weight learning_rate weight_decay epsilon "
        "global_clipnorm clipnorm clipvalue".split(),
        _POSITIVE,
    ),
    **dict.fromkeys("beta_1 beta_2".split(), _RATE),
    "attention_scale": _ANY,
    "clamp_length": (-1, 2**31 - 1),
    "max_global_tokens": (0, 65536),
}


def check_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise a `ValueError` unless a value is a finite number in a range.

    Args:
        name: str, of the argument.
        value: anything.
        least, most: the range, both ends included. An int for `least` means that the
            value must be one.
    """
    whole = isinstance(least, int)
    kind = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not least <= value <= most:
        what = "an int" if whole else "a finite number"
        if math.isfinite(least):
            bounded = most < _SIZE[1]
            what += f" from {least} to {most}" if bounded else f" of at least {least}"
        raise ValueError(f"`{name}` must be {what}. Received: {value!r}.")


def check_numbers(arguments: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a number that no model or optimizer may have.

    Args:
        arguments: dict from names to values. Others than single numbers, and names
            that mean no number, are left to who takes them.
    """
    for name, value in arguments.items():
        is_layer = hasattr(value, "get_config") and name != "learning_rate"
        if name in _NUMBERS and (isinstance(value, numbers.Number | str) or is_layer):
            check_number(name, value, *_NUMBERS[name])


def check_call(function: Callable, args: Iterable[Any], kwargs: Any) -> None:
    """Raise a `ValueError` for a number that a call mustn't have, see `check_numbers`.

    What doesn't fit the signature is left to the call.
    """
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
    except TypeError:
        return
    given = bound.arguments
    check_numbers({**given, **given.get("kwargs", {})})


def check_one_of(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise a `ValueError` unless a value is one of some."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {sorted(choices)}. Received: {value!r}."
        )


def check_several(name: str, values: Any, what: str = "strings") -> None:
    """Raise a `ValueError` for a bare string where there should be several values.

    Args:
        name: str, of the argument.
        values: anything. What isn't iterable is refused as well.
        what: str, what the values are.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"`{name}` must be several {what}. Received: {values!r}.")
