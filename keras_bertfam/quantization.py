"""Which layers of a model are quantised, kept in configs so that they are again."""

import copy
from collections.abc import Iterable
from typing import Any

import keras

from keras_bertfam.types import Config, Model


def quantized_layers(layers: Iterable[Any], default: Any) -> Config | None:
    """The dtype policies of quantised layers.

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
    for layer in model._flatten_layers():
        policy = layer.dtype_policy
        if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
            # Those without a path, such as dropout, have no weights.
            layer._dtype_policy = policy[layer.path or ""]


def with_float_policy(saved: dict[str, Any], dtype: Any) -> Any:
    """A serialised `DTypePolicyMap` whose layers compute in another float dtype.

    Args:
        saved: dict.
        dtype: Keras dtype or dtype policy; `None` for the usual one. A map takes
            the place of the saved one.

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
    for one in saved["config"]["policy_map"].values():
        if "source_name" in one["config"]:  # it is quantised
            one["config"]["source_name"] = policy.name
    return keras.dtype_policies.get(saved)


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
