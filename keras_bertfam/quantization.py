"""Which layers of a model are quantised, kept in configs so that they are again."""

import copy
import functools
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras

from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.types import Config, Model

# Modes that keep two values in a byte.
_PACKING = ("int4", "gptq", "awq")
# Modes that look at texts before they round.
_CALIBRATED = ("gptq", "awq")


def quantize(
    model: Model,
    keras_quantize: Callable[..., Any],
    mode: Any,
    config: Any,
    filters: Any,
    **kwargs: Any,
) -> None:
    """Quantise a model so that it loads again as it is; see `LibraryModel.quantize`.

    Args:
        model: a backbone or a task.
        keras_quantize: the method of `keras.Model`.
        mode: see `LibraryModel.quantize`, as the others.
    """
    among = None
    if mode is None:
        mode = getattr(config, "mode", None)
    if mode in _CALIBRATED:
        config = copy.copy(config)
        structure = config.quantization_layer_structure
        structure = structure or model.get_quantization_layer_structure(mode)
        if structure is None:
            raise ValueError(
                f"`config` must have a `quantization_layer_structure` for {mode!r} "
                f"and a {type(model).__name__}. Received: None."
            )
        config.quantization_layer_structure = structure
        # The others would be saved as zeros, as nothing is measured for them.
        blocks = structure["sequential_blocks"]
        among = {id(x) for block in blocks for x in layers_of(block)}
    else:
        _check_default(config)

    def is_one(layer):
        asked = among is None or id(layer) in among
        return asked and _passes(layer, filters)

    with warnings.catch_warnings():
        # Norms and dropout have nothing to quantise, tables nothing for float8.
        for text in ("Layer .* does not have a", "Invalid quantization mode"):
            warnings.filterwarnings("ignore", text)
        keras_quantize(mode, config=config, filters=is_one, **kwargs)
    for layer in layers_of(model):
        save_zero_points(layer)


def _passes(layer, filters):
    """Do what Keras does with the `filters` of `quantize()`."""
    if callable(filters):
        return filters(layer)
    patterns = [filters] if isinstance(filters, str) else filters
    return patterns is None or any(re.search(one, layer.name) for one in patterns)


def _check_default(config):
    """Raise a `ValueError` for quantizers that a dtype policy doesn't name."""
    if config is None or not hasattr(config, "weight_quantizer"):
        return
    usual = {"block_size": config.block_size} if hasattr(config, "block_size") else {}
    if config.get_config() != type(config)(**usual).get_config():
        raise ValueError(
            "`config` must have the quantizers that Keras takes for its mode: a saved "
            f"model knows no others. Received: {config.get_config()}."
        )


def save_zero_points(layer: Any) -> None:
    """Let a layer of GPTQ or AWQ write its zero points, which Keras 3.15 leaves out."""
    if layer.quantization_mode in _CALIBRATED:
        layer.save_own_variables = functools.partial(_save_all, layer)


def _save_all(layer, store):
    names = layer.variable_serialization_spec[layer.quantization_mode]
    named = {name: getattr(layer, name, None) for name in names}
    if "kernel" in named:  # that attribute is the float one
        named["kernel"] = layer.quantized_kernel
    kept = [value for value in named.values() if value is not None]
    for index, value in enumerate(kept):
        store[str(index)] = value


def values_per_weight(config: Any) -> int:
    """Tell how many values of a model a stored number may hold.

    Args:
        config: serialised object.

    Returns:
        2 if a layer in it is of a mode that packs two values in a byte, else 1.
    """
    parts = config.values() if isinstance(config, dict) else config
    if not isinstance(config, dict | list):
        return 1
    mode = config.get("mode") if isinstance(config, dict) else None
    if isinstance(mode, str) and mode.startswith(_PACKING):
        return 2
    return max(map(values_per_weight, parts), default=1)


def quantized_layers(layers: Iterable[Any], default: Any) -> Config | None:
    """Give the dtype policies of quantised layers.

    Args:
        layers: iterable of layers.
        default: `keras.DTypePolicy` of the others.

    Returns:
        Serialised `DTypePolicyMap` from paths of layers, or `None` without any.
    """
    policies = keras.dtype_policies.DTypePolicyMap(default.name)
    for layer in layers:
        if layer.quantization_mode is not None and layer.path not in policies:
            policy = layer.dtype_policy
            if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
                policy = policy[layer.path]
            policies[layer.path] = policy
    return keras.dtype_policies.serialize(policies) if len(policies) else None


def own_policies(model: Model) -> None:
    """Give each layer that was built by a map of policies its own.

    A quantised layer with a map computes, but Keras doesn't save it.
    """
    for layer in layers_of(model):
        policy = layer.dtype_policy
        if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
            # Those without a path, such as dropout, have no weights.
            layer._dtype_policy = policy[layer.path or ""]
        save_zero_points(layer)


def with_float_policy(saved: dict[str, Any], dtype: Any) -> Any:
    """Give a serialised `DTypePolicyMap` another float dtype.

    Args:
        saved: dict.
        dtype: Keras dtype or dtype policy; `None` for the usual one. It is for all
            layers that aren't quantised. A map takes the place of the saved one.

    Returns:
        `DTypePolicyMap`.

    Raises:
        ValueError: for a dtype in which quantised layers don't compute.
    """
    policy = keras.dtype_policies.get(dtype)
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    saved = copy.deepcopy(saved)
    saved["config"]["default_policy"] = policy.name
    layers = saved["config"]["policy_map"]
    for path, one in [*layers.items()]:
        if "source_name" in one["config"]:  # it is quantised
            one["config"]["source_name"] = policy.name
        elif dtype is not None:
            del layers[path]
    return keras.dtype_policies.get(saved)


def with_dtype(part: Config, dtype: Any) -> Config:
    """Give a serialised backbone, and a backbone in its config, another float dtype.

    Args:
        part: dict of a serialised backbone.
        dtype: Keras dtype or dtype policy.
    """
    config = dict(part["config"])
    policy = keras.dtype_policies.get(dtype)
    if is_map(config.get("dtype")):
        policy = with_float_policy(config["dtype"], policy)
    config["dtype"] = keras.dtype_policies.serialize(policy)
    if isinstance(config.get("backbone"), dict):
        config["backbone"] = with_dtype(config["backbone"], dtype)
    return {**part, "config": config}


def is_map(saved: Any) -> bool:
    """Tell whether a serialised dtype policy is one by layer."""
    return isinstance(saved, dict) and saved.get("class_name") == "DTypePolicyMap"


def float_policy(policy: Any) -> str:
    """Name the dtype policy of float layers, given as Keras takes one."""
    policy = keras.dtype_policies.get(policy)
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    name: str = policy.name
    return name


def quantize_again(model: Model, saved: Config | None) -> None:
    """Quantise the layers of a model that were when its config was made.

    Args:
        model: a float `keras.Model`, or one of which some of them are quantised.
        saved: dict, what `quantized_layers` gave, or `None`.
    """
    if saved is None:
        return
    policies = keras.dtype_policies.get(saved)
    for mode in sorted({policy.quantization_mode for policy in policies.values()}):

        def is_one(layer, mode=mode):
            mine = policies[layer.path] if layer.path in policies else None
            fits = mine is not None and mine.quantization_mode == mode
            return fits and layer.quantization_mode is None

        model.quantize(mode, filters=is_one)


def check_policy(dtype: Any) -> None:
    """Raise a `ValueError` for a `dtype` that isn't a dtype policy of Keras."""
    try:
        keras.dtype_policies.get(dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`dtype` must be a dtype policy, such as 'float32' or 'mixed_bfloat16'. "
            f"Received: {dtype!r}."
        ) from error
