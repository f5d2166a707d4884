"""Turn questions into rows with passages that may hold the answer."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pairs.questions import (
    as_answers,
    as_ragged,
    check_answers,
    make_windows,
    span_targets,
)
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.rows.batches import Batcher, fill_up, pad_rows
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from keras_bertfam.tasks.retrieval.passages_preprocessor import (
    PassagesPreprocessor,
    refuse_over,
)
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, TFDataset, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class OpenQuestionAnsweringPreprocessor(PassagesPreprocessor, FineTuningPreprocessor):
    """Finds passages for questions, and the places of answers in them.

    A row is `[start] question [end] passage [end]`, or the layout of the tokenizer's
    family for two texts. The passage, without its title, is cut to the room that the
    question leaves; a question that leaves no room is an error. Every span of whole
    words that equals one of the answers, in upper or lower case, is a target.

    Args:
        tokenizer: the reader's tokenizer: a `keras_bertfam.tokenizers.BertTokenizer`,
            or a byte-pair or SentencePiece tokenizer.
        sequence_length: int. Tokens of a row, special ones included. Defaults to
            `320`.
        num_passages: int. Passages for each question. A retriever learns from two or
            more: one passage alone has the probability 1. Defaults to `5`.
        max_answer_length: int. The most tokens of an answer. Defaults to `10`.
        passage_rows: bool. Whether the inputs have the retriever's rows of passages
            instead of the passages' vectors from the index. A task that trains the
            tower of passages needs them. Defaults to `False`.
        layout: see `TextClassifierPreprocessor`.
        seed: int. Decides every order. Defaults to `0`.

    Attributes:
        search: `keras_bertfam.tasks.PassageSearch`, to be set before texts are read; no
            part of what is saved.

    Call arguments:
        x: the questions, a string, list of strings or string tensor `(batch,)`.
        y: the answers, a string or a list of strings for each question, or dicts as in
            SQuAD with a list `text`; or `None`.
        sample_weight: float tensor `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`. `x` is a dict of `token_ids` and
        `segment_ids`, int32 `(batch, num_passages, sequence_length)`, `padding_mask`
        and `span_mask`, the tokens of the passage, bool of that shape;
        `query_token_ids`, `query_segment_ids` and `query_padding_mask`, `(batch,
        query_length)`, for the question encoder; `passage_ids`, int32 `(batch,
        num_passages)`; and `passage_vectors`, float32 `(batch, num_passages, dim)`, or
        with `passage_rows` `passage_token_ids` and others, `(batch, num_passages,
        passage_length)`. `y` is bool `(batch, num_passages, sequence_length,
        max_answer_length)`: `y[b, p, i, k]` tells whether the span that begins at token
        `i` and has `k + 1` tokens is an answer.

    Raises:
        ValueError: for an argument out of its range, inputs that aren't strings, a
            question without an answer, or no `search`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["Jane Austen wrote Emma.", ("Paris", "It is in France.")]
    index = keras_bertfam.retrieval.Index.build(passages, retriever)
    preprocessor = keras_bertfam.tasks.OpenQuestionAnsweringPreprocessor(
        tokenizer, sequence_length=32, num_passages=2)
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    x, y = preprocessor(["Who wrote Emma?"], [["Jane Austen", "Austen"]])
    ```

    References: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 3, and
    the released code; [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section
    3.2.
    """

    single_rank = -1  # a single question is a batch of one

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 320,
        num_passages: int = 5,
        max_answer_length: int = 10,
        passage_rows: bool = False,
        layout: str | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, layout, seed=seed, **kwargs)
        check_at_least(
            1, num_passages=num_passages, max_answer_length=max_answer_length
        )
        self.num_passages = num_passages
        self.max_answer_length = max_answer_length
        self.passage_rows = passage_rows
        self.trace_again()

    def trace_again(self) -> None:
        self._call_in_graph = self.in_graph(self._call)
        self.read_in_graph = self.in_graph(self.read)

    def as_tensors(self, x: Any) -> TFTensor:
        self.check_search()
        return tf.reshape(as_strings(x), [-1])

    def as_labels(self, y: Any, x: Any) -> Any:
        return as_answers(y, int(tf.size(as_strings(x))))

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        def with_answers(x, y, *weight):
            y = tf.reshape(y["text"] if isinstance(y, dict) else y, [-1])
            check_answers(y[None])
            return x, y, *weight

        return data.map(with_answers)

    def batch(self, rows: TFDataset, size: int) -> TFDataset:
        return rows.ragged_batch(size)

    def batcher(self, examples: TFDataset, batch_size: int) -> Batcher:
        def filled_up(x, y, weights):
            parts = {**x, "y": y, "sample_weight": weights}
            parts = fill_up(parts, batch_size, self.tokenizer.pad_token_id)
            y, weights = parts.pop("y"), parts.pop("sample_weight")
            return parts, y, weights

        return lambda chunks, seed: chunks.map(filled_up)

    @checked
    @as_written
    def dataset(
        self,
        data: TFDataset | tuple[Any, ...],
        batch_size: int | None = None,
        *,
        training: bool = True,
        shuffle_buffer: int = 10_000,
        **kwargs: Any,
    ) -> TFDataset:
        """Make batches of rows of one shape with their passages, ready for `fit`.

        The order depends only on `seed` and the epoch. Passages also depend on the
        index: batches that were made before the index changed have passages of the old
        one. The last batch of an epoch is filled up with rows of weight 0.

        Args:
            data: `tf.data.Dataset` of unbatched `(x, y)` or `(x, y, sample_weight)`,
                with all answers of a question in a tensor, or SQuAD's dict; or such a
                tuple of lists.
            batch_size: int or `None`. Questions in a batch. Defaults to 32, as Keras's
                `fit` does.
            training: bool. `False` keeps the order of the data, and doesn't fill up the
                last batch.
            shuffle_buffer: int. How many questions are held in memory to shuffle
                among; `0` doesn't shuffle. Defaults to `10_000`.
            **kwargs: must be empty. Other preprocessors sort rows by length with such
                arguments.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`.

        Raises:
            ValueError: for an argument out of its range, data without answers or
                questions, or no `search`.
        """
        if kwargs:
            raise ValueError(
                "`dataset` must be called without arguments that sort rows by length: "
                f"all rows have one length. Received: {sorted(kwargs)}."
            )
        self.check_search()
        options: Any = {"training": training, "shuffle_buffer": shuffle_buffer}
        return super().dataset(data, batch_size, **options, pool=1)

    @as_written
    def read(self, x: TFTensor) -> tuple[dict[str, TFTensor], dict[str, TFTensor]]:
        """Find passages for questions, and make rows of both. Works in a graph.

        Args:
            x: string tensor `(batch,)`.

        Returns:
            A tuple of the dict of the call, and of what is needed to find spans in the
            passages: `passages`, string `(batch * num_passages,)`; `bounds`, ragged
            int32 `(batch * num_passages, None, 2)`, the bytes where the tokens of rows
            start and end; and `first`, int32 `(batch * num_passages,)`, the first
            token's place in its row.
        """
        query = self.rows_of("query", x)
        found, titles, texts, vectors = self.find_passages(query)
        titles, texts = (to_utf8(tf.reshape(part, [-1])) for part in (titles, texts))
        rows, places = self._rows_with(x, texts)
        if self.passage_rows:
            passages = self.rows_of("passage", texts, titles)
            more = {f"passage_{k}": self._grouped(v) for k, v in passages.items()}
        else:
            more = {"passage_vectors": vectors}
        asked = {f"query_{name}": value for name, value in query.items()}
        rows = {name: self._grouped(value) for name, value in rows.items()}
        return {**rows, **asked, "passage_ids": found, **more}, places

    def _rows_with(self, questions, texts):
        asked = self.tokenize(questions)
        room = self.sequence_length - self._layout.specials(2)
        room -= tf.cast(asked.row_lengths(), tf.int32)
        refuse_over(
            1 - room,
            "`x` must be questions that leave room for a passage in rows of "
            f"{self.sequence_length} tokens.",
        )
        each = tf.repeat(tf.range(tf.size(room)), self.num_passages)
        parts = tokenize_with_offsets(self.tokenizer, texts)
        room = tf.gather(room, each)
        count_cut(tf.cast(parts[0].row_lengths(), tf.int32) > room, "passages")
        ids, starts, ends = (ragged.head(part, room) for part in parts)
        windows = make_windows(
            tf.gather(asked, each),
            ids,
            self.tokenizer,
            self._layout,
            self.sequence_length,
            self.sequence_length,
        )
        bounds = tf.stack([starts.flat_values, ends.flat_values], 1)
        places = {
            "passages": texts,
            "bounds": ids.with_flat_values(bounds),
            "first": windows["context_at"],
        }
        names = ("token_ids", "segment_ids", "span_mask")
        example = ({name: windows[name] for name in names}, None, None)
        length, pad = [self.sequence_length], self.tokenizer.pad_token_id
        return pad_rows(example, length, pad)[0], places

    def _grouped(self, rows):
        """Group rows as `(batch, num_passages, length)`."""
        return tf.reshape(rows, [-1, self.num_passages, rows.shape[-1]])

    def _featurize(self, x, y, sample_weight):
        rows, places = self.read(x)
        if sample_weight is not None:
            sample_weight = self.target_weights(rows, sample_weight)
        return rows, None if y is None else self._targets(y, places), sample_weight

    def _targets(self, answers, places):
        answers = as_ragged(answers)  # they are dense if equally many to each question
        shape = (self.num_passages, self.sequence_length, self.max_answer_length)
        bounds = places["bounds"]

        def find(*arrays):
            return span_targets(*arrays, shape)

        given = [
            places["passages"],
            bounds.flat_values,
            bounds.row_splits,
            places["first"],
            to_utf8(answers.flat_values),
            answers.row_splits,
        ]
        with tf.device("CPU:0"):
            targets = tf.numpy_function(find, given, tf.bool, stateful=False)
        return tf.ensure_shape(targets, [None, *shape])

    def pad(
        self, example: tuple[Any, Any, Any], buckets: list[int] | None = None
    ) -> tuple[Any, Any, Any]:
        """Leave the example as it is: rows have one length."""
        return example

    def get_config(self) -> Config:
        config = super().get_config()
        config.pop("buckets")
        names = ("num_passages", "max_answer_length", "passage_rows")
        return {**config, **{name: getattr(self, name) for name in names}}
