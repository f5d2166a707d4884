"""Turn raw text, or prompts and answers, into rows with the next tokens as targets."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.pairs.pair_batches import pair_batches
from keras_bertfam.layers.data.pairs.text_to_text import (
    as_example,
    as_pairs,
    check_prompts,
    lay_out_prompts,
    to_text,
)
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.rows.rows import BatchOptions
from keras_bertfam.layers.data.streams.document_stream import StreamRows
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import text_start_id, tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, TFRagged, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class CausalLMPreprocessor(PackingPreprocessor):
    """Makes rows of text and their next tokens, for `CausalLM`, and encodes prompts.

    With `packing="stream"` documents form one stream, each followed by the end token,
    and the stream is cut into full rows. With `packing="best_fit"` each document is a
    sequence of its own between start and end token; it is cut if it is longer than a
    row, and rows hold as many sequences as fit. The default is `"stream"` for
    tokenizers without a start token of their own, such as GPT-2's and T5's, and
    `"best_fit"` for others, so that texts and prompts begin alike. Called on strings,
    the preprocessor makes one row for each.

    `dataset` also takes prompts with answers in place of documents: the result of
    `datasets.mixture`, or a tuple of two lists. A row has one pair, of which only the
    answer's tokens and the end token are predicted. A space is put between prompt and
    answer, unless the prompt ends with white space. If a pair is too long, the prompt
    loses its beginning, and then the answer its end.

    Args:
        tokenizer: a tokenizer layer, such as `GPT2Tokenizer`.
        sequence_length: int. Tokens in a row. Defaults to `128`.
        sequence_ids: bool. Whether rows have `sequence_ids`, so that tokens attend only
            to their own document and no document is predicted from another. Rows of
            `packing="best_fit"` always have them. Defaults to `False`.
        seed: int. Decides every order. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`: texts; with
            `y`, prompts.
        y: answers to the prompts, as `x`, or `None`.
        sample_weight: with `y` numbers, one for each pair, or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`, and
        `padding_mask`, bool, and for packed texts or `sequence_ids=True` also
        `sequence_ids`, int32; the next tokens, int32 `(batch, length)`; and float32
        weights, 1 for a target and 0 for none.

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
        self._answered_in_graph = self.in_graph(self._answered)
        self.build_if_ready()

    def make_rows(self) -> StreamRows:
        # A row has one token more than the model gets: the last is only a target.
        return StreamRows(
            self.tokenizer,
            self.sequence_length + 1,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            sequence_ids=self.sequence_ids,
            packing="best_fit" if self.prompt_start_ids else "stream",
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

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None
    ) -> Any:
        if y is None:
            return super().call(x, y, sample_weight, seed)
        with tf.device("CPU:0"):
            pairs = as_pairs(x, y, sample_weight)
            single = pairs["encoder_text"].shape.rank == 0
            if single:
                pairs = {name: value[None] for name, value in pairs.items()}
            rows = self._answered_in_graph(pairs)
            if single:
                rows = {name: value[0] for name, value in rows.items()}
        return as_example(rows)

    def _of_pairs(self, pairs, options):
        plain = {"batch_size", "training", "shuffle_buffer"}
        for field in dataclasses.fields(BatchOptions):
            value = getattr(options, field.name)
            if field.name not in plain and value != field.default:
                raise ValueError(
                    f"`{field.name}` must be left out for prompts with answers: each "
                    f"row has one pair. Received: {field.name}={value!r}."
                )
        if options.training:  # an earlier corpus may have set others
            self.position.batches = None
        chosen = {name: getattr(options, name) for name in plain}
        return pair_batches(self, pairs, self._answered, **chosen)

    @property
    def prompt_start_ids(self) -> list[int]:
        """list of ints: the ids before a prompt, one or none."""
        start = text_start_id(self.tokenizer)
        return [] if start is None else [start]

    @property
    def _pad(self):
        return self.tokenizer.pad_token_id

    def _answered(self, pairs):
        """Lay out prompts with answers; the answers' tokens are the targets."""
        length = self.sequence_length + 1
        prompts, answers = (
            to_utf8(pairs[f"{side}_text"]) for side in ("encoder", "decoder")
        )
        apart = (answers != "") & ~tf.strings.regex_full_match(prompts, r"(?s).*\s")
        answers = tf.strings.join([tf.where(apart, " ", ""), answers])
        answers = tokenize(self.tokenizer, answers)
        end = self.tokenizer.end_token_id
        specials = [] if end is None else [end]
        room = length - 1 - len(specials)
        count_cut(answers.row_lengths() > room, "answers")
        answers = ragged.head(answers, room)
        ends = tf.tile(tf.constant([specials], tf.int32), [answers.nrows(), 1])
        answers = ragged.concat([answers, ends])
        prompts = self._begun(prompts, length - answers.row_lengths())
        ids = ragged.concat([prompts, answers])
        rows = {
            "token_ids": ids.to_tensor(self._pad, shape=[None, length]),
            "padding_mask": tf.sequence_mask(ids.row_lengths(), length),
        }
        x, y, weight = self.example(rows, {})
        asked = tf.sequence_mask(prompts.row_lengths() - 1, self.sequence_length)
        weight *= tf.cast(~asked, tf.float32)
        if "sample_weight" in pairs:
            weight *= pairs["sample_weight"][:, None]
        return {**x, "target_ids": y, "target_weights": weight}

    @checked
    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, TFTensor]:
        """Encode prompts, with padding as room for text. Works in a graph.

        A prompt begins with the start token. If start and end token are the same, as
        for GPT-2, only an empty prompt gets it, since it has no other token to start
        from.

        Args:
            x: string, list of strings or string tensor of shape `(batch,)`.
            sequence_length: int or `None`. The length of the rows. Defaults to that of
                the preprocessor.

        Returns:
            A dict of `token_ids`, int32 `(batch, sequence_length)`, and
            `padding_mask`, bool of that shape; without the batch axis for a string.

        Raises:
            ValueError: for inputs that aren't strings, or a prompt that leaves no room.
                In a graph the latter is a `tf.errors.InvalidArgumentError`.
        """
        with tf.device("CPU:0"):
            texts = as_strings(x)
            length = sequence_length or self.sequence_length
            flat = to_utf8(tf.reshape(texts, [-1]))
            out, longest = self._prompts_in_graph(flat, length)
            out = check_prompts(out, longest, length)
            return {k: v[0] for k, v in out.items()} if texts.shape.rank == 0 else out

    def _prompts(self, texts, length):
        tokens = self._begun(texts)
        ids, inside, longest = lay_out_prompts(tokens, [], length, self._pad)
        return {"token_ids": ids, "padding_mask": inside}, longest

    def _begun(self, texts: TFTensor, room: TFTensor | None = None) -> TFRagged:
        """Tokenise prompts, and put the start token before those that get one.

        Args:
            texts: string tensor `(batch,)`.
            room: int64 tensor `(batch,)`, the most tokens of each; longer prompts lose
                their beginning. `None` for any number.
        """
        tokens = tokenize(self.tokenizer, texts)
        specials = self.prompt_start_ids
        if room is not None:
            lengths = tokens.row_lengths()
            room -= len(specials)
            count_cut(lengths > room, "prompts")
            over = tf.repeat(tf.maximum(lengths - room, 0), lengths)
            place = tf.range(tf.size(over, tf.int64)) - tf.repeat(
                tokens.row_starts(), lengths
            )
            tokens = ragged.keep_in_rows(tokens, place >= over)
        if not specials and self.tokenizer.start_token_id is not None:
            empty = tokens.row_lengths() == 0
            count = tf.reduce_sum(tf.cast(empty, tf.int32))
            first = tf.fill([count], self.tokenizer.start_token_id)
            tokens = ragged.fill_rows(tokens, empty, first)
        special = tf.tile(tf.constant([specials], tf.int32), [tokens.nrows(), 1])
        return ragged.concat([special, tokens])

    def generate_postprocess(self, x: dict[str, Any]) -> Any:
        """Decode rows, without padding and special tokens. Works in a graph.

        Args:
            x: dict of `token_ids`, ints `(batch, length)`, and `padding_mask`.

        Returns:
            A list of strings, or in a graph a string tensor of shape `(batch,)`.
        """
        with tf.device("CPU:0"):
            return to_text(self.tokenizer, x["token_ids"], x["padding_mask"])

    def get_config(self) -> Config:
        return {**super().get_config(), "sequence_ids": self.sequence_ids}
