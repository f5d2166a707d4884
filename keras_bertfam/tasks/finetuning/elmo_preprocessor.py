"""Make rows of words and their characters from raw text, for ELMo's fine-tuning."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
)
from keras_bertfam.tasks.finetuning.token_classifier_preprocessor import (
    TokenClassifierPreprocessor,
)
from keras_bertfam.tokenizers.elmo import ElmoTokenizer
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Mixin, TFRagged, TFTensor

_WORDS = "words"  # placeholders in rows, until the characters are known


class _Characters(Mixin):
    """Mixin of preprocessors whose rows have `character_ids` and take every word."""

    tokenizer: Any

    def __init__(self, tokenizer: ElmoTokenizer, *args: Any, **kwargs: Any) -> None:
        if not isinstance(tokenizer, ElmoTokenizer):
            raise ValueError(
                "`tokenizer` must be an `ElmoTokenizer`. "
                f"Received: {type(tokenizer).__name__}."
            )
        super().__init__(tokenizer, *args, **kwargs)

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Split a batch of strings into words, a ragged tensor. Works in a graph."""
        return self.tokenizer.split_words(to_utf8(texts))

    def lay_out(self, segments: list[TFRagged]) -> dict[str, TFRagged]:
        """Put segments of words between `<S>` and `</S>`."""
        rows = segments[0].nrows()
        start, end = (
            tf.fill([rows, 1], token)
            for token in (self.tokenizer.start_token, self.tokenizer.end_token)
        )
        words = tf.concat([start, *(x for each in segments for x in (each, end))], 1)
        return {"token_ids": self.tokenizer.ids(words), _WORDS: words}

    def pad(
        self, example: tuple[Any, Any, Any], buckets: list[int] | None = None
    ) -> tuple[Any, Any, Any]:
        x, y, weights = example
        words = x[_WORDS]
        rest = {name: value for name, value in x.items() if name != _WORDS}
        x, y, weights = super().pad((rest, y, weights), buckets)
        width = tf.shape(x["token_ids"], tf.int64)[1]
        words = words.to_tensor("", shape=tf.stack([-1, width]))
        characters = self.tokenizer.characters(words)
        static = [*x["token_ids"].shape, self.tokenizer.max_characters]
        x["character_ids"] = tf.ensure_shape(characters, static)
        return x, y, weights


@keras.saving.register_keras_serializable("keras_bertfam")
class ElmoTextClassifierPreprocessor(_Characters, TextClassifierPreprocessor):
    """`TextClassifierPreprocessor` for `ElmoBackbone`: `<S> A </S>`, or with `B </S>`.

    Args:
        tokenizer: `keras_bertfam.tokenizers.ElmoTokenizer`.
        *args, **kwargs: other arguments of `TextClassifierPreprocessor`, except
            `packed` and `both_orders`.

    Takes and returns the same as `TextClassifierPreprocessor`, except that `x` has
    `character_ids`, int32 `(batch, length, max_characters)`, and no `segment_ids`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.ElmoTokenizer()
    preprocessor = keras_bertfam.tasks.ElmoTextClassifierPreprocessor(tokenizer)
    preprocessor(["what a film !"])["character_ids"].shape  # (1, 8, 50)
    ```
    """


@keras.saving.register_keras_serializable("keras_bertfam")
class ElmoTokenClassifierPreprocessor(_Characters, TokenClassifierPreprocessor):
    """`TokenClassifierPreprocessor` for `ElmoBackbone`: one state for each word.

    Args:
        tokenizer: `keras_bertfam.tokenizers.ElmoTokenizer`.
        *args, **kwargs: other arguments of `TokenClassifierPreprocessor`, except
            `packed`.

    Takes and returns the same as `TokenClassifierPreprocessor`, except that `x` has
    `character_ids`, int32 `(batch, length, max_characters)`, and no `segment_ids`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.ElmoTokenizer()
    preprocessor = keras_bertfam.tasks.ElmoTokenClassifierPreprocessor(tokenizer)
    preprocessor([["Ada", "wrote"]])["character_ids"].shape  # (1, 8, 50)
    ```
    """

    def features(self, x: Any) -> dict[str, TFTensor]:
        given = ragged.keep_in_matrix(x, x != "")
        words = self._most(given)
        budget = self.sequence_length - self._layout.specials(1)
        row = self.lay_out([words[:, :budget]])
        places = tf.cast(tf.ragged.range(words.row_lengths()), tf.int32)
        inside = tf.less(places, budget)
        self.count_cut(given, inside)
        places = (places + 1) * tf.cast(inside, tf.int32)
        return {**row, "word_positions": places, "word_mask": inside}

    def _sizes(self, words):
        return tf.ones_like(tf.strings.length(words))
