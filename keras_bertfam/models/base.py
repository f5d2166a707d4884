"""What backbones of different computation have in common."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.functional_bases import Subclassed
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.models.exported import row_specs
from keras_bertfam.models.library_model import LibraryModel
from keras_bertfam.presets.backbone_presets import BackbonePresets
from keras_bertfam.presets.converting.conversion import initialization_is_skipped
from keras_bertfam.quantization import own_policies, quantized_layers
from keras_bertfam.types import Config


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenBackbone(
    LibraryModel,
    BackbonePresets,
    keras_hub.models.Backbone,
    metaclass=Subclassed,
):
    """Base of the backbones that take a dict with `token_ids`; `models.Backbone`.

    Its `from_preset()` takes the name of any published model, or the folder of any
    backbone or checkpoint, and gives a backbone of its own class.

    A subclass has the attributes `vocabulary_size`, `initializer_range` and
    `truncated_initializer`. A family of a subclass is a subclass of that with a
    `record`, whose arguments are its defaults.

    Attributes:
        input_names: tuple of the names that inputs may have.
        required_inputs: tuple of the names that they must have.
        settings: the fields of `TransformerConfig` that the constructor takes among
            its `kwargs`, by name.
        argument_names: the arguments of the constructor that are attributes as
            they are; they make the config, and can't be changed later. See
            `arguments_of`.
        max_global_tokens: int, see `EncoderBackbone`.
        pooler: layer that tasks may read the first token's state by, or `None`.

    Example:

    ```python
    backbone = keras_bertfam.models.Backbone.from_preset(
        "albert_base_en_uncased", load_weights=False)
    type(backbone)  # keras_bertfam.models.AlbertBackbone
    ```
    """

    input_names: tuple[str, ...] = ("token_ids",)
    required_inputs: tuple[str, ...] = ("token_ids",)
    settings: Mapping[str, dataclasses.Field] = {}
    argument_names: Sequence[str] = ()
    pooler: Any
    max_global_tokens = 0
    built: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "record" in vars(cls) and "__init__" not in vars(cls):
            _take_defaults(cls)
        elif "__init__" in vars(cls):
            # Keras's classes take any arguments, as far as Python can tell.
            cls.__signature__ = _signature_of(cls)

    def __init__(self, *args: Any, dtype: Any = None, **kwargs: Any) -> None:
        if isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
            dtype = dtype.default_policy  # the map is of its layers
        super().__init__(*args, dtype=dtype, **kwargs)
        self._policies: LayerPolicies | None = None
        self.pooler = None  # of the class, it would hide PyTorch's submodule

    @property
    def fixed_arguments(self) -> Sequence[str]:  # type: ignore[override]
        return self.argument_names

    def keep_arguments(self, values: dict[str, Any]) -> None:
        """Set arguments of the constructor as attributes, from all that it knows."""
        for name in values.keys() & {*self.argument_names}:
            setattr(self, name, values[name])

    def arguments_for(self, cls: Any) -> dict[str, Any]:
        """Give the arguments that a layer's constructor has by the same names."""
        names = set(arguments_of(cls.__init__)) & set(self.argument_names)
        return {name: getattr(self, name) for name in names}

    def make_initializer(self, table: bool = False) -> keras.initializers.Initializer:
        """Make an initializer of the kind this backbone's kernels, or tables, have."""
        if initialization_is_skipped():
            return keras.initializers.Zeros()
        if self.initializer_range is None:
            if table:
                return keras.initializers.RandomNormal(stddev=1.0)
            kind = "truncated" if self.truncated_initializer else "untruncated"
            return keras.initializers.VarianceScaling(1.0, "fan_in", f"{kind}_normal")
        if self.truncated_initializer:
            return keras.initializers.TruncatedNormal(stddev=self.initializer_range)
        return keras.initializers.RandomNormal(stddev=self.initializer_range)

    def freeze(self, layers: int | None = None) -> None:
        """Stop training the embeddings and the lower blocks, or all.

        It sets `trainable`, as Keras has it: a model that was compiled before is to
        be compiled again. What is frozen stays so when more is; setting
        `backbone.trainable` to `False` and then to `True` frees all. A saved backbone
        knows whether all of it is frozen, and no more.

        Args:
            layers: int from 0 to `num_layers`, the number of blocks; 0 means the
                embeddings only. `None` means all of the backbone, which is
                `trainable = False`. What belongs to no block stays trainable with a
                number: pooler, final norm, and XLNet's biases if layers share them.

        Raises:
            ValueError: for another number, or one that parts layers that share
                weights, as all of ALBERT's do.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        backbone.freeze(layers=1)
        classifier = keras_bertfam.tasks.TextClassifier(backbone, num_classes=2)
        classifier.compile()
        ```
        """
        if layers is None:
            self.trainable = False
            return
        parts = self._parts()
        if parts is None:
            raise ValueError(
                f"`layers` must be `None` for {type(self).__name__}, which doesn't "
                f"name its blocks. Received: layers={layers!r}."
            )
        embeddings, blocks = parts
        whole = isinstance(layers, int) and not isinstance(layers, bool)
        if not whole or not 0 <= layers <= len(blocks):
            raise ValueError(
                "`layers` must be `None` or an integer from 0 to "
                f"num_layers={len(blocks)}. Received: layers={layers!r}."
            )
        if _part_a_layer(blocks, layers):
            fitting = [
                n for n in range(len(blocks) + 1) if not _part_a_layer(blocks, n)
            ]
            raise ValueError(
                "`layers` must not part blocks that share weights. Expected one of "
                f"{fitting}. Received: layers={layers}."
            )
        for block in (embeddings, *blocks[:layers]):
            for layer in block:
                layer.trainable = False

    def _parts(self):
        """List the layers of the embeddings and those of each block, or give `None`."""
        return None

    def policies(self, dtype: Any) -> Any:
        """Give layers their `dtype`: a map learns their paths in this backbone."""
        is_map = isinstance(dtype, keras.dtype_policies.DTypePolicyMap)
        if is_map and not isinstance(dtype, LayerPolicies):
            self._policies = dtype = LayerPolicies(dtype, self.name)
        return dtype

    def _finish_made_layers(self) -> None:
        """Give layers their policies of a map, and freeze those not to be trained.

        Keras was told `trainable=False` before there were any.
        """
        if self._policies is not None:
            self._policies.of_layers(layers_of(self, include_self=False))
            own_policies(self)
        if not self.trainable:
            for layer in self._layers:
                layer.trainable = False

    def __call__(self, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        """Raise a `ValueError` for inputs known to be wrong before they run."""
        unknown = sorted(set(inputs) - set(self.input_names))
        if unknown or not set(self.required_inputs) <= set(inputs):
            needed = " and ".join(f"`{name}`" for name in self.required_inputs)
            others = tuple(n for n in self.input_names if n not in self.required_inputs)
            raise ValueError(
                f"`inputs` must be a dict with {needed} and any of {others}. "
                f"Received: {sorted(inputs)}."
            )
        for name in (name for name in inputs if name.endswith("_ids")):
            dtype = str(getattr(inputs[name], "dtype", ""))
            if "float" in dtype and "16" in self.compute_dtype:
                raise ValueError(
                    f"`{name}` must be integers: {self.compute_dtype}, to which Keras "
                    f"casts floats here, has not all ids. Received: dtype={dtype}."
                )
        for name in self.required_inputs:
            self._check_ids(name, inputs[name])

    def _check_ids(self, name, token_ids):
        if isinstance(token_ids, np.ndarray) and token_ids.size:
            low, high = token_ids.min(), token_ids.max()
            if low < 0 or high >= self.vocabulary_size:
                raise ValueError(
                    f"`{name}` must be in [0, vocabulary_size="
                    f"{self.vocabulary_size}). Received ids from {low} to {high}."
                )

    def input_signature(self) -> dict[str, keras.InputSpec]:
        names = ["token_ids", "padding_mask"]
        # Tasks may tell by segments which tokens are global.
        told = (getattr(self, "num_segments", True), self.max_global_tokens)
        if "segment_ids" in self.input_names and any(told):
            names.append("segment_ids")
        return row_specs(names)

    @checked
    def enable_lora(
        self, rank: int, target_layer_names: Sequence[str] | None = None
    ) -> None:
        super().enable_lora(rank, target_layer_names)
        for layer in layers_of(self, include_self=False):
            bias = getattr(layer, "bias", None)
            if getattr(layer, "lora_enabled", False) and bias is not None:
                bias.trainable = False  # `save_lora_weights` leaves it out

    def get_config(self) -> Config:
        # KerasHub's forgets the float policy of a quantised model.
        layers = layers_of(self, include_self=False)
        dtype = quantized_layers(layers, self.dtype_policy)
        if self._policies is not None:
            policies = self._policies.of_layers(layers)
            quantized = keras.dtype_policies.get(dtype) if dtype else {}
            policies |= {path: quantized[path] for path in quantized}
            dtype = keras.dtype_policies.serialize(
                keras.dtype_policies.DTypePolicyMap(self.dtype_policy.name, policies)
            )
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": dtype or keras.dtype_policies.serialize(self.dtype_policy),
            **{name: getattr(self, name) for name in self.argument_names},
        }

    @classmethod
    def from_config(cls, config: Config) -> "TokenBackbone":
        backbone = super().from_config(config)
        own_policies(backbone)
        return backbone


def _signature_of(cls):
    """Make the signature of a class, with the fields of a config that it takes."""
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    known = {each.name for each in parameters}
    fields = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=each.type,
        )
        for name, each in cls.settings.items()
        if name not in known
    ]
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    others = [each for each in parameters if each.kind is each.VAR_KEYWORD]
    first = [each for each in parameters if each not in named + others]
    return inspect.Signature([*first, *fields, *named, *others])


def _take_defaults(family):
    """Make the arguments in a family's record the defaults of its constructor.

    `help()` shows them, by name.
    """
    defaults = family.record.arguments
    bases = [base for base in family.__mro__ if "__init__" in vars(base)]
    # Of another family only the trunk's is called: each record has all defaults.
    trunk = next(base for base in bases if not hasattr(base.__init__, "defaults"))
    shown = []
    for each in inspect.signature(trunk).parameters.values():
        if each.default is not each.empty:
            default = defaults.get(each.name, each.default)
            each = each.replace(default=default, kind=each.KEYWORD_ONLY)
        shown.append(each)

    def __init__(
        self: Any,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        **kwargs: Any,
    ) -> None:
        trunk.__init__(
            self,
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **{**defaults, **kwargs},
        )

    __init__.defaults = defaults
    family.__init__, family.__signature__ = __init__, inspect.Signature(shown)


def _part_a_layer(blocks, count):
    """Tell whether a layer of the lower `count` blocks is one of those above too."""
    lower, upper = (
        {id(layer) for block in part for layer in block}
        for part in (blocks[:count], blocks[count:])
    )
    return bool(lower & upper)


def arguments_of(constructor: Callable, but: Sequence[str] = ()) -> list[str]:
    """List the arguments of a constructor, except `but`, `dtype` and `kwargs`."""
    parameters = inspect.signature(constructor).parameters.values()
    left_out = {"self", "dtype", *but}
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in left_out
    ]


DTypePolicyMap: Any = keras.dtype_policies.DTypePolicyMap


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
