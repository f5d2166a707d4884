"""Tokenizers and preprocessors by name, handle or folder, of whatever format."""

from typing import Any

from keras_bertfam.presets.folders import write_aside
from keras_bertfam.presets.loading import load_preprocessor, load_tokenizer
from keras_bertfam.types import Mixin, Path, Tokenizer


def has_vocabulary(tokenizer: Tokenizer) -> bool:
    """Tell whether a vocabulary is there; a preset's comes after the constructor."""
    try:
        return bool(tokenizer.vocabulary_size() > 0)
    except ValueError:
        return False


class _Saved(Mixin):
    """Mixin of layers that are saved to a preset directory as a whole."""

    def save_to_preset(self, preset_dir: Path) -> None:
        with write_aside(preset_dir) as folder:
            super().save_to_preset(folder)


class PresetTokenizer(_Saved):
    """Mixin of tokenizers that come from any preset whose tokenizer they are."""

    @classmethod
    def from_preset(cls, preset: Path) -> Any:
        """Load the tokenizer of a preset.

        Args:
            preset: str. The name of a published checkpoint, a handle, or the path
                of a preset directory or of a folder of `transformers`; see
                `EncoderBackbone.from_preset`.

        Returns:
            A tokenizer of this class.

        Raises:
            ValueError: if the preset has no tokenizer, or one of another class.
            ConnectionError: if the files are on a hub that can't be reached.

        Example:

        ```python
        keras_bertfam.tokenizers.BertTokenizer.from_preset("bert_base_en_uncased")
        ```
        """
        tokenizer = load_tokenizer(preset)
        if not isinstance(tokenizer, cls):
            raise ValueError(
                f"The tokenizer of {preset!r} must be a {cls.__name__}. Received: "
                f"{type(tokenizer).__name__}."
            )
        return tokenizer


class PresetPreprocessor(_Saved):
    """Mixin of preprocessors that come from any preset with a tokenizer."""

    @classmethod
    def from_preset(cls, preset: Path, **kwargs: Any) -> Any:
        """Load the preprocessor of a preset, or make a new one with its tokenizer.

        Args:
            preset: see `EncoderBackbone.from_preset`.
            **kwargs: arguments of the constructor, which take the place of saved
                ones.

        Returns:
            A preprocessor of this class.

        Raises:
            ValueError: if the preset has no tokenizer.
            ConnectionError: if the files are on a hub that can't be reached.

        Example:

        ```python
        keras_bertfam.tasks.MaskedLMPreprocessor.from_preset(
            "bert_base_en_uncased", sequence_length=128)
        ```
        """
        return load_preprocessor(cls, preset, **kwargs)
