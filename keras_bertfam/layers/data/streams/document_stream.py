"""Documents as one stream of tokens, cut into full rows."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.corpora.row_kinds import RowKind, Sharing
from keras_bertfam.layers.data.documents.reading import tokenize_sentences
from keras_bertfam.layers.data.limited_parts import batches_of_texts
from keras_bertfam.layers.data.pairs.text_to_text import PairLayout
from keras_bertfam.layers.data.pipelines import PARALLEL, check_at_least
from keras_bertfam.layers.data.prepared.token_rows import TokenRows, blocks, texts_in
from keras_bertfam.layers.data.rows.rows import (
    BatchOptions,
    PackedRows,
    is_prepared,
)
from keras_bertfam.layers.data.rows.sentence_packing import whole_texts
from keras_bertfam.layers.data.seeding import fold
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


@checked
class PackStream:
    """Cuts the tokens of all documents into full rows: use it with `Dataset.apply`.

    Rows begin and end anywhere, also in the middle of sentences and documents. Only the
    last row can have padding.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        row_length: int. Tokens in a row.
        document_end_id: int or `None`. The id after each document. Defaults to `None`:
            no id.
        pad_token_id: int. Defaults to `0`.
        documents_at_once: int. Defaults to `256`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids`, int32 `(row_length,)`; `padding_mask`, bool of that shape; and
        `sequence_ids`, int32 of that shape: 1, 2, ... for the documents of the row, and
        0 at padding.

    Example:

    ```python
    from keras_bertfam.layers.data.streams.document_stream import PackStream
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    pack = PackStream(tokenizer, 129, document_end_id=102)
    rows = keras_bertfam.layers.read_documents("corpus/*.txt").apply(pack)
    ```

    References:
        [Radford et al., 2019](
        https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf);
        [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 3.1.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        row_length: int,
        document_end_id: int | None = None,
        pad_token_id: int = 0,
        documents_at_once: int = 256,
    ) -> None:
        check_at_least(1, row_length=row_length, documents_at_once=documents_at_once)
        self.tokenizer = tokenizer
        self.row_length = row_length
        self.document_end_id = document_end_id
        self.pad_token_id = pad_token_id
        self.documents_at_once = documents_at_once

    @as_written
    def __call__(self, documents: TFDataset) -> TFDataset:
        batches = batches_of_texts(documents, self.documents_at_once)
        nothing = tf.zeros([0], tf.int32)
        end = tf.data.Dataset.from_tensors((nothing, nothing, True))
        chunks = batches.map(self._tokens, **PARALLEL).concatenate(end)
        state = (nothing, nothing, tf.constant(0))
        return chunks.scan(state, self._step).unbatch()

    def _tokens(self, documents):
        """Give the tokens of documents, and each token's document number."""
        lines, document = tokenize_sentences(self.tokenizer, documents, False)
        lengths = tf.math.segment_sum(tf.cast(lines.row_lengths(), tf.int32), document)
        tokens = tf.RaggedTensor.from_row_lengths(lines.flat_values, lengths)
        if self.document_end_id is not None:
            ends = tf.fill([tokens.nrows(), 1], self.document_end_id)
            tokens = tf.concat([tokens, ends], 1)
        return tokens.flat_values, tf.cast(tokens.value_rowids(), tf.int32), False

    def _step(self, state, chunk):
        tokens, owner, seen = state
        new_tokens, new_owner, last = chunk
        tokens = tf.concat([tokens, new_tokens], 0)
        owner = tf.concat([owner, new_owner + seen], 0)
        seen += tf.reduce_max(tf.pad(new_owner + 1, [[0, 1]]))
        full = tf.size(tokens) // self.row_length
        missing = tf.where(last, -tf.size(tokens) % self.row_length, 0)
        count = tf.where(missing > 0, full + 1, full)
        inside = tf.ones_like(tokens, tf.bool)

        def rows(values, fill):
            padded = tf.pad(values, [[0, missing]], constant_values=fill)
            cut = padded[: count * self.row_length]
            return tf.reshape(cut, [-1, self.row_length])

        owners = rows(owner, -1)
        first = owners[:, :1]
        out = {
            "token_ids": rows(tokens, self.pad_token_id),
            "padding_mask": rows(inside, False),
            "sequence_ids": tf.where(owners >= 0, owners - first + 1, 0),
        }
        left = full * self.row_length
        return (tokens[left:], owner[left:], seen), out


class StreamRows(PackedRows):
    """Documents as one stream that is cut into full rows, or as in `PackedRows`.

    Args:
        tokenizer: see `PackedRows`.
        sequence_length: int. Tokens in a row.
        start_token_id: int or `None`. The id that begins each row of `PackedRows`; rows
            of the stream have none.
        end_token_id: int or `None`. The id that ends each row of `PackedRows`, and each
            document of the stream.
        sequence_ids: see `PackedRows`.
        packing: `"stream"` or one of `PackedRows`: the packing if the options name
            none.
    """

    packings: ClassVar[tuple[str, ...]] = ("stream", *PackedRows.packings)

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
        sequence_ids: bool = False,
        packing: str = "stream",
    ) -> None:
        super().__init__(
            tokenizer,
            sequence_length,
            start_token_id,
            end_token_id,
            packing=packing,
            sequence_ids=sequence_ids,
        )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if is_prepared(documents) or packing != "stream":
            return super().prepare(documents, options)
        pack = PackStream(
            self.tokenizer,
            self.sequence_length,
            self.end_token_id,
            self.tokenizer.pad_token_id,
        )
        rows = documents.apply(pack)
        return rows if self.sequence_ids else rows.map(_without_sequences)

    def token_rows(self, options: BatchOptions) -> TokenRows:
        if self.check_packing(options.packing or self.packing) != "stream":
            return super().token_rows(options)
        kind = RowKind("stream", self.sequence_length, self.end_token_id)

        def lay_out(found, seed):
            rows = blocks(found, None, None, self.tokenizer.pad_token_id)
            return rows if self.sequence_ids else _without_sequences(rows)

        return TokenRows(kind, lay_out)


def _without_sequences(row):
    return {name: x for name, x in row.items() if name != "sequence_ids"}


class CorruptedRows(StreamRows):
    """Rows of text from which a corruption makes inputs and targets.

    With `packing="best_fit"` each document, or each piece of a long one, is corrupted
    separately, anew in each pass. Rows then hold as many inputs and targets as fit.

    Args:
        tokenizer: see `PackedRows`.
        sequence_length: int. Tokens of text.
        layout: `PairLayout` of inputs and targets.
        corrupt: function of ragged ids `(batch, None)` and a seed, to the ragged
            tensors of `PairLayout.rows`. With `tight=True` they are no longer than
            `rooms` says.
        rooms: int array `(sequence_length + 1, 2)`: the most tokens of inputs and
            targets. Row `n` is for texts of `n` tokens.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        layout: PairLayout,
        corrupt: Callable[..., dict[str, TFRagged]],
        rooms: np.ndarray,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        self.layout = layout
        self.corrupt = corrupt
        self.rooms = rooms

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if not is_prepared(documents) and packing == "best_fit":
            documents = whole_texts(documents, options.break_lines)
            documents = documents.map(self._sequences, **PARALLEL)
        else:
            documents = super().prepare(documents, options)
        if _is_ragged(documents) and options.tokens_per_batch is not None:
            raise ValueError(
                '`tokens_per_batch` must be `None` with packing="best_fit", which '
                f"makes full rows. Received: {options.tokens_per_batch}."
            )
        return documents

    def shared_rows(self) -> TokenRows:
        lengths = [self.layout.sequence_length, self.layout.target_length]
        room = max(lengths)
        costs = np.max(-(-self.rooms.astype(np.int64) * room // lengths), 1)
        sharing = Sharing(room, tuple(costs.tolist()))
        kind = RowKind("pieces", self.sequence_length, sharing=sharing)

        def lay_out(found, seed):
            sequences = self.corrupt(texts_in(found), seed, tight=True)
            return self.layout.packed_rows(sequences, found["row"])

        return TokenRows(kind, lay_out)

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        if not _is_ragged(prepared):
            return prepared

        def packed(number, texts):
            sequences = self.corrupt(texts["token_ids"], fold(seed, number))
            return self.layout.packed_rows(sequences)

        return prepared.enumerate().map(packed, **PARALLEL).unbatch()


def _is_ragged(dataset):
    """Tell whether a dataset has batches of texts that aren't corrupted yet."""
    return isinstance(dataset.element_spec["token_ids"], tf.RaggedTensorSpec)
