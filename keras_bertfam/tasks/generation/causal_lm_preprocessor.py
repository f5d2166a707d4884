"""Raw text to rows whose targets are the next tokens."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.pairs.text_to_text import (
    check_prompts,
    lay_out_prompts,
    to_text,
)
from keras_bertfam.layers.data.streams.document_stream import StreamRows
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import text_start_id, tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class CausalLMPreprocessor(PackingPreprocessor):
    """Makes rows of text and their next tokens, for `CausalLM`, and encodes prompts.

    By default documents are one stream, each followed by the end token, and cut into
    full rows. With `packing="best_fit"` each document is a text of its own, between
    start and end token, cut where it is longer than a row, and rows hold as many as
    fit. Called on strings, the preprocessor makes a row of each.

    Args:
        tokenizer: a tokenizer layer, such as `GPT2Tokenizer`.
        sequence_length: int. Tokens in a row. Defaults to `128`.
        sequence_ids: bool. Whether rows tell their documents apart, so that attention
            doesn't leak between them and no document is predicted by another;
            `packing="best_fit"` always does. Defaults to `False`.
        seed: int. Decides every order. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`, and
        `padding_mask`, bool, and with packed texts or `sequence_ids` of `sequence_ids`,
        int32; the next tokens, int32 `(batch, length)`; and float32 weights, 1 for a
        target and 0 for none.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    preprocessor = keras_bertfam.tasks.CausalLMPreprocessor(
        tokenizer, sequence_length=64)
    batches = preprocessor.dataset(documents, batch_size=8)
    ```

    References:
        [Radford et al., 2018](
        https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        sequence_ids: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.sequence_ids = sequence_ids
        # In eager mode KerasHub's tokenizers return Python lists.
        self._prompts_in_graph = self.in_graph(self._prompts)
        self.build_if_ready()

    def make_rows(self) -> StreamRows:
        # A row has one token more than the model gets: the last is only a target.
        return StreamRows(
            self.tokenizer,
            self.sequence_length + 1,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            sequence_ids=self.sequence_ids,
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        inside = rows["padding_mask"][..., 1:]
        if "sequence_ids" in rows:
            of = rows["sequence_ids"]
            inside &= of[..., 1:] == of[..., :-1]
        x = {name: value[..., :-1] for name, value in rows.items()}
        return x, rows["token_ids"][..., 1:], tf.cast(inside, tf.float32)

    @checked
    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, TFTensor]:
        """Encode prompts, with padding where text is to be written. In a graph too.

        A prompt begins with the start token, unless that is the end token as well, as
        GPT-2's: then only an empty prompt does, since there is nothing else to go on
        from.

        Args:
            x: string, list of strings or string tensor of shape `(batch,)`.
            sequence_length: int or `None`. The length of the rows. Defaults to that of
                the preprocessor.

        Returns:
            A dict of `token_ids`, int32 `(batch, sequence_length)`, and
            `padding_mask`, bool of that shape; without the batch axis for a string.

        Raises:
            ValueError: for what isn't strings, or a prompt that leaves no room; in a
                graph the latter is a `tf.errors.InvalidArgumentError`.
        """
        with tf.device("CPU:0"):
            texts = as_strings(x)
            length = sequence_length or self.sequence_length
            flat = to_utf8(tf.reshape(texts, [-1]))
            out, longest = self._prompts_in_graph(flat, length)
            out = check_prompts(out, longest, length)
            return {k: v[0] for k, v in out.items()} if texts.shape.rank == 0 else out

    def _prompts(self, texts, length):
        tokens = tokenize(self.tokenizer, texts)
        start = text_start_id(self.tokenizer)
        if start is None and self.tokenizer.start_token_id is not None:
            empty = tokens.row_lengths() == 0
            count = tf.reduce_sum(tf.cast(empty, tf.int32))
            first = tf.fill([count], self.tokenizer.start_token_id)
            tokens = ragged.fill_rows(tokens, empty, first)
        specials = [] if start is None else [start]
        pad = self.tokenizer.pad_token_id
        ids, inside, longest = lay_out_prompts(tokens, specials, length, pad)
        return {"token_ids": ids, "padding_mask": inside}, longest

    def generate_postprocess(self, x: dict[str, Any]) -> Any:
        """Decode rows, without padding and special tokens. In a graph too.

        Args:
            x: dict of `token_ids`, ints `(batch, length)`, and `padding_mask`.

        Returns:
            A list of strings, or in a graph a string tensor of shape `(batch,)`.
        """
        with tf.device("CPU:0"):
            return to_text(self.tokenizer, x["token_ids"], x["padding_mask"])

    def get_config(self) -> Config:
        return {**super().get_config(), "sequence_ids": self.sequence_ids}
