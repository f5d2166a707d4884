"""Raw text to masked batches of segment pairs with a sentence label."""

import keras
import tensorflow as tf

from keras_bertfam.layers.data.pairing import PairSegments
from keras_bertfam.layers.data.segments import truncated_lengths
from keras_bertfam.tasks.pretraining.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tokenizers.texts import to_utf8


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMSentencePairPreprocessor(MaskedLMPreprocessor):
    """Makes masked segment pairs with a sentence label from text.

    `dataset` pairs segments of documents by `PairSegments` and masks them by
    `MaskTokens`, both anew in each pass, for `fit`. `dataset(duplicates=n)`
    repeats the pairs and masks of `n` passes, as BERT's `n` copies do.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        sentence_objective: `"nsp"` or `"sop"`; see `PairSegments`. Defaults to
            `"nsp"`.
        short_sequence_rate: float in [0, 1]. Defaults to `0.1`.
        single_sentence: `"unlabelled"` or `"random"`: what SOP makes of a chunk
            of one sentence; see `PairSegments`. Defaults to `"unlabelled"`.
        separators: int. How many end tokens are between the segments: 1 for
            BERT, 2 for RoBERTa. Defaults to `1`.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments:
        x: a tuple of two batches of strings, the segments; or one such batch,
            rows of a single segment. KerasHub takes a tuple that is the only
            argument for `(x, y)`: pass `None` as `y` then.
        y: int tensor `(batch,)`, the labels: 0 for text as it was. Without
            them the labels get weight 0.
        sample_weight: float tensor `(batch,)`: weights of the labels.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids` and `segment_ids`, int32
        `(batch, length)`, `padding_mask`, bool of that shape, and
        `mask_positions`, int32 `(batch, slots)`; a dict of `masked_lm`, the
        original ids, int32 `(batch, slots)`, and `sentence`, int32 `(batch,)`;
        and a dict of their float32 weights.

    Raises:
        ValueError: If an argument is out of its range.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.layers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMSentencePairPreprocessor(
        tokenizer, sequence_length=128, sentence_objective="sop")
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2.
    """

    default_packing = "segments"

    def __init__(
        self,
        tokenizer,
        sequence_length=128,
        sentence_objective="nsp",
        short_sequence_rate=0.1,
        single_sentence="unlabelled",
        separators=1,
        **kwargs,
    ):
        self.sentence_objective = sentence_objective
        self.short_sequence_rate = short_sequence_rate
        self.single_sentence = single_sentence
        self.separators = separators
        super().__init__(tokenizer, sequence_length, **kwargs)
        if self.sequence_ids:
            raise ValueError(
                "A row of a segment pair holds one sequence. Expected "
                "`sequence_ids=False`. Received: sequence_ids=True."
            )

    def build(self, input_shape=None):
        super().build(input_shape)
        self._segments = self._pair_segments()
        self._encode_segments_in_graph = tf.function(
            self._lay_out_texts, reduce_retracing=True
        )

    def _pair_segments(self, packing=None, break_lines=True):
        return PairSegments(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            objective=self.sentence_objective,
            pairing=packing or self.default_packing,
            short_sequence_rate=self.short_sequence_rate,
            single_sentence=self.single_sentence,
            pad_token_id=self.tokenizer.pad_token_id,
            separators=self.separators,
            break_lines=break_lines,
        )

    def pack(self, documents, packing=None, break_lines=True):
        """Tokenises documents; pairing them is left to each pass.

        `dataset` takes the result in place of documents, so that it can be
        cached: `preprocessor.pack(documents).cache()`.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            packing: `"segments"` (RoBERTa's SEGMENT-PAIR, the default) or
                `"sentences"` (SENTENCE-PAIR); given to `dataset`, too.
            break_lines: bool. Whether to break lines into sentences.

        Returns:
            A `tf.data.Dataset` of dicts of tensors.
        """
        return self._pair_segments(packing, break_lines).tokenize(documents)

    def block_maker(self, documents, packing, break_lines):
        windows = documents
        if not isinstance(getattr(documents, "element_spec", None), dict):
            windows = self.pack(documents, packing, break_lines)
        pairs = self._pair_segments(packing, break_lines)
        return lambda seed: pairs.build(windows, seed)

    def call(self, x, y=None, sample_weight=None, seed=None):
        with tf.device("CPU:0"):
            block = self._encode_segments(*x) if isinstance(x, tuple) else None
            if block is None:
                block = self.encode(x, padding="max_length")
                block["segment_ids"] = tf.zeros_like(block["token_ids"])
            labels = tf.zeros(tf.shape(block["token_ids"])[:-1], tf.int32)
            weights = tf.cast(labels, tf.float32)
            if y is not None:
                labels = tf.reshape(tf.cast(y, tf.int32), tf.shape(labels))
                weights = tf.ones_like(weights)
            if sample_weight is not None:
                weights *= tf.reshape(
                    tf.cast(sample_weight, tf.float32), tf.shape(weights)
                )
            label = {"sentence_label": labels, "sentence_weight": weights}
            return self.corrupt({**block, **label}, seed)

    def corrupt(self, block, seed=None):
        block = dict(block)
        label, weight = block.pop("sentence_label"), block.pop("sentence_weight")
        x, ids, weights = super().corrupt(block, seed)
        return (
            x,
            {"masked_lm": ids, "sentence": label},
            {"masked_lm": weights, "sentence": weight},
        )

    def _encode_segments(self, first, second):
        """Lays two batches of strings out in rows; cuts what is too long off."""
        first, second = tf.convert_to_tensor(first), tf.convert_to_tensor(second)
        if first.shape.rank != 1 or second.shape.rank != 1:
            raise ValueError(
                "A tuple `x` must hold two batches of strings. "
                f"Received: shapes {first.shape} and {second.shape}."
            )
        return self._encode_segments_in_graph(first, second)

    def _lay_out_texts(self, first, second):
        a = tf.cast(self.tokenizer(to_utf8(first)), tf.int32)
        b = tf.cast(self.tokenizer(to_utf8(second)), tf.int32)
        lengths = [tf.cast(x.row_lengths(), tf.int32) for x in (a, b)]
        budget = self.sequence_length - 2 - self.separators
        sizes = truncated_lengths(*lengths, budget)
        at = [tf.cast(x.row_starts(), tf.int32) for x in (a, b)]
        tokens = tf.concat([a.flat_values, b.flat_values], 0)
        second = (at[1] + tf.size(a.flat_values), sizes[1])
        return self._segments.lay_out(tokens, (at[0], sizes[0]), second)

    def get_config(self):
        return {
            **super().get_config(),
            "sentence_objective": self.sentence_objective,
            "short_sequence_rate": self.short_sequence_rate,
            "single_sentence": self.single_sentence,
            "separators": self.separators,
        }
