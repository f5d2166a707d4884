"""Turn raw text into the rows of fine-tuning tasks, with little padding."""

from collections.abc import Sequence
from typing import Any

import keras
import keras_hub
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.base import AdjustableLength
from keras_bertfam.layers.data.labels import finite_numbers, one_each
from keras_bertfam.layers.data.pairs.segments import (
    TRUNCATIONS,
    get_layout,
    lay_out,
    truncate_pair,
)
from keras_bertfam.layers.data.pipeline_warnings import enough_of
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    check_at_least,
    checked_batch_size,
    ready_to_iterate,
)
from keras_bertfam.layers.data.rows.batches import (
    Batcher,
    batches_by_length,
    checked_buckets,
    every_length,
    length_buckets,
    pad_rows,
)
from keras_bertfam.layers.data.seeding import (
    StreamPosition,
    batch_seed,
    seeded_passes,
    shuffle,
)
from keras_bertfam.layers.data.user_inputs import (
    as_label_tensor,
    as_rows,
    as_tensor,
    as_texts,
    check_equally_many,
    map_given,
    refuse_single,
    rows_by_size,
)
from keras_bertfam.presets.tokenizer_presets import PresetPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer, tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, TFDataset, TFRagged, TFTensor, Tokenizer


class FineTuningPreprocessor(
    AdjustableLength, PresetPreprocessor, keras_hub.models.Preprocessor
):
    """Base class of the preprocessors of fine-tuning tasks.

    A subclass turns labels into targets in `targets`. Inputs other than texts and pairs
    of texts become rows in `features`.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. The most tokens in a row, special ones included.
        layout, buckets, seed, truncate: see `TextClassifierPreprocessor`, also for the
            arguments of calls.
    """

    single_rank = 0  # of an example without a batch axis
    summary = False  # whether the task reads one state of each row
    truncations: tuple[str, ...] = TRUNCATIONS[:1]  # what `truncate` may be

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        layout: str | None = None,
        buckets: Sequence[int] | None = None,
        seed: int = 0,
        truncate: str = "end",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if truncate not in self.truncations:
            raise ValueError(
                f"`truncate` must be one of {self.truncations}. Received: "
                f"truncate={truncate!r}."
            )
        if sequence_length < 5:
            raise ValueError(
                "`sequence_length` must be at least 5, so that each segment has room "
                f"for a token between special ones. Received: {sequence_length}."
            )
        self.tokenizer = as_graph_layer(tokenizer)
        self.sequence_length = sequence_length
        self.layout = layout
        self._layout = get_layout(layout, tokenizer, self.summary)
        self.start_last = self._layout.start_last
        self.new_tokens = self._layout.new_tokens
        self.buckets = checked_buckets(buckets, sequence_length)
        self.seed = seed
        self.truncate = truncate
        self.position = StreamPosition()
        self._call_in_graph = self.in_graph(self._call)
        self.built = True

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Turn a batch of strings into ids, a ragged tensor. Works in a graph."""
        return tokenize(self.tokenizer, to_utf8(texts))

    def features(self, x: Any) -> dict[str, TFTensor]:
        """Turn a batch of inputs into named tensors, ragged if rows differ in length.

        Runs in a graph.

        Args:
            x: the inputs of the call, as tensors with a batch axis.

        Returns:
            A dict with ragged `token_ids`.
        """
        segments = [self.tokenize(part) for part in tf.nest.flatten(x)]
        budget = self.sequence_length - self._layout.specials(len(segments))
        return self.lay_out(truncate_pair(segments, budget, self.truncate))

    def lay_out(self, segments: list[TFRagged]) -> dict[str, TFRagged]:
        """Lay out segments that fit as rows; see `layouts.lay_out`."""
        return lay_out(segments, self.tokenizer, self._layout)

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        """Turn labels into the loss's targets: a tensor, ragged if lengths differ.

        Args:
            x: what `features` gives.
            y: tensor of labels.
        """
        raise TypeError(f"{type(self).__name__} must define `targets`.")

    def as_labels(self, y: Any, x: Any) -> Any:
        """Turn the labels of a call into a tensor; check them if it runs eagerly.

        Args:
            y: labels.
            x: the inputs, as they were given.

        Raises:
            ValueError: for impossible labels.
        """
        return as_label_tensor(y)

    def weights_of_classes(self, y: Any, class_weight: dict[Any, float]) -> list[float]:
        """List the weights of examples, given the weights of classes.

        Args:
            y: labels.
            class_weight: see `weights_by_number`.

        Raises:
            ValueError: see `weights_by_number`.
        """
        weights = self.weights_by_number(class_weight)
        numbers = self.targets(None, as_label_tensor(y))
        return [float(weights.get(k, 1.0)) for k in numbers.numpy().tolist()]

    def weights_by_number(self, class_weight: dict[Any, float]) -> dict[int, float]:
        """Give the weights of classes by their numbers.

        Args:
            class_weight: dict from numbers or names of classes to weights.

        Raises:
            ValueError: if examples aren't of classes, one each; for keys that aren't
                classes; and for anything but a dict of finite numbers.
        """
        raise ValueError(
            "`class_weight` must be `None` unless examples are of classes, one each. "
            f"Received: class_weight={class_weight}, for {type(self).__name__}."
        )

    def target_weights(
        self, x: dict[str, TFTensor], sample_weight: TFTensor
    ) -> TFTensor:
        """Turn the weights of examples into weights of the targets' slots."""
        return tf.cast(one_each(sample_weight, "sample_weight"), tf.float32)

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        with tf.device("CPU:0"):
            y = None if y is None else self.as_labels(y, x)
            x = self.as_tensors(x)
            single = tf.nest.flatten(x)[0].shape.rank == self.single_rank
            example = (x, y, as_tensor(sample_weight))
            if single:
                example = map_given(lambda value: value[None], example)
            elif tf.executing_eagerly():
                names = ("x", "y", "sample_weight")
                parts = dict(zip(names, example, strict=True))
                check_equally_many({n: v for n, v in parts.items() if v is not None})
            out = self._call_in_graph(*example, single)
            if single:
                out = map_given(lambda value: value[0], out)
        return keras.utils.pack_x_y_sample_weight(*out)

    def encode(self, x: Any, any_length: bool = False) -> dict[str, TFTensor]:
        """Turn a batch of inputs into rows, as the call does. Works in a graph."""
        any_length = any_length and self.buckets is None
        lengths = every_length(self.sequence_length) if any_length else None
        return self.pad(self._featurize(x, None, None), lengths)[0]

    def _call(self, x, y, sample_weight, single=False):
        # The caller batches single examples, so all get the same length.
        example = self._featurize(x, y, sample_weight)
        return self.pad(example, [self.sequence_length] if single else None)

    def _featurize(self, x, y, sample_weight):
        x = self.features(x)
        y = None if y is None else self.targets(x, y)
        if sample_weight is not None:
            sample_weight = self.target_weights(x, sample_weight)
        return x, y, sample_weight

    def pad(
        self, example: tuple[Any, Any, Any], buckets: list[int] | None = None
    ) -> tuple[Any, Any, Any]:
        """Pad the ragged parts of `(x, y, sample_weight)`.

        Args:
            example: see `pad_rows`.
            buckets: list of ints, the lengths of rows; `None` for the constructor's
                `buckets`.
        """
        if buckets is None:
            buckets = length_buckets(self.buckets, self.sequence_length)
        return pad_rows(example, buckets, self.tokenizer.pad_token_id)

    def lengths(self) -> list[int]:
        """List the lengths that rows of a dataset are padded to."""
        return length_buckets(self.buckets, self.sequence_length)

    def as_tensors(self, x: Any) -> Any:
        """Turn the inputs of a call into tensors.

        Raises:
            ValueError: if they aren't strings of the right rank.
        """
        return as_texts(x)

    @checked
    @as_written
    def dataset(
        self,
        data: TFDataset | tuple[Any, ...],
        batch_size: int | None = None,
        *,
        training: bool = True,
        shuffle_buffer: int = 10_000,
        pool: int = 50,
    ) -> TFDataset:
        """Make batches for `fit`, of rows of similar length or of packed rows.

        Examples are shuffled. Then the examples of `pool` batches at a time are sorted
        by length and cut into batches, which come in random order: so little padding is
        computed. The order depends only on `seed` and the epoch. The last batch of an
        epoch is filled up with rows of weight 0, so that all batches have the same
        size.

        Args:
            data: `tf.data.Dataset` of unbatched `(x, y)` or `(x, y,
                sample_weight)`, or such a tuple of arrays or lists.
            batch_size: int or `None`. Examples in a batch. Defaults to 32, as
                Keras's `fit` does.
            training: bool. `False` keeps the order of the data, and doesn't fill up the
                last batch.
            shuffle_buffer: int. How many examples are held in memory to shuffle among;
                `0` doesn't shuffle. Defaults to `10_000`.
            pool: int. How many batches are sorted, or packed, together; `1` sorts and
                packs each batch by itself.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`.

        Raises:
            ValueError: for an argument out of its range, or data without labels
                or examples.
        """
        size = checked_batch_size(batch_size)
        check_at_least(0, shuffle_buffer=shuffle_buffer)
        check_at_least(1, pool=pool)
        given = isinstance(data, tf.data.Dataset)
        examples: Any = data if given else self.from_arrays(*data)
        if not self.takes_elements(examples.element_spec):
            raise ValueError(
                "`data` must have `(x, y)` or `(x, y, sample_weight)`. "
                f"Received: element_spec={examples.element_spec}."
            )
        if examples.cardinality() == 0:
            raise ValueError("`data` must have at least one example. Received: none.")
        if given:
            examples = self.from_dataset(examples)
        cut = self.batcher(examples, size) if training else None

        def batches(epoch):
            rows = examples
            if cut and shuffle_buffer:
                rows = shuffle(rows, shuffle_buffer, batch_seed(self.seed, epoch, -1))
            rows = self.batch(rows, pool * size if cut else size)
            chunks = rows.map(self._chunk, **PARALLEL)
            return cut(chunks, batch_seed(self.seed, epoch, -2)) if cut else chunks

        position = self.position if training else None
        use = "training" if training else "evaluation"
        with self.counted(use, enough_of(examples)):
            passes = seeded_passes(batches, self.seed, position)
        return ready_to_iterate(passes.map(lambda _, x: self.pad(x), **PARALLEL))

    def batcher(self, examples: TFDataset, batch_size: int) -> Batcher:
        """Make the function that cuts featurised chunks into batches, by a seed."""
        return lambda chunks, seed: batches_by_length(chunks, batch_size, seed)

    def takes_elements(self, spec: Any) -> bool:
        """Tell whether a dataset has examples, by its `element_spec`."""
        return len(spec) in (2, 3)

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        """Prepare a dataset of unbatched examples; labels go through `as_labels`."""
        return data

    def from_arrays(self, x: Any, y: Any, sample_weight: Any = None) -> TFDataset:
        """Make an unbatched dataset of arrays or lists.

        Args:
            x: what the call takes, a batch.
            y: labels.
            sample_weight: weights or `None`.

        Returns:
            A `tf.data.Dataset`.

        Raises:
            ValueError: for more or fewer labels, or weights, than examples.
        """
        if y is None:
            raise ValueError("`y` must be the labels of `x`. Received: None.")
        w = None if sample_weight is None else self.as_weights(sample_weight)
        w = None if w is None else finite_numbers(w, "sample_weight")
        return as_rows(self._as_batch(x), self.as_labels(y, x), w)

    def as_weights(self, sample_weight: Any) -> TFTensor:
        """Turn the weights of examples into a tensor."""
        return tf.convert_to_tensor(sample_weight)

    def _as_batch(self, x):
        return refuse_single(self.as_tensors(x), self.single_rank)

    def batch(self, rows: TFDataset, size: int) -> TFDataset:
        """Batch an unbatched dataset of examples."""
        return rows.batch(size)

    @as_written
    def inputs(
        self,
        x: Any,
        batch_size: int = 32,
        steps: int | None = None,
        any_length: bool = False,
    ) -> Any:
        """Make batches of rows of similar length for `predict`.

        Args:
            x: what the call takes, a batch.
            batch_size, steps: ints. All batches if `steps` is `None`.
            any_length: bool. Whether rows are padded to the longest of their batch, and
                not to a bucket. Use it if nothing is compiled for each length. Buckets
                that were given to the constructor stay in use.

        Returns:
            A `tf.data.Dataset`, and an int array: the index of each example in it.
        """
        rows, places = rows_by_size(self._as_batch(x), steps and steps * batch_size)
        with self.counted("prediction", len(places)):
            batches = rows.batch(batch_size).map(
                lambda x: self.encode(x, any_length), **PARALLEL
            )
        return ready_to_iterate(batches), places

    def _chunk(self, x, y, sample_weight=None):
        if sample_weight is None:
            sample_weight = tf.ones(tf.shape(tf.nest.flatten(x)[0])[:1])
        return self._featurize(x, y, sample_weight)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "layout": self.layout,
            "buckets": self.buckets,
            "seed": self.seed,
            "truncate": self.truncate,
        }
