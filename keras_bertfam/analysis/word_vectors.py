"""Vectors of words, for what is computed with them elsewhere."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.data.layouts import get_layout
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.tasks.finetuning.token_classifier_preprocessor import (
    TokenClassifierPreprocessor,
)
from keras_bertfam.types import Model, Tokenizer

_LONGEST_ROW = 512
_POOLED = {
    "first": lambda states, starts, sizes: states[starts],
    "max": lambda states, starts, sizes: np.maximum.reduceat(states, starts),
    "mean": lambda states, starts, sizes: np.add.reduceat(states, starts) / sizes,
}
_COMBINED = {
    "concat": lambda states: ops.concatenate(states, axis=-1),
    "mean": lambda states: ops.mean(ops.stack(states), axis=0),
    "sum": lambda states: ops.sum(ops.stack(states), axis=0),
}


def embed_words(
    model: Model,
    sentences: Sequence[str | Sequence[str]],
    layers: Sequence[int] = (-1,),
    pieces: str = "mean",
    combine: str = "concat",
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> list[tuple[list[str], np.ndarray]]:
    """A vector for each word of sentences, from a model's hidden states.

    Rows are as long as the backbone reads, 512 tokens at most. A sentence of more
    is embedded in parts, which don't see each other, as `TokenClassifier.tag` labels
    it. A word of which the tokenizer leaves nothing becomes a mask token.

    Args:
        model: a backbone, or a task with any head.
        sentences: list of str, which are split at white space, or of lists of words.
        layers: ints, whose states are taken: 0 is what the embeddings give, 1 the
            first block, -1 the last one. In the paper's comparison the last four,
            `(-4, -3, -2, -1)`, concatenated were the best.
        pieces: how the states of a word's tokens become one: `"mean"`, `"max"`, or
            `"first"`, that of its first token.
        combine: how the layers become one vector: `"concat"`, `"mean"` or `"sum"`.
        tokenizer: for a model without a preprocessor, or in place of its tokenizer.
        batch_size: int. Rows at a time.

    Returns:
        For each sentence a tuple of its words, a list of str, and their vectors, a
        float32 array `(words, width)`: `hidden_dim`, times the number of layers if
        they are concatenated.

    Raises:
        ValueError: for what isn't sentences of words, a word of more tokens than a
            row, layers that the model doesn't have, an unknown `pieces` or
            `combine`, or without a tokenizer.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    [(words, vectors)] = keras_bertfam.analysis.embed_words(
        model, ["the cat sat"], layers=(-2, -1))
    vectors[words.index("cat")]
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3,
    table 7.
    """
    given = getattr(model, "preprocessor", None)
    tokenizer = tokenizer or getattr(given, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(
            "`tokenizer` must be given with a model that has no preprocessor. "
            "Received: None."
        )
    _check("pieces", pieces, _POOLED)
    _check("combine", combine, _COMBINED)
    backbone = getattr(model, "backbone", model)
    states_of = _States(backbone, _checked_layers(layers, backbone), combine)
    words, batch_size = _words_of(sentences), checked_batch_size(batch_size)
    longest = getattr(backbone, "max_sequence_length", None) or _LONGEST_ROW
    layout = getattr(given, "layout", None)
    preprocessor = TokenClassifierPreprocessor(
        tokenizer, min(longest, _LONGEST_ROW), layout=layout
    )
    special = get_layout(layout, tokenizer)
    found: list[Any] = [[np.zeros((0, states_of.width), "float32")] for _ in words]
    parts, owners = preprocessor.fitting_parts(words, whole=True)
    rows = (
        row
        for at in range(0, len(parts), batch_size)
        for row in states_of.rows(preprocessor, parts[at : at + batch_size])
    )
    for part, owner, (states, positions, count) in zip(
        parts, owners, rows, strict=True
    ):
        first = 0 if special.start_last else 1
        states = states[first : first + count - special.specials(1)]
        starts = positions[: len(part)] - first
        sizes = np.diff(starts, append=len(states)).astype("float32")
        found[owner].append(_POOLED[pieces](states, starts, sizes[:, None]))
    vectors = (np.concatenate(arrays) for arrays in found)
    return list(zip(map(list, words), vectors, strict=True))


class _States(keras.Model):
    """Some hidden states of a backbone as one, computed without gradients.

    Args:
        backbone: a backbone.
        layers: list of ints.
        combine: a name in `_COMBINED`.
    """

    def __init__(self, backbone, layers, combine):
        super().__init__()
        self.backbone, self.chosen, self.combine = backbone, layers, combine
        self.width = backbone.hidden_dim * (len(layers) if combine == "concat" else 1)
        self.built = True
        self.compile(run_eagerly=True)  # rows of many lengths, and of few batches

    def call(self, inputs):
        outputs = self.backbone(
            inputs, return_pooled=False, return_hidden_states=True, training=False
        )
        states = [ops.cast(outputs["hidden_states"][k], "float32") for k in self.chosen]
        return _COMBINED[self.combine](states)

    def rows(self, preprocessor, parts):
        """For each part its states, where words begin, and its number of tokens."""
        rows = preprocessor.encode(preprocessor.as_tensors(parts))
        batch = {name: value.numpy() for name, value in rows.items()}
        positions, _ = batch.pop("word_positions"), batch.pop("word_mask")
        states = ops.convert_to_numpy(self.predict_on_batch(batch))
        return zip(states, positions, batch["padding_mask"].sum(axis=1), strict=True)


def _check(name, value, known):
    if value not in known:
        raise ValueError(f"`{name}` must be of {sorted(known)}. Received: {value!r}.")


def _checked_layers(layers, backbone):
    layers = list(layers) if np.iterable(layers) else [layers]
    most = backbone.num_layers
    whole = all(isinstance(k, (int, np.integer)) for k in layers)
    if not layers or not whole or not all(-most - 1 <= k <= most for k in layers):
        raise ValueError(
            f"`layers` must be ints from {-most - 1} to {most}, of a model of {most} "
            f"layers. Received: {layers}."
        )
    return layers


def _words_of(sentences):
    if isinstance(sentences, (str, bytes)) or not np.iterable(sentences):
        raise ValueError(
            "`sentences` must be a list of strings, or of lists of words. "
            f"Received: {sentences!r}."
        )
    return [s.split() if isinstance(s, str) else s for s in sentences]
