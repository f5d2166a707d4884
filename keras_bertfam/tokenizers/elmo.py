"""ELMo's tokenizer: words, and the bytes of words."""

import collections
import os
from collections.abc import Sequence
from typing import Any, Literal

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.presets.tokenizer_presets import PresetTokenizer
from keras_bertfam.tokenizers.text_tokenizer import PlainInGrain
from keras_bertfam.tokenizers.texts import (
    WHITE_SPACE,
    check_documents,
    check_lines,
    first_pass,
    split_units,
    to_utf8,
    without_languages,
)
from keras_bertfam.types import Config, Path, TFDataset, TFRagged, TFTensor

START, END, UNKNOWN = "<S>", "</S>", "<UNK>"
_FILE = "vocabulary.txt"
# After the 256 bytes: begin and end of a sentence and of a word, and the filler of
# short words.
_SENTENCE_START, _SENTENCE_END, _WORD_START, _WORD_END, _FILL = range(256, 261)
_SPACES = f"[{WHITE_SPACE}]+"


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ElmoTokenizer(PlainInGrain, PresetTokenizer, keras_hub.tokenizers.Tokenizer):
    """ELMo's tokenizer: gives the ids of words, and the ids of their characters.

    Models read characters, so no word is unknown to them. The vocabulary has the words
    that pre-training predicts. Without one it is `<S>`, `</S>` and `<UNK>`.

    Args:
        vocabulary: list of strings or the path of a file with a word per line, the
            most frequent first, as in bilm-tf. It must contain `<S>`, `</S>` and
            `<UNK>`.
        max_characters: int. Characters of a word, its begin and end included. Defaults
            to `50`, as in all published models.
        long_words: `"cut"` cuts a word with too many bytes, as the released code does;
            `"error"` raises an error. Defaults to `"cut"`.
        split: `"words"` splits texts into words and punctuation; `"spaces"` splits at
            white space, for text that is tokenised already. Defaults to `"words"`.

    Returns:
        Called on strings of shape `(batch,)`, a ragged int32 tensor `(batch, None)`; in
        eager mode lists.

    Raises:
        ValueError: for a vocabulary without one of these three words, or with a word
            twice.
        tf.errors.InvalidArgumentError: for a long word, with `long_words="error"`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.ElmoTokenizer(
        ["<S>", "</S>", "<UNK>", "Ada", "wrote"])
    words = tokenizer.split_words(["Ada wrote."])  # [["Ada", "wrote", "."]]
    tokenizer.ids(words)  # [[3, 4, 2]]
    tokenizer.characters(words.to_tensor()).shape  # (1, 3, 50)
    ```

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), released code,
    allenai/bilm-tf, bilm/data.py.
    """

    pad_token_id = 0  # rows also have a padding mask
    mask_token = None

    def __init__(
        self,
        vocabulary: Path | Sequence[str] | None = None,
        max_characters: int = 50,
        long_words: Literal["cut", "error"] = "cut",
        split: Literal["words", "spaces"] = "words",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value, known in (
            ("long_words", long_words, ("cut", "error")),
            ("split", split, ("words", "spaces")),
        ):
            if value not in known:
                raise ValueError(
                    f"`{name}` must be one of {known}. Received: {value!r}."
                )
        if max_characters < 3:
            raise ValueError(
                "`max_characters` must be at least 3: begin, one character and end. "
                f"Received: {max_characters}."
            )
        self.max_characters = max_characters
        self.long_words = long_words
        self.split = split
        self.file_assets = [_FILE]
        self.vocabulary: list[str] = []
        for token, name in (
            (START, "start_token"),
            (END, "end_token"),
            (UNKNOWN, "unk_token"),
        ):
            self._add_special_token(token, name)
        self.set_vocabulary(vocabulary)

    def set_vocabulary(self, vocabulary: Path | Sequence[str] | None) -> None:
        """Set the vocabulary, see the constructor."""
        if vocabulary is None:
            words = [START, END, UNKNOWN]
        elif isinstance(vocabulary, (str, os.PathLike)):
            with open(vocabulary, encoding="utf-8") as file:
                words = [line.rstrip("\n") for line in file]
        else:
            words = [str(word) for word in vocabulary]
        missing = [token for token in (START, END, UNKNOWN) if token not in words]
        if missing:
            raise ValueError(
                f"`vocabulary` must contain {START}, {END} and {UNKNOWN}. "
                f"Missing: {', '.join(missing)}."
            )
        self._token_to_id = {word: number for number, word in enumerate(words)}
        if len(self._token_to_id) < len(words) or "" in self._token_to_id:
            known = self._token_to_id
            wrong = next(w for n, w in enumerate(words) if known[w] != n or not w)
            raise ValueError(
                "`vocabulary` must not have a word twice, or an empty word. "
                f"Received: {wrong!r}."
            )
        check_lines(words)
        self.vocabulary = words
        with tf.device("CPU:0"):
            numbers = _numbers(tf.constant(words)).numpy()
        # NumPy arrays: each graph makes its own constants from them.
        self._order = np.argsort(numbers).astype("int32")
        self._sorted = numbers[self._order]
        self._update_special_token_ids()

    def get_vocabulary(self) -> list[str]:
        return self.vocabulary

    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    def token_to_id(self, token: str) -> int:
        return self._token_to_id[token]

    def id_to_token(self, id: int) -> str:
        return self.vocabulary[id]

    def save_assets(self, dir_path: Path) -> None:
        with open(os.path.join(dir_path, _FILE), "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in self.vocabulary)

    def load_assets(self, dir_path: Path) -> None:
        self.set_vocabulary(os.path.join(dir_path, _FILE))

    def split_words(self, texts: Any) -> TFRagged:
        """Split texts into words, a ragged string tensor `(batch, None)`.

        `<S>` and `</S>` are words if there is white space, in Unicode's sense, around
        them. Invisible control and format characters end words and are left out, except
        with `split="spaces"`.
        """
        texts = to_utf8(tf.convert_to_tensor(texts))
        # Without a separator TensorFlow splits at ASCII's white space.
        parts = tf.strings.split(tf.strings.regex_replace(texts, _SPACES, " "))
        if self.split == "spaces":
            return parts
        units = split_units(parts.flat_values)
        special = (parts.flat_values == START) | (parts.flat_values == END)
        kept = _is_seen(units.flat_values)
        kept &= ~tf.gather(special, ragged.row_ids(units))
        words = ragged.fill_rows(
            ragged.keep_in_rows(units, kept),
            special,
            ragged.keep(parts.flat_values, special),
        )
        return ragged.merge_inner(parts.with_values(words))

    def ids(self, words: Any) -> Any:
        """Look up the ids of words: int32 of the shape of `words`, ragged or dense."""
        if isinstance(words, tf.RaggedTensor):
            return words.with_flat_values(self.ids(words.flat_values))
        numbers = _numbers(words)
        at = tf.searchsorted(self._sorted, tf.reshape(numbers, [-1]))
        at = tf.reshape(tf.minimum(at, len(self._sorted) - 1), tf.shape(numbers))
        known = tf.gather(self._sorted, at) == numbers
        return tf.where(known, tf.gather(self._order, at), self.unk_token_id)

    def characters(self, words: TFTensor) -> TFTensor:
        """Look up the ids of the characters of words.

        Args:
            words: dense string tensor of any shape; `""` is padding.

        Returns:
            int32 tensor of that shape, with one more axis of `max_characters`.
        """
        room = self.max_characters - 2
        sizes = tf.strings.length(words)
        if self.long_words == "error":
            longest = tf.reduce_max(tf.pad(tf.reshape(sizes, [-1]), [[0, 1]]))
            message = (
                f"Words must have at most {room} bytes for max_characters="
                f'{self.max_characters} and long_words="error". Received: a longer one.'
            )
            check = tf.debugging.assert_less_equal(longest, room, message)
            with tf.control_dependencies([check] if check is not None else []):
                sizes = tf.identity(sizes)
        raw = tf.io.decode_raw(words, tf.uint8, fixed_length=room)
        found = tf.cast(raw, tf.int32)
        start, end = words == START, words == END
        special = tf.where(start, _SENTENCE_START, _SENTENCE_END)
        sizes = tf.where(start | end, 1, tf.minimum(sizes, room))[..., None]
        found = tf.where((start | end)[..., None], special[..., None], found)
        shape = tf.concat([tf.shape(words), [1]], 0)
        found = tf.concat(
            [tf.fill(shape, _WORD_START), found, tf.fill(shape, _FILL)], -1
        )
        place = tf.range(self.max_characters)
        found = tf.where(place == sizes + 1, _WORD_END, found)
        found = tf.where(place > sizes + 1, _FILL, found) + 1
        found = tf.where(words[..., None] == "", 0, found)
        return tf.ensure_shape(found, [*words.shape, self.max_characters])

    def tokenize(self, inputs: Any) -> Any:
        with tf.device("CPU:0"):
            texts = tf.convert_to_tensor(inputs)
            ids = self.ids(self.split_words(tf.reshape(texts, [-1])))
            return ids[0] if texts.shape.rank == 0 else ids

    def detokenize(self, inputs: Any) -> Any:
        words = tf.gather(self.vocabulary, tf.cast(inputs, tf.int32))
        return tf.strings.reduce_join(words, axis=-1, separator=" ")

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_characters": self.max_characters,
            "long_words": self.long_words,
            "split": self.split,
        }


def _numbers(words):
    return tf.strings.to_hash_bucket_fast(words, (1 << 63) - 1)


def _is_seen(words):
    return ~tf.strings.regex_full_match(words, r"[\p{Cc}\p{Cf}]+")


@checked
@as_written
def train_words(
    documents: TFDataset, vocabulary_size: int = 50_000, **kwargs: Any
) -> ElmoTokenizer:
    """Make a tokenizer from the most frequent words of documents, by frequency.

    Args:
        documents: `tf.data.Dataset` of scalar strings.
        vocabulary_size: int. The most words. `<S>`, `</S>` and `<UNK>` count, and come
            first. Defaults to `50_000`.
        **kwargs: arguments of `ElmoTokenizer`.

    Returns:
        `ElmoTokenizer`.

    Raises:
        ValueError: for a `vocabulary_size` below 4, or documents without words.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_words(documents, 10_000)
    ```
    """
    if vocabulary_size < 4:
        raise ValueError(
            f"`vocabulary_size` must be at least 4. Received: {vocabulary_size}."
        )
    tokenizer = ElmoTokenizer(**kwargs)
    counts: collections.Counter[bytes] = collections.Counter()
    batches = check_documents(first_pass(documents)).batch(256)

    def split(texts):
        words = tokenizer.split_words(without_languages(texts)).flat_values
        return ragged.keep(words, _is_seen(words))

    for words in batches.map(split):
        counts.update(words.numpy().tolist())
    for special in tokenizer.vocabulary:
        counts.pop(special.encode(), None)
    if not counts:
        raise ValueError("`documents` must have words. Received: none.")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word.decode() for word in ranked[: vocabulary_size - 3]]
    tokenizer.set_vocabulary([*tokenizer.vocabulary, *words])
    return tokenizer
