"""What backbones and tasks have in common."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam import quantization
from keras_bertfam.models import exported
from keras_bertfam.types import Config, Mixin, Path


class LibraryModel(Mixin):
    """Mixin of backbones and tasks: fixed arguments, quantisation and export.

    Attributes:
        fixed_arguments: names of attributes that are set once. Layers are made with
            them: set later, such an attribute would appear in the config and change
            nothing.
    """

    fixed_arguments: Sequence[str] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fixed_arguments and vars(self).get(name, value) != value:
            raise ValueError(
                f"`{name}` must be given when a {type(self).__name__} is made, to the "
                "constructor or `from_preset`: its layers are made with it. Expected: "
                f"{name}={vars(self)[name]!r}. Received: {value!r}."
            )
        super().__setattr__(name, value)

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantise the layers that can be, as `keras.Model.quantize` does.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, `"gptq"` or `"awq"`.
            config: a quantisation config of Keras; `"gptq"` and `"awq"` need one,
                with texts and a tokenizer. Blocks of an encoder that attends to whole
                rows by tables of positions are found; others are to be named in it.
            filters: which layers, as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: for quantizers of your own, which a saved model would lose, and
                for `"gptq"` and `"awq"` without blocks.

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
        """Give the blocks that `"gptq"` and `"awq"` go through, or `None`."""
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

        It takes token ids and gives what the model returns; see
        `keras_bertfam.export.export_saved_model` for strings and answers. These
        formats are written by TensorFlow, under other backends in a process of its
        own. `"onnx"` needs `pip install 'keras-bertfam[export]'`.

        ONNX's and LiteRT's runtimes don't take all operations in 16 bits that
        TensorFlow writes: a model that computes in these is written in float32 there,
        and a warning says so.

        Args:
            filepath: path to write, for `"litert"` of a file `*.tflite`.
            format: `"tf_saved_model"`, `"onnx"`, `"litert"`, or another of Keras's.
            verbose: bool or `None`.
            input_signature: list of one dict as `input_signature()` gives, to fix
                lengths or leave inputs out; by default that one.
            verify: bool. Whether what was written is opened by its runtime, and
                answers a row, before it takes its place at `filepath`.
            quantize: `"int8"`, or an `Int8Settings`, for `"onnx"`: the float model is
                rounded by ONNX Runtime's quantiser, and takes its place when that has
                gone well. `None` for a file in float32.
            **kwargs: see `keras.Model.export`.

        Raises:
            ValueError: for another `quantize`, with other formats, and if nothing is
                left to round.
            RuntimeError: if TensorFlow fails in its own process; or if the runtime
                refuses what was written, or answers with NaN, or other shapes. It has
                the reason.
            ImportError: with `verify`, without the format's runtime.

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
