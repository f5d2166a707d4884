"""Compute vectors of words from hidden states."""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.pairs.segments import BARE, get_layout
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.features import FeatureBackbone
from keras_bertfam.tasks.finetuning.token_classifier_preprocessor import (
    TokenClassifierPreprocessor,
)
from keras_bertfam.types import Model, Tokenizer

_LONGEST_ROW = 512
POOLED = {
    "first": lambda states, starts, sizes: states[starts],
    "max": lambda states, starts, sizes: np.maximum.reduceat(states, starts),
    "mean": lambda states, starts, sizes: np.add.reduceat(states, starts) / sizes,
}
PIECES = "pieces"  # tokens aren't combined; probes of spans ask for this
_COMBINED = {
    "concat": lambda states: ops.concatenate(states, axis=-1),
    "mean": lambda states: ops.mean(ops.stack(states), axis=0),
    "sum": lambda states: ops.sum(ops.stack(states), axis=0),
}


@checked
def embed_words(
    model: Model,
    sentences: Sequence[str | Sequence[str]],
    layers: Sequence[int] = (-1,),
    pool: str = "mean",
    combine: str | Sequence[float] = "concat",
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> list[tuple[list[str], np.ndarray]]:
    """Compute a vector for each word of sentences from a model's hidden states.

    Rows are as long as the backbone's positions, 512 tokens at most. A longer sentence
    is embedded in parts, which don't see each other, as `TokenClassifier.tag` labels
    it. A word of which the tokenizer leaves nothing becomes a mask token.

    Args:
        model: a backbone, or a task with any head.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
        layers: ints, the layers whose states are used: 0 is the output of the
            embeddings, 1 that of the first block, -1 that of the last one. In the
            paper's comparison the last four concatenated, `(-4, -3, -2, -1)`, were the
            best.
        pool: how the states of a word's tokens become one vector: `"mean"`, `"max"`, or
            `"first"`, the state of its first token.
        combine: how the layers become one vector: `"concat"`, `"mean"`, `"sum"`, or a
            scalar mix: a list with a weight for each of `layers`, for example weights
            that `keras_bertfam.analysis.probe` has learned.
        tokenizer: for a model without a preprocessor, or in place of its tokenizer.
        batch_size: int. Rows at a time.

    Returns:
        For each sentence a tuple of its words, a list of str, and their vectors, a
        float32 array `(words, width)`. `width` is `hidden_dim`, times the number of
        layers if they are concatenated.

    Raises:
        ValueError: for inputs that aren't sentences, a word with more tokens than a
            row, layers that the model doesn't have, an unknown `pool` or `combine`, or
            without a tokenizer.

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
    _check("pool", pool, POOLED)
    rows = WordRows(model, sentences, tokenizer)
    states_of = LayerStates(rows.backbone, layers, combine)
    found: list[Any] = [[np.zeros((0, states_of.width), "float32")] for _ in rows.words]
    for owner, part in rows.vectors(states_of, pool, batch_size):
        found[owner].append(part)
    vectors = (np.concatenate(parts) for parts in found)
    return list(zip(map(list, rows.words), vectors, strict=True))


def tokenizer_of(model: Model, tokenizer: Tokenizer | None) -> Tokenizer:
    """Give the given tokenizer, or else that of the task's preprocessor.

    Raises:
        ValueError: if there is no tokenizer.
    """
    if tokenizer is None:
        given = getattr(model, "preprocessor", None)
        tokenizer = getattr(given, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(
            "`tokenizer` must be given with a model that has no preprocessor. "
            "Received: None."
        )
    return tokenizer


def backbone_of(model: Model) -> Model:
    """Give a task's backbone, or a backbone itself.

    Raises:
        ValueError: for a `FeatureBackbone`, whose layers are those of another backbone.
    """
    backbone: Model = model
    if not isinstance(model, TokenBackbone):
        backbone = getattr(model, "backbone", model)
    if isinstance(backbone, FeatureBackbone):
        raise ValueError(
            "`model` must have layers of its own. Received: "
            f"{type(model).__name__} with a FeatureBackbone. Give the `backbone` of "
            "that, and its tokenizer."
        )
    return backbone


def reads_rows(model: Model) -> bool:
    """Tell whether a model's backbone reads single rows of tokens."""
    backbone = backbone_of(model)
    return "token_ids" in getattr(backbone, "input_names", ())


class WordRows:
    """Make the rows that a model reads from sentences of words.

    Args:
        model, sentences, tokenizer: see `embed_words`.

    Attributes:
        backbone: the model's.
        tokenizer: the tokenizer that is used.
        sequence_length: int. The most tokens of a row.
        words: list of lists of words, one for each sentence.
        parts: list of lists of words, each of which fits into a row.
        owners: list with the number of each part's sentence.
        first: int. The position of the first token of a row that isn't special.
        special: int. How many tokens of a row are special.
    """

    def __init__(self, model: Model, sentences: Any, tokenizer: Tokenizer) -> None:
        tokenizer = tokenizer_of(model, tokenizer)
        backbone = backbone_of(model)
        if "character_ids" in backbone.input_names:
            raise ValueError(
                "`model` must read tokens. Received: one that reads characters, "
                f"{type(backbone).__name__}."
            )
        # For an encoder-decoder, the encoder.
        self.backbone = backbone if reads_rows(backbone) else backbone.encoder
        self.tokenizer = tokenizer
        self.words = words_of(sentences)
        longest = getattr(self.backbone, "max_sequence_length", None) or _LONGEST_ROW
        self.sequence_length = min(longest, _LONGEST_ROW)
        given = getattr(model, "preprocessor", None)
        layout = get_layout(getattr(given, "layout", None), tokenizer)
        needed = tokenizer.vocabulary_size() + len(layout.new_tokens)
        if self.backbone.vocabulary_size < needed:  # models that weren't fine-tuned
            layout = BARE
        self._preprocessor = TokenClassifierPreprocessor(
            tokenizer, self.sequence_length, layout=layout.name
        )
        self.first = layout.first
        self.special = layout.specials(1)
        self.parts, self.owners = self._preprocessor.fitting_parts(
            self.words, whole=True
        )

    def batches(self, size: int) -> Iterator[dict[str, np.ndarray]]:
        """Yield the parts as dicts of arrays, `size` of them at a time."""
        for at in range(0, len(self.parts), size):
            texts = self._preprocessor.as_tensors(self.parts[at : at + size])
            rows = self._preprocessor.encode(texts)
            yield {name: value.numpy() for name, value in rows.items()}

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """Where words begin among the tokens of all parts.

        int array `(words + 1,)`; the last number is that of all tokens.
        """
        found, done, parts = [], 0, iter(self.parts)
        for batch in self.batches(_LONGEST_ROW):
            counts = batch["padding_mask"].sum(axis=1) - self.special
            for starts, count in zip(batch["word_positions"], counts, strict=True):
                found.append(done + starts[: len(next(parts))] - self.first)
                done += int(count)
        return np.concatenate([*found, [done]]).astype("int64")

    def vectors(
        self, states_of: "LayerStates", pool: str, batch_size: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield for each part its sentence's number and the vectors of its words.

        Args:
            states_of: `LayerStates` that computes them.
            pool: see `embed_words`; or `"pieces"` for the vectors of all tokens.
            batch_size: see `embed_words`.
        """
        rows = (
            row
            for batch in self.batches(checked_batch_size(batch_size))
            for row in states_of.rows(batch)
        )
        for part, owner, (states, positions, count) in zip(
            self.parts, self.owners, rows, strict=True
        ):
            states = states[self.first : self.first + count - self.special]
            if pool == PIECES:
                yield owner, states
                continue
            starts = positions[: len(part)] - self.first
            sizes = np.diff(starts, append=len(states)).astype("float32")
            yield owner, POOLED[pool](states, starts, sizes[:, None])


class LayerStates(keras.Model):
    """Combine hidden states of a backbone, without gradients.

    Args:
        backbone: a backbone.
        layers: list of ints.
        combine: a name in `_COMBINED`, or weights.
    """

    def __init__(self, backbone, layers, combine):
        super().__init__()
        self.chosen = _checked_layers(layers, backbone)
        self.combine = _combination(combine, self.chosen)
        self.backbone = backbone
        concatenated = isinstance(combine, str) and combine == "concat"
        self.width = backbone.hidden_dim * (len(self.chosen) if concatenated else 1)
        self.built = True
        self.compile(run_eagerly=True)  # rows have many lengths, and batches are few

    def call(self, inputs):
        outputs = self.backbone(
            inputs, return_pooled=False, return_hidden_states=True, training=False
        )
        states = [ops.cast(outputs["hidden_states"][k], "float32") for k in self.chosen]
        return self.combine(states)

    def rows(self, batch):
        """Give each row's states, its words' beginnings, and its number of tokens."""
        batch = dict(batch)
        positions, _ = batch.pop("word_positions"), batch.pop("word_mask")
        states = ops.convert_to_numpy(self.predict_on_batch(batch))
        return zip(states, positions, batch["padding_mask"].sum(axis=1), strict=True)


def _combination(combine, layers):
    """Give the function that combines the tensors of several layers into one."""
    if isinstance(combine, str) or not np.iterable(combine):
        _check("combine", combine, _COMBINED)
        return _COMBINED[combine]
    weights = np.asarray(combine, float)
    if weights.shape != (len(layers),) or not np.isfinite(weights).all():
        raise ValueError(
            f"`combine` must have a finite weight for each of {len(layers)} layers. "
            f"Received: {combine}."
        )
    return lambda states: sum(
        weight * state for weight, state in zip(weights.tolist(), states, strict=True)
    )


def _check(name, value, known):
    if value not in known:
        raise ValueError(
            f"`{name}` must be one of {sorted(known)}. Received: {value!r}."
        )


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


def words_of(sentences: Any) -> list[Sequence[str]]:
    """Split sentences into words, in the way of all functions of `analysis`.

    Args:
        sentences: list of str, or of lists of words, which stay unchanged. In a str,
            words are separated by white space and punctuation; `'`, `’` and `-` within
            a word belong to it. A punctuation character is a word by itself.

    Returns:
        List of lists of str.

    Raises:
        ValueError: for inputs that aren't a list of these.
    """
    if isinstance(sentences, (str, bytes)) or not np.iterable(sentences):
        raise ValueError(
            "`sentences` must be a list of strings, or of lists of words. "
            f"Received: {sentences!r}."
        )
    return [_word().findall(s) if isinstance(s, str) else s for s in sentences]


@functools.cache
def _word():
    """Compile the pattern of a word: letters, marks and numbers, or one sign."""
    signs = "".join(
        re.escape(chr(code))
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "PS" and chr(code) != "_"
    )
    letters = rf"[^\s{signs}]+"
    return re.compile(rf"{letters}(?:['’-]{letters})*|[{signs}]")
