"""Read the defaults of `generate()` from the values of a `generation_config.json`."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import keras_hub

from keras_bertfam.presets.checkpoints.generation_keys import USED, checked_settings
from keras_bertfam.tasks.generation.nucleus import NucleusSampler
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Config, Model

# The default of `transformers` for the number of tokens to sample from.
DRAWN_FROM = 50
_FIELDS = {field.name for field in dataclasses.fields(GenerationSettings)}
# Settings that only beams read; without beams they needn't be consistent.
_OF_GROUPS = {"num_beam_groups", "diversity_penalty"}
_PLACED = ("forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id")


def checked_generation(
    generation: Mapping[str, Any] | None, vocabulary_size: int
) -> Mapping[str, Any]:
    """Check the argument `generation` of a task, and leave out `None` values.

    Args:
        generation: dict or `None`.
        vocabulary_size: int.

    Raises:
        ValueError: for unknown keys or impossible values.
    """
    values = dict(generation or {})
    unknown = [*values.keys() - USED.keys()]
    if unknown:
        raise ValueError(
            f"`generation` must have keys among {', '.join(USED)}. Received: "
            f"{min(unknown)!r}."
        )
    values = {key: value for key, value in values.items() if value is not None}
    checked_settings(values, "generation")
    for key in _PLACED:
        for number in as_ids(values.get(key)) or ():
            if number >= vocabulary_size:
                raise ValueError(
                    f"`{key}` of `generation` must be below vocabulary_size="
                    f"{vocabulary_size}. Received: {number}."
                )
    default_settings(values)
    default_sampler(values)
    return types.MappingProxyType(values)


def generation_config(task: Model) -> Config:
    """Give the part of a task's config for its `generation`; empty if there is none."""
    return {"generation": {**task.generation}} if task.generation else {}


def default_settings(generation: Mapping[str, Any]) -> GenerationSettings:
    """Make the settings from a task's `generation`.

    Args:
        generation: dict, see `checked_generation`.
    """
    alone = generation.get("num_beams", 1) == 1
    fields = _FIELDS - {"num_beams", *_OF_GROUPS} if alone else _FIELDS
    given = {key: generation[key] for key in fields & generation.keys()}
    if given.get("min_new_tokens") is not None:  # it comes first in `transformers`
        given.pop("min_length", None)
    words = [*generation.get("bad_words_ids", ())]
    # `transformers` lets texts end, even if the token for it is a bad word.
    ends = [[token] for token in as_ids(generation.get("eos_token_id")) or ()]
    words = [word for word in words if [*word] not in ends]
    words += [[token] for token in as_ids(generation.get("suppress_tokens")) or ()]
    return GenerationSettings(
        **given,
        bad_words=words,
        # Texts that begin with several tokens have a first token already.
        forced_second_token=generation.get("forced_bos_token_id"),
        forced_last_token=generation.get("forced_eos_token_id"),
    )


def merged(
    settings: GenerationSettings | Mapping[str, Any] | None, usual: GenerationSettings
) -> GenerationSettings:
    """Merge given settings with the default ones.

    A given `min_new_tokens` takes the place of a default `min_length`, too.

    Raises:
        TypeError: for an unknown setting.
    """
    if isinstance(settings, Mapping):
        replaced = {"min_length": 0} if "min_new_tokens" in settings else {}
        return usual.replace(**{**replaced, **settings})
    return usual if settings is None else settings


def with_defaults(
    sampler: Any,
    settings: GenerationSettings | Mapping[str, Any] | None,
    generation: Mapping[str, Any],
) -> tuple[Any, GenerationSettings]:
    """Choose sampler and settings: given ones, or those of a task's `generation`.

    Args:
        sampler: name, `keras_hub.samplers.Sampler` or `None`. `None` is a beam search
            if a dict of settings has several `num_beams`.
        settings: `GenerationSettings`, a dict of some of them, or `None`.
        generation: dict, see `checked_generation`.

    Raises:
        ValueError: for settings of a beam search with another sampler.
    """
    asked = dict(settings) if isinstance(settings, Mapping) else {}
    if sampler is None:
        count = asked.get("num_beams")
        several = isinstance(count, int) and count > 1
        sampler = "beam" if several else default_sampler(generation)
        if several and generation.get("do_sample"):
            raise ValueError(
                "`num_beams` must be 1 without a `sampler`: tokens are drawn by the "
                f"task's `generation`. Received: num_beams={count}."
            )
    # A sampler may be a config, too.
    others = keras_hub.samplers.BeamSampler | dict
    if not (sampler == "beam" or isinstance(sampler, others)):
        usual = GenerationSettings()
        for name in ("num_beams", "early_stopping", *sorted(_OF_GROUPS)):
            without = 1 if name == "num_beams" else getattr(usual, name)
            if asked.get(name, without) != without:
                raise ValueError(
                    f"`{name}` must be left out of the settings unless `sampler` is "
                    f'"beam". Received: {asked[name]!r}, sampler={sampler!r}.'
                )
    return sampler, merged(settings, default_settings(generation))


def default_sampler(generation: Mapping[str, Any]) -> Any:
    """Make the sampler from a task's `generation`.

    Raises:
        ValueError: for several beams with tokens that are drawn.
    """
    beams = generation.get("num_beams", 1) > 1
    if not generation.get("do_sample"):
        return "beam" if beams else "greedy"
    if beams:
        raise ValueError(
            "`generation` must have `num_beams` 1 if tokens are drawn. Received: "
            f"do_sample=True and num_beams={generation['num_beams']}."
        )
    top_k, top_p = generation.get("top_k", DRAWN_FROM), generation.get("top_p", 1.0)
    given = {"temperature": generation.get("temperature", 1.0)}
    if top_p != 1 or top_k:
        return NucleusSampler(top_p, top_k or None, **given)
    return keras_hub.samplers.RandomSampler(**given)


def default_length(generation: Mapping[str, Any], begun: int) -> int:
    """Give the default length of texts that begin with `begun` tokens.

    Raises:
        ValueError: if `generation` has no length.
    """
    if "max_new_tokens" in generation:
        return begun + int(generation["max_new_tokens"])
    if "max_length" in generation:
        return int(generation["max_length"])
    raise ValueError(
        "`max_length` must be given if the task's `generation` has none. Received: "
        "None."
    )


def as_ids(value: Any) -> list[int] | None:
    """Make a list of an id or of several; `None` stays `None`."""
    return [value] if isinstance(value, int) else value
