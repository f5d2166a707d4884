"""Tokenizers and preprocessors of a preset of any format."""

import os
from typing import Any

from keras_bertfam.presets import (
    directory,
    existing,
    folders,
    formats,
    hub,
    tokenizer_files,
    tokenizer_sources,
)
from keras_bertfam.presets.names import list_presets
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.types import Path, Tokenizer


def load_tokenizer(preset: Path) -> Tokenizer:
    """Load the tokenizer of a preset; see `PresetTokenizer.from_preset`."""
    folder, published = _located(preset)
    return folders.read_whole(folder, lambda: _tokenizer_in(folder, published))


def load_given_tokenizer(tokenizer: Path, family: str | None = None) -> Tokenizer:
    """Load the tokenizer of a preset, or of files that are no preset.

    Args:
        tokenizer: what `source.TOKENIZERS` says.
        family: name of the family whose tokenizer it is if the files don't say that,
            or `None`.

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
        # As a tokenizer, it may have been saved alone.
        if not os.path.isfile(os.path.join(folder, directory.PREPROCESSOR_FILE)):
            _check_preset(folder)
        with directory.explain_load_errors(folder):
            saved = directory.load_serialized(folder, directory.PREPROCESSOR_FILE)
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
    existing.check_preset(folder, list_presets(), load_weights=False)


def _tokenizer_in(folder, published):
    reader = formats.find_reader(folder)
    if reader is not None:
        source = reader.open_source(folder)
        if published is not None:
            source = published.complete(source)
        return tokenizer_files.load_tokenizer(source)
    # A tokenizer may have been saved alone.
    if not os.path.isfile(os.path.join(folder, directory.TOKENIZER_FILE)):
        _check_preset(folder)
    with directory.explain_load_errors(folder):
        tokenizer = directory.load_serialized(folder, directory.TOKENIZER_FILE)
        if tokenizer is None:
            preprocessor = directory.load_serialized(
                folder, directory.PREPROCESSOR_FILE
            )
            tokenizer = getattr(preprocessor, "tokenizer", None)
    if tokenizer is None:
        raise CheckpointError(
            f"There is no tokenizer in the preset {os.fspath(folder)!r}."
        )
    return tokenizer
