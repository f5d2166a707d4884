"""Checks of arguments, whose errors name the argument."""

import collections.abc
import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from keras_bertfam import transformer_config
from keras_bertfam.number_ranges import (
    ANY,
    COUNT,
    INTEGER,
    POSITIVE,
    RATE,
    SIZE,
    Range,
    check_number,
)

_Public = TypeVar("_Public", bound=Callable[..., Any])

# Types that are refused where a number is needed.
_NO_NUMBERS = (str, bytes, bool, list, tuple, dict, set)
# The ranges of numbers by the names of arguments: the least and the greatest value. If
# these are ints, the number must be an int. Lists, dicts and `None` are checked by the
# function that takes them.
_NUMBERS: dict[str, Range] = {
    **dict.fromkeys(
        "lstm_dim divisor num_classes batch_size num_inner_repetitions cell_dim "
        "max_characters num_sampled projection_dim max_answer_length n_best "
        "max_span_length position_dim input_dim output_dim num_characters k rank "
        "truncate_dim num_beams arc_dim relation_dim decoder_positions max_positions "
        "kernel_size num_buckets max_distance penalty_steps "
        "gradient_cache_rows samples block_length num_negatives pairs_per_pass".split(),
        SIZE,
    ),
    **dict.fromkeys(
        "num_decoder_layers num_highways reuse_length memory_length "
        # Functions that take one of these may need more than 0.
        "sequence_length bins least_arcs worst limit steps steps_per_epoch batches "
        "max_line_length top_k max_length max_input_tokens tokens_per_batch "
        "max_input_chars_per_word target_length mask_token_id start_token_id "
        "end_token_id decoder_start_token_id pad_token_id sentence_end_id "
        "document_end_id size window documents_at_once advance "
        "mask_selection_length perm_size max_words width num_workers worker_index "
        "num_slices epoch port count min_frequency max_bytes num_shards shard_index "
        "period min_factored offset parts query_length max_pairs separators "
        "shuffle_length "
        "choice_length num_choices num_passages doc_stride question_length dilation "
        "num_queries num_keys gradient_accumulation_steps epochs shuffle_buffer pool "
        "duplicates shuffle_documents total_steps verbose skip new_tokens".split(),
        COUNT,
    ),
    **dict.fromkeys(
        "label_smoothing norm_epsilon input_dropout "
        "single_segment_rate random_length_rate short_sequence_rate mask_rate "
        "deletion_rate hiding_rate lowest_rate "
        "mask_token_rate random_token_rate mask_selection_rate next_rate shuffle_rate "
        "validation_split layer_decay table_dropout end_share".split(),
        RATE,
    ),
    **dict.fromkeys(
        "z_loss temperature ce_weight mlm_weight cosine_weight mse_weight "
        "masked_lm_weight sentence_weight retrieval_weight discriminator_weight "
        "span_boundary_weight generator_size generator_depth cell_clip projection_clip "
        "lm_weight adversarial_weight learning_rate weight_decay epsilon "
        "global_clipnorm clipnorm clipvalue near_duplicates alpha beta mean_length "
        "clip_threshold epsilon_1 epsilon_2 max_shard_size warmup_steps "
        "decoupled_weight_decay depth mu sigma query_penalty passage_penalty".split(),
        POSITIVE,
    ),
    **dict.fromkeys("beta_1 beta_2".split(), RATE),
    "clamp_length": (-1, 2**31 - 1),
    "least": (-1.0, 1.0),
    **transformer_config.NUMBERS,
}


def check_numbers(arguments: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a number that is out of its argument's range.

    Args:
        arguments: dict from names to values. Values that aren't single numbers, and
            names of other arguments, aren't checked.
    """
    for name, value in arguments.items():
        is_layer = hasattr(value, "get_config") and name != "learning_rate"
        if name in _NUMBERS and (isinstance(value, numbers.Number | str) or is_layer):
            check_number(name, value, *_NUMBERS[name])


def check_call(function: Callable, args: Iterable[Any], kwargs: Any) -> None:
    """Raise a `ValueError` for a call's wrong arguments, see `checked`.

    The call itself raises the error for arguments that don't fit its signature.
    """
    signature, checks = _checks_of(function)
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return
    check_numbers({**given, **given.get("kwargs", {})})
    for name, check in checks.items():
        if given.get(name) is not None:
            check(name, given[name])


def check_names(cls: type, names: Iterable[str]) -> None:
    """Raise a `ValueError` for arguments that no constructor of a class's bases has."""
    if unknown := [name for name in names if name not in _arguments_of(cls)]:
        constructor = cls.__init__  # type: ignore[misc]  # of this very class
        own = vars(cls).get("__signature__") or inspect.signature(constructor)
        known = [name for name in own.parameters if name not in ("self", "kwargs")]
        raise ValueError(
            f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}. It has "
            f"{', '.join(known)}."
        )


@functools.cache
def _arguments_of(cls):
    """Collect the names of arguments of a class's constructor and those it calls."""
    found: set[str] = set()
    for base in cls.__mro__:
        for each in (vars(base).get("__init__"), vars(base).get("__signature__")):
            if isinstance(each, inspect.Signature):
                found.update(each.parameters)
            elif each is not None:
                found.update(inspect.signature(each).parameters)
    return found


def checked(public: _Public) -> _Public:
    """Check the numbers and strings with which a public class or function is called.

    A parameter's annotation says what is allowed: an int, a finite float, or several
    strings, for which a single string is refused. Numbers must be in the range that
    `_NUMBERS` has for the name, if any, and ints must be below 2^31. Tensors, schedules
    and the like aren't checked. A checked function adds a frame to the stack.

    Args:
        public: a class, whose constructor is checked, or a function.

    Returns:
        The class, or a function that checks and calls the given one.
    """
    cls: Any = public if isinstance(public, type) else None
    function: Any = public if cls is None else cls.__init__
    signature, checks = _checks_of(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:  # the call itself raises it again
            given = {}
        for name, check in checks.items():
            if name in given and given[name] is not None:
                check(name, given[name])
        return function(*args, **kwargs)

    # Keras inspects the signature of constructors.
    call.__signature__ = signature  # type: ignore[attr-defined]
    if cls is None:
        return typing.cast(_Public, call)
    cls.__init__ = call
    return public


@functools.cache
def _checks_of(function):
    """Give the signature of a function, and the checks of its parameters, by name."""
    signature = inspect.signature(function)
    checks = {
        name: check
        for name, parameter in signature.parameters.items()
        if (check := _check_of(parameter)) is not None
    }
    return signature, checks


def _check_of(parameter: inspect.Parameter) -> Callable[[str, Any], None] | None:
    """Give the check of a parameter's values, or `None` if it needs none."""
    annotation, name = parameter.annotation, parameter.name
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    is_union = isinstance(annotation, types.UnionType)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    if several:
        return None
    if {int, float} & {kind for kind in kinds if isinstance(kind, type)}:
        whole = float not in kinds
        least, most = _NUMBERS.get(name, INTEGER if whole else ANY)
        alone = all(kind in (int, float, type(None)) for kind in kinds)
        others = [kind for kind in kinds if kind in (str, bool, Any)]
        odd = _NO_NUMBERS if alone else () if others else (str, bytes, bool)
        if whole and isinstance(least, float):
            least, most = INTEGER if least < 0 else COUNT
        elif not whole and isinstance(least, int):
            least, most = float(least), math.inf

        def number(name: str, value: Any) -> None:
            if isinstance(value, odd) or isinstance(value, numbers.Number):
                check_number(name, value, least, most)

        return number
    of_strings = any(_is_of_strings(kind) for kind in kinds)
    if of_strings and not {str, bytes} & {k for k in kinds if isinstance(k, type)}:
        return _no_bare_string
    return None


def _is_of_strings(kind: Any) -> bool:
    """Tell whether a type means several strings."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if not (isinstance(origin, type) and issubclass(origin, collections.abc.Iterable)):
        return False
    return not issubclass(origin, collections.abc.Mapping) and inner[:1] == (str,)


def _no_bare_string(name: str, value: Any) -> None:
    if isinstance(value, str | bytes) or isinstance(value, numbers.Number):
        check_several(name, value)


def check_one_of(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise a `ValueError` unless a value is one of the choices."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {sorted(choices)}. Received: {value!r}."
        )


def check_several(name: str, values: Any, what: str = "strings") -> None:
    """Raise a `ValueError` for a single string in place of several values.

    Args:
        name: str, the argument's name.
        values: anything. Values that aren't iterable are refused as well.
        what: str, the word for the values in the error.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"`{name}` must be several {what}. Received: {values!r}.")
