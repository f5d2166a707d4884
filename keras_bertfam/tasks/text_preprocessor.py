"""Turn raw text into batches that depend only on a seed, the epoch and the batch."""

from typing import Any

import keras_hub
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_graph, as_written
from keras_bertfam.layers.data.base import AdjustableLength
from keras_bertfam.layers.data.documents import reading as whole_documents
from keras_bertfam.layers.data.pairs.mixtures import TaskMixture
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    ready_to_iterate,
    remember_count,
)
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus, token_batches
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import (
    StreamPosition,
    batch_seed,
    seeded_passes,
)
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.presets.tokenizer_presets import (
    PresetPreprocessor,
    has_vocabulary,
)
from keras_bertfam.tokenizers.pipeline_ops import (
    as_graph_layer,
    tokenize_with_masks,
)
from keras_bertfam.tokenizers.texts import MixedDocuments, to_utf8, without_languages
from keras_bertfam.types import Config, Path, TFDataset, TFTensor, Tokenizer


class TextPreprocessor(
    AdjustableLength, PresetPreprocessor, keras_hub.models.Preprocessor
):
    """Base class of the preprocessors that make training examples from raw text.

    A preprocessor has three parts, and a subclass defines each in a method: the rows
    that documents become (`make_rows`), the layer that corrupts them, if any
    (`make_corruption`), and the example made from both (`example`): inputs, targets and
    weights, of any shapes. A subclass takes its own arguments, and ends its `__init__`
    with `self.build_if_ready()`.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Tokens in a row, special ones included.
        seed: int. Decides every order and corruption.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the
            corruption, by default a function of the ids and `seed`.

    Returns:
        The result of `example`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sequence_length < 3:
            raise ValueError(
                f"`sequence_length` must be at least 3. Received: {sequence_length}."
            )
        self.tokenizer = as_graph_layer(tokenizer)
        self.sequence_length = sequence_length
        self.seed = seed
        self.position = StreamPosition()
        # In eager mode KerasHub's tokenizers return Python lists.
        self._encode_in_graph = self.in_graph(self._encode)

    def build_if_ready(self) -> None:
        """Build the parts, unless a preset's vocabulary has yet to be loaded."""
        if has_vocabulary(self.tokenizer):
            self.build(None)

    def build(self, input_shape: Any = None) -> None:
        # A preset's vocabulary is loaded after the constructor. A function holds the
        # parts, because Keras takes no new layers in the attributes of a built layer.
        made = (self.make_rows(), self.make_corruption())
        self._made = lambda: made
        self.built = True

    def parts(self) -> tuple[Any, Any]:
        """Give the results of `make_rows` and `make_corruption`."""
        # A `.keras` file loads the vocabulary without telling the preprocessor.
        if self._made is None:
            with tf.init_scope():
                self.build(None)
        return self._made()

    def load_preset_assets(self, preset: Path) -> None:
        super().load_preset_assets(preset)
        self.build(None)

    @property
    def text_tokenizer(self) -> Any:
        """Give the tokenizer for rows: the preprocessor's own, or one around it."""
        return self.tokenizer

    @property
    def prompt_tokenizer(self) -> Any:
        """Give the tokenizer for texts that aren't corrupted."""
        return self.text_tokenizer

    def make_rows(self) -> Rows:
        """Make the kind of rows that documents become, such as `PackedRows`."""
        raise TypeError(f"{type(self).__name__} must define `make_rows`.")

    def make_corruption(self) -> Any:
        """Make the layer that corrupts batches, such as `MaskTokens`, or `None`.

        The layer is called with `token_ids`, `seed`, and the other parts of rows that
        its attribute `row_arguments` names. It returns a dict of tensors.
        """
        return None

    def example(self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]) -> Any:
        """Make a training example. Works in a graph.

        Args:
            rows: dict of `token_ids`, int32 `(batch, length)` or `(length,)`,
                and other parts of the rows, such as `padding_mask`.
            corrupted: dict, the result of the layer of `make_corruption`; empty without
                such a layer.

        Returns:
            `(x, y, sample_weight)` of `tf.Tensor`s or dicts of them, or `x` alone.
        """
        raise TypeError(f"{type(self).__name__} must define `example`.")

    def adapt(self, documents: TFDataset | TokenCorpus | MixedDocuments) -> None:
        """Collect the corpus statistics that the corruption needs, if any.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or a prepared corpus, or
                several of either, mixed.
        """

    def corrupt(self, rows: dict[str, TFTensor], seed: TFTensor | None = None) -> Any:
        """Turn rows of token ids into a training example.

        Args:
            rows: see `example`.
            seed: integer tensor of shape `(2,)`, or `None` for a seed that
                depends on the ids alone.

        Returns:
            See `example`.
        """
        _, layer = self.parts()
        if layer is None:
            return self.example(rows, {})
        others = {name: rows.get(name) for name in layer.row_arguments}
        return self.example(rows, layer(rows["token_ids"], seed=seed, **others))

    def call(
        self, x: Any, y: None = None, sample_weight: None = None, seed: Any = None
    ) -> Any:
        self.check_unlabelled(y, sample_weight)
        with tf.device("CPU:0"):
            return self.corrupt(self._encode_texts(x, "max_length", True), seed)

    def check_unlabelled(self, y: Any, sample_weight: Any) -> None:
        """Raise a `ValueError` for labels or weights in a call."""
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None: {type(self).__name__} makes labels and "
                    f"weights from the text. Received: {type(value).__name__}."
                )

    def encode(self, texts: Any, padding: str = "longest") -> dict[str, TFTensor]:
        """Encode strings, mask tokens in them included, without corruption.

        The space before RoBERTa's `<mask>` is part of it. Texts are truncated
        to `sequence_length`. Works in a graph.

        Args:
            texts: string, list of strings or string tensor of rank 0 or 1.
            padding: `"longest"` or `"max_length"`.

        Returns:
            A dict of `token_ids`, int32 `(batch, length)`, and `padding_mask`,
            bool of that shape; without the batch axis for a single string.
        """
        return self._encode_texts(texts, padding)

    def _encode_texts(self, texts, padding, corrupted=False):
        if padding not in ("longest", "max_length"):
            raise ValueError(
                f'`padding` must be "longest" or "max_length". Received: {padding!r}.'
            )
        with tf.device("CPU:0"):
            texts = as_strings(texts, name="texts")
            texts, single = to_utf8(tf.reshape(texts, [-1])), texts.shape.rank == 0
            out = self._encode_in_graph(texts, padding, corrupted)
            return {k: v[0] for k, v in out.items()} if single else out

    def _encode(self, texts, padding, corrupted=False):
        tokenizer = self.text_tokenizer if corrupted else self.prompt_tokenizer
        ids = tokenize_with_masks(tokenizer, without_languages(texts))
        rows, _ = self.parts()
        length = rows.sequence_length if padding == "max_length" else None
        return rows.lay_out(ids, length)

    @checked
    @as_written
    def dataset(
        self,
        documents: TFDataset
        | TokenCorpus
        | MixedDocuments
        | TaskMixture
        | tuple[Any, Any],
        batch_size: int | None = None,
        *,
        training: bool = True,
        shuffle_buffer: int = 10_000,
        packing: str | None = None,
        break_lines: bool = True,
        duplicates: int | None = None,
        tokens_per_batch: int | None = None,
        shuffle_documents: int = 0,
        drop_remainder: bool | None = None,
    ) -> TFDataset:
        """Make the dataset of corrupted batches, ready for `fit`.

        Order and corruption depend only on `seed`, the epoch and the batch. Each
        iteration is a new epoch, from `position` on. A task's `fit()` sets `position`
        to the epoch that it counts, so each `fit()` begins with the same epoch 0.

        With `duplicates=n`, epoch `e` equals epoch `e % n` in corruption and order:
        each mask returns every `n` epochs, as with BERT's `n` masked copies. Unlike
        BERT's, the copies aren't mixed within an epoch, and packed text is cut into
        rows in the same way in each.

        Args:
            documents: `tf.data.Dataset` of scalar strings; or the result of `pack`, if
                the preprocessor has that method; or a prepared corpus (`read_tokens`),
                whose rows are all shuffled together; or several of these, mixed by
                `sample_corpora`. For a `CausalLM` also prompts with answers, see
                `CausalLMPreprocessor`.
            batch_size: int or `None`. Rows in a batch. Defaults to 32, as Keras's
                `fit` does, unless there are `tokens_per_batch`.
            training: bool. `False` gives the same batches in each epoch, without
                shuffling, and with the last one even if it is smaller.
            shuffle_buffer: int. How many rows are held in memory to shuffle among; `0`
                doesn't shuffle. If rows continue from batch to batch, whole documents
                are held instead. A prepared corpus is shuffled without holding
                anything. Defaults to `10_000`.
            packing: string or `None`. How text is cut into rows, one of the ways that
                the preprocessor knows; see `pack`. `None` is its default.
            break_lines: bool. Whether to break lines into sentences.
            duplicates: int or `None`. Number of different epochs, for static masking;
                see above. Defaults to `None`.
            tokens_per_batch: int or `None`. For rows of unequal length: the most tokens
                of a batch, which then has any number of rows. See `BatchByTokens`.
            shuffle_documents: int. How many documents are held in memory to shuffle
                among, anew in each epoch, before rows are made from them. Use it for
                files in a meaningful order, and for sentence pairs, whose partners come
                from nearby documents. Documents are then tokenised in each epoch.
                Defaults to `0`: documents keep the order of the data.
            drop_remainder: bool or `None`. Whether the last batch of an epoch is
                skipped if it isn't full. With 400 rows in batches of 30 these are the
                last 10 rows, other ones in each epoch if rows are shuffled. With `True`
                there is one shape of batches and the step is compiled once; `False`
                compiles another step for the last batch. Rows that continue from batch
                to batch, and a prepared corpus in slices, have no such batch and don't
                take `False`. Defaults to `training`.

        Returns:
            A `tf.data.Dataset` of the results of the call. An epoch without a single
            batch raises a `tf.errors.InvalidArgumentError`.

        Raises:
            ValueError: for an argument that is out of its range, or that the rows of
                this preprocessor can't have.
        """
        options = BatchOptions(
            batch_size,
            training,
            shuffle_buffer,
            packing,
            break_lines,
            duplicates,
            tokens_per_batch,
            shuffle_documents,
            drop_remainder,
        )
        if isinstance(documents, TaskMixture | tuple):
            return self._of_pairs(documents, options)
        self._learn_of(documents, training)
        if isinstance(documents, TokenCorpus):
            return self._of_tokens(documents, options)
        rows, _ = self.parts()
        mixed = isinstance(documents, MixedDocuments)
        # A mixture differs from epoch to epoch.
        prepared = None if mixed else rows.prepare(documents, options)
        shuffled = training and shuffle_documents > 0
        if shuffled and prepared is documents:
            raise ValueError(
                "`shuffle_documents` must be 0 if `documents` are packed already, or "
                "if `shuffle_buffer` shuffles them. Received: "
                f"shuffle_documents={shuffle_documents}."
            )

        def batches(epoch):
            order, content, whole = (
                batch_seed(self.seed, epoch, k) for k in (-1, -2, -3)
            )
            data = documents.of_pass(epoch, self.seed) if mixed else documents
            if shuffled:
                data = whole_documents.shuffle_documents(
                    data, options.shuffle_documents, whole
                )
            again = mixed or shuffled
            data = rows.prepare(data, options) if again else prepared
            return rows.batches(data, options, order, content)

        def corrupt(seed, batch):
            return as_graph(self.corrupt)(rows.complete(batch, seed), seed)

        position = self.position if training else None
        passes = seeded_passes(batches, self.seed, position, duplicates)
        return ready_to_iterate(passes.map(corrupt, **PARALLEL))

    @checked
    def grain_dataset(
        self, corpus: TokenCorpus, batch_size: int | None = None, **options: Any
    ) -> Any:
        """Make a Grain dataset with the same batches as `dataset`.

        Batches are equal to the bit, as NumPy arrays, and have the same order: each
        iteration is a new epoch, from `position` on. The iterator's state (Grain's
        `get_state` and `set_state`) is the number of the next batch, counted from the
        first epoch.

        Args:
            corpus: a prepared corpus, see `read_tokens`.
            batch_size: see `dataset`.
            **options: other arguments of `dataset`.

        Returns:
            A `grain.IterDataset`. Its attribute `source` is a `grain.MapDataset`, which
            gives each batch by its number, epoch after epoch. For worker processes use
            `data.source.repeat(3).to_iter_dataset().mp_prefetch(...)`.

        Raises:
            ImportError: if Grain isn't installed.
            ValueError: for a corpus that isn't prepared, and as `dataset`.

        Example:

        ```py
        corpus = keras_bertfam.layers.read_tokens("prepared")
        data = preprocessor.grain_dataset(corpus, batch_size=64)
        model.fit(data, epochs=3)
        ```
        """
        from keras_bertfam.layers.data.prepared import grain_batches

        if not isinstance(corpus, TokenCorpus):
            raise ValueError(
                "`corpus` must be a prepared corpus, as from `read_tokens`. Give "
                f"other documents to `dataset`. Received: {type(corpus).__name__}."
            )
        checked = BatchOptions(batch_size, **options)
        self._learn_of(corpus, checked.training)
        source = grain_batches.GrainSource(self, corpus, checked)
        moves = checked.training and corpus.epoch is None
        position = self.position if moves else None
        if position is not None:
            position.batches = len(source)
        return grain_batches.GrainPasses(source, position)

    def _learn_of(self, documents, training):
        if isinstance(documents, TokenCorpus):
            documents.manifest.check_tokenizer(self.tokenizer)
        if training:  # held-out text must not be learned from
            self.adapt(documents)
            self.position.batches = None

    def _of_pairs(self, pairs, options):
        raise ValueError(
            "`documents` must be a `tf.data.Dataset` of texts, or a prepared corpus, "
            f"for {type(self).__name__}. Received: {type(pairs).__name__}."
        )

    def _of_tokens(self, corpus, options):
        position = self.position if options.training else None
        batches, count = token_batches(
            corpus, self.parts()[0], options, self.seed, position, self.corrupt
        )
        if position is not None:
            position.batches = count
        return remember_count(ready_to_iterate(batches), count)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "seed": self.seed,
        }


class PackingPreprocessor(TextPreprocessor):
    """Base class of the text preprocessors that can pack documents once."""

    @as_written
    def pack(
        self,
        documents: TFDataset,
        packing: str | None = None,
        break_lines: bool = True,
    ) -> TFDataset:
        """Tokenise and pack documents: the work that is the same in all epochs.

        `dataset` takes the result in place of documents. So you can cache it:
        `preprocessor.pack(documents).cache()`.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            packing: `"full"` (FULL-SENTENCES), `"doc"` (DOC-SENTENCES), or
                `"best_fit"`: each element of `documents` is a sequence, and rows hold
                as many sequences as fit, kept apart by `sequence_ids`; a longer
                document is cut into several sequences. ELECTRA's also takes
                `"segments"`. `DenoisingPreprocessor` and `CausalLMPreprocessor` also
                take `"stream"`: documents one after the other, cut into full rows.
                `MaskedLM` and `Distiller` also take `"translations"`, see
                `mark_languages`. For segment pairs, `"segments"` (RoBERTa's
                SEGMENT-PAIR) or `"sentences"` (SENTENCE-PAIR), one to a row, or
                `"best_fit"` or `"best_fit_sentences"`, the same with several to a row.
                Give it to `dataset`, too. `None` is the preprocessor's default.
            break_lines: bool. Whether to break lines into sentences. With `"best_fit"`
                and `"translations"` texts aren't broken, and it must be `True`.

        Returns:
            A `tf.data.Dataset` of dicts of tensors.
        """
        options = BatchOptions(packing=packing, break_lines=break_lines)
        if isinstance(documents, MixedDocuments):
            raise ValueError(
                "`documents` must be given to `dataset` itself if corpora are mixed: "
                "each epoch has other documents. Received: "
                f"{type(documents).__name__}."
            )
        rows, _ = self.parts()
        return rows.prepare(documents, options)
