"""Texts to embed, and pairs of them with their similarity."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.layers.data.labels import (
    check_values,
    finite_numbers,
    one_each,
)
from keras_bertfam.layers.data.pairs.passages import refuse_too_long
from keras_bertfam.layers.data.pairs.segments import truncate_pair
from keras_bertfam.layers.data.user_inputs import as_label_tensor, as_strings, is_pairs
from keras_bertfam.serving import Signature, text_signatures
from keras_bertfam.tasks.finetuning.packed_preprocessor import PackedPreprocessor
from keras_bertfam.types import Model, TFTensor

_SINGLE = (
    "`x` must be pairs, a tuple of two batches of texts or a list of tuples of two, "
    "where `y` has their similarities. Received: single texts."
)


@keras.saving.register_keras_serializable("keras_bertfam")
class TextEmbedderPreprocessor(PackedPreprocessor):
    """Makes rows of texts, and of pairs of texts two rows, to be compared.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Defaults to `128`.
        **kwargs: `layout`, `buckets`, `seed` and `packed` of
            `TextClassifierPreprocessor`. The texts of a pair share a row, so packed
            rows are of `2 * sequence_length` tokens.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`; or a
            tuple of two of them or a list of tuples of two strings, pairs. KerasHub
            takes a tuple that is the only argument for `(x, y)`: pass `None` as `y`
            then.
        y: the similarity of each pair, numbers from -1 to 1 of shape `(batch,)`,
            or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, length)`, or `(batch, 2,
        length)` of pairs, and `padding_mask`, bool of that shape.

    Raises:
        ValueError: for labels that aren't numbers from -1 to 1 (in a graph a
            `tf.errors.InvalidArgumentError`).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.TextEmbedderPreprocessor(tokenizer)
    preprocessor((["A cat sits."], ["A cat is sitting."]), [0.96])
    ```
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sizes_in_graph = self.in_graph(
            lambda texts: self.tokenize(texts).row_lengths()
        )

    def features(self, x: Any) -> dict[str, TFTensor]:
        budget = self.sequence_length - self._layout.specials(1)
        parts = [self.tokenize(text) for text in tf.nest.flatten(x)]
        rows = self.lay_out(truncate_pair([tf.concat(parts, 0)], budget))
        if len(parts) == 1:
            return rows
        count = tf.cast(parts[0].nrows(), tf.int32)
        order = tf.range(count)[:, None] + [[0, count]]
        return {
            name: tf.RaggedTensor.from_uniform_row_length(
                tf.gather(value, tf.reshape(order, [-1])), 2
            )
            for name, value in rows.items()
        }

    def check_lengths(self, texts: Any) -> None:
        """Raise a `ValueError` for a text, of a list of strings, that is too long."""
        with tf.device("CPU:0"):
            sizes = self._sizes_in_graph(as_strings(texts, name="texts"))
            over = sizes.numpy() + self._layout.specials(1) - self.sequence_length
        refuse_too_long(over, self.sequence_length)

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        if x is not None and x["token_ids"].shape.rank == 2:
            raise ValueError(_SINGLE)
        numbers = finite_numbers(one_each(y))
        valid = tf.abs(numbers) <= 1
        return check_values(numbers, y, valid, "cosines, numbers from -1 to 1")

    def as_labels(self, y: Any, x: Any) -> Any:
        if not is_pairs(x):
            raise ValueError(_SINGLE)
        return self.targets(None, as_label_tensor(y))

    @property
    def row_length(self) -> int:
        return 2 * self.sequence_length

    def as_sequences(
        self, x: dict[str, TFTensor], y: TFTensor, sample_weight: TFTensor
    ) -> dict[str, TFTensor]:
        sizes = x["token_ids"].values.row_lengths()
        second = tf.repeat(tf.range(tf.size(sizes)) % 2, sizes)
        parts = {name: value.merge_dims(1, 2) for name, value in x.items()}
        return {
            **parts,
            "second": parts["token_ids"].with_flat_values(second),
            "first_length": tf.cast(sizes[::2], tf.int32),
            "y": y,
            "sample_weight": sample_weight,
        }

    def as_example(self, rows: dict[str, TFTensor]) -> tuple[Any, TFTensor, TFTensor]:
        x, y, sample_weight = super().as_example(rows)
        pairs, starts = x["sequence_ids"], x["sequence_starts"]
        # The texts of the first pair are 1 and 2, those of the second 3 and 4, ...
        texts = tf.where(pairs > 0, 2 * pairs - 1 + x.pop("second"), 0)
        seconds = starts + x.pop("first_length")
        both = {
            "sequence_ids": texts,
            "sequence_starts": tf.stack([starts, seconds], -1),
        }
        return {**x, **both}, y, sample_weight


def vector_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `TextEmbedder`'s SavedModel."""
    return text_signatures(
        model, preprocessor, lambda x: {"embeddings": x}, options, False
    )
