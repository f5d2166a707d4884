"""Gemma's tokenizer: byte pairs of characters, and bytes of those it doesn't know.

It has no words: merges could join any neighbours of a text. They seldom do so across
the space before a word, as no token of the published vocabulary has a space behind a
letter. Where that is so, a text is merged by its words, which gives the same tokens.
"""

import importlib
import os
from typing import Any

import keras
import keras_hub
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.merging import (
    are_in_order,
    as_given,
    check_ids,
    merged_words,
    once_traced,
    refuse_prefix_space,
)
from keras_bertfam.tokenizers.text_tokenizer import TextTokenizer, rows_of_ids
from keras_bertfam.tokenizers.texts import to_utf8, without_nul
from keras_bertfam.types import Path, TFRagged, TFTensor

SPACE = "▁"
BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
_BYTE = "<0x[0-9A-F]{2}>"
# A word with the spaces before it.
_WORD = f"{SPACE}*[^{SPACE}]+|{SPACE}+"


@keras.saving.register_keras_serializable("keras_bertfam")
class GemmaTokenizer(TextTokenizer, keras_hub.tokenizers.BytePairTokenizer):
    """Gemma's tokenizer, which mmBERT has: byte pairs of characters.

    A space is `▁`, and none is added before a text. A character that isn't in the
    vocabulary becomes the tokens of its bytes, `<0x00>` to `<0xFF>`. A zero byte
    becomes a space, as in all tokenizers here.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids, with all
            bytes, `<pad>`, `<eos>`, `<bos>`, `<unk>` and `<mask>`.
        merges: list of pairs with a space between them, or path of a file of them, as
            `save_assets` writes it: what isn't ASCII, and white space in tokens, by
            escapes, such as `\\u2581 t`.
        **kwargs: `added_tokens` (list of `AddedToken` or str: what is found in texts
            before they are split), and the other arguments of
            `keras_hub.tokenizers.BytePairTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`: a `tf.RaggedTensor` of shape
        `(batch, None)`, in eager mode, too; on a single string, a tensor of shape
        `(None,)`.

    Raises:
        ValueError: for a vocabulary without one of these tokens, and a file of merges
            without escapes.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 280, family="mmbert")
    tokenizer(["a cat"])
    ```

    Reference: [Marone et al., 2025](https://arxiv.org/abs/2509.06888).
    """

    word_gap = ""
    falls_back_to_bytes = True

    def __init__(
        self,
        vocabulary: Path | dict[str, int] | None = None,
        merges: Path | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        for role, token in (
            ("start", "<bos>"),
            ("end", "<eos>"),
            ("pad", "<pad>"),
            ("unk", "<unk>"),
            ("mask", "<mask>"),
        ):
            self._add_special_token(token, f"{role}_token")
        refuse_prefix_space(self, kwargs)
        # KerasHub's other path, in pure Python, splits words otherwise.
        kwargs["_allow_python_workflow"] = False
        super().__init__(vocabulary=vocabulary, merges=merges, **kwargs)

    def set_vocabulary_and_merges(self, vocabulary: Any, merges: Any) -> None:
        if isinstance(merges, str | os.PathLike):
            merges = _read_merges(merges)
        super().set_vocabulary_and_merges(*as_given(vocabulary, merges))
        check_ids(self.vocabulary)
        if self.vocabulary is None:
            return
        lacking = next((b for b in BYTES if b not in self.vocabulary), None)
        if lacking is not None:
            raise ValueError(
                "`vocabulary` must have the 256 bytes, <0x00> to <0xFF>. "
                f"Received one without {lacking}."
            )
        pairs = (str(merge).split(" ") for merge in self.merges)
        self.merges_in_order = are_in_order(self.merges)
        self._by_words = not any(_crosses_words("".join(pair)) for pair in pairs)
        self._rows = once_traced(self, self._split)

    def save_assets(self, dir_path: Path) -> None:
        super().save_assets(dir_path)
        # Tokens may be white space, by which a file of lines would end up in pieces.
        path = os.path.join(dir_path, "merges.txt")
        with open(path, "w", encoding="ascii") as file:
            for merge in self.merges:
                file.write(merge.encode("unicode_escape").decode() + "\n")

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        """Put `▁` in the place of spaces. Works in a graph."""
        return tf.strings.regex_replace(without_nul(to_utf8(texts)), " ", SPACE)

    @as_written
    def words(self, clean: TFTensor) -> TFRagged:
        """Split texts into what is merged by itself. Works in a graph.

        Args:
            clean: string tensor of shape `(batch,)`, what `clean_texts` gives.
        """
        if self._by_words:
            return ragged.split_at(clean, _WORD, _WORD)[0]
        there = tf.cast(clean != "", tf.int64)
        return ragged.from_lengths(ragged.keep(clean, clean != ""), there)

    def merged(self, words: TFRagged) -> TFRagged:
        """Split words into tokens, strings of shape `(batch, words, tokens)`."""
        return merged_words(self, words, self._letters)

    @as_written
    def _letters(self, words):
        """Split words into characters, or their bytes."""
        letters = tf.strings.unicode_split(words, "UTF-8")
        flat = letters.flat_values
        known = self.token_to_id_map.lookup(flat) >= 0
        parts = tf.strings.bytes_split(flat)
        values = tf.reshape(tf.io.decode_raw(parts.flat_values, tf.uint8), [-1])
        spelt = tf.gather(tf.constant(BYTES), tf.cast(values, tf.int32))
        spelt = tf.strings.reduce_join(parts.with_flat_values(spelt), -1, separator=" ")
        # None of a text's own characters is a space any more.
        parts = tf.strings.split(tf.where(known, flat, spelt), " ")
        return ragged.merge_inner(letters.with_flat_values(parts))

    def _split(self, texts: TFTensor) -> TFRagged:
        tokens = ragged.merge_inner(self.merged(self.words(self.clean_texts(texts))))
        if self.compute_dtype == "string":
            return tokens
        return tokens.with_flat_values(self.token_to_id_map.lookup(tokens.flat_values))

    def sizes_of(self, tokens: TFTensor) -> TFTensor:
        """Count the bytes of clean text that tokens are made of, int32."""
        is_byte = tf.strings.regex_full_match(tokens, _BYTE)
        return tf.where(is_byte, 1, tf.strings.length(tokens))

    def _detokenize_tf(self, inputs: Any) -> TFTensor:
        with tf.device("CPU:0"):
            rows, single = rows_of_ids(inputs)
            tokens = self.id_to_token_map.lookup(rows.flat_values)
            is_byte = tf.strings.regex_full_match(tokens, _BYTE)
            # The two digits of `<0x0A>`, of which `A` is 65 and stands for 10.
            digits = tf.strings.substr(tf.where(is_byte, tokens, BYTES[0]), 3, 2)
            digits = tf.reshape(tf.io.decode_raw(digits, tf.uint8), [-1, 2])
            digits = tf.cast(digits, tf.int32)
            digits -= tf.where(digits < 65, 48, 55)
            number = 16 * digits[:, 0] + digits[:, 1]
            raw = tf.constant([bytes([number]) for number in range(256)])
            text = tf.strings.regex_replace(tokens, SPACE, " ")
            text = tf.where(is_byte, tf.gather(raw, number), text)
            text = tf.strings.reduce_join(rows.with_flat_values(text), axis=-1)
            text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
            return text[0] if single else text


def _read_merges(path):
    """Read merges from a file that `save_assets` wrote."""
    # As KerasHub does: the configuration of a model must not name files to read.
    if importlib.import_module("keras.src.saving.serialization_lib").in_safe_mode():
        raise ValueError(
            "`merges` must be a list in what is loaded with `safe_mode=True`. "
            f"Received: {path!r}."
        )
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read().split("\n")
        return [line.encode().decode("unicode_escape") for line in lines if line]
    except UnicodeDecodeError as error:
        raise ValueError(
            "`merges` must be a list, or the path of a file with escapes for what "
            f"isn't ASCII, as `save_assets` writes it. Received: {path!r}."
        ) from error


def _crosses_words(token):
    """Tell whether a token has a space behind another character."""
    return SPACE in token.lstrip(SPACE)
