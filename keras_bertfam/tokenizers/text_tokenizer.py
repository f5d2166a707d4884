"""The common base of tokenizers: text in, ragged ids out."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import keras
import keras_hub
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.presets.tokenizer_presets import PresetTokenizer
from keras_bertfam.tokenizers.added_tokens import (
    AddedToken,
    TextParts,
    as_added_tokens,
    split_at,
)
from keras_bertfam.types import Config, Mixin, TFRagged, TFTensor, Tokenizer

_FOLDERS = tuple(
    os.path.join("grain", "_src", "python", name) for name in ("dataset", "data_loader")
)


def in_grain() -> bool:
    """Tell whether Grain is the caller; as in Keras, only the call stack shows it."""
    if "grain" not in sys.modules:
        return False
    frame: Any = sys._getframe(1)
    while frame is not None:
        if any(folder in frame.f_code.co_filename for folder in _FOLDERS):
            return True
        frame = frame.f_back
    return False


def as_plain(x: Any) -> Any:
    """Turn tensors into NumPy arrays; ragged tensors into lists; texts into strings."""
    if isinstance(x, tf.Tensor) and x.dtype != tf.string:
        return x.numpy()
    if isinstance(x, tf.RaggedTensor):
        return _decoded(x.to_list())
    return _decoded(x.numpy().tolist() if x.shape.rank else x.numpy())


def _decoded(x):
    if isinstance(x, list):
        return [_decoded(each) for each in x]
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else x


class PlainInGrain(Mixin):
    """Mixin of layers that return TensorFlow tensors, but plain values inside Grain.

    On each backend TensorFlow's errors keep their class and message.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            outputs = super().__call__(*args, **kwargs)
        except RuntimeError as error:
            # With other backends Keras loses the message of TensorFlow's errors.
            refused = error.__context__
            if isinstance(refused, tf.errors.OpError):
                raise refused from None
            raise
        if not tf.executing_eagerly() or not in_grain():
            return outputs
        return _map_tensors(outputs)


def _map_tensors(x):
    if isinstance(x, dict):
        return {name: _map_tensors(value) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(map(_map_tensors, x))
    return as_plain(x) if isinstance(x, tf.Tensor | tf.RaggedTensor) else x


Rows = Callable[[TFTensor], TFRagged]


class TextTokenizer(PlainInGrain, PresetTokenizer):
    """Mixin of KerasHub's tokenizers that finds added tokens in texts first.

    A class defines how the text between such tokens is split (`_rows`) and cleaned
    (`clean_texts`).

    Args:
        *args: arguments of the tokenizer.
        added_tokens: list of `AddedToken`, of strings, or of dicts of an
            `AddedToken`'s arguments. Tokens that the model's vocabulary lacks get the
            ids after it, in this order.
        **kwargs: arguments of the tokenizer.
    """

    _rows: Rows
    # The gap between an added token and the text beside it in detokenised text.
    word_gap = " "
    # The replacement of a zero byte.
    nul = " "

    def __init__(
        self,
        *args: Any,
        added_tokens: Iterable[str | dict[str, Any] | AddedToken] = (),
        **kwargs: Any,
    ) -> None:
        self.added_tokens = as_added_tokens(added_tokens)
        super().__init__(*args, **kwargs)

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        """Clean strings for the model. Works in a graph."""
        return texts

    def tokenize(self, inputs: Any) -> Any:
        self._check_vocabulary()
        return tokenize_by(self, inputs, self._rows)

    def detokenize(self, inputs: Any) -> Any:
        """Turn ids, `(batch, None)` or `(None,)`, into text, with added tokens."""
        new = self._new_tokens()
        if not new:
            return super().detokenize(inputs)
        with tf.device("CPU:0"):
            is_ragged = isinstance(inputs, tf.RaggedTensor)
            ids = (
                inputs if is_ragged else tf.ragged.constant(_as_lists(inputs), tf.int32)
            )
            single = ids.shape.rank == 1
            ids = tf.cast(ids, tf.int32)
            rows = tf.RaggedTensor.from_tensor(ids[None]) if single else ids
            text = _text_and_tokens(
                rows, super().vocabulary_size(), new, super().detokenize, self.word_gap
            )
            return text[0] if single else text

    def model_vocabulary(self) -> list[str]:
        """Give the model's vocabulary, without added tokens."""
        return list(super().get_vocabulary())

    def _new_tokens(self):
        """List the added tokens that the model lacks; their ids come after its own."""
        if not self.added_tokens:
            return []
        known = {*super().get_vocabulary()}
        contents = (token.content for token in self.added_tokens)
        return [content for content in contents if content not in known]

    def get_vocabulary(self) -> list[str]:
        """List all tokens: those of the model, then the added ones."""
        return [*super().get_vocabulary(), *self._new_tokens()]

    def vocabulary_size(self) -> int:
        """Count the tokens of the model and the added ones."""
        return int(super().vocabulary_size()) + len(self._new_tokens())

    def token_to_id(self, token: str) -> int:
        """Look up the id of a token."""
        new = self._new_tokens()
        if token in new:
            return int(super().vocabulary_size()) + new.index(token)
        return int(super().token_to_id(token))

    def id_to_token(self, id: int) -> str:
        """Look up the token of an id."""
        beyond = id - int(super().vocabulary_size())
        new = self._new_tokens() if beyond >= 0 else []
        return new[beyond] if beyond < len(new) and new else super().id_to_token(id)

    def get_config(self) -> Config:
        config = super().get_config()
        fields = [dict(vars(token)) for token in self.added_tokens]
        return {**config, "added_tokens": fields} if fields else config


def add_tokens(
    tokenizer: Tokenizer, tokens: Iterable[str | dict[str, Any] | AddedToken]
) -> Tokenizer:
    """Add your own tokens to a tokenizer; they are found in texts as written.

    `keras_bertfam.tasks.resize_vocabulary` then gives a model rows for the new tokens.

    Args:
        tokenizer: a tokenizer of `keras_bertfam.tokenizers`.
        tokens: list of `AddedToken`, of strings, or of dicts of an `AddedToken`'s
            arguments. If the tokenizer has a token already, these arguments replace its
            former ones.

    Returns:
        A tokenizer of the same class. All former tokens keep their ids.

    Raises:
        TypeError: for another kind of tokenizer.
        ValueError: for a value that isn't a token.

    Example:

    ```python
    from keras_bertfam.tokenizers.added_tokens import AddedToken
    from keras_bertfam.tokenizers.text_tokenizer import add_tokens
    tokenizer = keras_bertfam.tokenizers.BertTokenizer.from_preset(
        "bert_base_en_uncased")
    token = AddedToken("<entity>", special=True)
    tokenizer = add_tokens(tokenizer, [token])
    ```
    """
    if not isinstance(tokenizer, TextTokenizer):
        raise TypeError(
            "`tokenizer` must be a tokenizer of `keras_bertfam.tokenizers`. Received: "
            f"{type(tokenizer).__name__}."
        )
    config = tokenizer.get_config()
    given = {token.content: token for token in tokenizer.added_tokens}
    given |= {token.content: token for token in as_added_tokens(tokens)}
    config["added_tokens"] = [dict(vars(token)) for token in given.values()]
    made: Tokenizer = type(tokenizer).from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_assets(folder)
        made.load_assets(folder)
    return made


def _as_lists(inputs):
    return inputs.numpy().tolist() if hasattr(inputs, "numpy") else inputs


def rows_of_ids(inputs: Any) -> tuple[TFRagged, bool]:
    """Make ragged rows of ids, and tell whether a single row was given.

    Args:
        inputs: ids of shape `(batch, None)` or `(None,)`: lists, an array, or a dense
            or ragged tensor of any backend.

    Returns:
        A tuple of a ragged int32 tensor of shape `(batch, None)`, and a bool.
    """
    if not isinstance(inputs, tf.Tensor | tf.RaggedTensor):
        if keras.ops.is_tensor(inputs):
            inputs = keras.ops.convert_to_numpy(inputs)
        inputs = tf.ragged.constant(inputs)
    ids = tf.cast(inputs, tf.int32)
    single = ids.shape.rank == 1
    ids = ids[None] if single else ids
    is_ragged = isinstance(ids, tf.RaggedTensor)
    return ids if is_ragged else tf.RaggedTensor.from_tensor(ids), single


@as_written
def _text_and_tokens(rows, size, new, detokenize, gap):
    """Detokenise runs of the model's ids, and put added tokens between them."""
    flat, row = rows.flat_values, ragged.row_ids(rows)
    added = flat >= size
    # A part begins at each added token, after each added token, and at each row.
    one = tf.ones_like(added[:1])
    follows = tf.concat([one, added[:-1] | (row[1:] != row[:-1])], 0)
    first = added | follows
    ones = tf.cast(first, tf.int64)
    parts = ragged.from_row_ids(flat, tf.cumsum(ones) - 1, tf.reduce_sum(ones))
    own = ragged.keep(added, first)
    words = tf.gather(new, tf.maximum(ragged.keep(flat, first) - size, 0))
    kept = ragged.keep_in_rows(parts, ~added)
    text = tf.where(own, words, tf.convert_to_tensor(detokenize(kept), tf.string))
    pieces = ragged.from_row_ids(text, ragged.keep(row, first), rows.nrows())
    return tf.strings.reduce_join(pieces, 1, separator=gap)


def found_in_texts(tokenizer: Tokenizer) -> list[AddedToken]:
    """List the tokens that are found in texts before a tokenizer's model splits them.

    They are the added tokens. Special tokens are among them for byte-pair tokenizers,
    and for WordPiece with `special_tokens_in_strings`. In byte-level BPE a mask
    includes the space before it, as in RoBERTa's code.
    """
    special: Iterable[str] = ()
    is_pairs = isinstance(tokenizer, keras_hub.tokenizers.BytePairTokenizer)
    if is_pairs:
        special = tokenizer.unsplittable_tokens or ()
    elif getattr(tokenizer, "special_tokens_in_strings", False):
        special = tokenizer.special_tokens
    mask = getattr(tokenizer, "mask_token", None) if is_pairs else None
    tokens = {
        content: AddedToken(content, lstrip=content == mask, special=True)
        for content in sorted(special)
    }
    given = getattr(tokenizer, "added_tokens", ())
    return [*{**tokens, **{token.content: token for token in given}}.values()]


def split_at_tokens(tokenizer: Tokenizer, texts: TFTensor) -> TextParts | None:
    """Split texts at the tokens of `found_in_texts`; give `None` if there are none."""
    tokens = found_in_texts(tokenizer)
    if not tokens:
        return None
    clean, nul = getattr(tokenizer, "clean_texts", None), getattr(tokenizer, "nul", " ")
    return split_at(texts, tokens, clean, nul)


def rows_between(
    tokenizer: Tokenizer, parts: TextParts, tokens: list[str], rows_of: Rows
) -> TFRagged:
    """Tokenize the text between tokens, and join both. Works in a graph.

    Args:
        tokenizer: a tokenizer layer.
        parts: `TextParts`.
        tokens: list of str, the token of each number in `parts`.
        rows_of: see `tokenize_by`.

    Returns:
        Ragged tensor of shape `(batch, None)`, of the dtype that `rows_of` gives.
    """
    rows = rows_of(tf.where(parts.is_token, "", parts.texts.flat_values))
    own: Any = tokens
    if tokenizer.compute_dtype != "string":
        own = [int(tokenizer.token_to_id(token)) for token in tokens]
    own = tf.gather(own, ragged.keep(parts.numbers.flat_values, parts.is_token))
    rows = ragged.fill_rows(rows, parts.is_token, tf.cast(own, rows.dtype))
    return ragged.merge_inner(parts.texts.with_flat_values(rows))


@as_written
def tokenize_by(tokenizer: Tokenizer, inputs: Any, rows_of: Rows) -> Any:
    """Tokenize texts: find their added tokens, and split the rest. Works in a graph.

    Args:
        tokenizer: a tokenizer layer.
        inputs: string, or strings of any shape, also ragged, in UTF-8.
        rows_of: function from a string tensor of shape `(batch,)` to a ragged tensor of
            ids, or of strings if that is the tokenizer's dtype. It splits text without
            added tokens.

    Returns:
        `tf.RaggedTensor` with one more dimension than `inputs`; a dense tensor for a
        single text. If the tokenizer has a `sequence_length`, a dense tensor of that
        length.

    Raises:
        ValueError: for inputs that aren't strings.
    """
    with tf.device("CPU:0"):
        is_ragged = isinstance(inputs, tf.RaggedTensor)
        texts = inputs if is_ragged else tf.convert_to_tensor(inputs)
        if texts.dtype != tf.string:
            raise ValueError(
                f"`inputs` must be strings. Received: dtype={texts.dtype.name}."
            )
        flat = texts.flat_values if is_ragged else tf.reshape(texts, [-1])
        parts = split_at_tokens(tokenizer, flat)
        if parts is None:
            rows = rows_of(flat)
        else:
            found = [token.content for token in found_in_texts(tokenizer)]
            rows = rows_between(tokenizer, parts, found, rows_of)
        if is_ragged:
            rows = texts.with_flat_values(rows)
        elif texts.shape.rank == 0:
            rows = rows[0]
        else:
            sizes = tf.shape(texts, tf.int64)
            for axis in range(texts.shape.rank - 1, 0, -1):
                rows = tf.RaggedTensor.from_uniform_row_length(
                    rows, sizes[axis], tf.reduce_prod(sizes[:axis]), validate=False
                )
        length = tokenizer.sequence_length
        if length is None:
            return rows
        padding = getattr(tokenizer, "pad_token_id", None) or 0
        if tokenizer.compute_dtype == "string":
            padding = tokenizer.id_to_token(padding)
        if texts.shape.rank == 0:
            rows = rows[:length]
            rows = tf.pad(
                rows, [[0, length - tf.shape(rows)[0]]], constant_values=padding
            )
            return tf.ensure_shape(rows, [length])
        return rows.to_tensor(padding, shape=[None] * texts.shape.rank + [length])
