"""Raw text to factorisation orders."""

import keras
import tensorflow as tf

from keras_bertfam.layers.corruption.permutation import PermuteTokens
from keras_bertfam.layers.data.packing import not_empty
from keras_bertfam.layers.data.parallel_streams import ParallelStreams, join_segments
from keras_bertfam.layers.data.seeding import (
    batch_seed,
    fold,
    seeded_passes,
    shuffle,
)
from keras_bertfam.tasks.pretraining.text_preprocessor import TextPreprocessor
from keras_bertfam.tokenizers.graph import word_start_table
from keras_bertfam.tokenizers.texts import check_documents


@keras.saving.register_keras_serializable("keras_bertfam")
class PermutationLMPreprocessor(TextPreprocessor):
    """Makes permutation language model examples from text.

    `dataset` lays documents out in parallel streams, so that each row continues
    the row of the batch before, and draws orders and targets anew in each pass.
    A row is `[reused tokens, A, end, B, end, start]`; the next begins
    `reuse_length` tokens later, and repeats what was A and B as its reused
    tokens. Called on strings, the preprocessor makes rows `[text, end, start]`,
    padded on the left, whose orders depend on the ids and `seed` alone.

    Args:
        tokenizer: a tokenizer layer, such as
            `keras_bertfam.layers.BertTokenizer`. Its start token stands for
            XLNet's `<cls>`, its end token for `<sep>` and `<eod>`.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        reuse_length: int. Defaults to half of `sequence_length`; `0` for rows
            that repeat nothing.
        num_predictions: int or `None`. Targets of a row; see `PermuteTokens`.
        perm_size: int or `None`. See `PermuteTokens`.
        max_words: int. Most words of a span.
        alpha, beta: ints. See `PermuteTokens`: about `beta / alpha` of the
            tokens are targets, the paper's `1 / K`.
        whole_word: bool. Whether spans are of words or of pieces.
        both_directions: bool. Whether half of the rows are text read backwards.
        next_rate: float. The probability that B follows A; see `join_segments`.
        seed: int. Decides every cut, order and target. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, `segment_ids` and
        `perm_ranks`, int32 `(batch, length)`, `padding_mask`, bool, and
        `mask_positions`, int32 `(batch, slots)`; the ids there, int32 `(batch,
        slots)`; and float32 weights, 1 for a target and 0 for an empty slot.
        Batches of `dataset` also have `continues` and, with `both_directions`,
        `reversed_rows`, both bool `(batch,)`.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.layers.XLNetTokenizer("spiece.model")
    preprocessor = keras_bertfam.tasks.PermutationLMPreprocessor(
        tokenizer, sequence_length=128
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), sections
    2.3 to 2.5 and 3.1.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length=128,
        reuse_length=None,
        num_predictions=None,
        perm_size=None,
        max_words=5,
        alpha=6,
        beta=1,
        whole_word=True,
        both_directions=False,
        next_rate=0.5,
        seed=0,
        **kwargs,
    ):
        super().__init__(tokenizer, sequence_length, seed=seed, **kwargs)
        if reuse_length is None:
            reuse_length = sequence_length // 2
        # Two special tokens, a third one, and two tokens to cut between.
        if not 0 <= reuse_length <= sequence_length - 5:
            raise ValueError(
                "`reuse_length` must be at least 0, and leave 5 tokens of "
                f"sequence_length={sequence_length}. Received: {reuse_length}."
            )
        if not 0 <= next_rate <= 1:
            raise ValueError(f"`next_rate` must be in [0, 1]. Received: {next_rate}.")
        self.reuse_length = reuse_length
        self.num_predictions = num_predictions
        self.perm_size = perm_size
        self.max_words = max_words
        self.alpha = alpha
        self.beta = beta
        self.whole_word = whole_word
        self.both_directions = both_directions
        self.next_rate = next_rate
        self._permute = None
        self.build_if_ready()

    def build(self, input_shape=None):
        # A preset's vocabulary comes after the constructor.
        tokenizer = self.tokenizer
        self._permute = PermuteTokens(
            vocabulary_size=tokenizer.vocabulary_size(),
            special_token_ids=[tokenizer.start_token_id, tokenizer.end_token_id],
            pad_token_id=tokenizer.pad_token_id,
            num_predictions=self.num_predictions,
            reuse_length=self.reuse_length,
            perm_size=self.perm_size,
            max_words=self.max_words,
            alpha=self.alpha,
            beta=self.beta,
            starts_word=word_start_table(tokenizer) if self.whole_word else None,
            seed=self.seed,
        )
        self.built = True

    def corrupt(self, block, seed=None):
        drawn = self._permute(
            block["token_ids"], seed=seed, reversed_rows=block.get("reversed_rows")
        )
        x = {**block, "perm_ranks": drawn["perm_ranks"]}
        x["mask_positions"] = drawn["mask_positions"]
        return x, drawn["mask_ids"], drawn["mask_weights"]

    def _encode(self, texts, padding):
        encoded = super()._encode(texts, padding)
        ids, inside = encoded["token_ids"], encoded["padding_mask"]
        # From `[start, text, end, padding]` to `[padding, text, end, start]`.
        shape = tf.shape(ids)
        lengths = tf.reduce_sum(tf.cast(inside, tf.int32), 1, keepdims=True)
        index = tf.range(shape[1]) - (shape[1] - lengths) + 1
        inside = index >= 1
        index = tf.where(index == lengths, 0, tf.maximum(index, 0))
        moved = tf.gather(ids, index, axis=1, batch_dims=1)
        moved = tf.where(inside, moved, self.tokenizer.pad_token_id)
        last = tf.range(shape[1]) == shape[1] - 1
        segments = tf.where(last, 2, tf.zeros_like(ids))
        return {
            "token_ids": tf.ensure_shape(moved, ids.shape),
            "padding_mask": tf.ensure_shape(inside, ids.shape),
            "segment_ids": tf.ensure_shape(segments, ids.shape),
        }

    def dataset(
        self,
        documents,
        batch_size,
        shuffle_buffer=1000,
        training=True,
        break_lines=True,
    ):
        """Returns the dataset of batches, ready for `fit`.

        Cuts, orders and targets depend on `seed`, the pass and the batch alone.
        Each iteration is a new pass, from where `position` says.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            batch_size: int. The number of streams; even for both directions.
            shuffle_buffer: int. Documents to shuffle among; `0` for none.
            training: bool. `False` gives the same batches in each pass.
            break_lines: bool. Whether to break lines into sentences.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`, as the call gives. A
            pass without a single batch ends in
            `tf.errors.InvalidArgumentError`.
        """
        check_documents(documents)
        streams = batch_size // (2 if self.both_directions else 1)
        least = 1 if self.next_rate == 1 else 2
        if streams < least:
            raise ValueError(
                f"`batch_size` must give at least {least} streams a direction: with "
                f"next_rate={self.next_rate}, B may come from another one. "
                f"Received: batch_size={batch_size}."
            )
        if shuffle_buffer < 0:
            raise ValueError(
                f"`shuffle_buffer` must be at least 0. Received: {shuffle_buffer}."
            )
        window = self.sequence_length - 3
        lay_out = ParallelStreams(
            self.tokenizer,
            batch_size,
            window,
            self.reuse_length or window,
            self.tokenizer.end_token_id,
            both_directions=self.both_directions,
            break_lines=break_lines,
        )

        def batches(epoch):
            texts = documents
            if training and shuffle_buffer:
                texts = shuffle(
                    documents, shuffle_buffer, batch_seed(self.seed, epoch, -1)
                )
            return not_empty(
                texts.apply(lay_out),
                "`documents` must fill at least one batch: give at least one document "
                "for each row, and more text, or a smaller `batch_size`. "
                f"Received: batch_size={batch_size}, "
                f"sequence_length={self.sequence_length}.",
            )

        position = self.position if training else None
        return self.ready(seeded_passes(batches, self.seed, position), self._rows)

    def _rows(self, seed, batch):
        rows = join_segments(
            batch,
            self.reuse_length,
            self.tokenizer.start_token_id,
            self.tokenizer.end_token_id,
            self.next_rate,
            fold(seed, 1),
        )
        rows["padding_mask"] = tf.ones_like(rows["token_ids"], tf.bool)
        rows["continues"] = batch["continues"]
        if self.both_directions:
            rows["reversed_rows"] = batch["reversed_rows"]
        return self.corrupt(rows, seed)

    def get_config(self):
        config = super().get_config()
        del config["sequence_ids"]
        names = (
            "reuse_length num_predictions perm_size max_words alpha beta whole_word "
            "both_directions next_rate"
        )
        return {**config, **{name: getattr(self, name) for name in names.split()}}
