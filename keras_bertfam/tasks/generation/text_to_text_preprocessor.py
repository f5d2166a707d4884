"""Turn pairs of texts into rows for `TextToText`, and encode inputs of `generate`."""

from typing import Any

import keras
import keras_hub
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.base import AdjustableLength
from keras_bertfam.layers.data.pairs.pair_batches import pair_batches
from keras_bertfam.layers.data.pairs.text_to_text import (
    PairLayout,
    as_example,
    as_pairs,
    check_prompts,
    lay_out_prompts,
    to_text,
)
from keras_bertfam.layers.data.pipelines import PARALLEL, check_at_least
from keras_bertfam.layers.data.seeding import StreamPosition, shuffle
from keras_bertfam.layers.data.user_inputs import as_rows, as_strings
from keras_bertfam.presets.tokenizer_presets import PresetPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import (
    as_graph_layer,
    decoder_start_id,
    text_start_id,
    tokenize,
    tokenize_with_masks,
)
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, Mixin, TFDataset, TFTensor, Tokenizer


class PromptingPreprocessor(Mixin):
    """Mixin of preprocessors for `TextToText`: encode texts to write from, and decode.

    Args:
        **kwargs: arguments of the other base classes.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # In eager mode KerasHub's tokenizers return Python lists.
        self._prompts_in_graph = self.in_graph(self._prompts)

    @property
    def layout(self) -> PairLayout:
        """`PairLayout`: of the rows."""
        raise TypeError(f"{type(self).__name__} must define `layout`.")

    @checked
    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, TFTensor]:
        """Encode the texts from which texts are written. Works in a graph.

        Args:
            x: the inputs, a string, list of strings or string tensor of shape
                `(batch,)`; or a dict of `encoder_text`, the same, and `decoder_text`,
                the beginnings of the texts to be written. Mask tokens and sentinels in
                them stay single tokens.
            sequence_length: int or `None`. The length of the decoder's rows. Defaults
                to the targets' length.

        Returns:
            A dict of `encoder_token_ids` and `encoder_padding_mask`, `(batch,
            sequence_length)`, and `decoder_token_ids` and `decoder_padding_mask` of the
            decoder's length: int32 and bool; without the batch axis for a string.

        Raises:
            ValueError: for inputs that aren't strings, or a beginning that leaves no
                room. In a graph the latter is a `tf.errors.InvalidArgumentError`.
        """
        with tf.device("CPU:0"):
            given = x if isinstance(x, dict) else {"encoder_text": x}
            inputs = as_strings(given["encoder_text"], name="encoder_text")
            begun = given.get("decoder_text")
            begun = tf.fill(tf.shape(inputs), "") if begun is None else begun
            begun = as_strings(begun, name="decoder_text")
            length = sequence_length or self.layout.target_length
            texts = (tf.reshape(part, [-1]) for part in (inputs, begun))
            out, longest = self._prompts_in_graph(*texts, length)
            out = check_prompts(out, longest, length)
            return {k: v[0] for k, v in out.items()} if inputs.shape.rank == 0 else out

    def _prompts(self, inputs, begun, length):
        layout = self.layout
        inputs, begun = (
            tokenize_with_masks(self.tokenizer, to_utf8(texts))
            for texts in (inputs, begun)
        )
        rows = layout.rows(*layout.cut(inputs, begun[:, :0]))
        first = (layout.decoder_start_token_id, layout.start_token_id)
        first = [token for token in first if token is not None]
        pad = layout.pad_token_id
        ids, inside, longest = lay_out_prompts(begun, first, length, pad)
        return {
            "encoder_token_ids": rows["encoder_token_ids"],
            "encoder_padding_mask": rows["encoder_padding_mask"],
            "decoder_token_ids": ids,
            "decoder_padding_mask": inside,
        }, longest

    def generate_postprocess(self, x: dict[str, Any]) -> Any:
        """Decode rows, without padding and special tokens. Works in a graph.

        Args:
            x: dict of `decoder_token_ids`, ints `(batch, length)`, and
                `decoder_padding_mask`.

        Returns:
            A list of strings, or in a graph a string tensor of shape `(batch,)`.
        """
        with tf.device("CPU:0"):
            return to_text(
                self.tokenizer, x["decoder_token_ids"], x["decoder_padding_mask"]
            )


_NAMES = ("encoder_text", "decoder_text")
_TEXTS_AT_ONCE = 2048
_SHUFFLED_ROWS = 1024


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TextToTextPreprocessor(
    AdjustableLength,
    PromptingPreprocessor,
    PresetPreprocessor,
    keras_hub.models.Preprocessor,
):
    """Makes rows for `TextToText` from pairs of texts: inputs and targets.

    Translations, summaries, answers and labels in words are all such pairs. Texts
    longer than a row are cut. The preprocessor also encodes inputs for `generate()`.

    Args:
        tokenizer: a tokenizer layer, such as `keras_bertfam.tokenizers.T5Tokenizer` or
            `keras_bertfam.tokenizers.BartTokenizer`.
        sequence_length: int. Tokens of the inputs, special ones included. Defaults
            to `128`.
        target_length: int or `None`. Tokens of the targets, special ones included.
            Defaults to `sequence_length`.
        packed: bool. Whether `dataset(..., training=True)`, and so `fit()`, packs as
            many pairs into a row as fit. `encoder_sequence_ids` and
            `decoder_sequence_ids` keep them apart. Defaults to `False`.
        decoder_start_token_id: int or `None`. The first token of the decoder's inputs.
            Defaults to the end token, as in BART, or to padding if texts have no start
            token, as in T5.
        seed: int. Decides every order. Defaults to `0`.

    Call arguments:
        x: the inputs, a string, list of strings or string tensor of shape `(batch,)`;
            or inputs and targets, as a tuple of both or a dict of `encoder_text` and
            `decoder_text`.
        y: the targets, in the same form as the inputs, unless they are in `x`.
        sample_weight: numbers, one for each pair, or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `encoder_token_ids`, int32 `(batch,
        sequence_length)`, `decoder_token_ids`, int32 `(batch, target_length)`, and
        `encoder_padding_mask` and `decoder_padding_mask`, bool; the targets, int32
        `(batch, target_length)`; and float32 weights of that shape.

    Raises:
        ValueError: for an argument out of its range, or data that isn't pairs of
            strings.

    Example:

    ```python
    english = ["a cat", "two dogs"]
    german = ["eine Katze", "zwei Hunde"]
    documents = tf.data.Dataset.from_tensor_slices(english + german)
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 40, family="t5")
    preprocessor = keras_bertfam.tasks.TextToTextPreprocessor(
        tokenizer, sequence_length=32)
    x, y, sample_weight = preprocessor(english, german)
    batches = preprocessor.dataset((english, german), batch_size=2)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.4.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        target_length: int | None = None,
        packed: bool = False,
        decoder_start_token_id: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_at_least(3, sequence_length=sequence_length, target_length=target_length)
        self.tokenizer = as_graph_layer(tokenizer)
        self.sequence_length = sequence_length
        self._target_length = target_length
        self.packed = packed
        self.decoder_start_token_id = decoder_start_token_id
        self.seed = seed
        self.position = StreamPosition()
        # In eager mode KerasHub's tokenizers return Python lists.
        self._rows_in_graph = self.in_graph(self._rows)
        self.built = True

    @property
    def layout(self) -> PairLayout:
        """`PairLayout`: of the rows."""
        tokenizer, start = self.tokenizer, self.decoder_start_token_id
        return PairLayout(
            self.sequence_length,
            self.target_length,
            text_start_id(tokenizer),
            tokenizer.end_token_id,
            decoder_start_id(tokenizer) if start is None else start,
            tokenizer.pad_token_id,
        )

    @property
    def target_length(self) -> int:
        """int: the most tokens of a target, special ones included."""
        return self._target_length or self.sequence_length

    def _tokenize(self, texts):
        return tokenize(self.tokenizer, to_utf8(texts))

    def _rows(self, example, padded=True):
        texts = (self._tokenize(example[name]) for name in _NAMES)
        return self.layout.rows(
            *self.layout.cut(*texts),
            sample_weight=example.get("sample_weight"),
            padded=padded,
        )

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        with tf.device("CPU:0"):
            example = as_pairs(x, y, sample_weight)
            single = example["encoder_text"].shape.rank == 0
            if single:
                example = {name: value[None] for name, value in example.items()}
            rows = self._rows_in_graph(example)
            if single:
                rows = {name: value[0] for name, value in rows.items()}
        return as_example(rows)

    @checked
    @as_written
    def dataset(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        training: bool = True,
        shuffle_buffer: int = 10_000,
    ) -> TFDataset:
        """Make batches of rows of one shape, ready for `fit`.

        The order depends only on `seed` and the epoch. Each iteration is a new epoch,
        from `position` on. The last batch of an epoch is filled up with rows of weight
        0, so that all batches have the same size.

        Args:
            data: `tf.data.Dataset` of unbatched `(inputs, targets)`, of these with
                `sample_weight`, or of dicts of `encoder_text` and `decoder_text`; or
                such a tuple or dict of lists or arrays; or the result of
                `datasets.mixture`, whose pairs are drawn anew for each epoch.
            batch_size: int or `None`. Rows in a batch. Defaults to 32, as Keras's
                `fit` does.
            training: bool. `False` keeps the order of the data, puts one pair into a
                row, and doesn't fill up the last batch.
            shuffle_buffer: int. How many pairs are held in memory to shuffle among; `0`
                doesn't shuffle. Defaults to `10_000`.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`.

        Raises:
            ValueError: for an argument out of its range, or data that isn't pairs of
                texts.
        """
        packs = training and self.packed
        return pair_batches(
            self,
            data,
            self._rows,
            batch_size,
            training,
            shuffle_buffer,
            self._packed if packs else None,
        )

    def from_arrays(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> TFDataset:
        """Make an unbatched dataset of arrays or lists, for `dataset`.

        Args:
            x: what the call takes, a batch.
            y: see the call.
            sample_weight: weights or `None`.

        Returns:
            A `tf.data.Dataset` of dicts.

        Raises:
            ValueError: for data that isn't pairs of strings, or a single pair.
        """
        return as_rows(as_pairs(x, y, sample_weight))

    def _packed(self, pairs, size, seed):
        """Pack several pairs into a row, in random order."""
        rows = pairs.batch(_TEXTS_AT_ONCE).map(
            lambda example: self.layout.packed_rows(self._rows(example, padded=False)),
            **PARALLEL,
        )
        return shuffle(rows.unbatch(), _SHUFFLED_ROWS, seed).batch(size)

    def get_config(self) -> Config:
        names = "sequence_length packed decoder_start_token_id seed"
        own = {name: getattr(self, name) for name in names.split()}
        return {**super().get_config(), "target_length": self._target_length, **own}
