"""GPT's tokenizer: BPE over characters, with a sign at the end of words."""

from typing import Any, Self

import keras
import keras_hub
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.tokenizers.learning import SIGNS, SPACES
from keras_bertfam.tokenizers.merging import (
    are_in_order,
    as_given,
    check_ids,
    merged_words,
    once_traced,
    refuse_prefix_space,
)
from keras_bertfam.tokenizers.steps import clean_texts
from keras_bertfam.tokenizers.text_tokenizer import TextTokenizer, rows_of_ids
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, Path, TFRagged, TFTensor

WORD_END = "</w>"
# White space and signs end a word. Signs are words themselves.
WORDS = rf"{SPACES}|{SIGNS}"


@keras.saving.register_keras_serializable("keras_bertfam")
class GPTTokenizer(TextTokenizer, keras_hub.tokenizers.BytePairTokenizer):
    """GPT's tokenizer, lower-cased, as in `transformers`.

    Texts are cleaned and split into words as BERT does it. The last token of a word
    ends with `</w>`. A character outside the vocabulary becomes `<unk>`. There are no
    start, end and padding tokens; rows are padded with the id 0.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`. A space before texts would change nothing, so
            `add_prefix_space` must be left out.

    Returns:
        Called on strings of shape `(batch,)`, a `tf.RaggedTensor` of shape
        `(batch, None)`. Called on a single string, a tensor of shape `(None,)`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(documents, 40, family="gpt")
    tokenizer(["A cat sat."])
    ```

    Reference: [Radford et al., 2018](
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
    section 4.1.
    """

    start_token = end_token = start_token_id = end_token_id = None
    pad_token_id = 0

    def __init__(
        self,
        vocabulary: Path | dict[str, int] | None = None,
        merges: Path | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_prefix_space(self, kwargs)
        self._add_special_token("<unk>", "unk_token")
        # KerasHub's other path, in pure Python, splits words differently.
        kwargs["_allow_python_workflow"] = False
        super().__init__(vocabulary=vocabulary, merges=merges, **kwargs)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        # Earlier versions took, and saved, a space that had no effect.
        return super().from_config({**config, "add_prefix_space": False})

    def set_vocabulary_and_merges(self, vocabulary: Any, merges: Any) -> None:
        super().set_vocabulary_and_merges(*as_given(vocabulary, merges))
        check_ids(self.vocabulary)
        self.merges_in_order = self.vocabulary is not None and are_in_order(self.merges)
        self._rows = once_traced(self, self._split)

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        """Clean strings and put spaces between their words. Works in a graph."""
        return tf.strings.reduce_join(self._words(texts), axis=-1, separator=" ")

    def _words(self, texts):
        texts = clean_texts(to_utf8(texts), lowercase=True)
        return ragged.split_at(texts, WORDS, SIGNS)[0]

    def _split(self, texts: TFTensor) -> TFRagged:
        tokens = ragged.merge_inner(self.merged(self._words(texts)))
        if self.compute_dtype == "string":
            return tokens
        return tokens.with_flat_values(self.ids_of(tokens.flat_values))

    def merged(self, words: TFRagged) -> TFRagged:
        """Split words into tokens, strings of shape `(batch, words, tokens)`."""
        return merged_words(self, words, _letters)

    def ids_of(self, tokens: TFTensor) -> TFTensor:
        """Look up the ids of tokens; other strings get the id of `<unk>`."""
        ids = self.token_to_id_map.lookup(tokens)
        return tf.where(ids < 0, self.unk_token_id, ids)

    def _detokenize_tf(self, inputs: Any) -> TFTensor:
        with tf.device("CPU:0"):
            ids, single = rows_of_ids(inputs)
            text = tf.strings.reduce_join(self.id_to_token_map.lookup(ids), axis=-1)
            text = tf.strings.strip(tf.strings.regex_replace(text, WORD_END, " "))
            return text[0] if single else text


def _letters(words):
    """Split words into letters; the last letter includes `</w>`."""
    letters = tf.strings.unicode_split(words, "UTF-8")
    flat, row = letters.flat_values, ragged.row_ids(letters)
    is_last = tf.concat([row[:-1] != row[1:], tf.ones_like(row[:1], tf.bool)], 0)
    return letters.with_flat_values(
        tf.where(is_last, tf.strings.join([flat, WORD_END]), flat)
    )
