"""Dtype policies by layer, whatever their backbone is called; variables as stored.

Seen in Keras 3.15: a `DTypePolicyMap` knows layers by paths that begin with the name of
their model, which Keras counts up. And the `value` of a variable is a cast copy inside
of the `call` of a layer in mixed precision.
"""

import importlib
import re
from collections.abc import Iterable
from typing import Any

import keras

DTypePolicyMap: Any = keras.dtype_policies.DTypePolicyMap


def stored_values(variables: Iterable[keras.Variable]) -> list[Any]:
    """Read variables in their own precision, also inside of a layer's `call`."""
    with importlib.import_module("keras.src.backend").AutocastScope(None):
        return [variable.value for variable in variables]


class LayerPolicies(DTypePolicyMap):
    """A `DTypePolicyMap` whose keys may begin with the layer, as KerasHub's paths do.

    Paths of layers begin with the name of their backbone here, which Keras counts up:
    `bert_backbone_1/encoder/ffn_0/norm` is found by `encoder/ffn_0/norm`, and by the
    path of that layer in another backbone.

    Args:
        given: `DTypePolicyMap`, of paths or patterns of them.
        owner: str. The backbone's name.
    """

    def __init__(self, given: Any, owner: str) -> None:
        policies = {k: keras.dtype_policies.get(v) for k, v in given.items()}
        super().__init__(given.default_policy, policies)
        self._owner = owner
        others = {k.partition("/")[2]: v for k, v in policies.items() if "/" in k}
        self._maps = [DTypePolicyMap(None, keys) for keys in (policies, others)]

    def __getitem__(self, key: str) -> Any:
        found = self._find(key)
        return self.default_policy if found is None else found

    def _find(self, path):
        own, of_another = self._maps
        relative = self.relative(path)
        for policies, key in ((own, path), (own, relative), (of_another, relative)):
            if any(key == each or re.fullmatch(each, key) for each in policies):
                return policies[key]
        return None

    def relative(self, path: str) -> str:
        """Leave the name of the backbone out of a layer's path."""
        return path.removeprefix(f"{self._owner}/")

    def of_layers(self, layers: Iterable[Any]) -> dict[str, Any]:
        """Give the policies that layers have by the map, by their paths.

        Raises:
            ValueError: if it has none of these.
        """
        paths = sorted({layer.path for layer in layers if layer.path})
        found = {self.relative(path): self._find(path) for path in paths}
        chosen = {path: policy for path, policy in found.items() if policy is not None}
        if len(self) and not chosen:
            raise ValueError(
                "`dtype` must be a map with paths of layers, or patterns of them. "
                f"Received: {sorted(self)}. There are: {', '.join(found)}."
            )
        return chosen
