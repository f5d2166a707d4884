"""Turn raw text into rows with words left out, and the decoder's targets."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.delete_words import DeleteWords
from keras_bertfam.layers.data.rows.rows import SummarizedRows
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids, word_start_table
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DenoisingAutoencoderPreprocessor(PackingPreprocessor):
    """Makes rows with words left out, for an encoder, and whole ones for a decoder.

    A row is a block of one document. To train on sentences, give each as a document.

    Args:
        tokenizer: a tokenizer layer with a start and an end token.
        sequence_length: int. Tokens in a row, special ones included. Defaults to `128`.
        deletion_rate: float in [0, 1]. The probability that a word is left out; one
            word always stays. The vocabulary tells where words begin. Defaults to
            `0.6`.
        seed: int. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed for leaving words out.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`, and
        `padding_mask`, bool, of the words that stay; `target_ids` and
        `target_padding_mask`, `(batch, length - 1)`, all tokens except the last; the
        next token of each of these, int32; and float32 weights, 0 for padding.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.DenoisingAutoencoderPreprocessor(
        tokenizer, sequence_length=64)
    batches = preprocessor.dataset(documents, batch_size=8)
    ```

    Reference: [Wang et al., 2021](https://arxiv.org/abs/2104.06979), section 3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        deletion_rate: float = 0.6,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.deletion_rate = deletion_rate
        self.build_if_ready()

    def make_rows(self) -> SummarizedRows:
        tokenizer = self.tokenizer
        if tokenizer.start_token_id is None:
            raise ValueError(
                "`tokenizer` must have a start token, from which texts are written. "
                f"Received: {type(tokenizer).__name__} without one."
            )
        ends = (tokenizer.start_token_id, tokenizer.end_token_id)
        return SummarizedRows(tokenizer, self.sequence_length, *ends, packing="doc")

    def make_corruption(self) -> DeleteWords:
        return DeleteWords(
            self.deletion_rate,
            pad_token_id=self.tokenizer.pad_token_id,
            unselectable_token_ids=special_token_ids(self.tokenizer),
            starts_word=word_start_table(self.tokenizer),
            seed=self.seed,
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        ids = rows["token_ids"]
        there = rows["padding_mask"]
        targets = {
            "target_ids": ids[..., :-1],
            "target_padding_mask": there[..., :-1],
        }
        return (
            {**corrupted, **targets},
            ids[..., 1:],
            tf.cast(there[..., 1:], tf.float32),
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "deletion_rate": self.deletion_rate}
