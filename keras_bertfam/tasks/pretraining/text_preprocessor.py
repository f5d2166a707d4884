"""Raw text to batches that depend on a seed, the pass and the batch alone."""

import keras_hub
import tensorflow as tf

from keras_bertfam.layers.data.batching import BatchByTokens
from keras_bertfam.layers.data.packing import PackSentences, not_empty
from keras_bertfam.layers.data.pipelines import PARALLEL, ready_to_iterate
from keras_bertfam.layers.data.seeding import (
    StreamPosition,
    batch_seed,
    seeded_passes,
    shuffle,
)
from keras_bertfam.presets.tokenizer_presets import PresetPreprocessor
from keras_bertfam.tokenizers.graph import as_graph_layer
from keras_bertfam.tokenizers.texts import to_utf8


class TextPreprocessor(PresetPreprocessor, keras_hub.models.Preprocessor):
    """Base of the preprocessors that pack text into blocks and corrupt them.

    A subclass says in `corrupt` what becomes of a batch of blocks. It takes its
    own arguments, makes in `build` whatever needs the vocabulary, and ends its
    `__init__` with `self.build_if_ready()`.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included.
        sequence_ids: bool. Whether blocks tell their documents apart, so that
            attention doesn't leak between them.
        seed: int. Decides every order and corruption.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the
            corruption, by default a function of the ids and `seed`.

    Returns:
        What `corrupt` gives.
    """

    default_packing = "full"

    def __init__(
        self, tokenizer, sequence_length=128, sequence_ids=False, seed=0, **kwargs
    ):
        super().__init__(**kwargs)
        if getattr(tokenizer, "mask_token", None) is None:
            raise ValueError(
                "`tokenizer` must have a mask token. "
                f"Received: {type(tokenizer).__name__}."
            )
        if sequence_length < 3:
            raise ValueError(
                f"`sequence_length` must be at least 3. Received: {sequence_length}."
            )
        self.tokenizer = as_graph_layer(tokenizer)
        self.sequence_length = sequence_length
        self.sequence_ids = sequence_ids
        self.seed = seed
        self.position = StreamPosition()
        # In eager mode KerasHub's tokenizers return Python lists.
        self._encode_in_graph = tf.function(self._encode, reduce_retracing=True)

    def build_if_ready(self):
        """Builds, unless a preset's vocabulary is still to be loaded."""
        if getattr(self.tokenizer, "mask_token_id", None) is not None:
            self.build(None)

    def load_preset_assets(self, preset):
        super().load_preset_assets(preset)
        self.build(None)

    def corrupt(self, block, seed=None):
        """Turns blocks of token ids into a training example.

        Args:
            block: dict of `token_ids`, int32 `(batch, length)` or `(length,)`,
                and what else `pack` gives, such as `padding_mask`.
            seed: integer tensor of shape `(2,)`, or `None` for a seed that
                depends on the ids alone.

        Returns:
            `(x, y, sample_weight)` of `tf.Tensor`s or dicts of them.
        """
        raise TypeError(f"{type(self).__name__} must define `corrupt`.")

    def call(self, x, y=None, sample_weight=None, seed=None):
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None: {type(self).__name__} makes labels and "
                    f"weights of the text itself. Received: {type(value).__name__}."
                )
        with tf.device("CPU:0"):
            return self.corrupt(self.encode(x, padding="max_length"), seed)

    def encode(self, texts, padding="longest"):
        """Encodes strings, mask tokens in them included, without corruption.

        The space before RoBERTa's `<mask>` is part of it. Texts are truncated
        to `sequence_length`. Works in a graph.

        Args:
            texts: string, list of strings or string tensor of rank 0 or 1.
            padding: `"longest"` or `"max_length"`.

        Returns:
            A dict of `token_ids`, int32 `(batch, length)`, and `padding_mask`,
            bool of that shape; without the batch axis for a single string.
        """
        if padding not in ("longest", "max_length"):
            raise ValueError(
                f'`padding` must be "longest" or "max_length". Received: {padding!r}.'
            )
        with tf.device("CPU:0"):
            texts = tf.convert_to_tensor(texts)
            if texts.dtype != tf.string or texts.shape.rank not in (0, 1):
                raise ValueError(
                    "`texts` must be strings of rank 0 or 1. "
                    f"Received: dtype={texts.dtype.name}, shape={texts.shape}."
                )
            out = self._encode_in_graph(to_utf8(tf.reshape(texts, [-1])), padding)
            return {k: v[0] for k, v in out.items()} if texts.shape.rank == 0 else out

    def _encode(self, texts, padding):
        tokenizer = self.tokenizer
        mask = tokenizer.mask_token
        if mask.startswith("<"):
            texts = tf.strings.regex_replace(texts, " *" + mask, mask)
        parts = tf.strings.split(texts, mask)
        ids = tf.cast(tokenizer(parts.flat_values), tf.int32)
        masks = tf.fill([ids.nrows(), 1], tokenizer.mask_token_id)
        # A mask before each part, less the one before the first of each text.
        ids = parts.with_values(tf.concat([masks, ids], 1)).merge_dims(1, 2)[:, 1:]
        ids = ids[:, : self.sequence_length - 2]
        start = tf.fill([ids.nrows(), 1], tokenizer.start_token_id)
        end = tf.fill([ids.nrows(), 1], tokenizer.end_token_id)
        ids = tf.concat([start, ids, end], 1)
        length = self.sequence_length if padding == "max_length" else None
        dense = ids.to_tensor(tokenizer.pad_token_id, shape=[None, length])
        dense = tf.ensure_shape(dense, [None, length])
        inside = tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1])
        return {"token_ids": dense, "padding_mask": tf.reshape(inside, tf.shape(dense))}

    def pack(self, documents, packing=None, break_lines=True):
        """Packs documents into blocks; see `PackSentences`.

        `dataset` takes the result in place of documents, so that it can be
        cached: `preprocessor.pack(documents).cache()`.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            packing: `"full"` (FULL-SENTENCES, the default) or `"doc"`
                (DOC-SENTENCES).
            break_lines: bool. Whether to break lines into sentences.

        Returns:
            A `tf.data.Dataset` of dicts of tensors.
        """
        packing = packing or self.default_packing
        if packing not in ("full", "doc"):
            raise ValueError(
                f'`packing` must be "full" or "doc". Received: {packing!r}.'
            )
        pack = PackSentences(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            cross_documents=packing == "full",
            sequence_ids=self.sequence_ids,
            break_lines=break_lines,
        )
        return pack(documents)

    def block_maker(self, documents, packing, break_lines):
        """The blocks of each pass, for `dataset`.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or what `pack` gives.
            packing: see `pack`.
            break_lines: bool.

        Returns:
            A function from a seed, an int64 tensor of shape `(2,)`, to a
            `tf.data.Dataset` of dicts of tensors.
        """
        blocks = documents
        if not isinstance(getattr(documents, "element_spec", None), dict):
            blocks = self.pack(documents, packing, break_lines)
        return lambda seed: blocks

    def dataset(
        self,
        documents,
        batch_size=None,
        shuffle_buffer=10_000,
        packing=None,
        training=True,
        duplicates=None,
        break_lines=True,
        tokens_per_batch=None,
    ):
        """Returns the dataset of corrupted batches, ready for `fit`.

        Order and masks depend on `seed`, the pass and the batch alone. Each
        iteration is a new pass, from where `position` says.

        With `duplicates=n`, pass `e` equals pass `e % n`, masks and order: each
        mask is seen again every `n` passes, as with BERT's `n` masked copies.
        Unlike those, the copies aren't mixed within a pass, and the text is cut
        into blocks the same way in each.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or what `pack` gives.
            batch_size: int, or `None` with `tokens_per_batch`.
            shuffle_buffer: int. Blocks to shuffle among; `0` for none. Defaults
                to `10_000`.
            packing: how text is cut into rows; see `pack`.
            training: bool. `False` gives the same masks in each pass, no
                shuffling, and the last batch even if it is smaller.
            duplicates: int or `None`. Static masking. Defaults to `None`.
            break_lines: bool. Whether to break lines into sentences.
            tokens_per_batch: int or `None`. Batches of any number of rows with up
                to so many tokens, see `BatchByTokens`, for rows of unequal length.

        Returns:
            A `tf.data.Dataset` of `(x, y, sample_weight)`, as the call gives.
            A pass without a single batch ends in
            `tf.errors.InvalidArgumentError`.
        """
        if (batch_size is None) == (tokens_per_batch is None):
            raise ValueError(
                "Expected `batch_size` or `tokens_per_batch`. Received: "
                f"batch_size={batch_size}, tokens_per_batch={tokens_per_batch}."
            )
        for name, value, least in (
            ("batch_size", 1 if batch_size is None else batch_size, 1),
            ("shuffle_buffer", shuffle_buffer, 0),
            ("duplicates", 1 if duplicates is None else duplicates, 1),
        ):
            if value < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: {value}."
                )
        make_blocks = self.block_maker(documents, packing, break_lines)

        def batches(epoch):
            rows = make_blocks(batch_seed(self.seed, epoch, -2))
            if training and shuffle_buffer:
                rows = shuffle(rows, shuffle_buffer, batch_seed(self.seed, epoch, -1))
            if batch_size is None:
                rows = rows.apply(BatchByTokens(tokens_per_batch, training))
            else:
                rows = rows.batch(batch_size, drop_remainder=training)
            return not_empty(
                rows,
                "`documents` must fill at least one batch: give more text, or a "
                f"smaller `batch_size`. Received: batch_size={batch_size}, "
                f"tokens_per_batch={tokens_per_batch}, "
                f"sequence_length={self.sequence_length}.",
            )

        position = self.position if training else None
        passes = seeded_passes(batches, self.seed, position, duplicates)
        return self.ready(passes, lambda seed, block: self.corrupt(block, seed))

    def ready(self, passes, corrupt):
        """What `fit` takes, from `(seed, batch)` pairs and what is done to them."""
        return ready_to_iterate(passes.map(corrupt, **PARALLEL))

    def get_config(self):
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "sequence_ids": self.sequence_ids,
            "seed": self.seed,
        }
