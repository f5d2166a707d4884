"""Compute what every head of a model attends to, in texts and sentences."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.analysis.word_states import (
    WordRows,
    backbone_of,
    reads_rows,
    tokenizer_of,
)
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.attention.cross_attention import CrossAttention
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
)
from keras_bertfam.tasks.generation.causal_lm_preprocessor import (
    CausalLMPreprocessor,
)
from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
    TextToTextPreprocessor,
)
from keras_bertfam.tokenizers.pipeline_ops import token_strings
from keras_bertfam.types import Model, Tokenizer

# For the name of an attention: whose tokens attend, and to whose.
_SIDES = {
    "self": ("", ""),
    "encoder": ("encoder_", "encoder_"),
    "decoder": ("decoder_", "decoder_"),
    "cross": ("decoder_", "encoder_"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class TextAttention:
    """Hold the attention of all heads of one kind in one text, without padding.

    Attributes:
        name: `"self"`; for an encoder-decoder `"encoder"`, `"decoder"` or `"cross"`,
            the decoder's attention to the encoder.
        query_tokens: list of str, the tokens that attend.
        key_tokens: list of str, the tokens that are attended to.
        query_segments: list of int, the segment of each query token.
        key_segments: list of int, the segment of each key token.
        causal: bool. Whether a token sees only itself and those before it.
        weights: for each layer a float32 array `(heads, queries, keys)`, in which
            pruned heads have zeros.
        queries: for each layer a float32 array `(heads, queries, head_dim)`, with the
            scale of the scores; pruned heads have zeros.
        keys: for each layer a float32 array `(heads, keys, head_dim)`, likewise.
    """

    name: str
    query_tokens: list[str]
    key_tokens: list[str]
    query_segments: list[int]
    key_segments: list[int]
    causal: bool
    weights: list[np.ndarray]
    queries: list[np.ndarray]
    keys: list[np.ndarray]


@without_gradients
def text_attentions(
    model: Model,
    texts: str | Sequence[Any],
    tokenizer: Tokenizer | None = None,
    sequence_length: int = 128,
) -> list[list[TextAttention]]:
    """Compute the attention of all heads in texts; see `attention_view` for arguments.

    Returns:
        For each text a list of `TextAttention`: one, or three for an encoder-decoder.

    Raises:
        ValueError: see `attention_view`.
    """
    backbone: Any = backbone_of(model)
    layers = _attention_layers(backbone)
    if not layers:
        raise ValueError(
            "`model` must be a backbone of `keras_bertfam.models` that has a head "
            f"left, or a task with one. Received: {type(model).__name__}."
        )
    tokenizer = tokenizer_of(model, tokenizer)
    rows = model_inputs(model, texts, tokenizer, sequence_length)
    recorded: dict[str, list[Any]] = {name: [] for name in _SIDES}
    with _watched(layers, lambda name, parts: recorded[name].append(parts)):
        backbone(rows, training=False)
    numbers = (part for parts in recorded.values() for layer in parts for part in layer)
    if not all(np.isfinite(part).all() for part in numbers):
        raise ValueError(
            f"`model` must compute finite numbers. Received: {type(model).__name__}, "
            "whose attention has others."
        )
    if getattr(backbone, "pruned_heads", None):
        recorded["self"] = [*_with_pruned(recorded["self"], heads_left(backbone))]
    strings = token_strings(tokenizer)
    return [
        [
            _of_text(row, name, rows, parts, strings, _is_causal(backbone, name))
            for name, parts in recorded.items()
            if parts
        ]
        for row in range(len(next(iter(rows.values()))))
    ]


def model_inputs(
    model: Model,
    texts: str | Sequence[Any],
    tokenizer: Tokenizer | None = None,
    sequence_length: int = 128,
) -> dict[str, np.ndarray]:
    """Make a backbone's inputs from texts, in the layout of its family's tasks.

    Args:
        model, texts, tokenizer, sequence_length: see `attention_view`.

    Returns:
        Dict of arrays `(texts, length)`.

    Raises:
        ValueError: see `attention_view`.
    """
    backbone = backbone_of(model)
    given = getattr(model, "preprocessor", None)
    tokenizer, texts = tokenizer_of(model, tokenizer), checked_texts(texts)
    longest = getattr(backbone, "max_sequence_length", None) or sequence_length
    length = min(longest, sequence_length)
    pairs = isinstance(texts[0], tuple)
    columns: Any = tuple(map(list, zip(*texts, strict=True))) if pairs else texts
    two, causal = _has_two_sides(backbone), _is_causal(backbone, "self")
    if (two and not pairs) or (causal and pairs):
        expected = "pairs of inputs and targets" if two else "single strings"
        raise ValueError(
            f"`texts` must be {expected} for {type(backbone).__name__}. "
            f"Received: {texts[0]!r}."
        )
    if two:
        start = getattr(given, "decoder_start_token_id", None)
        rows, _, _ = TextToTextPreprocessor(
            tokenizer, length, decoder_start_token_id=start
        )(columns)
    elif causal:
        rows, _, _ = CausalLMPreprocessor(tokenizer, length)(columns)
    else:
        layout = getattr(given, "layout", None)
        preprocessor = TextClassifierPreprocessor(tokenizer, length, layout=layout)
        rows = preprocessor.encode(preprocessor.as_tensors(columns))
    return {name: np.asarray(value) for name, value in rows.items()}


def checked_texts(texts: Any) -> list[Any]:
    """Make a list of texts: strings, or tuples of two strings.

    Raises:
        ValueError: for anything else, or no text.
    """
    listed = [texts] if isinstance(texts, str) else texts
    listed = list(listed) if np.iterable(listed) else []
    pairs = [isinstance(text, tuple) and len(text) == 2 for text in listed]
    strings = [part for text in listed for part in (text if any(pairs) else [text])]
    if not listed or (any(pairs) and not all(pairs)):
        strings = [None]
    if not all(isinstance(part, str) for part in strings):
        raise ValueError(
            "`texts` must be a string, a list of strings or a list of pairs, tuples of "
            f"two strings. Received: {texts!r}."
        )
    return listed


def _attention_layers(backbone):
    """Find the layers whose attention can be recorded, each with its name."""
    two = _has_two_sides(backbone)
    sides = {name: getattr(backbone, name) for name in ("encoder", "decoder") if two}
    return [
        (layer, "cross" if isinstance(layer, CrossAttention) else name)
        for name, side in (sides or {"self": backbone}).items()
        for layer in (layers_of(side) if isinstance(side, keras.Layer) else ())
        if hasattr(layer, "watcher")
    ]


def _has_two_sides(backbone):
    return "encoder_token_ids" in getattr(backbone, "required_inputs", ())


def _is_causal(backbone, name):
    return name == "decoder" or (name == "self" and getattr(backbone, "causal", False))


@contextlib.contextmanager
def _watched(
    layers: list[tuple[Any, str]], record: Callable[[str, Any], Any]
) -> Iterator[None]:
    """Let layers report each call's queries, keys and weights, from layer 0 on.

    A shared layer is called once for each depth.
    """

    def watch(name, query, key, weights):
        parts = (ops.transpose(query, (0, 2, 1, 3)), ops.transpose(key, (0, 2, 1, 3)))
        parts = (weights, *parts)
        record(name, [ops.convert_to_numpy(ops.cast(x, "float32")) for x in parts])

    try:
        for layer, name in layers:
            layer.watcher = functools.partial(watch, name)
        yield
    finally:
        for layer, _ in layers:
            layer.watcher = None


def _with_pruned(recorded, left):
    """Put zeros in place of pruned heads and layers."""
    rest = iter(recorded)
    for heads in left:
        parts = next(rest) if heads.any() else [x[:, :0] for x in recorded[0]]
        whole = [np.zeros((len(x), len(heads), *x.shape[2:]), "float32") for x in parts]
        for zeros, x in zip(whole, parts, strict=True):
            zeros[:, heads] = x
        yield whole


def _of_text(row, name, rows, parts, strings, causal):
    """Take the attention of one text from the layers' reports of a batch."""
    tokens, segments, kept = [], [], []
    for side in _SIDES[name]:
        ids = rows[f"{side}token_ids"][row]
        inside = np.flatnonzero(rows[f"{side}padding_mask"][row])
        numbers = rows.get("segment_ids", np.zeros_like(rows[f"{side}token_ids"]))[row]
        kept.append(inside)
        tokens.append([strings[token] for token in ids[inside]])
        segments.append(numbers[inside].tolist())
    at, to = kept
    weights, queries, keys = zip(*parts, strict=True)
    return TextAttention(
        name,
        *tokens,
        *segments,
        causal,
        [layer[row][:, at][:, :, to] for layer in weights],
        [layer[row][:, at] for layer in queries],
        [layer[row][:, to] for layer in keys],
    )


@dataclasses.dataclass(frozen=True, eq=False)
class HeadRow:
    """Hold a sentence as a model has read it.

    Attributes:
        token_ids: int array `(tokens,)`, without padding.
        words: int array `(tokens,)`, the number of each token's word; -1 for special
            tokens.
        attention: float32 array `(num_layers, num_heads, tokens, tokens)`, zeros for
            pruned heads.
    """

    token_ids: np.ndarray
    words: np.ndarray
    attention: np.ndarray


class HeadRows:
    """Read sentences as rows of tokens, and compute what heads attend to in them.

    Args:
        model: a backbone, or a task with one.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
        tokenizer: for a model without a preprocessor, or `None`.
        batch_size: int. Sentences at a time.
        whole: bool. Whether each sentence must fit into a row. Otherwise long ones are
            read in parts.

    Attributes:
        tokenizer: the one that is used.
        words: list of lists of words.
        left: bool array `(num_layers, num_heads)`: the heads that aren't pruned.

    Raises:
        ValueError: for a model that doesn't read rows of tokens, or whose heads are all
            pruned; for no sentences, a sentence without a word, or one that doesn't fit
            into a row.
    """

    def __init__(
        self,
        model: Model,
        sentences: Sequence[str | Sequence[str]],
        tokenizer: Tokenizer | None,
        batch_size: int,
        whole: bool,
    ) -> None:
        self._backbone: Any = backbone_of(model)
        if not has_heads(self._backbone):
            raise ValueError(
                "`model` must be an encoder or decoder that has a head left. Received: "
                f"{type(self._backbone).__name__}."
            )
        self.left = heads_left(self._backbone)
        rows = WordRows(model, sentences, tokenizer)
        self.tokenizer: Any = rows.tokenizer
        self.words = [list(words) for words in rows.words]
        counts = np.bincount(np.array(rows.owners, int), minlength=len(self.words))
        wrong = next(
            (k for k, parts in enumerate(counts) if not parts or (whole and parts > 1)),
            None,
        )
        if wrong is not None or not self.words:
            kind = "none" if wrong is None else f"{len(self.words[wrong])} words"
            raise ValueError(
                "`sentences` must have a word at least and fit into rows of "
                f"{rows.sequence_length} tokens. Received: {kind}"
                f"{'' if wrong is None else f' in sentence {wrong}'}."
            )
        size = checked_batch_size(batch_size)
        self._batches = [_numbered(batch, rows) for batch in rows.batches(size)]

    def token_counts(self) -> np.ndarray:
        """Count each token id in the sentences, without special tokens."""
        ids = [
            batch["token_ids"][row, : len(words)][words >= 0]
            for batch, numbers in self._batches
            for row, words in enumerate(numbers)
        ]
        size = self.tokenizer.vocabulary_size()
        return np.bincount(np.concatenate(ids), minlength=size)

    @without_gradients
    def _attentions(self, batch):
        outputs = self._backbone(batch, return_attention=True, training=False)
        return [ops.convert_to_numpy(x) for x in outputs["attentions"]]

    def __iter__(self) -> Iterator[HeadRow]:
        for batch, numbers in self._batches:
            layers = self._attentions(batch)
            for row, words in enumerate(numbers):
                count = len(words)
                heads = [x[row, :, :count, :count] for x in layers]
                attention = np.zeros((*self.left.shape, count, count), "float32")
                attention[self.left] = np.concatenate(heads)
                yield HeadRow(batch["token_ids"][row, :count], words, attention)


def has_heads(model: Model) -> bool:
    """Tell whether a model's backbone reads rows of tokens and has a head left."""
    backbone = backbone_of(model)
    # ELMo has layers without heads.
    is_read = reads_rows(backbone) and hasattr(backbone, "num_heads")
    return is_read and bool(heads_left(backbone).any())


def heads_left(backbone: Any) -> np.ndarray:
    """Mark the heads that aren't pruned: bool `(num_layers, num_heads)`."""
    left = np.ones((backbone.num_layers, backbone.num_heads), bool)
    for layer, heads in enumerate(getattr(backbone, "pruned_heads", None) or ()):
        left[layer, list(heads)] = False
    return left


def _numbered(batch, rows):
    """Give a batch for a backbone, and the number of each token's word."""
    starts, mask = batch.pop("word_positions"), batch.pop("word_mask")
    numbers = []
    for row, count in enumerate(batch["padding_mask"].sum(axis=1)):
        places = np.arange(count)
        word = np.searchsorted(starts[row][mask[row]], places, "right") - 1
        last = rows.first + count - rows.special
        numbers.append(np.where((places >= rows.first) & (places < last), word, -1))
    return batch, numbers
