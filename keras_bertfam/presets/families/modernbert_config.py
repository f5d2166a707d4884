"""ModernBERT's config, as `transformers` has it and with a value for each layer."""

import math
from typing import Any

_FULL, _SLIDING = "full_attention", "sliding_attention"
_BASES = {_FULL: 160_000.0, _SLIDING: 10_000.0}


def with_values_by_layer(config: dict[str, Any]) -> dict[str, Any]:
    """Write `attention_window` and `rotary_base` as `EncoderBackbone` has them.

    The config may be of the older form, with `global_attn_every_n_layers` and two
    bases, or of the newer one, with `layer_types` and `rope_parameters`.

    Raises:
        ValueError: for layers or positions of a kind that isn't here.
    """
    count = config.get("num_hidden_layers", 22)
    types = config.get("layer_types")
    if types is None:
        every = config.get("global_attn_every_n_layers", 3)
        types = [_SLIDING if layer % every else _FULL for layer in range(count)]
    if len(types) != count or not {*types} <= {_FULL, _SLIDING}:
        raise ValueError(
            f"Expected {count} 'layer_types', {_FULL!r} or {_SLIDING!r}. "
            f"Received: {types!r}."
        )
    window = config.get("local_attention", 128)
    if type(window) is not int or window < 2:
        raise ValueError(f"Expected 'local_attention' from 2. Received: {window!r}.")
    windows = [window // 2 * 2 if kind == _SLIDING else 0 for kind in types]
    bases = _bases(config)
    return {
        **config,
        "attention_window": tuple(windows) if any(windows) else None,
        "rotary_base": (bases[_FULL], bases[_SLIDING]),
    }


def _bases(config):
    given = config.get("rope_parameters") or {}
    old = {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}
    bases = {}
    for kind, name in old.items():
        rope = given.get(kind) or {}
        form = rope.get("rope_type", "default")
        base = rope.get("rope_theta", config.get(name) or _BASES[kind])
        number = isinstance(base, int | float) and not isinstance(base, bool)
        if form != "default" or config.get("rope_scaling") is not None:
            raise ValueError(
                "Expected rotary positions of the type 'default', without scaling. "
                f"Received: rope_parameters={given!r}."
            )
        if not number or not 0 < base < math.inf:
            raise ValueError(f"Expected a positive {name!r}. Received: {base!r}.")
        bases[kind] = float(base)
    return bases


def as_in_transformers(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `with_values_by_layer`.

    Raises:
        ValueError: for windows of more than one length, or other positions.
    """
    config = dict(config)
    windows, bases = config.pop("attention_window"), config.pop("rotary_base")
    windows = windows or (0,) * config["num_hidden_layers"]
    lengths = {window for window in windows if window} or {128}
    if len(lengths) > 1 or bases is None:
        raise ValueError(
            "ModernBERT of `transformers` has rotary positions, and windows of one "
            f"length. Received: rotary_base={bases!r}, attention_window={windows!r}."
        )
    rope = zip((_FULL, _SLIDING), bases, strict=True)
    config |= {
        "local_attention": lengths.pop(),
        "layer_types": [_SLIDING if window else _FULL for window in windows],
        "rope_parameters": {
            kind: {"rope_theta": base, "rope_type": "default"} for kind, base in rope
        },
    }
    if config["vocab_size"] <= 50283:  # the published model's padding
        config["pad_token_id"] = None
    return config
