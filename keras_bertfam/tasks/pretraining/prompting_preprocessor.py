"""What a text is to be written for, and what was written."""

from typing import Any

import tensorflow as tf

from keras_bertfam.layers.data.pairs.text_to_text import (
    PairLayout,
    check_prompts,
    lay_out_prompts,
    to_text,
)
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tokenizers.pipeline_ops import tokenize_with_masks
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Mixin, TFTensor


class PromptingPreprocessor(Mixin):
    """Mixin of preprocessors of text to text, with a `tokenizer`: both ends of writing.

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

    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, TFTensor]:
        """Encode what a text is to be written for. Works in a graph.

        Args:
            x: the inputs, a string, list of strings or string tensor of shape
                `(batch,)`; or a dict of `encoder_text`, the same, and `decoder_text`,
                what the texts to be written begin with. Mask tokens and sentinels in
                them are single tokens.
            sequence_length: int or `None`. The length of the decoder's rows. Defaults
                to that of the targets.

        Returns:
            A dict of `encoder_token_ids` and `encoder_padding_mask`, `(batch,
            sequence_length)`, and `decoder_token_ids` and `decoder_padding_mask` of the
            decoder's length: int32 and bool; without the batch axis for a string.

        Raises:
            ValueError: for what isn't strings, or a beginning that leaves no room; in
                a graph the latter is a `tf.errors.InvalidArgumentError`.
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
