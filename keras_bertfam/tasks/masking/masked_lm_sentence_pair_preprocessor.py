"""Turn raw text into masked batches of segment pairs with a sentence label."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import class_numbers, finite_numbers, one_each
from keras_bertfam.layers.data.pairs.sentence_pair_rows import PairedRows
from keras_bertfam.layers.data.pairs.sentence_pairs import SENTENCE_CLASSES
from keras_bertfam.layers.data.user_inputs import (
    as_label_tensor,
    as_strings,
    map_given,
)
from keras_bertfam.tasks.masking.masking_preprocessor import (
    MaskingPreprocessor,
    or_published,
)
from keras_bertfam.tokenizers.pipeline_ops import tokenize_with_masks
from keras_bertfam.tokenizers.texts import to_utf8, without_languages
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMSentencePairPreprocessor(MaskingPreprocessor):
    """Makes masked segment pairs with a sentence label from text.

    `dataset` pairs segments of documents with `PairSegments` and masks them with
    `MaskTokens`, both anew in each epoch, for `fit`. `dataset(duplicates=n)` repeats
    the pairs and masks of `n` epochs, like BERT's `n` copies.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        sentence_objective: `"nsp"`, `"sop"`, or `"structural"` with three classes; see
            `PairSegments`. Defaults to `"sop"` for ALBERT's tokenizer, `"nsp"` for
            others.
        short_sequence_rate: float in [0, 1]. Defaults to `0.1`.
        single_sentence: `"unlabelled"` or `"random"`: how SOP treats a chunk with a
            single sentence; see `PairSegments`. Defaults to `"unlabelled"`.
        separators: int. How many end tokens are between the segments. Defaults to 2
            for RoBERTa's tokenizer, 1 for others.
        documents_at_once: int. Documents in a window. A random segment comes from the
            same window or the one before. Defaults to `256`.
        max_pairs: int or `None`. The most pairs in a row with `packing="best_fit"`
            (segment pairs) or `"best_fit_sentences"` (sentence pairs). Defaults to one
            for each 16 tokens.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments:
        x: a tuple of two strings or batches of strings, the segments; or one string or
            batch, for rows of a single segment. KerasHub takes a tuple that is the only
            argument for `(x, y)`: pass `None` as `y` then.
        y: int tensor `(batch,)`, the labels: 0 for the original text. If it is missing,
            labels get weight 0.
        sample_weight: float tensor `(batch,)`: weights of the labels.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids` and `segment_ids`, int32
        `(batch, length)`, `padding_mask`, bool of that shape, and
        `mask_positions`, int32 `(batch, slots)`; a dict of `masked_lm`, the
        original ids, int32 `(batch, slots)`, and `sentence`, int32 `(batch,)`;
        and a dict of their float32 weights. If several pairs share a row, `sentence`
        and its weights have the shape `(batch, max_pairs)`, 0 where there is no pair,
        and `x` also has `sequence_ids`, int32 `(batch, length)`, and `sequence_starts`,
        int32 `(batch, max_pairs)`.

    Raises:
        ValueError: If an argument is out of its range.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMSentencePairPreprocessor(
        tokenizer, sequence_length=128, sentence_objective="sop")
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        sentence_objective: str | None = None,
        short_sequence_rate: float = 0.1,
        single_sentence: str = "unlabelled",
        separators: int | None = None,
        documents_at_once: int = 256,
        max_pairs: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = or_published(
            tokenizer, sentence_objective=sentence_objective, separators=separators
        )
        self.sentence_objective = settings["sentence_objective"]
        self.short_sequence_rate = short_sequence_rate
        self.single_sentence = single_sentence
        self.separators = settings["separators"]
        self.documents_at_once = documents_at_once
        self.max_pairs = max_pairs
        super().__init__(tokenizer, sequence_length, **kwargs)
        if self.sequence_ids:
            raise ValueError(
                "A row holds one segment pair, or several with "
                '`packing="best_fit"`, which sets `sequence_ids` itself. Expected '
                "`sequence_ids=False`. Received: sequence_ids=True."
            )
        self._encode_pairs_in_graph = self.in_graph(self._encode_pairs)

    def make_rows(self) -> PairedRows:
        return PairedRows(
            self.text_tokenizer,
            self.sequence_length,
            objective=self.sentence_objective,
            short_sequence_rate=self.short_sequence_rate,
            single_sentence=self.single_sentence,
            separators=self.separators,
            documents_at_once=self.documents_at_once,
            max_pairs=self.max_pairs,
        )

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None
    ) -> Any:
        with tf.device("CPU:0"):
            single = False
            if isinstance(x, tuple):
                first, second = _checked_pair(x)
                single = first.shape.rank == 0
                texts = (tf.reshape(text, [-1]) for text in (first, second))
                rows = dict(self._encode_pairs_in_graph(*texts))
                is_pair = rows.pop("is_pair")
            else:
                rows = self._encode_texts(x, "max_length", True)
                rows["segment_ids"] = tf.zeros_like(rows["token_ids"])
                is_pair = tf.ones(tf.shape(rows["token_ids"])[:-1])
            labels = tf.zeros(tf.shape(is_pair), tf.int32)
            weights = tf.zeros_like(is_pair)
            if y is not None:
                count = SENTENCE_CLASSES[self.sentence_objective]
                y = class_numbers(one_each(as_label_tensor(y)), count)
                labels = _for_each(y, is_pair, "y")
                weights = is_pair
            if sample_weight is not None:
                given = tf.convert_to_tensor(sample_weight)
                given = one_each(finite_numbers(given, "sample_weight"))
                weights *= _for_each(given, is_pair, "sample_weight")
            label = {"sentence_label": labels, "sentence_weight": weights}
            example = self.corrupt({**rows, **label}, seed)
            return map_given(lambda value: value[0], example) if single else example

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], dict[str, TFTensor], dict[str, TFTensor]]:
        x = self.masked_inputs(rows, corrupted)
        label, weight = x.pop("sentence_label"), x.pop("sentence_weight")
        x.pop("sequence_mask", None)  # the weights mark these labels
        return (
            x,
            {"masked_lm": corrupted["mask_ids"], "sentence": label},
            {"masked_lm": corrupted["mask_weights"], "sentence": weight},
        )

    def _encode_pairs(self, first, second):
        a, b = (
            tokenize_with_masks(self.text_tokenizer, without_languages(to_utf8(text)))
            for text in (first, second)
        )
        rows, _ = self.parts()
        # As in `dataset`, the label of a single segment has the weight 0.
        is_pair = tf.cast((a.row_lengths() > 0) & (b.row_lengths() > 0), tf.float32)
        return {**rows.lay_out_pairs(a, b), "is_pair": is_pair}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sentence_objective": self.sentence_objective,
            "short_sequence_rate": self.short_sequence_rate,
            "single_sentence": self.single_sentence,
            "separators": self.separators,
            "documents_at_once": self.documents_at_once,
            "max_pairs": self.max_pairs,
        }


def _checked_pair(x):
    """Turn two batches of strings, or two strings, into tensors."""
    pair = [as_strings(part) for part in x]
    shapes = [part.shape for part in pair]
    if len(pair) != 2 or not shapes[0].is_compatible_with(shapes[1]):
        raise ValueError(
            "A tuple `x` must hold two strings, or two equally large batches of them. "
            f"Received: shapes {', '.join(map(str, shapes))}."
        )
    return pair


def _for_each(values, like, name):
    """Give values for each row the shape of the rows; a `ValueError` for too few."""
    if not (values.shape.rank == 0 or values.shape.is_compatible_with(like.shape)):
        raise ValueError(
            f"`{name}` must have a value for each pair, of the shape {like.shape}. "
            f"Received: shape={values.shape}."
        )
    return tf.reshape(values, tf.shape(like))
