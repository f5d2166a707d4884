"""Turn raw text into words and the next words, in both directions."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.streams.word_streams import (
    WordStreamRows,
    between_sentence_tokens,
)
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.text_preprocessor import TextPreprocessor
from keras_bertfam.tokenizers.elmo import ElmoTokenizer
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BidirectionalLMPreprocessor(TextPreprocessor):
    """Makes ELMo's examples: words as characters, and the next words.

    `dataset` lays out sentences, between `<S>` and `</S>`, in parallel streams, so that
    each row continues the same row of the batch before. Every second row runs
    backwards: half of the rows are forward, the other half are the same documents
    backwards. Documents are shuffled, not rows. All rows are full, so `packing` and
    `tokens_per_batch` can't be given. Called on strings, the preprocessor makes two
    independent rows of each, one forward and one backward.

    Args:
        tokenizer: `keras_bertfam.tokenizers.ElmoTokenizer` with a vocabulary.
        sequence_length: int. Words in a row. Defaults to `20`.
        seed: int. Decides the order of documents. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`,
        `character_ids`, int32 `(batch, length, max_characters)`, and `padding_mask`,
        bool `(batch, length)`, in batches of `dataset` also `continues`, bool
        `(batch,)`; the ids of the next words, int32 `(batch, length)`; and float32
        weights, 0 where the next word begins another sentence.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_words(documents, 50_000)
    preprocessor = keras_bertfam.tasks.BidirectionalLMPreprocessor(tokenizer)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), released code,
    allenai/bilm-tf, bilm/data.py.
    """

    def __init__(
        self,
        tokenizer: ElmoTokenizer,
        sequence_length: int = 20,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(tokenizer, ElmoTokenizer):
            raise ValueError(
                "`tokenizer` must be an `ElmoTokenizer`. "
                f"Received: {type(tokenizer).__name__}."
            )
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.build_if_ready()

    def make_rows(self) -> WordStreamRows:
        return WordStreamRows(self.tokenizer, self.sequence_length)

    def call(
        self, x: Any, y: None = None, sample_weight: None = None, seed: Any = None
    ) -> Any:
        self.check_unlabelled(y, sample_weight)
        with tf.device("CPU:0"):
            texts = to_utf8(tf.reshape(as_strings(x), [-1]))
            words = between_sentence_tokens(self.tokenizer, texts)
            with self.counted_if_eager():
                count_cut(words.row_lengths() > self.sequence_length + 1)
            words = words[:, : self.sequence_length + 1]
            both = tf.stack([words, words[:, ::-1]], axis=1).merge_dims(0, 1)
            shape = [None, self.sequence_length + 1]
            return self.example({"words": both.to_tensor("", shape=shape)}, {})

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        words, following = rows["words"][:, :-1], rows["words"][:, 1:]
        x = self._inputs(words)
        if "continues" in rows:
            x["continues"] = rows["continues"]
        first, last = self.tokenizer.start_token, self.tokenizer.end_token
        begins = (words == last) & (following == first)
        begins |= (words == first) & (following == last)  # backwards
        weights = tf.cast(~begins & (following != ""), tf.float32)
        return x, self.tokenizer.ids(following), weights

    def _inputs(self, words):
        return {
            "token_ids": self.tokenizer.ids(words),
            "character_ids": self.tokenizer.characters(words),
            "padding_mask": words != "",
        }

    def _encode(self, texts, padding, corrupted=False):
        words = between_sentence_tokens(self.tokenizer, texts)
        length = self.sequence_length if padding == "max_length" else None
        count_cut(words.row_lengths() > self.sequence_length)
        words = words[:, : self.sequence_length].to_tensor("", shape=[None, length])
        return self._inputs(words)
