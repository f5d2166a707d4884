"""WordPiece tokenisation that runs in the graph, as BERT does it."""

import collections
import os
from collections.abc import Sequence
from typing import Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.presets.reading import vocabulary_lines
from keras_bertfam.presets.tokenizer_presets import PresetTokenizer
from keras_bertfam.tokenizers.bert_normalization import normalizer_model
from keras_bertfam.types import Config, Path, TFRagged, TFTensor

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@keras.saving.register_keras_serializable("keras_bertfam")
class BertTokenizer(PresetTokenizer, keras_hub.tokenizers.BertTokenizer):
    """KerasHub's BERT tokenizer with the ids of the original BERT.

    `keras_hub.tokenizers.BertTokenizer` keeps accents when it lower-cases.
    This one has the same interface and uses
    `tensorflow_text.FastBertTokenizer`, several times faster, with BERT's own
    clean-up of characters, see `clean_character`: both KerasHub and
    `tensorflow_text` make three full stops of "…", and "ss" of "ß". (With
    `special_tokens_in_strings`, or without `split`, it is KerasHub's.) Letters are
    lower-cased one by one, as by `transformers`: the first code of 2018 has `ς` for the
    last letter of "ΟΔΟΣ", where both of these have `σ`. A word with
    bytes that aren't UTF-8, or of more than `max_input_chars_per_word` characters,
    becomes [UNK].

    Args:
        vocabulary: list of strings or the path of a file with a token per line, as
            in PaddlePaddle's files with a tab and its number after it. It must hold
            [PAD], [UNK], [CLS], [SEP] and [MASK], and nothing twice.
        lowercase: bool. Lower-cases and strips accents. Defaults to `False`.
        max_input_chars_per_word: int. Counted after the clean-up. Defaults to `200`,
            as in BERT's code; `transformers` has 100.
        **kwargs: `sequence_length` (int: pad and truncate to it), `dtype`
            (`"int32"`, or `"string"` for tokens instead of ids), and the other
            arguments of `keras_hub.tokenizers.WordPieceTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`: a `tf.RaggedTensor` of shape
        `(batch, None)` in a graph and lists in eager mode; on a single string,
        a tensor of shape `(None,)`.

    Raises:
        ValueError: If a special token is missing from the vocabulary, or a
            token is in it twice.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    tokenizer(["The quick brown fox."])
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805);
        [Song et al., 2020](https://arxiv.org/abs/2012.15524).
    """

    _fast_bert: Any

    def __init__(
        self,
        vocabulary: Path | Sequence[str] | None = None,
        lowercase: bool = False,
        max_input_chars_per_word: int = 200,
        **kwargs: Any,
    ) -> None:
        self.max_input_chars_per_word = max_input_chars_per_word
        # KerasHub's second, pure Python, path is the one that keeps accents.
        kwargs["_allow_python_workflow"] = False
        kwargs.setdefault("strip_accents", lowercase)
        super().__init__(vocabulary=vocabulary, lowercase=lowercase, **kwargs)

    def set_vocabulary(self, vocabulary: Path | Sequence[str] | None) -> None:
        self._fast_bert = None
        tokens: Any = None
        self.vocabulary = tokens
        error: Exception | None = None
        try:
            super().set_vocabulary(vocabulary)
        except (RuntimeError, ValueError) as caught:
            error = caught
        if isinstance(vocabulary, (str, os.PathLike)) and self.vocabulary is not None:
            # Files may be read now; KerasHub strips more than the ends of lines.
            lines = vocabulary_lines(vocabulary)
            if lines != self.vocabulary:
                self.set_vocabulary(lines)
                return
        if error is not None:
            plain = _without_numbers(self.vocabulary)
            if plain is not None:
                self.set_vocabulary(plain)
                return
            if isinstance(error, ValueError):
                raise error
            counts: collections.Counter[str] = collections.Counter(self.vocabulary)
            ((token, count),) = counts.most_common(1)
            raise ValueError(
                "`vocabulary` must be one that tensorflow_text takes, without a "
                f"token twice. Received: {token!r} {count} times. {error}"
            ) from error
        if vocabulary is None:
            return
        missing = [t for t in SPECIAL_TOKENS if t not in self._token_to_id_map]
        if missing:
            raise ValueError(
                f"`vocabulary` must contain {', '.join(SPECIAL_TOKENS)}. "
                f"Missing: {', '.join(missing)}."
            )
        tokens = self.vocabulary
        # Arrays, which every graph takes for constants of its own.
        self._is_inner = np.array([t.startswith("##") for t in tokens])
        sizes = np.array([len(token) for token in tokens], "int32")
        self._characters = sizes - 2 * self._is_inner
        with tf.init_scope(), tf.device("CPU:0"):
            self._fast_bert = tf_text.FastBertTokenizer(
                self.vocabulary,
                max_bytes_per_word=4 * self.max_input_chars_per_word,
                token_out_type=tf.int32,
                support_detokenization=True,
                fast_bert_normalizer_model_buffer=tf.constant(
                    normalizer_model(self.lowercase)
                ),
            )

    def tokenize(self, inputs: Any) -> Any:
        self._check_vocabulary()
        if self.special_tokens_in_strings or not self.split:
            return super().tokenize(inputs)
        return self._tokenize_fast(inputs)

    def _tokenize_fast(self, inputs):
        with tf.device("CPU:0"):
            if not isinstance(inputs, tf.RaggedTensor):
                inputs = tf.convert_to_tensor(inputs)
            if inputs.dtype != tf.string:
                raise ValueError(
                    f"`inputs` must be strings. Received: dtype={inputs.dtype.name}."
                )
            single = inputs.shape.rank == 0
            tokens = self._fast_bert.tokenize(inputs[None] if single else inputs)
            (tokens,) = self._without_long_words(tokens)
            if self.compute_dtype == "string":
                strings = tf.gather(self.vocabulary, tokens.flat_values)
                tokens = tokens.with_flat_values(strings)
            else:
                tokens = tf.cast(tokens, self.compute_dtype)
            if single:
                tokens = tokens.values
            if self.sequence_length is None:
                return tokens
            if inputs.shape.rank == 0:
                tokens = tokens[: self.sequence_length]
                padding = [[0, self.sequence_length - tf.shape(tokens)[0]]]
                return tf.ensure_shape(tf.pad(tokens, padding), [self.sequence_length])
            shape = [None] * inputs.shape.rank + [self.sequence_length]
            return tokens.to_tensor(shape=shape)

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenises texts, and says which bytes of them each token is made of.

        Args:
            texts: string tensor of shape `(batch,)`, in UTF-8.

        Returns:
            A tuple of ragged tensors of shape `(batch, None)`: ids, int32, and the
            bytes where tokens start and end, int64.
        """
        tokens = self._fast_bert.tokenize_with_offsets(texts)
        return self._without_long_words(*tokens)

    def _without_long_words(self, tokens, *bounds):
        """One unknown token for each word that is too long.

        Args:
            tokens: ragged tensor of ids.
            *bounds: ragged tensors of where they start and end, or nothing.

        Returns:
            A tuple of what was given.
        """
        ids = tokens.flat_values
        inner = tf.gather(self._is_inner, ids)
        # So many at least follow the first of a word that is too long.
        least = self.max_input_chars_per_word // self._characters.max()
        so_far = tf.cumsum(tf.cast(inner, tf.int32))
        in_a_row = so_far[least:] - so_far[: tf.maximum(tf.size(ids) - least, 0)]

        def shorten():
            word = tf.cumsum(tf.cast(~inner, tf.int32)) - 1
            sizes = tf.math.segment_sum(tf.gather(self._characters, ids), word)
            long = tf.gather(sizes > self.max_input_chars_per_word, word)
            values = [tf.where(long, self._token_to_id_map["[UNK]"], ids)]
            for starts, ends in [bounds] if bounds else []:
                last = tf.gather(tf.math.segment_max(ends.flat_values, word), word)
                ends = tf.where(long, last, ends.flat_values)
                values += [starts.flat_values, ends]
            kept = tokens.with_flat_values(~(long & inner))
            return tuple(
                tf.ragged.boolean_mask(tokens.with_flat_values(x), kept) for x in values
            )

        given = (tokens, *bounds)
        return tf.cond(tf.reduce_any(in_a_row == least), shorten, lambda: given)

    def get_config(self) -> Config:
        config = super().get_config()
        config["max_input_chars_per_word"] = self.max_input_chars_per_word
        return config


def _without_numbers(lines):
    """The tokens of lines with the number of each after it, `None` for others."""
    if not lines or "\t" not in lines[0]:
        return None
    tokens = []
    for number, line in enumerate(lines):
        token, _, said = line.rpartition("\t")
        if said != str(number):
            raise ValueError(
                "`vocabulary` must have the number of each line, from 0, after its "
                f"token, or no numbers. Received: {line!r} in line {number + 1}."
            )
        tokens.append(token)
    return tokens
