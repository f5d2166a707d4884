"""The keys of a `generation_config.json`: used, or without a meaning here."""

import os
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.types import Path

GENERATION = "generation_config.json"
_LAST = "forced_eos_token_id"
_INT, _NUMBER, _FLAG = (int,), (int, float), (bool,)
# The keys of a language model's `generation`, and the types of their values: "ids" is
# an id or a list of ids, "words" is a list of lists of ids.
USED: dict[str, Any] = {
    "max_length": _INT,
    "max_new_tokens": _INT,
    "min_length": _INT,
    "min_new_tokens": _INT,
    "num_beams": _INT,
    "num_beam_groups": _INT,
    "num_return_sequences": _INT,
    "no_repeat_ngram_size": _INT,
    "forced_bos_token_id": _INT,
    "forced_eos_token_id": _INT,
    "top_k": _INT,
    "length_penalty": _NUMBER,
    "repetition_penalty": _NUMBER,
    "diversity_penalty": _NUMBER,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "do_sample": _FLAG,
    "early_stopping": (bool, str),
    "eos_token_id": "ids",
    "decoder_start_token_id": "ids",
    "suppress_tokens": "ids",
    "bad_words_ids": "words",
}
# Keys without a meaning here, by their reasons.
MEANINGLESS = {
    "who wrote it": "_from_model_config transformers_version _commit_hash",
    "the tokenizer's": "pad_token_id bos_token_id",
    "how it is run": """
        use_cache cache_implementation cache_config max_cache_len compile_config
        disable_compile prefill_chunk_size low_memory max_time use_mtp
        continuous_batching_config return_legacy_cache""",
    "what is returned besides": """
        output_attentions output_hidden_states output_scores output_logits
        return_dict_in_generate""",
    "of a second model that guesses, which changes no text": """
        is_assistant num_assistant_tokens num_assistant_tokens_schedule
        assistant_confidence_threshold prompt_lookup_num_tokens max_matching_ngram_size
        assistant_early_exit assistant_lookbehind target_lookbehind
        assistant_ensemble_weight speculation_type""",
}
# Keys of methods that aren't supported, and the values that switch a method off.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "penalty_alpha": (0,),
    "guidance_scale": (1,),
    "min_p": (0,),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "token_healing": (False,),
    "begin_suppress_tokens": ([],),
}


def read(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Read the default settings of `generate()`, and list those that aren't supported.

    Args:
        folder: path of a folder of `transformers`.
        config: dict, the content of its `config.json`. Older folders have the settings
            there.

    Returns:
        A tuple of a dict of settings, and a list of strings such as
        `"penalty_alpha='0.6'"`.

    Raises:
        CheckpointError: for a value of a wrong type. The message names the key.
    """
    where = os.path.join(folder, GENERATION)
    if not os.path.isfile(where):
        kept = {key: config[key] for key in USED if config.get(key) is not None}
        return checked_settings(kept, os.path.join(folder, "config.json")), []
    content = reading.read_json(reading.file_in(folder, GENERATION))
    content = {key: value for key, value in content.items() if value is not None}
    known = {*" ".join(MEANINGLESS.values()).split()}
    others = {
        key: value
        for key, value in content.items()
        if key not in known | USED.keys() and value not in NEUTRAL.get(key, ())
    }
    used = {key: value for key, value in content.items() if key in USED}
    last = used.get(_LAST)
    if isinstance(last, list) and last:
        # It may be a list. Of several ids none would be forced to be written.
        if len(last) == 1:
            [used[_LAST]] = last
        else:
            others[_LAST] = used.pop(_LAST)
    return checked_settings(used, where), [
        f"{k}={str(v)[:60]!r}" for k, v in others.items()
    ]


def checked_settings(values: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Check that the values of settings are of the types in `USED`, and return them.

    Raises:
        CheckpointError: for a value of a wrong type. The message names the key.
    """
    for key, value in values.items():
        if not _fits(value, USED[key]):
            raise CheckpointError(
                f"{key!r} in {os.fspath(where)!r} must be of the type that "
                f"`transformers` writes. Received: {value!r}."
            )
    return {**values}


def _fits(value, kinds):
    if kinds == "ids":
        return _is_id(value) or isinstance(value, list) and all(map(_is_id, value))
    if kinds == "words":
        return isinstance(value, list) and all(
            isinstance(word, list) and word and all(map(_is_id, word)) for word in value
        )
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _is_id(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
