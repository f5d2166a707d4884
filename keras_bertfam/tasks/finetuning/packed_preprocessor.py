"""Pack several examples into a row in training."""

from typing import Any

import tensorflow as tf

from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.rows.batches import Batcher, packed_batches, rows_for
from keras_bertfam.layers.data.rows.sequence_packing import PackSequences
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from keras_bertfam.types import Config, Model, TFDataset, TFTensor

_SAMPLE = 4096


class PackedPreprocessor(FineTuningPreprocessor):
    """Base class of the preprocessors whose training examples may share rows.

    Args:
        *args: arguments of `FineTuningPreprocessor`.
        packed: bool. Whether `dataset(..., training=True)`, and so `fit()`, packs
            examples into rows; see `TextClassifierPreprocessor`.
        **kwargs: other arguments of `FineTuningPreprocessor`.

    Raises:
        ValueError: with `packed` and a layout that has its summary token at the end of
            rows.
    """

    def __init__(self, *args: Any, packed: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if packed and self.start_last:
            raise ValueError(
                f"`packed` must be `False` with layout={self._layout.name!r}: packed "
                f"examples are found by their first tokens. Received: packed={packed}."
            )
        self.packed = packed

    @property
    def row_length(self) -> int:
        """int: the length of a packed row, in tokens."""
        return self.sequence_length

    @property
    def max_sequences(self) -> int | None:
        """int or `None`: the most examples in a row, `None` for as many as fit."""
        return max(1, self.sequence_length // 6)

    def as_sequences(
        self, x: dict[str, TFTensor], y: TFTensor, sample_weight: TFTensor
    ) -> dict[str, TFTensor]:
        """Turn featurised examples into the inputs of `PackSequences`.

        Args:
            x: what `features` gives.
            y: what `targets` gives. `sample_weight` is what `target_weights` gives.

        Returns:
            A dict with `y`, `sample_weight` and the features. Parts with a value for
            each token are ragged; parts with a value for each example are dense.
        """
        return {**x, "y": y, "sample_weight": sample_weight}

    def as_example(self, rows: dict[str, TFTensor]) -> tuple[Any, TFTensor, TFTensor]:
        """Turn packed rows into `(x, y, sample_weight)`."""
        x = dict(rows)
        x.pop("sequence_mask", None)
        y, sample_weight = (x.pop(name) for name in ("y", "sample_weight"))
        return x, y, sample_weight

    def batcher(self, examples: TFDataset, batch_size: int) -> Batcher:
        if not self.packed:
            return super().batcher(examples, batch_size)
        size = self._rows_for(examples, batch_size)
        pad = self.tokenizer.pad_token_id
        packing = PackSequences(self.row_length, self.max_sequences, pad)

        def batches(chunks, seed):
            sequences = chunks.map(self.as_sequences, **PARALLEL)
            rows = packed_batches(sequences, packing, size, seed)
            return rows.map(self.as_example)

        return batches

    def _rows_for(self, examples, count):
        """Estimate the rows of a batch from a sample of all the data."""
        known = int(examples.cardinality())
        count = min(count, known) if known > 0 else count
        apart = max(1, known // _SAMPLE)
        sample = self.batch(examples.shard(apart, 0).take(_SAMPLE), _SAMPLE)
        sample = sample.map(lambda x, *_: _sizes(self.features(x)["token_ids"]))
        for lengths in sample:
            with tf.device("CPU:0"):
                return rows_for(count, lengths, self.row_length, self.max_sequences)
        raise ValueError("`data` must have at least one example. Received: none.")

    def pad(
        self, example: tuple[Any, Any, Any], buckets: list[int] | None = None
    ) -> tuple[Any, Any, Any]:
        ragged = isinstance(example[0]["token_ids"], tf.RaggedTensor)
        return super().pad(example, buckets) if ragged else example

    def get_config(self) -> Config:
        return {**super().get_config(), "packed": self.packed}


def check_packed(preprocessor: Any, backbone: Model) -> None:
    """Raise a `ValueError` if a backbone can't take a preprocessor's packed rows."""
    if not getattr(preprocessor, "packed", False):
        return
    if not isinstance(preprocessor, PackedPreprocessor):
        raise ValueError(
            f"`packed` must be `False` for {type(preprocessor).__name__}. Received: "
            "packed=True."
        )
    name = type(backbone).__name__
    if "sequence_ids" not in backbone.input_names:
        raise ValueError(
            f"`packed` must be `False` with {name}: its attention doesn't keep the "
            "sequences of a row apart. Received: packed=True."
        )
    longest = backbone.max_sequence_length
    if longest is not None and preprocessor.row_length > longest:
        raise ValueError(
            "`packed` must be `False` if packed rows are longer than the backbone's "
            "positions. Received: packed=True, with rows of "
            f"{preprocessor.row_length} tokens, and max_sequence_length={longest} of "
            f"{name}."
        )


def _sizes(token_ids):
    """Count the tokens of each example, in all its texts."""
    return token_ids.merge_dims(1, token_ids.shape.rank - 1).row_lengths()
