"""Make rows of texts and pairs of texts, with a class or a number."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import (
    check_labels,
    class_numbers,
    class_sets,
    finite_numbers,
    one_each,
)
from keras_bertfam.layers.data.pairs.segments import TRUNCATIONS
from keras_bertfam.layers.data.user_inputs import as_label_lists, as_label_tensor
from keras_bertfam.serving import Signature, text_signatures
from keras_bertfam.tasks.finetuning.packed_preprocessor import PackedPreprocessor
from keras_bertfam.types import (
    Config,
    Mixin,
    Model,
    TFDataset,
    TFRagged,
    TFTensor,
    Tokenizer,
)


class BothOrders(Mixin):
    """Mixin of preprocessors of texts and pairs that have one label each.

    Args:
        both_orders: bool. Whether a pair gets a row for each of its two orders, see
            `TextClassifierPreprocessor`.

    Raises:
        ValueError: for `both_orders` with `packed`.
    """

    summary = True
    truncations: tuple[str, ...] = TRUNCATIONS

    def __init__(self, *args: Any, both_orders: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if both_orders and self.packed:
            raise ValueError(
                "`packed` must be `False` for examples of two rows, which "
                "both_orders=True makes. Received: packed=True."
            )
        self.both_orders = both_orders

    def lay_out(self, segments: list[TFRagged]) -> dict[str, TFRagged]:
        rows = super().lay_out(segments)
        if not self.both_orders:
            return rows
        orders = [rows]
        if len(segments) > 1:
            orders.append(super().lay_out(segments[::-1]))
        return {
            name: tf.RaggedTensor.from_uniform_row_length(
                tf.ragged.stack([order[name] for order in orders], 1).merge_dims(0, 1),
                len(orders),
            )
            for name in rows
        }

    def get_config(self) -> Config:
        return {**super().get_config(), "both_orders": self.both_orders}


class LabelledPreprocessor(PackedPreprocessor):
    """Base class of the preprocessors whose labels are classes.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int.
        num_classes: int or `None`. Labels are checked against it. A task sets it if it
            is `None`.
        label_names: sequence of strings or `None`: the classes in order. With
            them, labels may be strings.
        **kwargs: other arguments of `PackedPreprocessor`.
    """

    one_class_each = True  # each example has a class of its own

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        num_classes: int | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        self.num_classes, self.label_names = check_labels(num_classes, label_names)

    @checked
    def set_classes(
        self, num_classes: int | None, label_names: Sequence[str] | None
    ) -> None:
        """Set the classes, unless they are known.

        Args:
            num_classes: int or `None`.
            label_names: sequence of strings or `None`.

        Raises:
            ValueError: if other classes are known.
        """
        num_classes, label_names = check_labels(num_classes, label_names)
        for name, value in (("num_classes", num_classes), ("label_names", label_names)):
            known = getattr(self, name)
            if None not in (known, value) and known != value:
                raise ValueError(
                    f"`{name}` must be the same as the preprocessor's, {known}. "
                    f"Received: {value}."
                )
        names = label_names or self.label_names
        self.num_classes, self.label_names = check_labels(
            num_classes or self.num_classes, names
        )

    def forget_classes(self) -> None:
        """Forget the classes, so that a task can set others."""
        self.num_classes = self.label_names = None

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        return class_numbers(one_each(y), self.num_classes, self.label_names)

    def as_labels(self, y: Any, x: Any) -> Any:
        y = one_each(as_label_tensor(y))
        if tf.executing_eagerly():
            class_numbers(y, self.num_classes, self.label_names)
        return y

    def weights_by_number(self, class_weight: dict[Any, float]) -> dict[int, float]:
        if not self.one_class_each:
            return super().weights_by_number(class_weight)
        if not isinstance(class_weight, Mapping):
            raise ValueError(
                "`class_weight` must be a dict from classes to numbers. Received: "
                f"class_weight={class_weight!r}."
            )
        names = self.label_names or []
        known = {name: k for k, name in enumerate(names)}
        weights = {known.get(key, key): value for key, value in class_weight.items()}
        count = self.num_classes or len(names)
        if not weights.keys() <= set(range(count)):
            raise ValueError(
                f"`class_weight` must have classes as keys: numbers below {count}, or "
                f"names among {names}. Received: class_weight={class_weight}."
            )
        for value in weights.values():
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise ValueError(
                    "`class_weight` must have finite numbers. Received: "
                    f"class_weight={class_weight}."
                )
        return weights

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "label_names": self.label_names,
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class TextClassifierPreprocessor(BothOrders, LabelledPreprocessor):
    """Makes rows of texts, or of pairs of texts, with their classes.

    With `multi_label` a text has a list of classes, of any length. Labels are then
    lists of names or numbers, each number once, or arrays `(batch, num_classes)` of
    zeros and ones.

    A pair that is too long loses tokens of its longer text. An empty text gives a row
    of special tokens.

    Args:
        tokenizer: a tokenizer layer, such as `keras_bertfam.tokenizers.BertTokenizer`
            or `RobertaTokenizer`.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `128`.
        num_classes: int or `None`. Labels are checked against it. A `TextClassifier`
            sets it if it is `None`.
        label_names: sequence of strings or `None`: the classes in order. With
            them, labels may be strings.
        layout: `"bert"` (`[CLS] A [SEP] B [SEP]`), `"roberta"` (two separators
            between), `"xlnet"` (`A <sep> B <sep> <cls>`), `"gpt"` (`_start_ A
            _delimiter_ B _classify_`, new tokens, whose ids follow the tokenizer's),
            `"t5"` (`A </s> B </s>`), `"bare"` (`A B`), or `None` for the tokenizer's
            own, which its start token or class tells; `"gpt"` for GPT's and GPT-2's
            tokenizers.
        buckets: sequence of ints or `None`. Rows are padded to one of these lengths,
            the least into which the longest row of the batch fits, so that few shapes
            are compiled. `None` means 8, 12, 16, 24, 32, 48, 64, 96, 128 and further
            multiples of 64. `(sequence_length,)` pads all rows to the full length,
            which single examples always have.
        seed: int. Decides the order of training examples. Defaults to `0`.
        packed: bool. Whether examples share rows in training. It is exact: examples
            don't attend to each other, and loss and gradient are the same as with a row
            for each. `fit()` on arrays and lists, unless `shuffle=False`, and
            `dataset(..., training=True)` then make batches of one shape, whose rows of
            `sequence_length` tokens are some 99 % full. A batch has as many rows as
            hold `batch_size` examples on average; packing up to 4,096 examples from all
            the data estimates it. A row has at most `sequence_length // 6` examples.
            The cost of attention grows with the square of a row's length, so a
            `sequence_length` little above the longest example's trains fastest. Not for
            XLNet and decoders. Defaults to `False`.
        both_orders: bool. Whether a pair gets a row for each of its two orders. The
            rows' states are added before the head, as GPT compares sentences. A single
            text gets one row. Defaults to `False`.
        truncate: `"end"`, `"start"` or `"middle"`: the part that a text loses if it is
            too long. With `"middle"`, half of the tokens that stay are its first ones
            (head and tail, [Sun et al., 2019](https://arxiv.org/abs/1905.05583)).
            Defaults to `"end"`.
        multi_label: bool. Whether a text has any number of classes. Not with `packed`.
            Defaults to `False`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`; for pairs, a
            tuple of two of them, or a list of tuples of two strings. KerasHub takes a
            tuple that is the only argument for `(x, y)`: pass `None` as `y` then.
        y: int or string labels of shape `(batch,)`, or `None`; for `multi_label` see
            above.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, length)`, or with `both_orders`
        `(batch, orders, length)`, and `padding_mask`, bool of that shape; `y` int32
        `(batch,)`, with `multi_label` float32 `(batch, num_classes)`.

    Raises:
        ValueError: for inputs that aren't strings, labels that are neither integers nor
            strings or aren't classes (in a `tf.data.Dataset`, a
            `tf.errors.InvalidArgumentError`), or `num_classes` and `label_names` that
            contradict each other.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.TextClassifierPreprocessor(
        tokenizer, sequence_length=128, label_names=["negative", "positive"])
    texts, labels = ["what a film !", "dull ."], ["positive", "negative"]
    preprocessor(texts, labels)
    data = preprocessor.dataset((texts, labels), batch_size=32)
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    4.1 and appendix A.5.
    """

    def __init__(self, *args: Any, multi_label: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_multi_label(multi_label)

    def set_multi_label(self, multi_label: bool) -> None:
        """Set whether texts have any number of classes.

        Raises:
            ValueError: if `packed` is true.
        """
        if multi_label and self.packed:
            raise ValueError(
                "`packed` must be `False` with multi_label=True. Received: packed=True."
            )
        self.multi_label = multi_label
        self.one_class_each = not multi_label

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        if not self.multi_label:
            return super().targets(x, y)
        return class_sets(y, self.num_classes, self.label_names)

    def as_labels(self, y: Any, x: Any) -> Any:
        if not self.multi_label:
            return super().as_labels(y, x)
        single = tf.nest.flatten(self.as_tensors(x))[0].shape.rank == self.single_rank
        y = as_label_lists([y] if single else y, self.label_names)
        y = class_sets(y, self.num_classes, self.label_names)
        return y[0] if single else y

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        if not self.multi_label:
            return super().from_dataset(data)

        def with_set(x, y, *weight):
            sets = class_sets(y[None], self.num_classes, self.label_names)
            return x, sets[0], *weight

        return data.map(with_set)

    def get_config(self) -> Config:
        return {**super().get_config(), "multi_label": self.multi_label}


@keras.saving.register_keras_serializable("keras_bertfam")
class TextRegressorPreprocessor(BothOrders, PackedPreprocessor):
    """Makes rows of texts, or of pairs of texts, with a number each.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Defaults to `128`.
        **kwargs: `layout`, `buckets`, `seed`, `truncate`, `packed` and `both_orders` of
            `TextClassifierPreprocessor`.

    Call arguments:
        x: as for `TextClassifierPreprocessor`.
        y: numbers of shape `(batch,)`, or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        As `TextClassifierPreprocessor`, with float32 `y`.

    Raises:
        ValueError: for labels that aren't numbers, or not finite (in a graph a
            `tf.errors.InvalidArgumentError`).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.TextRegressorPreprocessor(tokenizer)
    preprocessor((["A cat sits."], ["A cat is sitting."]), [4.8])
    ```
    """

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        return finite_numbers(one_each(y))

    def as_labels(self, y: Any, x: Any) -> Any:
        return self.targets(None, as_label_tensor(y))


def names_of_labels(model: Model) -> list[str]:
    """Give the names of a task's classes, or their numbers if they have none."""
    return model.label_names or [str(k) for k in range(model.num_classes)]


def _label_outputs(model):
    """Make a function from a task's outputs to probabilities, numbers and names."""
    names = tf.constant(names_of_labels(model))

    def name_outputs(outputs):
        probabilities = model.probabilities(outputs)
        if not model.multi_label:
            ids = tf.argmax(outputs, -1, output_type=tf.int32)
            labels = tf.gather(names, ids)
        else:
            chosen = probabilities >= 0.5
            ids = tf.where(chosen, tf.range(model.num_classes), -1)
            labels = tf.where(chosen, names, "")
        return {"probabilities": probabilities, "label_ids": ids, "labels": labels}

    return name_outputs


def class_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `TextClassifier`'s SavedModel."""
    return text_signatures(model, preprocessor, _label_outputs(model), options)


def number_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `TextRegressor`'s SavedModel."""
    return text_signatures(
        model, preprocessor, lambda outputs: {"scores": outputs}, options
    )
