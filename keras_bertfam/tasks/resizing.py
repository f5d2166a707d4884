"""Give a pre-trained model another vocabulary."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.tokenizers.added_tokens import as_added_tokens
from keras_bertfam.tokenizers.text_tokenizer import add_tokens
from keras_bertfam.types import Model, Tokenizer


def resize_vocabulary(task: Model, tokenizer: Tokenizer) -> Model:
    """Make the same model for a tokenizer with more tokens.

    A new token gets a row in the embedding table, and in every other weight with a row
    for each token, such as a separate output table. The row is the mean of the rows of
    the pieces into which the old tokenizer splits the token.

    Args:
        task: a task with a preprocessor, such as `MaskedLM` or `TextClassifier`.
        tokenizer: a tokenizer that begins with the tokens of the task's tokenizer.

    Returns:
        A task of the same class with `tokenizer`.

    Raises:
        ValueError: if the task has no preprocessor or is quantised, or an old token has
            another id.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    tokenizer = keras_bertfam.tokenizers.extend_vocabulary(
        model.preprocessor.tokenizer, documents, 500)
    model = keras_bertfam.tasks.resize_vocabulary(model, tokenizer)
    ```
    """
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received: none.")
    if any(layer.quantization_mode for layer in layers_of(task)):
        raise ValueError("`task` must be a float model. Received: a quantised one.")
    old = task.preprocessor.tokenizer
    before, after = old.get_vocabulary(), tokenizer.get_vocabulary()
    if after[: len(before)] != before:
        raise ValueError(
            f"`tokenizer` must begin with the {len(before)} tokens of the task's "
            f"tokenizer. Received: {len(after)} tokens."
        )
    pieces = [_pieces(old, token) for token in after[len(before) :]]
    rows = task.backbone.vocabulary_size
    # GPT's layouts have their own tokens after the tokenizer's.
    own = len(getattr(task.preprocessor, "new_tokens", ()))
    total = len(after) + own
    new = other = _rebuilt(task, tokenizer, total)
    if rows == total:
        # The spare rows give another size, which shows which weights have a row for
        # each token.
        other = _rebuilt(task, tokenizer, rows + 1)
    sizes = (rows, len(before), own, total)
    weights = zip(task.weights, new.weights, other.weights, strict=True)
    for source, target, resized in weights:
        value = ops.convert_to_numpy(source)
        axes = [
            axis
            for axis, size in enumerate(source.shape)
            if size != resized.shape[axis]
        ]
        if axes:
            rows_first = np.moveaxis(value, axes[0], 0)
            value = np.moveaxis(_with_rows(rows_first, pieces, sizes), 0, axes[0])
        target.assign(value)
    return new


def add_special_tokens(task: Model, tokens: Iterable[Any]) -> Model:
    """Make the same model with your own special tokens, which are recognised in texts.

    Args:
        task: see `resize_vocabulary`.
        tokens: list of str or `AddedToken`. They are never masked, or drawn as random
            tokens.

    Returns:
        A task of the same class, whose tokenizer has these tokens and whose table has
        rows for them.

    Raises:
        ValueError: see `resize_vocabulary`; and for values that aren't tokens.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "bert_base_en_uncased", num_classes=2)
    model = keras_bertfam.tasks.add_special_tokens(model, ["<entity>", "</entity>"])
    ```
    """
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received: none.")
    special = [dataclasses.replace(t, special=True) for t in as_added_tokens(tokens)]
    return resize_vocabulary(task, add_tokens(task.preprocessor.tokenizer, special))


def with_new_tokens(backbone: Model, preprocessor: Any) -> Model:
    """Add rows for the new tokens of a preprocessor's layout to a backbone's table.

    Args:
        backbone: a backbone.
        preprocessor: a `FineTuningPreprocessor` or `None`.

    Returns:
        The backbone, if its table has enough rows. Otherwise a backbone with the same
        weights and new rows.

    Raises:
        ValueError: for a backbone that needs more rows, but is quantised or has LoRA
            weights.
    """
    count = len(getattr(preprocessor, "new_tokens", ()))
    if not count or not has_vocabulary(preprocessor.tokenizer):
        return backbone
    tokens = preprocessor.tokenizer.vocabulary_size()
    size = backbone.vocabulary_size
    if tokens + count <= size or tokens > size:  # the task refuses too many
        return backbone
    layers = layers_of(backbone)
    if any(x.quantization_mode or getattr(x, "lora_enabled", False) for x in layers):
        raise ValueError(
            f"`backbone` must have vocabulary_size={tokens + count}, with rows for "
            f"the new tokens {preprocessor.new_tokens}; or it must be a float model "
            "without LoRA, to which rows can be added. Received: "
            f"vocabulary_size={size}."
        )
    config = backbone.get_config()
    # A `FeatureBackbone` wraps the backbone that has the table.
    table = config["backbone"]["config"] if "backbone" in config else config
    table["vocabulary_size"] = tokens + count
    grown = type(backbone).from_config(config)
    for source, target in zip(backbone.weights, grown.weights, strict=True):
        value = np.array(ops.convert_to_numpy(target))
        value[tuple(map(slice, source.shape))] = ops.convert_to_numpy(source)
        target.assign(value)
    for source, target in zip(layers_of(backbone), layers_of(grown), strict=True):
        target.trainable = source.trainable
    grown.origin = backbone.origin
    return grown


def _rebuilt(task, tokenizer, vocabulary_size):
    """Make a task anew with another tokenizer and another number of rows."""
    backbone = task.backbone
    config = backbone.get_config() | {"vocabulary_size": vocabulary_size}
    resized = type(backbone).from_config(config)
    settings = task.preprocessor.get_config() | {"tokenizer": tokenizer}
    preprocessor = type(task.preprocessor)(
        **{k: v for k, v in settings.items() if k not in ("config_file", "dtype")}
    )
    config = task.get_config() | {"backbone": resized, "preprocessor": preprocessor}
    return type(task)(**config)


def _pieces(tokenizer, token):
    text = token.removeprefix("##").removeprefix("\u2581")
    return [int(k) for k in np.asarray(tokenizer(text)).reshape(-1)]


def _with_rows(value, pieces, sizes):
    """Add a row for each new token to a table with a row per token.

    For example, the table `[[1], [3], [9]]` has 2 tokens and a spare row. A new token
    of the pieces 0 and 1 makes it `[[1], [3], [2]]`.
    """
    rows, known, own, total = sizes
    if value.shape[0] != rows:
        raise ValueError(f"Expected {rows} rows, one a token. Received: {value.shape}.")
    means = [value[ids].mean(0) for ids in pieces]
    new = np.stack(means) if means else value[:0]
    parts = [value[:known], new, value[known : known + own]]
    return np.concatenate(parts)[:total].astype(value.dtype)
