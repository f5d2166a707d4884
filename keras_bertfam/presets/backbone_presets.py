"""Backbones by name, from and to preset directories."""

import concurrent.futures
import os
from collections.abc import Mapping
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.presets import cards, folders, hub, inspection, names, preset_checks
from keras_bertfam.presets.checkpoints import formats, kerashub
from keras_bertfam.presets.converting import conversion, exporting
from keras_bertfam.presets.families import Family, register
from keras_bertfam.quantization import with_float_policy
from keras_bertfam.types import Mixin, Model, Path


class BackbonePresets(Mixin):
    """Mixin of backbones that are loaded with `from_preset()`, and saved.

    Attributes:
        record: `Family` of the class and of its subclasses, `None` without one.
        presets_table: dict from names of sizes to arguments of the constructor;
            those of the record, if the class has one of its own.
        origin: handle on a hub that the weights are from, or `None`.
    """

    record: Family | None = None
    presets_table: Mapping[str, Mapping[str, Any]] = {}
    origin: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        record = vars(cls).get("record")
        if record is not None:
            register(record, cls)
            cls.presets_table = {n: size.arguments for n, size in record.sizes.items()}

    @classmethod
    def from_preset(
        cls, preset: Path, load_weights: bool = True, **kwargs: Any
    ) -> Model:
        """Build a backbone from the name of a published size or a directory.

        Args:
            preset: str. The name of a published checkpoint (see
                `keras_bertfam.presets.list_presets`), the path of a directory that
                `save_to_preset()` wrote, or the handle of one:
                `hf://organisation/model` or
                `kaggle://organisation/model/keras/variation`.
            load_weights: bool. Load the weights, or initialise them.
            **kwargs: arguments of the constructor to override. A quantised model
                stays so; `dtype` is that of its other layers.

        Returns:
            A backbone.

        Raises:
            ValueError: for an unknown name (with the nearest ones).
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
        with preset_checks.explain_load_errors(folder):
            shapes = preset_checks.inspect_backbone(folder)
            config = preset_checks.read_json(folder, preset_checks.CONFIG_FILE)
            cls._check_kind(folder, config)
            saved = config["config"].get("dtype")
            if isinstance(saved, dict) and saved.get("class_name") == "DTypePolicyMap":
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
        """Write a preset directory, with a model card for its `README.md`.

        The card says what is known of the model, and hubs show it. A `README.md` of the
        user's, or a card that was changed, stays as it is.

        Args:
            preset_dir: path of the folder to write.
            max_shard_size: float. Gigabytes from which on weights are several files.
            card: dict of what the card can't know: `"license"` (identifier of the
                licence), `"language"`, `"datasets"`, `"tags"` (strings or lists of
                them), `"base_model"` (its id on the hub), `"description"`, and
                `"scores"`, a dict of numbers in place of those of the last epoch.

        Raises:
            ValueError: for another key or value in `card`.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
        backbone.save_to_preset(
            "to_upload", card={"license": "mit", "language": ["en", "is"]})
        ```
        """
        cards.check(card)
        with folders.write_aside(preset_dir) as folder:
            folders.check_room(folder, self.weights, max_shard_size)
            super().save_to_preset(folder, max_shard_size=max_shard_size)
            cards.write(folder, self, {}, card)

    def export_to_transformers(self, path: Path) -> None:
        """Write a folder that `transformers` loads.

        It holds a `config.json` and a `model.safetensors`, without tensors that
        `transformers` doesn't expect; `from_preset()` here loads it as well. Files
        appear when all are written.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: if `transformers` has no such model; it names the arguments
                for which it has none.
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
        """Build the backbone of KerasHub's own class, with the same weights.

        This is for users who go on with KerasHub: its `save_to_preset()` writes what
        all of KerasHub loads, and `from_preset()` here loads it as well. KerasHub's
        ELECTRA has a pooler that the original lacks; it is new.

        Returns:
            A `keras_hub.models.BertBackbone`, `RobertaBackbone`, `AlbertBackbone`,
            `DistilBertBackbone`, `ElectraBackbone`, `XLNetBackbone`, `GPT2Backbone`
            or `BartBackbone`.

        Raises:
            ValueError: if KerasHub has no such model; it names the arguments for
                which it has none.

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

        Takes the arguments of the constructor.

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

        # Keras remembers, for each thread, variables to initialise once there is
        # memory for them. These must never be, so their thread ends here.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(count).result()
