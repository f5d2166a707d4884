"""The common base of backbones and tasks."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam import quantization
from keras_bertfam.models import exported
from keras_bertfam.types import Config, Mixin, Path


class LibraryModel(Mixin):
    """Mixin of backbones and tasks: fixed arguments, quantisation and export.

    Attributes:
        fixed_arguments: names of attributes that can be set only once. Layers are made
            with their values, so a later change would appear in the config, but have no
            effect.
    """

    fixed_arguments: Sequence[str] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fixed_arguments and vars(self).get(name, value) != value:
            raise ValueError(
                f"`{name}` must be given to the constructor or `from_preset` of "
                f"{type(self).__name__}, since its layers are made with it. Expected: "
                f"{name}={vars(self)[name]!r}. Received: {value!r}."
            )
        super().__setattr__(name, value)

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantise the model's layers, as `keras.Model.quantize` does.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, `"gptq"` or `"awq"`.
            config: a quantisation config of Keras; `"gptq"` and `"awq"` need one, with
                texts and a tokenizer. The blocks of an encoder with full attention and
                a table of positions are found by themselves. For other models the
                config must name them.
            filters: which layers to quantise, as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: for your own quantizers, which a saved model would lose; and for
                `"gptq"` and `"awq"` without blocks.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        backbone.quantize("int4")
        ```
        """
        usual = super().quantize
        quantization.quantize(self, usual, mode, config, filters, **kwargs)

    def get_quantization_layer_structure(self, mode: str) -> Config | None:
        """Give the blocks that `"gptq"` and `"awq"` calibrate, or `None`."""
        del mode
        backbone = getattr(self, "backbone", self)
        return getattr(backbone, "calibrated_blocks", lambda: None)()

    def export(
        self,
        filepath: Path,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        verify: bool = True,
        quantize: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export the model as a SavedModel, for ONNX or for LiteRT.

        The export takes token ids and returns the model's outputs. For strings as
        inputs and finished answers see `keras_bertfam.export.export_saved_model`.
        TensorFlow writes these formats; with other backends it does so in a separate
        process. `"onnx"` needs `pip install 'keras-bertfam[export]'`.

        The runtimes of ONNX and LiteRT lack some operations in 16 bits. So a model that
        computes in 16 bits is exported in float32, with a warning.

        Args:
            filepath: path to write; a file `*.tflite` for `"litert"`.
            format: `"tf_saved_model"`, `"onnx"`, `"litert"`, or another of Keras's.
            verbose: bool or `None`.
            input_signature: list of one dict like that of `input_signature()`, which is
                the default. Use it to fix lengths, or to leave inputs out.
            verify: bool. Whether to open the export with its runtime, and let it answer
                a row, before it is moved to `filepath`.
            quantize: `"int8"` or an `Int8Settings`, for `"onnx"`. ONNX Runtime's
                quantiser then rounds the float model. `None` gives a file in float32.
            **kwargs: see `keras.Model.export`.

        Raises:
            ValueError: for a wrong `quantize`, or one with another format; and if
                nothing is left to round.
            RuntimeError: if TensorFlow fails in its own process; or if the runtime
                refuses the export, or answers with NaN or other shapes. The error has
                the reason.
            ImportError: if `verify` is true and the format's runtime is missing.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
        backbone.export("my_bert.tflite", format="litert")
        ```
        """

        def keras_export(model, *arguments, **kwargs):
            super().export(*arguments, **kwargs)

        arguments = (filepath, format, verbose, input_signature, verify, quantize)
        exported.export_model(self, keras_export, *arguments, **kwargs)
