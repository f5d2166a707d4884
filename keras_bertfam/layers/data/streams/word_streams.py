"""Parallel streams of words in both directions, continued from batch to batch."""

import tensorflow as tf

from keras_bertfam.layers.data.documents.reading import split_sentences
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.layers.data.streams.parallel_streams import (
    ParallelStreams,
    check_continued,
)
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


class WordStreams(ParallelStreams):
    """`ParallelStreams` of words as strings; each sentence is in `<S>` and `</S>`.

    Rows 0, 2, 4, ... run forward. The row after each has the same documents backwards.

    Args:
        tokenizer: `ElmoTokenizer`.
        batch_size: int, even. The number of rows.
        window: int. Words of a row. One more word is added, as the last target.
        break_lines: bool. See `split_sentences`. Defaults to `True`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of `words`,
        string `(batch_size, window + 1)`, and `continues`, bool `(batch_size,)`.
    """

    dtype = tf.string

    def __init__(
        self,
        tokenizer: Tokenizer,
        batch_size: int,
        window: int,
        break_lines: bool = True,
    ) -> None:
        super().__init__(
            tokenizer,
            batch_size,
            window + 1,
            window,
            end_token_id=tokenizer.end_token_id,
            both_directions=True,
            break_lines=break_lines,
        )

    def _tokenize(self, documents):
        documents = tf.strings.regex_replace(documents, r"^\x00", " ")
        sentences = split_sentences(documents, self.break_lines)
        words = between_sentence_tokens(self.tokenizer, sentences.flat_values)
        rows = sentences.with_values(words).merge_dims(1, 2)
        return rows.flat_values, tf.cast(rows.row_lengths(), tf.int32)

    def _batches(self, windows, continues, streams):
        count = tf.shape(windows)[0]
        shape = [count, 2, streams, self.window]
        windows = tf.transpose(tf.reshape(windows, shape), [0, 2, 1, 3])
        return {
            "words": tf.reshape(windows, [-1, self.batch_size, self.window]),
            "continues": tf.repeat(continues[:, None], self.batch_size, 1),
        }


def between_sentence_tokens(tokenizer: Tokenizer, sentences: TFTensor) -> TFRagged:
    """Put the words of sentences between `<S>` and `</S>`."""
    return with_sentence_tokens(tokenizer, tokenizer.split_words(sentences))


def with_sentence_tokens(tokenizer: Tokenizer, words: TFRagged) -> TFRagged:
    """Put words, ragged `(batch, None)`, between `<S>` and `</S>`."""
    start, end = (
        tf.fill([words.nrows(), 1], token)
        for token in (tokenizer.start_token, tokenizer.end_token)
    )
    return tf.concat([start, words, end], 1)


class WordStreamRows(Rows):
    """Rows of `WordStreams`, for `BidirectionalLMPreprocessor`."""

    advice = (
        "give at least one document for each two rows, and more text, or a smaller "
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
        streams = WordStreams(
            self.tokenizer, options.rows, self.sequence_length, options.break_lines
        )
        return self.not_empty(documents.apply(streams), options)
