"""Turn questions and answers into rows with passages, for RAG."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
    TextToTextPreprocessor,
)
from keras_bertfam.tasks.retrieval.passages_preprocessor import (
    PassagesPreprocessor,
    refuse_over,
)
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RetrievalAugmentedGeneratorPreprocessor(
    PassagesPreprocessor, TextToTextPreprocessor
):
    """Finds passages for questions, and makes a row for each passage.

    A row is `title / passage // question`. The passage is cut to the room that the
    question leaves; a question that leaves no room is an error.

    Args:
        tokenizer: the generator's tokenizer layer.
        sequence_length: int. Tokens of a row, special ones included. Defaults to `256`.
        target_length: int or `None`. Tokens of an answer, special ones included.
            Defaults to `64`, or `sequence_length` if that is less.
        num_passages: int. Passages for each question. A retriever learns from two or
            more: one passage alone has the probability 1. Defaults to `5`.
        title_separator: str between title and passage. Defaults to `" / "`.
        passage_separator: str between passage and question. Defaults to `" // "`.
        decoder_start_token_id: see `TextToTextPreprocessor`.
        seed: int. Decides every order. Defaults to `0`.

    Attributes:
        search: `keras_bertfam.tasks.PassageSearch`, to be set before texts are read; no
            part of what is saved.

    Call arguments:
        x: the questions, see `TextToTextPreprocessor`.
        y: the answers.
        sample_weight: numbers, one for each pair, or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `query_token_ids`, `query_segment_ids` and
        `query_padding_mask`, `(batch, query_length)`, for the question encoder;
        `passage_ids`, int32 `(batch, num_passages)`, which passages these are;
        `passage_vectors`, float32 `(batch, num_passages, dim)`; `encoder_token_ids`,
        int32, and `encoder_padding_mask`, bool, `(batch, num_passages,
        sequence_length)`; and the decoder's inputs, targets and weights as
        `TextToTextPreprocessor` has them.

    Raises:
        ValueError: for an argument out of its range, data that isn't pairs of strings,
            or no `search`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["Jane Austen wrote Emma.", ("Paris", "It is in France.")]
    index = keras_bertfam.retrieval.Index.build(passages, retriever)
    preprocessor = keras_bertfam.tasks.RetrievalAugmentedGeneratorPreprocessor(
        tokenizer, sequence_length=64, num_passages=2)
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    x, y, sample_weight = preprocessor(["Who wrote Emma?"], ["Jane Austen"])
    ```

    Reference: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2, and
    its released code, for the separators.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 256,
        target_length: int | None = None,
        num_passages: int = 5,
        title_separator: str = " / ",
        passage_separator: str = " // ",
        decoder_start_token_id: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer,
            sequence_length,
            target_length,
            decoder_start_token_id=decoder_start_token_id,
            seed=seed,
            **kwargs,
        )
        check_at_least(1, num_passages=num_passages)
        self.num_passages = num_passages
        self.title_separator = title_separator
        self.passage_separator = passage_separator

    @property
    def target_length(self) -> int:
        """int: the most tokens of an answer, special ones included."""
        return self._target_length or min(64, self.sequence_length)

    @as_written
    def _rows(self, example, padded=True):
        layout, targets = self.layout, self._tokenize(example["decoder_text"])
        weight = example.get("sample_weight")
        _, targets = layout.cut(targets[:, :0], targets)
        rows = layout.rows(targets[:, :0], targets, sample_weight=weight)
        return {**rows, **self._question_rows(example["encoder_text"])}

    @as_written
    def _question_rows(self, questions):
        """Make all inputs for a batch of questions except the decoder's."""
        query = self.rows_of("query", questions)
        found, titles, texts, vectors = self.find_passages(query)
        ids, mask = self._passage_rows(questions, titles, texts)
        return {
            **{f"query_{name}": value for name, value in query.items()},
            "passage_ids": found,
            "passage_vectors": vectors,
            "encoder_token_ids": ids,
            "encoder_padding_mask": mask,
        }

    def _passage_rows(self, questions, titles, texts):
        """Make ids and mask of `passage // question`, a row for each passage."""
        titles, texts = tf.reshape(titles, [-1]), tf.reshape(texts, [-1])
        titles = tf.where(titles == "", "", titles + self.title_separator)
        passages = self._tokenize(titles + texts)
        asked = self._tokenize(self.passage_separator + questions)
        repeated = tf.repeat(tf.range(asked.nrows()), self.num_passages)
        asked = tf.gather(asked, repeated)
        layout = self.layout
        room = self.sequence_length - layout.specials - asked.row_lengths()
        refuse_over(
            tf.cast(1 - room[:: self.num_passages], tf.int32),
            "`x` must be questions that leave room for a passage in rows of "
            f"{self.sequence_length} tokens.",
        )
        count_cut(passages.row_lengths() > room, "passages")
        kept = tf.ragged.range(tf.minimum(passages.row_lengths(), room))
        inputs = tf.concat([tf.gather(passages, kept, batch_dims=1), asked], 1)
        rows = layout.rows(inputs, inputs[:, :0])
        shape = [-1, self.num_passages, self.sequence_length]
        names = ("encoder_token_ids", "encoder_padding_mask")
        return [tf.reshape(rows[name], shape) for name in names]

    @checked
    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, TFTensor]:
        """Find passages for questions, and encode them. Works in a graph.

        Args:
            x: the questions, a list of strings or string tensor of shape `(batch,)`.
            sequence_length: not read, since there are no inputs of the decoder.

        Returns:
            The dict of the call, without the decoder's inputs.

        Raises:
            ValueError: for inputs that aren't strings.
        """
        self.check_search()
        with tf.device("CPU:0"):
            questions = as_strings(x, name="encoder_text")
            single = questions.shape.rank == 0
            rows = self._questions_in_graph(tf.reshape(questions, [-1]))
            return {name: v[0] for name, v in rows.items()} if single else rows

    def trace_again(self) -> None:
        self._rows_in_graph = self.in_graph(self._rows)
        self._questions_in_graph = self.in_graph(self._question_rows)

    def get_config(self) -> Config:
        config = super().get_config()
        config.pop("packed")
        names = ("num_passages", "title_separator", "passage_separator")
        return {**config, **{name: getattr(self, name) for name in names}}
