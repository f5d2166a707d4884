"""Turn raw text into rows that continue from batch to batch, and the next tokens."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.layers.data.streams.parallel_streams import (
    ParallelStreams,
    check_continued,
)
from keras_bertfam.tasks.text_preprocessor import TextPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import document_end_id
from keras_bertfam.types import TFDataset, TFTensor, Tokenizer


class ContinuedRows(Rows):
    """Make rows of one token more than the model gets; the next batch continues them.

    Documents end with `<eod>` if the tokenizer has it, and otherwise with its end
    token.
    """

    advice = (
        "give at least one document for each row, and more text, or a smaller "
        "`batch_size`"
    )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        return check_continued(documents, options)

    def batches(
        self,
        prepared: TFDataset,
        options: BatchOptions,
        order_seed: TFTensor,
        rows_seed: TFTensor,
    ) -> TFDataset:
        documents = prepared
        if options.training and options.shuffle_buffer:
            documents = shuffle(documents, options.shuffle_buffer, order_seed)
        streams = ParallelStreams(
            self.tokenizer,
            options.rows,
            window=self.sequence_length,
            advance=self.sequence_length - 1,
            end_token_id=document_end_id(self.tokenizer),
            break_lines=options.break_lines,
        )
        return self.not_empty(documents.apply(streams), options)

    def complete(
        self, batch: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        ids = batch["token_ids"]
        mask = tf.ones_like(ids, tf.bool)
        return {
            "token_ids": ids,
            "padding_mask": mask,
            "continues": batch["continues"],
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RecurrentLMPreprocessor(TextPreprocessor):
    """Makes Transformer-XL's examples: rows, and the next tokens.

    `dataset` lays out documents in parallel streams, so that each row continues the
    same row of the batch before. Documents are shuffled, not rows. All rows are full,
    so `packing` and `tokens_per_batch` can't be given. Called on strings, the
    preprocessor makes independent rows.

    Args:
        tokenizer: a tokenizer layer with an end token, such as
            `GPT2Tokenizer`.
        sequence_length: int. Tokens in a row. Defaults to `128`.
        seed: int. Decides the order of documents. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`,
        `padding_mask`, bool, and in batches of `dataset` `continues`, bool `(batch,)`;
        the ids of the next tokens, int32 `(batch, length)`; and float32 weights, 0
        where there is none.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 8000, family="gpt2")
    preprocessor = keras_bertfam.tasks.RecurrentLMPreprocessor(tokenizer)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.build_if_ready()

    def make_rows(self) -> ContinuedRows:
        # A row has one token more than the model gets: the last is only a target.
        return ContinuedRows(self.tokenizer, self.sequence_length + 1)

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        inside = rows["padding_mask"][..., 1:]
        x = {name: rows[name][..., :-1] for name in ("token_ids", "padding_mask")}
        if "continues" in rows:
            x["continues"] = rows["continues"]
        return x, rows["token_ids"][..., 1:], tf.cast(inside, tf.float32)
