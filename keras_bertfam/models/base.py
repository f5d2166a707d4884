"""The base of all backbones."""

import concurrent.futures
import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.functional_bases import Subclassed
from keras_bertfam.keras_quirks.layer_policies import LayerPolicies
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.models.exported import row_specs
from keras_bertfam.models.library_model import LibraryModel
from keras_bertfam.presets import cards, folders, hub, inspection, names, preset_checks
from keras_bertfam.presets.checkpoints import formats, kerashub
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.converting import conversion, exporting
from keras_bertfam.presets.converting.conversion import initialization_is_skipped
from keras_bertfam.presets.families import Family, register
from keras_bertfam.quantization import (
    check_policy,
    is_map,
    own_policies,
    quantized_layers,
    with_dtype,
    with_float_policy,
)
from keras_bertfam.types import Config, Model, Path


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenBackbone(
    LibraryModel,
    keras_hub.models.Backbone,
    metaclass=Subclassed,
):
    """Base of all backbones, public as `models.Backbone`; inputs have `token_ids`.

    Its `from_preset()` takes the name of any published model, or the folder of any
    backbone or checkpoint, and gives a backbone of the right class.

    A subclass has the attributes `vocabulary_size`, `initializer_range` and
    `truncated_initializer`. A family is a subclass with a `record`; the record's
    arguments become the constructor's defaults.

    Attributes:
        record: `Family` of the class and of its subclasses, or `None`.
        presets_table: dict from names of sizes to arguments of the constructor. They
            come from the record, if the class itself has one.
        origin: handle of the weights on a hub, or `None`.
        input_names: tuple of the names that inputs may have.
        required_inputs: tuple of the names that inputs must have.
        settings: names of the fields of `TransformerConfig` that the constructor takes
            among its `kwargs`.
        argument_names: names of the constructor's arguments that become attributes
            unchanged. They make the config, and can't be changed later. See
            `arguments_of`.
        max_global_tokens: int, see `EncoderBackbone`.
        max_sequence_length: int, the longest row; `None` for any length.
        pooler: layer through which tasks can read the first token's state, or `None`.

    Example:

    ```python
    backbone = keras_bertfam.models.Backbone.from_preset(
        "albert_base_en_uncased", load_weights=False)
    type(backbone)  # keras_bertfam.models.AlbertBackbone
    ```
    """

    record: Family | None = None
    presets_table: Mapping[str, Mapping[str, Any]] = {}
    origin: str | None = None
    input_names: tuple[str, ...] = ("token_ids",)
    required_inputs: tuple[str, ...] = ("token_ids",)
    settings: Mapping[str, dataclasses.Field] = {}
    argument_names: Sequence[str] = ()
    pooler: Any
    max_global_tokens = 0
    max_sequence_length: int | None = None
    built: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        record = vars(cls).get("record")
        if record is not None:
            register(record, cls)
            cls.presets_table = {n: size.arguments for n, size in record.sizes.items()}
        if "record" in vars(cls) and "__init__" not in vars(cls):
            _take_defaults(cls)
        elif "__init__" in vars(cls):
            # To Python, Keras's classes seem to take any arguments.
            cls.__signature__ = _signature_of(cls)

    def __init__(self, *args: Any, dtype: Any = None, **kwargs: Any) -> None:
        if isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
            dtype = dtype.default_policy  # the map is for its layers
        super().__init__(*args, dtype=dtype, **kwargs)
        self._policies: LayerPolicies | None = None
        self.pooler = None  # a class attribute would hide PyTorch's submodule

    @property
    def fixed_arguments(self) -> Sequence[str]:  # type: ignore[override]
        return self.argument_names

    def keep_arguments(self, values: dict[str, Any]) -> None:
        """Set the constructor's arguments as attributes, from its local variables."""
        for name in values.keys() & {*self.argument_names}:
            setattr(self, name, values[name])

    def arguments_for(self, cls: Any) -> dict[str, Any]:
        """Give the attributes that a layer's constructor has arguments for."""
        names = set(arguments_of(cls.__init__)) & set(self.argument_names)
        return {name: getattr(self, name) for name in names}

    def make_initializer(self, table: bool = False) -> keras.initializers.Initializer:
        """Make an initializer like that of this backbone's kernels, or its tables."""
        if initialization_is_skipped():
            return keras.initializers.Zeros()
        if self.initializer_range is None:
            if table:
                return keras.initializers.RandomNormal(stddev=1.0)
            kind = "truncated" if self.truncated_initializer else "untruncated"
            return keras.initializers.VarianceScaling(1.0, "fan_in", f"{kind}_normal")
        if getattr(self, "uniform_initializer", False):
            most = self.initializer_range
            return keras.initializers.RandomUniform(-most, most)
        if self.truncated_initializer:
            return keras.initializers.TruncatedNormal(stddev=self.initializer_range)
        return keras.initializers.RandomNormal(stddev=self.initializer_range)

    def freeze(self, layers: int | None = None) -> None:
        """Freeze the embeddings and the lower blocks, or the whole backbone.

        It sets Keras's `trainable`, so compile a model again that was compiled before.
        Frozen layers stay frozen in a second call. To unfreeze all, set
        `backbone.trainable` to `False` and then to `True`. A saved backbone remembers
        only whether all of it is frozen.

        Args:
            layers: int from 0 to `num_layers`, the number of blocks to freeze with the
                embeddings; 0 freezes the embeddings only. Layers outside of blocks stay
                trainable: pooler, final norm, and XLNet's biases if layers share them.
                `None` freezes the whole backbone, like `trainable = False`.

        Raises:
            ValueError: for a number out of this range, or one that separates blocks
                that share weights. All blocks of ALBERT do.

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
                f"`layers` must be `None` for {type(self).__name__}, whose blocks "
                f"can't be frozen one by one. Received: layers={layers!r}."
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
                "`layers` must not separate blocks that share weights. Expected one of "
                f"{fitting}. Received: layers={layers}."
            )
        for block in (embeddings, *blocks[:layers]):
            for layer in block:
                layer.trainable = False

    def _parts(self):
        """List the embeddings' layers, and each block's layers; or give `None`."""
        return None

    def policies(self, dtype: Any) -> Any:
        """Give the `dtype` for layers; a `DTypePolicyMap` learns their paths here."""
        is_map = isinstance(dtype, keras.dtype_policies.DTypePolicyMap)
        if is_map and not isinstance(dtype, LayerPolicies):
            self._policies = dtype = LayerPolicies(dtype, self.name)
        return dtype

    def _finish_made_layers(self) -> None:
        """Give layers their policies of a `DTypePolicyMap`, and freeze them if asked.

        Keras gets `trainable=False` before the layers exist, so it is set here again.
        """
        if self._policies is not None:
            self._policies.of_layers(layers_of(self, include_self=False))
            own_policies(self)
        if not self.trainable:
            for layer in self._layers:
                layer.trainable = False

    def __call__(self, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.check_inputs(inputs)
        positions = args[0] if args else kwargs.get("positions")
        self.check_positions("positions", positions, inputs)
        return super().__call__(inputs, *args, **kwargs)

    def check_positions(self, name: str, positions: Any, inputs: dict) -> None:
        """Raise a `ValueError` for positions outside of the rows.

        Args:
            name: of the argument or input.
            positions: the positions, or `None`. Only a NumPy array is checked.
            inputs: as for a call. The last that is required has the rows' length.
        """
        if isinstance(positions, np.ndarray):
            length = inputs[self.required_inputs[-1]].shape[1]
            check_range(name, positions, "length", length)

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        """Raise a `ValueError` for wrong inputs, before anything is computed."""
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
                    f"`{name}` must be integers. Keras casts floats to "
                    f"{self.compute_dtype}, which can't hold all ids. Received: "
                    f"dtype={dtype}."
                )
        for name in self.required_inputs:
            self._check_ids(name, inputs[name])
        longest = self.max_sequence_length
        if longest is not None:
            for name in (name for name in inputs if name.endswith("position_ids")):
                check_range(name, inputs[name], "max_sequence_length", longest)

    def _check_ids(self, name, token_ids):
        check_range(name, token_ids, "vocabulary_size", self.vocabulary_size)

    def input_signature(self) -> dict[str, keras.InputSpec]:
        names = ["token_ids", "padding_mask"]
        # Tasks can choose global tokens by their segments.
        told = (getattr(self, "num_segments", True), self.max_global_tokens)
        if "segment_ids" in self.input_names and any(told):
            names.append("segment_ids")
        if "language_ids" in self.input_names and getattr(self, "num_languages", False):
            names.append("language_ids")
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
        # KerasHub's config lacks the float policy of a quantised model.
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

    @classmethod
    def from_preset(
        cls, preset: Path, load_weights: bool = True, **kwargs: Any
    ) -> Model:
        """Build a backbone from the name of a published size or a directory.

        Args:
            preset: str. The name of a published checkpoint (see
                `keras_bertfam.presets.list_presets`), the path of a directory that
                `save_to_preset()` wrote, or a handle on a hub:
                `hf://organisation/model` or
                `kaggle://organisation/model/keras/variation`.
            load_weights: bool. Whether to load the weights. If not, they are
                initialised at random.
            **kwargs: arguments of the constructor to override. A quantised model stays
                quantised; `dtype` then is the dtype of its other layers.

        Returns:
            A backbone.

        Raises:
            ValueError: for an unknown name. The error lists the nearest names.
            CheckpointError: for a directory with missing or truncated files.
            ConnectionError: if the weights are on a hub that can't be reached.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        ```
        """
        known = names.published(cls)
        published = known.get(os.fspath(preset))
        if published is not None and not load_weights:
            return published.backbone(**{**published.size, **kwargs})
        folder = hub.locate(published or preset, load_weights, tokenizer=False)
        family = cls if published is None else published.backbone
        backbone = folders.read_whole(
            folder, lambda: family._read(folder, known, load_weights, **kwargs)
        )
        if load_weights:
            backbone.origin = hub.handle(published or preset)
        return backbone

    @classmethod
    def _read(cls, folder, known, load_weights, **kwargs):
        if (reader := formats.find_reader(folder)) is not None:
            source = reader.open_source(folder)
            return conversion.load_backbone(cls, source, load_weights, **kwargs)
        inspection.check_preset(folder, known, load_weights)
        return cls._from_folder(os.fspath(folder), load_weights, **kwargs)

    @classmethod
    def _from_folder(cls, folder, load_weights, **kwargs):
        if kwargs.get("dtype") is not None:
            check_policy(kwargs["dtype"])
        try:
            return cls._from_checked_folder(folder, load_weights, **kwargs)
        except CheckpointError as error:
            given = {name: value for name, value in kwargs.items() if name != "dtype"}
            # Files that can't be read are at fault whatever was given.
            if not given or type(error.__cause__) is not ValueError:
                raise
            named = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(
                f"{error} Received, in place of the preset's own arguments: {named}."
            ) from error

    @classmethod
    def _from_checked_folder(cls, folder, load_weights, **kwargs):
        with preset_checks.explain_load_errors(folder):
            shapes = preset_checks.inspect_backbone(folder)
            config = preset_checks.read_json(folder, preset_checks.CONFIG_FILE)
            cls._check_kind(folder, config)
            saved = config["config"].get("dtype")
            inner = config["config"].get("backbone")
            if isinstance(inner, dict) and kwargs.get("dtype") is not None:
                kwargs.setdefault("backbone", with_dtype(inner, kwargs["dtype"]))
            if is_map(saved):
                # KerasHub would load int8 weights into a float backbone.
                kwargs["dtype"] = with_float_policy(saved, kwargs.get("dtype"))
            backbone = super().from_preset(folder, load_weights, **kwargs)
            if load_weights:
                preset_checks.check_loaded(
                    backbone.weights, backbone.save_weights, shapes, folder
                )
            return backbone

    @classmethod
    def _check_kind(cls, folder, config):
        kind = keras.saving.get_registered_object(config["registered_name"])
        if isinstance(kind, type) and not issubclass(kind, cls):
            name = inspection.class_of(config)
            family = inspection.family_of_class(name)
            raise inspection.wrong_kind_error(folder, name, family, cls.__name__)

    def load_weights(self, filepath: Path, *args: Any, **kwargs: Any) -> None:
        """Load weights as Keras does, with a `CheckpointError` for damaged files."""
        with preset_checks.explain_weights_errors(filepath, self.weights):
            super().load_weights(filepath, *args, **kwargs)

    @checked
    def save_to_preset(
        self,
        preset_dir: Path,
        max_shard_size: float = 10,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a preset directory, with a model card as its `README.md`.

        Hubs show the card, which describes the model. Your own `README.md`, or a card
        that you have edited, isn't overwritten.

        Args:
            preset_dir: path of the folder to write.
            max_shard_size: float, in gigabytes. Larger weights are split into several
                files.
            card: dict of facts for the card that the library can't know: `"license"`
                (identifier of the licence), `"language"`, `"datasets"`, `"tags"`
                (strings or lists of strings), `"base_model"` (its id on the hub),
                `"description"`, and `"scores"`, a dict of numbers that replaces the
                scores of the last epoch.

        Raises:
            ValueError: for an unknown key or a wrong value in `card`.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
        backbone.save_to_preset(
            "to_upload", card={"license": "mit", "language": ["en", "is"]})
        ```
        """
        cards.check(card)
        with folders.preset_aside(preset_dir) as folder:
            folders.check_room(folder, self.weights, max_shard_size)
            super().save_to_preset(folder, max_shard_size=max_shard_size)
            cards.write(folder, self, {}, card)

    def export_to_transformers(self, path: Path) -> None:
        """Write a folder that `transformers` loads.

        The folder holds a `config.json` and a `model.safetensors`, with exactly the
        tensors that `transformers` expects. `from_preset()` of this library loads it as
        well. The files appear together, when all are written.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: if `transformers` has no such model. The error names the
                arguments that it lacks.
            ImportError: without the safetensors library.

        Example:

        ```python
        import transformers

        backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
        backbone.export_to_transformers("exported")
        transformers.AutoModel.from_pretrained("exported")
        ```
        """
        exporting.export_to_transformers(self, path)

    def to_keras_hub(self) -> Model:
        """Build a backbone of KerasHub's own class with the same weights.

        Use it to go on with KerasHub. Its `save_to_preset()` writes folders that all of
        KerasHub loads; `from_preset()` of this library loads them as well. KerasHub's
        ELECTRA has a pooler, which the original model lacks: its weights are new.

        Returns:
            A `keras_hub.models.BertBackbone`, `RobertaBackbone`, `AlbertBackbone`,
            `DistilBertBackbone`, `ElectraBackbone`, `XLNetBackbone`, `GPT2Backbone`
            or `BartBackbone`.

        Raises:
            ValueError: if KerasHub has no such model. The error names the arguments
                that it lacks.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
        backbone.to_keras_hub().save_to_preset("for_keras_hub")
        ```
        """
        return kerashub.to_keras_hub(self)

    @classmethod
    def parameter_count(cls, *args: Any, **kwargs: Any) -> int:
        """Count the weights of a configuration, without allocating them.

        The arguments are those of the constructor.

        Example:

        ```python
        keras_bertfam.models.BertBackbone.parameter_count(
            vocabulary_size=30522, num_layers=24, num_heads=16, hidden_dim=1024,
            intermediate_dim=4096)  # 335141888
        ```
        """

        def count():
            with keras.StatelessScope(initialize_variables=False):
                return cls(*args, **kwargs).count_params()

        # Keras keeps, for each thread, a list of variables to initialise later. These
        # must never be initialised, so they get a thread that ends here.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(count).result()


def check_without_cache(arguments: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for arguments that calls with a `cache` don't read.

    Args:
        arguments: their values by name; `None` or `False` if they aren't given.
    """
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise ValueError(f"`{name}` must be left out with a `cache`.")


def check_range(name: str, ids: Any, limit: str, most: int, least: int = 0) -> None:
    """Raise a `ValueError` for ids in a NumPy array that are rows of no table.

    Args:
        name: of the input.
        ids: the input, or `None`.
        limit: name of the argument that says how many rows the table has.
        most: int, how many.
        least: int, the least id.
    """
    if isinstance(ids, np.ndarray) and ids.size:
        low, high = ids.min(), ids.max()
        if low < least or high >= most:
            raise ValueError(
                f"`{name}` must be in [{least}, {limit}={most}). Received ids from "
                f"{low} to {high}."
            )


def _signature_of(cls):
    """Make the signature of a class, including the config's fields that it takes."""
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
    """Give a family's constructor the defaults in its record.

    `help()` shows them by name.
    """
    defaults = family.record.arguments
    bases = [base for base in family.__mro__ if "__init__" in vars(base)]
    # A family's parent may be a family too. Call the trunk's constructor, not the
    # parent's: each record has all defaults.
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
    """Tell whether the lower `count` blocks share a layer with the blocks above."""
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
