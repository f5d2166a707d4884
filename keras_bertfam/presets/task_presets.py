"""Tasks by name, from and to preset directories."""

import importlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.presets import (
    cards,
    folders,
    hub,
    inspection,
    names,
    preset_checks,
)
from keras_bertfam.presets.checkpoints import formats, kerashub
from keras_bertfam.presets.converting import conversion, exporting
from keras_bertfam.presets.converting.heads import shared_heads
from keras_bertfam.presets.converting.report import warn
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.quantization import (
    float_policy,
    quantize_again,
    quantized_layers,
    with_dtype,
)
from keras_bertfam.types import Config, Mixin, Model, Path, Tokenizer


class _NameWithTokenizer(str):
    """The name of a preprocessor's class, which carries the task's tokenizer along.

    A config has no vocabulary, and `keras.models.clone_model` reads no files. It passes
    strings on unchanged, and so it passes the tokenizer on with this string. A saved
    config has the name only.
    """

    tokenizer: Any = None


def _give_vocabulary(name, preprocessor):
    tokenizer = getattr(name, "tokenizer", None)
    if tokenizer is not None and has_vocabulary(tokenizer):
        # Keras reads no files while it makes objects from configs, unless this mode is
        # off. These files come from the task's own tokenizer.
        library = importlib.import_module("keras.src.saving.serialization_lib")
        unsafe = library.SafeModeScope(False)
        with tempfile.TemporaryDirectory() as folder, unsafe:
            tokenizer.save_assets(folder)
            preprocessor.tokenizer.load_assets(folder)


class TaskPresets(Mixin):
    """Mixin of tasks with `from_preset()` and `save_to_preset()`."""

    @classmethod
    def from_preset(
        cls,
        preset: Path,
        load_weights: bool = True,
        *,
        backbone_arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Model:
        """Build a task from the name of a published size or a directory.

        Args:
            preset: see `EncoderBackbone.from_preset`. If it has a backbone and a
                tokenizer only, the task's heads are new. If it has another task,
                heads that both tasks have are loaded, such as a masked LM's, and
                the others are new. A published name with `load_weights=False`
                gives a task without a preprocessor.
            load_weights: bool. Load the weights, or initialise them.
            backbone_arguments: arguments of the backbone to override, such as
                `{"dropout": 0.3, "attention_dropout": 0.3}`. A generator keeps its
                own arguments.
            **kwargs: arguments of the task, such as the `dropout` of its head;
                `dtype` goes to the backbone.

        Returns:
            A task of this class.

        Raises:
            ValueError: for an unknown name; the message has the nearest ones.
            CheckpointError: for a directory with missing or truncated files.
            ConnectionError: if the files are on a hub that can't be reached.

        Example:

        ```python
        keras_bertfam.tasks.TextClassifier.from_preset(
            "my_bert", num_classes=2, dropout=0.2, backbone_arguments={"dropout": 0.2})
        ```
        """
        published = names.published(cls.backbone_cls).get(os.fspath(preset))
        family = cls.backbone_cls if published is None else published.backbone
        arguments = dict(backbone_arguments or {})
        if "dtype" in kwargs:
            arguments["dtype"] = kwargs.pop("dtype")
        if published is not None and not load_weights:
            return cls._read(preset, family, load_weights, arguments, **kwargs)
        handle = hub.handle(published or preset)
        preset = hub.locate(published or preset, load_weights)

        def read():
            if (reader := formats.find_reader(preset)) is None:
                return cls._read(preset, family, load_weights, arguments, **kwargs)
            source = reader.open_source(preset)
            if published is not None:
                source = published.complete(source)
            return conversion.load_task(
                cls, source, load_weights, family, arguments, **kwargs
            )

        task = folders.read_whole(preset, read)
        if load_weights:
            task.backbone.origin = handle
        return task

    @classmethod
    def _read(cls, preset, family, load_weights, arguments, **kwargs):
        backbone = family.from_preset(preset, load_weights, **arguments)
        config = {}
        if os.path.isdir(preset):
            with preset_checks.explain_load_errors(preset):
                shapes = preset_checks.inspect_task(preset)
                config = cls._config_from(preset, backbone)
            preset_checks.check_vocabulary_size(
                config["preprocessor"], backbone, preset
            )
        quantized = config.pop("quantized_layers", None)
        saved = dict(config)
        same_heads = cls._adapt_config(config, kwargs)
        if load_weights and saved.get("name") and not same_heads:
            others = {n: saved.get(n) for n in kwargs if saved.get(n) != kwargs[n]}
            named = ", ".join(f"{name}={value!r}" for name, value in others.items())
            warn(
                f"The head of this {cls.__name__} is new, as that of "
                f"{os.fspath(preset)!r} is for {named}. To keep it, leave "
                f"{' and '.join(f'`{name}`' for name in others)} out."
            )
        arguments = {**config, "backbone": backbone, **kwargs}
        # An error may also come from the caller's arguments: those that are given, and
        # those that another task's preset leaves to the caller.
        read = same_heads and not kwargs
        with preset_checks.explain_load_errors(preset) if read else nullcontext():
            task = cls(**arguments)
        if same_heads:
            quantize_again(task, quantized)
        weights = os.path.join(preset, preset_checks.TASK_WEIGHTS_FILE)
        if load_weights and not same_heads and os.path.isdir(preset):
            with preset_checks.explain_load_errors(preset):
                task._take_over_heads(preset)
        if load_weights and same_heads and os.path.exists(weights):
            with preset_checks.explain_load_errors(preset):
                task.load_task_weights(weights)
                shared = {id(weight) for weight in backbone.weights}
                heads = [w for w in task.weights if id(w) not in shared]
                preset_checks.check_loaded(
                    heads, task.save_task_weights, shapes, preset
                )
        return task

    @classmethod
    def _config_from(cls, preset, backbone):
        """Read the arguments for this class's constructor from a preset."""
        task = preset_checks.read_json(preset, preset_checks.TASK_FILE)
        name = keras.saving.get_registered_name(cls)
        same = task is not None and task["registered_name"] == name
        config = dict(task["config"]) if same else {}
        dtype = changed_dtype(preset, backbone)
        for name, value in config.items() if dtype else ():
            if isinstance(value, dict) and "dtype" in value.get("config", {}):
                config[name] = with_dtype(value, dtype)  # another backbone
        preprocessor = preset_checks.load_serialized(
            preset, preset_checks.PREPROCESSOR_FILE
        )
        wanted = cls.preprocessor_cls
        if wanted is None:
            return {**config, "preprocessor": preprocessor}
        if not (same and preprocessor) and type(preprocessor) is not wanted:
            # The preset has no preprocessor, or another task's, maybe of a subclass.
            tokenizer = preset_checks.load_serialized(preset, inspection.TOKENIZER_FILE)
            preprocessor = tokenizer and cls.default_preprocessor(tokenizer, backbone)
        return {**config, "preprocessor": preprocessor}

    def _take_over_heads(self, preset):
        """Copy heads from another task's preset, if both tasks have them.

        In a task of pre-training, a warning names the weights that are new. The heads
        of fine-tuning are always new after pre-training, so no warning names them.
        """
        saved = preset_checks.read_json(preset, preset_checks.TASK_FILE)
        cls = saved and keras.saving.get_registered_object(saved["registered_name"])
        if cls in (None, type(self)):
            return
        shared = {id(weight) for weight in self.backbone.weights}
        taken = self._copy_heads(cls, saved["config"], preset, shared)
        preset_checks.warn_if_not_finite(taken, preset)
        known = shared | {id(weight) for weight in taken}
        new = [w.path for w in self.trainable_weights if id(w) not in known]
        if new and (hasattr(self, "fill_mask") or hasattr(self, "terms")):
            warn(
                f"{os.fspath(preset)!r} is of a {saved['class_name']}. New in a "
                f"{type(self).__name__}: {', '.join(new)}."
            )

    def _copy_heads(self, cls, config, preset, shared):
        """Fill heads from the saved task of a class, and list their variables."""
        weights = os.path.join(preset, preset_checks.TASK_WEIGHTS_FILE)
        heads = shared_heads(cls, type(self)) if issubclass(cls, TaskPresets) else []
        if not heads or "quantized_layers" in config or not os.path.exists(weights):
            return []
        other = cls(**{**config, "backbone": self.backbone, "preprocessor": None})
        other.load_task_weights(weights)
        decodes = getattr(other, "position_queries", None) is not None
        if decodes and not hasattr(self, "decoder_positions"):
            warn(
                f"{os.fspath(preset)!r} has an enhanced mask decoder, which a "
                f"{type(self).__name__} hasn't: the head was trained on other states."
            )
        taken = []
        for theirs, ours in heads:
            pair = [
                [w for w in getattr(task, name).weights if id(w) not in shared]
                for task, name in ((other, theirs), (self, ours))
            ]
            shapes = [[tuple(weight.shape) for weight in side] for side in pair]
            if shapes[0] == shapes[1]:
                for source, target in zip(*pair, strict=True):
                    # Without a copy, JAX would share the buffer.
                    target.assign(keras.ops.copy(source))
                    taken.append(target)
        return taken

    @classmethod
    def default_preprocessor(cls, tokenizer: Tokenizer, backbone: Model) -> Any:
        """Make the default preprocessor, with rows that the backbone can take."""
        preprocessor = cls.preprocessor_cls(tokenizer)
        most = getattr(backbone, "max_sequence_length", None)
        most = preprocessor.sequence_length if most is None else most
        if most < preprocessor.sequence_length:
            preprocessor = cls.preprocessor_cls(tokenizer, sequence_length=most)
        return preprocessor

    @classmethod
    def _adapt_config(cls, config, kwargs):
        """Change a saved task's config so that it fits the caller's arguments.

        Args:
            config: dict, changed in place. It has no `name` if no task was saved.
            kwargs: dict of arguments.

        Returns:
            bool, whether the task has the saved one's heads.
        """
        return bool(config.get("name"))

    def get_config(self) -> Config:
        """Give the arguments of the constructor.

        If layers besides the backbone's are quantized, the dict also has
        `quantized_layers`, which `from_config` takes out.
        """
        backbone = {id(layer) for layer in layers_of(self.backbone)}
        own = (layer for layer in layers_of(self) if id(layer) not in backbone)
        layers = quantized_layers(own, self.backbone.dtype_policy)
        config = super().get_config()
        if config.get("preprocessor") is not None:
            theirs = config["preprocessor"]
            name = _NameWithTokenizer(theirs["registered_name"])
            name.tokenizer = getattr(self.preprocessor, "tokenizer", None)
            config["preprocessor"] = {**theirs, "registered_name": name}
        return config if layers is None else {**config, "quantized_layers": layers}

    @classmethod
    def from_config(cls, config: Config) -> Model:
        config = dict(config)
        quantized = config.pop("quantized_layers", None)
        preprocessor = config.get("preprocessor")
        task = super().from_config(config)
        if isinstance(preprocessor, dict):
            _give_vocabulary(preprocessor.get("registered_name"), task.preprocessor)
        quantize_again(task, quantized)
        return task

    def to_keras_hub(self) -> Model:
        """Build the task of KerasHub's class with its head, without a preprocessor.

        See `to_keras_hub` of the backbone. Logits differ by up to 1e-3: norms in
        KerasHub's heads have an epsilon of 1e-5, and its heads of BERT and ALBERT have
        the other form of GELU.

        Returns:
            A `keras_hub.models.MaskedLM` or `TextClassifier`.

        Raises:
            ValueError: if KerasHub has no such task, or no such backbone.
        """
        return kerashub.to_keras_hub(self)

    def _not_task_weights(self):
        return [*layers_of(self.backbone), self.optimizer]

    def save_task_weights(self, filepath: Path) -> None:
        # KerasHub's method writes the optimizer's state along with the heads.
        keras.saving.save_weights(
            self, filepath, objects_to_skip=self._not_task_weights()
        )

    def load_task_weights(self, filepath: Path) -> None:
        shared = {id(weight) for weight in self.backbone.weights}
        own = [weight for weight in self.weights if id(weight) not in shared]
        with preset_checks.explain_weights_errors(filepath, own):
            keras.saving.load_weights(
                self, filepath, objects_to_skip=self._not_task_weights()
            )

    def load_weights(self, filepath: Path, *args: Any, **kwargs: Any) -> None:
        """Load weights as Keras does, with a `CheckpointError` for damaged files."""
        with preset_checks.explain_weights_errors(filepath, self.weights):
            super().load_weights(filepath, *args, **kwargs)

    def export_to_transformers(self, path: Path) -> None:
        """Write a folder that `transformers` loads, heads and tokenizer included.

        See `EncoderBackbone.export_to_transformers`. The class in `transformers`
        depends on task and family: a `MaskedLM` of a `BertBackbone` is a
        `BertForMaskedLM`, which has no pooler. ELECTRA's discriminator is written to
        `path`, and its generator to a folder `generator` in it.

        In masked language models of `transformers`, the heads of ELECTRA and RoBERTa
        have erf GELU, whatever the backbone's activation. A warning says so where ours
        has the tanh form. Another activation is an error.

        Args:
            path: path of the folder to write.
        """
        exporting.export_to_transformers(self, path)

    def training_facts(self) -> dict[str, Any]:
        """Give the facts of the training for a model card; by default none.

        Returns:
            Dict of `steps`, `settings`, their published `source`, and `scores`.
        """
        return {}

    @checked
    def save_to_preset(
        self,
        preset_dir: Path,
        max_shard_size: float = 10,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a preset directory, with the training's facts in its model card."""
        cards.check(card)
        with folders.preset_aside(preset_dir) as folder:
            folders.check_room(folder, self.weights, max_shard_size)
            super().save_to_preset(folder, max_shard_size=max_shard_size)
            cards.write(folder, self, self.training_facts(), card)


def changed_dtype(preset: str, backbone: Model) -> str | None:
    """Name the float dtype policy that a loaded backbone got in place of its saved one.

    Args:
        preset: path of the folder that the backbone was loaded from.
        backbone: the backbone.

    Returns:
        The name, or `None` if the dtype policy is the saved one.
    """
    saved = preset_checks.read_json(preset, preset_checks.CONFIG_FILE)
    name = float_policy(backbone.dtype_policy)
    return None if name == float_policy(saved["config"]["dtype"]) else name
