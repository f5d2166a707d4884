"""Tokenizers and preprocessors by name, handle or folder, in all formats."""

import os
from typing import Any

from keras_bertfam.presets import folders, hub, inspection, preset_checks
from keras_bertfam.presets.checkpoints import formats
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.folders import preset_aside
from keras_bertfam.presets.names import list_presets
from keras_bertfam.presets.tokenizer_formats import tokenizer_files, tokenizer_sources
from keras_bertfam.types import Mixin, Path, Tokenizer


def has_vocabulary(tokenizer: Tokenizer) -> bool:
    """Tell whether a tokenizer has its vocabulary yet.

    A preset's vocabulary is loaded after the constructor.
    """
    try:
        return bool(tokenizer.vocabulary_size() > 0)
    except ValueError:
        return False


class _Saved(Mixin):
    """Mixin of layers whose preset directory is replaced in one operation."""

    def save_to_preset(self, preset_dir: Path) -> None:
        with preset_aside(preset_dir) as folder:
            super().save_to_preset(folder)


class PresetTokenizer(_Saved):
    """Mixin of tokenizers with `from_preset()`."""

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
    """Mixin of preprocessors with `from_preset()`."""

    @classmethod
    def from_preset(cls, preset: Path, **kwargs: Any) -> Any:
        """Load the preprocessor of a preset, or make a new one with its tokenizer.

        Args:
            preset: see `EncoderBackbone.from_preset`.
            **kwargs: arguments of the constructor. They override saved ones.

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


def load_tokenizer(preset: Path) -> Tokenizer:
    """Load the tokenizer of a preset; see `PresetTokenizer.from_preset`."""
    folder, published = _located(preset)
    return folders.read_whole(folder, lambda: _tokenizer_in(folder, published))


def load_given_tokenizer(tokenizer: Path, family: str | None = None) -> Tokenizer:
    """Load the tokenizer of a preset, or from files that aren't a preset.

    Args:
        tokenizer: what `source.TOKENIZERS` says.
        family: name of a family, or `None`. The tokenizer is this family's if the files
            don't name one.

    Returns:
        A tokenizer layer.

    Raises:
        ValueError: as `tokenizer_sources.open_tokenizer` and `load_tokenizer`.
    """
    source = tokenizer_sources.open_tokenizer(tokenizer, family)
    if source is None:
        return load_tokenizer(tokenizer)
    return tokenizer_files.load_tokenizer(source)


def load_preprocessor(cls: Any, preset: Path, **kwargs: Any) -> Any:
    """Load a preprocessor of a class; see `PresetPreprocessor.from_preset`."""
    folder, published = _located(preset)
    return folders.read_whole(
        folder, lambda: _preprocessor_in(cls, folder, published, **kwargs)
    )


def _preprocessor_in(cls, folder, published, **kwargs):
    if formats.find_reader(folder) is None:
        # A preprocessor may have been saved alone.
        if not os.path.isfile(os.path.join(folder, preset_checks.PREPROCESSOR_FILE)):
            _check_preset(folder)
        with preset_checks.explain_load_errors(folder):
            saved = preset_checks.load_serialized(
                folder, preset_checks.PREPROCESSOR_FILE
            )
        if type(saved) is cls:
            config = {**saved.get_config(), "tokenizer": saved.tokenizer}
            return cls(**{**config, **kwargs}) if kwargs else saved
    return cls(_tokenizer_in(folder, published), **kwargs)


def _located(preset):
    """Find the folder of a preset, and the `PublishedPreset` of its name, if any."""
    preset = os.fspath(preset)
    published = list_presets().get(preset)
    return hub.locate(published or preset, load_weights=False), published


def _check_preset(folder):
    inspection.check_preset(folder, list_presets(), load_weights=False)


def _tokenizer_in(folder, published):
    reader = formats.find_reader(folder)
    if reader is not None:
        source = reader.open_source(folder)
        if published is not None:
            source = published.complete(source)
        return tokenizer_files.load_tokenizer(source)
    # A tokenizer may have been saved alone.
    if not os.path.isfile(os.path.join(folder, inspection.TOKENIZER_FILE)):
        _check_preset(folder)
    with preset_checks.explain_load_errors(folder):
        tokenizer = preset_checks.load_serialized(folder, inspection.TOKENIZER_FILE)
        if tokenizer is None:
            preprocessor = preset_checks.load_serialized(
                folder, preset_checks.PREPROCESSOR_FILE
            )
            tokenizer = getattr(preprocessor, "tokenizer", None)
    if tokenizer is None:
        raise CheckpointError(
            f"There is no tokenizer in the preset {os.fspath(folder)!r}."
        )
    return tokenizer
