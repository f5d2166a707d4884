"""Make rows of questions with choices, one of which is right."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import (
    check_labels,
    class_numbers,
    one_each,
)
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.user_inputs import (
    as_columns,
    as_label_tensor,
    as_strings,
)
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from keras_bertfam.types import Config, Model, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MultipleChoicePreprocessor(FineTuningPreprocessor):
    """Makes a row of tokens for each choice of a question.

    A row has the context, then the question with the choice. The choice replaces `_` in
    the question, as in RACE, or else follows the question. Question and choice keep
    their last `choice_length` tokens. If the row is still too long, the context loses
    its end.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `512`.
        num_choices: int or `None`. The number of choices that each question must have;
            `None` for any number.
        label_names: sequence of strings or `None`: names of the choices in labels, such
            as `"ABCD"`.
        choice_length: int or `None`. The most tokens of question and choice;
            `None` means 128, or half of a shorter row.
        **kwargs: `layout`, `buckets` and `seed` of `TextClassifierPreprocessor`.

    Call arguments:
        x: dict of `context`, strings `(batch,)`; `choices`, strings `(batch, choices)`;
            and optionally `question`, strings `(batch,)`. A single example has no batch
            axis. Or a tuple of context and choices.
        y: numbers or names of the right choices, `(batch,)`, or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, choices, length)`, and
        `padding_mask`, bool of that shape; `y` int32 `(batch,)`.

    Raises:
        ValueError: for more or fewer choices than `num_choices`, questions with unequal
            numbers of choices, unknown names in `x`, or labels that aren't choices.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MultipleChoicePreprocessor(tokenizer)
    preprocessor({
        "context": ["The cat sat on the mat."],
        "question": ["The _ sat."],
        "choices": [["dog", "cat", "mat", "hat"]],
    }, [1])
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.4;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), appendix A.3.
    """

    single_rank = 1  # of `choices`, the first of the names
    summary = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 512,
        num_choices: int | None = None,
        label_names: Sequence[str] | str | None = None,
        choice_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        budget = sequence_length - self._layout.specials(2)
        if choice_length is not None and not 1 <= choice_length <= budget:
            raise ValueError(
                f"`choice_length` must be from 1 to {budget}, the room that special "
                f"tokens leave in a row. Received: {choice_length}."
            )
        self.num_choices, self.label_names = check_labels(num_choices, label_names)
        self.choice_length = choice_length

    def as_tensors(self, x: Any) -> Any:
        x = as_columns(x)
        if isinstance(x, tuple) and len(x) == 2:
            # The choices now contain the question.
            x = dict(zip(("context", "choices"), x, strict=True))
        names = {"context", "choices"}
        if not isinstance(x, dict) or not names <= x.keys() <= names | {"question"}:
            received = sorted(x) if isinstance(x, dict) else type(x).__name__
            raise ValueError(
                "`x` must be a dict of `context`, `choices` and optionally "
                f"`question`. Received: {received}."
            )
        choices = as_strings(x["choices"], rank=2, name="choices")
        number = choices.shape[-1]
        if self.num_choices not in (None, number):
            raise ValueError(
                f"`choices` must have num_choices={self.num_choices} for each "
                f"question. Received: {number}."
            )
        rest = {name: as_strings(x[name], name=name) for name in x if name != "choices"}
        return {"choices": choices, **rest}

    def as_labels(self, y: Any, x: Any) -> Any:
        y = one_each(as_label_tensor(y))
        if tf.executing_eagerly():
            class_numbers(y, self._choices(self.as_tensors(x)), self.label_names)
        return y

    def _choices(self, x):
        return x["choices"].shape[-1]

    def features(self, x: Any) -> dict[str, TFTensor]:
        choices = x["choices"]
        rows, number = tf.unstack(tf.shape(choices))
        second = choices
        if "question" in x:
            second = _join(x["question"], choices)
        budget = self.sequence_length - self._layout.specials(2)
        length = self.choice_length or max(1, min(128, budget // 2))
        second = self.tokenize(tf.reshape(second, [-1]))
        long = second.row_lengths() > length
        second = second[:, -length:]
        first = self.tokenize(x["context"])
        first = tf.gather(first, tf.repeat(tf.range(rows), number))
        room = budget - tf.cast(second.row_lengths(), tf.int32)
        over = long | (tf.cast(first.row_lengths(), tf.int32) > room)
        count_cut(over, "choices with their contexts")
        first = ragged.head(first, room)
        size = choices.shape[1] or tf.cast(number, tf.int64)
        return {
            name: ragged.groups(value, size)
            for name, value in self.lay_out([first, second]).items()
        }

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        return class_numbers(one_each(y), x["token_ids"].shape[1], self.label_names)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_choices": self.num_choices,
            "label_names": self.label_names,
            "choice_length": self.choice_length,
        }


def _join(question, choices):
    """Put the choice in place of the question's `_`, or else after the question."""
    question = tf.broadcast_to(question[:, None], tf.shape(choices))
    gap = tf.strings.regex_replace(question, "_+", "_", replace_global=False)
    before = tf.strings.regex_replace(gap, r"(?s)_.*", "")
    after = tf.strings.regex_replace(gap, r"(?s)^[^_]*_?", "")
    has_gap = tf.strings.regex_full_match(gap, r"(?s).*_.*")
    filled = tf.strings.join([before, choices, after])
    joined = tf.strings.strip(tf.strings.join([question, choices], " "))
    return tf.where(has_gap, filled, joined)


def choice_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `MultipleChoice`'s SavedModel."""

    def choose(context, question, choices):
        x = {"context": context, "question": question, "choices": choices}
        return name_choices(model(preprocessor.encode(x), training=False))

    def name_choices(logits, mask=None):
        return {
            "probabilities": tf.nn.softmax(logits),
            "choice": tf.argmax(logits, -1, output_type=tf.int32),
        }

    count = preprocessor.num_choices or 2
    inputs = {
        "context": strings("context"),
        "question": strings("question"),
        "choices": strings("choices", 2),
    }
    example = {
        "context": ["A text to start with."],
        "question": ["Which one?"],
        "choices": [["This one."] * count],
    }
    rows = preprocessor({k: tf.constant(v) for k, v in example.items()})
    return {
        "serving_default": Signature(choose, inputs, example),
        **row_signatures(model, preprocessor, rows, name_choices, **options),
    }
