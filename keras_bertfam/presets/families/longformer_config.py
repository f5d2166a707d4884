"""Longformer's config as `transformers` has it, and with a window for each layer."""

from typing import Any

# Enough for the questions and choices of this library's tasks.
GLOBAL_TOKENS = 160


def with_values_by_layer(config: dict[str, Any]) -> dict[str, Any]:
    """Write `attention_window` as `EncoderBackbone` has it.

    Raises:
        ValueError: for another number of windows than layers.
    """
    count = config.get("num_hidden_layers")
    windows = config.get("attention_window", 512)
    if type(windows) is int and type(count) is int:
        windows = [windows] * min(count, 2**10)
    if not isinstance(windows, list) or len(windows) != count:
        raise ValueError(
            f"Expected an 'attention_window', or one for each of {count} layers. "
            f"Received: {config.get('attention_window')!r}."
        )
    if any(type(window) is not int or window < 2 for window in windows):
        raise ValueError(f"Expected each 'attention_window' from 2, in {windows!r}.")
    return {**config, "attention_window": tuple(windows)}


def as_in_transformers(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `with_values_by_layer`.

    Raises:
        ValueError: for layers without a window, or without global tokens.
    """
    windows = config["attention_window"]
    if not windows or not all(windows) or not config["max_global_tokens"]:
        raise ValueError(
            "Longformer of `transformers` has a window in each layer, and global "
            f"tokens. Received: attention_window={windows!r}, "
            f"max_global_tokens={config['max_global_tokens']}."
        )
    return {**config, "attention_window": list(windows)}
