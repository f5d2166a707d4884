"""Turn texts into masked rows with retrieved passages, for REALM."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.labels import one_each
from keras_bertfam.layers.data.pipeline_warnings import count_cut, enough_of
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    check_at_least,
    checked_batch_size,
    ready_to_iterate,
)
from keras_bertfam.layers.data.seeding import batch_seed, seeded_passes, shuffle
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.masking.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.retrieval.passages_preprocessor import PassagesPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.types import Config, TFDataset, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class KnowledgeAugmentedMaskedLMPreprocessor(
    PassagesPreprocessor, MaskedLMPreprocessor
):
    """Masks texts, finds passages for them, and makes a row for each passage.

    A row is `[start] masked text [end] passage [end]`. Texts and passages that are too
    long are cut. The first candidate of a text is the empty passage, for tokens that
    can be predicted without any passage.

    Args:
        tokenizer: the tokenizer layer of reader and retriever.
        sequence_length: int. Tokens of a text, special ones included. Defaults to `96`.
        passage_length: int. Tokens of a passage in its row, with the end token.
            Defaults to `288`.
        num_candidates: int. Passages for each text, the empty one included. Defaults
            to `8`.
        null_passage: bool. Whether the empty passage is among them. Defaults to `True`.
        exclude_source: bool. Whether passages of a text's own document are left out.
            Defaults to `True`.
        strategy: which positions are masked, see `MaskedLMPreprocessor`. Defaults to
            `"salient_spans"`, which masks one of the marked entities; the paper's
            ablations are `"tokens"` and `"spans"`.
        mask_selection_length: int. The most masked tokens (slots) of a row. Defaults to
            `10`.
        mask_token_rate: float. Defaults to `1.0`: no random or kept tokens.
        random_token_rate: float. Defaults to `0.0`.
        seed: int. Decides every order and mask. Defaults to `0`.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Attributes:
        search: `keras_bertfam.tasks.PassageSearch`. Set it before texts are read. It
            isn't saved.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`, if the texts
            aren't from the index; or a dict of `text`, the same, and `source`, an int
            for each text: the number of its document in the `sources` of the search, or
            -1.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids` and `segment_ids`, int32 `(batch,
        num_candidates, sequence_length + passage_length)`, and `padding_mask`, bool of
        that shape; `mask_positions`, int32 `(batch, slots)`; `query_` and `passage_`
        before `token_ids`, `segment_ids` and `padding_mask`, what the retriever reads,
        `(batch, length)` and `(batch, num_candidates, length)`; and `passage_ids`,
        int32 `(batch, num_candidates)`, -1 for the empty one; and the original ids and
        weights as `MaskedLMPreprocessor` has them.

    Raises:
        ValueError: for an argument out of its range, `languages`, `sequence_ids`, or
            without a `search`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["⟦Jane Austen⟧ wrote Emma.", "⟦Paris⟧ is in France."]
    plain = [p.replace("⟦", "").replace("⟧", "") for p in passages]
    index = keras_bertfam.retrieval.Index.build(plain, retriever)
    preprocessor = keras_bertfam.tasks.KnowledgeAugmentedMaskedLMPreprocessor(
        tokenizer, num_candidates=2)
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    texts = tf.data.Dataset.from_tensor_slices({"text": passages, "source": [0, 1]})
    batches = preprocessor.dataset(texts, batch_size=2)
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.2 and
    3.4, and its released code.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 96,
        passage_length: int = 288,
        num_candidates: int = 8,
        null_passage: bool = True,
        exclude_source: bool = True,
        strategy: MaskingStrategy | Config | str = "salient_spans",
        mask_selection_length: int = 10,
        mask_token_rate: float = 1.0,
        random_token_rate: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        for name in ("languages", "sequence_ids"):
            if kwargs.get(name):
                raise ValueError(
                    f"`{name}` must be left out: rows have a text and its passage. "
                    f"Received: {kwargs[name]!r}."
                )
        check_at_least(2, passage_length=passage_length)
        check_at_least(1 + null_passage, num_candidates=num_candidates)
        self.passage_length = passage_length
        self.num_candidates = num_candidates
        self.null_passage = null_passage
        self.exclude_source = self.excluding = exclude_source
        self.num_passages = num_candidates - null_passage
        super().__init__(
            tokenizer,
            sequence_length,
            strategy=strategy,
            mask_selection_length=mask_selection_length,
            mask_token_rate=mask_token_rate,
            random_token_rate=random_token_rate,
            seed=seed,
            **kwargs,
        )

    def check_fits(self, search: Any) -> None:
        theirs = search.retriever.preprocessor.tokenizer
        if theirs.get_vocabulary() != self.tokenizer.get_vocabulary():
            raise ValueError(
                "`search` must have a retriever with the reader's vocabulary: both "
                f"read the masked text. Received: {theirs.vocabulary_size()} tokens "
                f"beside {self.tokenizer.vocabulary_size()}, or others."
            )

    def call(
        self, x: Any, y: None = None, sample_weight: None = None, seed: Any = None
    ) -> Any:
        if not isinstance(x, dict):
            return super().call(x, y, sample_weight, seed)
        self.check_unlabelled(y, sample_weight)
        if {*x} != {"text", "source"}:
            raise ValueError(
                "`x` must be texts, or a dict of `text` and `source`. Received: "
                f"{sorted(map(str, x))}."
            )
        with tf.device("CPU:0"):
            texts = as_strings(x["text"], name="text")
            source = one_each(tf.convert_to_tensor(x["source"]), "source")
            if not texts.shape.is_compatible_with(source.shape):
                raise ValueError(
                    f"`source` must have a number for each text, {texts.shape}. "
                    f"Received: shape={source.shape}."
                )
            rows = self._encode_texts(texts, "max_length", True)
            return self.corrupt({**rows, "source": source}, seed)

    def corrupt(self, rows: dict[str, TFTensor], seed: TFTensor | None = None) -> Any:
        with self.counted_if_eager():
            return super().corrupt(rows, seed)

    @as_written
    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        rows = dict(rows)
        single = rows["token_ids"].shape.rank == 1
        if single:
            rows, corrupted = (
                {name: value[None] for name, value in part.items()}
                for part in (rows, corrupted)
            )
        source = rows.pop("source", None)
        x, y, weights = super().example(rows, corrupted)
        example = self._with_passages(x, source), y, weights
        if single:
            return tf.nest.map_structure(lambda value: value[0], example)
        return example

    def _with_passages(self, x, source):
        """Add passages to masked texts `(batch, sequence_length)`."""
        self.check_search()
        query = {
            "token_ids": x["token_ids"],
            "segment_ids": tf.zeros_like(x["token_ids"]),
            "padding_mask": x["padding_mask"],
        }
        if self.exclude_source and source is None:
            source = tf.fill([tf.shape(x["token_ids"])[0]], -1)
        if source is not None and not source.dtype.is_integer:
            raise ValueError(
                "`source` must be ints, numbers of documents. Received: "
                f"dtype={source.dtype.name}."
            )
        own = tf.cast(source, tf.int64) if self.exclude_source else None
        found, titles, texts, _ = self.find_passages(query, own)
        if self.null_passage:
            front = [[0, 0], [1, 0]]
            found = tf.pad(found, front, constant_values=-1)
            titles, texts = (
                tf.pad(part, front, constant_values="") for part in (titles, texts)
            )
        titles, texts = (tf.reshape(part, [-1]) for part in (titles, texts))
        passages = self.rows_of("passage", texts, titles)
        return {
            **self._by_candidate(self._reader_rows(x, texts)),
            "mask_positions": x["mask_positions"],
            **{f"query_{name}": value for name, value in query.items()},
            **{f"passage_{n}": v for n, v in self._by_candidate(passages).items()},
            "passage_ids": found,
        }

    def _reader_rows(self, x, texts):
        """Lay out `[start] masked text [end] passage [end]`, a row for each passage."""
        length = self.sequence_length + self.passage_length
        masked = tf.RaggedTensor.from_tensor(
            x["token_ids"], tf.reduce_sum(tf.cast(x["padding_mask"], tf.int64), 1)
        )
        count = masked.nrows()
        masked = tf.gather(masked, tf.repeat(tf.range(count), self.num_candidates))
        body = tokenize(self.tokenizer, texts)
        room = self.passage_length - 1
        count_cut(body.row_lengths() > room, "passages", "passage_length")
        body = body[:, :room]
        end = tf.fill([masked.nrows(), 1], self.tokenizer.end_token_id)
        ids = tf.concat([masked, body, end], 1)
        sizes = ids.row_lengths()
        inside = tf.sequence_mask(sizes, length)
        text = tf.sequence_mask(masked.row_lengths(), length)
        rows = ids.to_tensor(self.tokenizer.pad_token_id, shape=[None, length])
        return {
            "token_ids": tf.ensure_shape(rows, [None, length]),
            "segment_ids": tf.cast(inside & ~text, tf.int32),
            "padding_mask": inside,
        }

    def _by_candidate(self, rows):
        """Group rows as `(batch, num_candidates, length)`."""
        return {
            name: tf.reshape(value, [-1, self.num_candidates, value.shape[-1]])
            for name, value in rows.items()
        }

    @checked
    @as_written
    def dataset(
        self,
        documents: TFDataset,
        batch_size: int | None = None,
        *,
        training: bool = True,
        shuffle_buffer: int = 10_000,
        drop_remainder: bool | None = None,
        **kwargs: Any,
    ) -> TFDataset:
        """Make masked batches with their passages, ready for `fit`.

        Order and masks depend only on `seed`, the epoch and the batch. Passages also
        depend on the index: batches that were made before the index changed have
        passages of the old one.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or of dicts of `text` and
                `source`, see the call. Each text is one row.
            batch_size: int or `None`. Defaults to 32, as Keras's `fit` does.
            training: bool. `False` gives the same order and masks in each epoch.
            shuffle_buffer: int. How many texts are held in memory to shuffle among; `0`
                doesn't shuffle. Defaults to `10_000`.
            drop_remainder: bool or `None`. Whether the last batch of an epoch is
                skipped if it isn't full. Defaults to `training`.
            **kwargs: must be empty. Other preprocessors pack several texts into a row
                by such arguments.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`.

        Raises:
            ValueError: for an argument out of its range, or without a `search`.
        """
        if kwargs:
            raise ValueError(
                "`dataset` must be called without arguments of packing: each text is "
                f"a row. Received: {sorted(kwargs)}."
            )
        self.check_search()
        size = checked_batch_size(batch_size)
        drops = training if drop_remainder is None else drop_remainder
        check_at_least(0, shuffle_buffer=shuffle_buffer)
        if not isinstance(documents, tf.data.Dataset):
            raise ValueError(
                "`documents` must be a `tf.data.Dataset` of texts, or of dicts of text "
                f"and source. Received: {type(documents).__name__}."
            )
        if not isinstance(documents.element_spec, dict):
            documents = documents.map(
                lambda text: {"text": text, "source": tf.constant(-1, tf.int64)}
            )
        self.adapt(documents.map(lambda row: row["text"]))

        def batches(epoch):
            chosen = documents
            if training and shuffle_buffer:
                order = batch_seed(self.seed, epoch, -1)
                chosen = shuffle(chosen, shuffle_buffer, order)
            return chosen.batch(size, drop_remainder=drops)

        def corrupt(seed, batch):
            rows = self._encode(batch["text"], "max_length", corrupted=True)
            return self.corrupt({**rows, "source": batch["source"]}, seed)

        position = self.position if training else None
        passes = seeded_passes(batches, self.seed, position)
        use = "training" if training else "evaluation"
        with self.counted(use, enough_of(documents)):
            rows = passes.map(corrupt, **PARALLEL)
        return ready_to_iterate(rows)

    def get_config(self) -> Config:
        names = "passage_length num_candidates null_passage exclude_source".split()
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
        }
