"""Packing of documents into token blocks of a fixed length."""

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.documents.reading import (
    tokenize_sentences,
    warn_if_short,
)
from keras_bertfam.layers.data.limited_parts import batches_of_texts, block_starts
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_rows import blocks
from keras_bertfam.types import TFDataset, TFTensor, Tokenizer


@checked
class PackSentences:
    """Packs the sentences of documents into blocks: use it with `Dataset.apply`.

    A block is `[start] sentences [end]`, padded; either token can be left out. It takes
    sentences while they fit. A sentence longer than a block is cut into pieces, so no
    text is lost.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        sequence_length: int. The length of a block, special tokens included.
        start_token_id: int or `None`. The id that begins each block. Defaults to
            `None`: blocks begin with text.
        end_token_id: int or `None`. The id that ends each block, and the separator
            between documents. Defaults to `None`: blocks end with text, and documents
            follow each other without a separator.
        pad_token_id: int. Defaults to `0`.
        cross_documents: bool. `True` packs FULL-SENTENCES: a block goes on with the
            next document after a separator. `False` packs DOC-SENTENCES: a block ends
            with its document. Defaults to `True`.
        sentence_end_id: int or `None`. An id put at the end of each sentence.
        sequence_ids: bool. Whether `sequence_ids` number the documents of a block.
            Defaults to `False`.
        break_lines: bool. See `split_sentences`. Defaults to `True`.
        documents_at_once: int. The most documents that are tokenised together. Defaults
            to `1024`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids`, int32 `(sequence_length,)`, `padding_mask`, bool of that
        shape, and `sequence_ids`, int32 of that shape: 1, 2, ... and 0 at
        padding.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    pack = keras_bertfam.layers.PackSentences(
        tokenizer, 128, start_token_id=101, end_token_id=102)
    blocks = keras_bertfam.layers.read_documents("corpus/*.txt").apply(pack)
    ```

    References:
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
        pad_token_id: int = 0,
        cross_documents: bool = True,
        sentence_end_id: int | None = None,
        sequence_ids: bool = False,
        break_lines: bool = True,
        documents_at_once: int = 1024,
    ) -> None:
        specials = sum(x is not None for x in (start_token_id, end_token_id))
        if sequence_length < 1 + specials:
            raise ValueError(
                f"`sequence_length` must be at least {1 + specials}, for one token "
                f"and {specials} special tokens. Received: {sequence_length}."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        self.pad_token_id = pad_token_id
        self.cross_documents = cross_documents
        self.sentence_end_id = sentence_end_id
        self.sequence_ids = sequence_ids
        self.break_lines = break_lines
        self.documents_at_once = documents_at_once
        self._budget = sequence_length - specials
        self._warn_if_short = warn_if_short(sequence_length)

    @as_written
    def __call__(self, documents: TFDataset) -> TFDataset:
        # Units, chunk by chunk: tokens, lengths, and the document of each unit.
        batches = batches_of_texts(documents, self.documents_at_once)
        chunks = batches.map(self._units, **PARALLEL)
        nothing = tf.zeros([0], tf.int32)
        end = tf.data.Dataset.from_tensors((nothing, nothing, nothing, True))
        state = (nothing, nothing, nothing, tf.constant(0))
        return chunks.concatenate(end).scan(state, self._step).unbatch()

    def _units(self, documents):
        """Tokenise documents to tokens, lengths, and document numbers."""
        tokens, document = tokenize_sentences(
            self.tokenizer, documents, self.break_lines
        )
        if self.sentence_end_id is not None:
            end = tf.fill([tokens.nrows(), 1], self.sentence_end_id)
            tokens = tf.concat([tokens, end], 1)
        budget = self._budget
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        if not self.cross_documents:
            self._warn_if_short(lengths, document)
        lengths, sentence = cut(lengths, budget)
        return tokens.flat_values, lengths, tf.gather(document, sentence), False

    def _step(self, state, chunk):
        tokens, lengths, document, seen = state
        new_tokens, new_lengths, new_document, last = chunk
        count = tf.reduce_max(tf.pad(new_document + 1, [[0, 1]]))
        new_document += seen
        seen += count
        if self.cross_documents and self.end_token_id is not None:
            new_tokens, new_lengths, new_document = self._separate(
                new_tokens, new_lengths, new_document
            )
        tokens = tf.concat([tokens, new_tokens], 0)
        lengths = tf.concat([lengths, new_lengths], 0)
        document = tf.concat([document, new_document], 0)
        starts = block_starts(
            lengths,
            self._budget,
            None if self.cross_documents else document,
        )
        # The last block stays open until a unit comes that doesn't fit.
        closed = tf.size(starts) - tf.where(last, 0, tf.minimum(tf.size(starts), 1))
        bounds = tf.concat([starts, [tf.size(lengths)]], 0)
        token_bounds = tf.gather(tf.cumsum(tf.pad(lengths, [[1, 0]])), bounds)
        rows = self._blocks(tokens, lengths, document, token_bounds[: closed + 1])
        unit, token = bounds[closed], token_bounds[closed]
        return (tokens[token:], lengths[unit:], document[unit:], seen), rows

    def _separate(self, tokens, lengths, document):
        """Put a separator, as a unit, before each document except the first."""
        first = tf.concat([document[:1] > 0, document[1:] != document[:-1]], 0)
        rows = ragged.from_lengths(tokens, lengths)
        counts = tf.cast(first, tf.int32)
        separators = ragged.from_lengths(
            tf.fill([tf.reduce_sum(counts)], self.end_token_id), counts
        )
        tokens = tf.concat([separators, rows], 1).flat_values
        both = tf.stack([counts, lengths], 1)
        # The separator belongs to the document that it ends.
        owners = tf.stack([document - 1, document], 1)
        keep = both > 0
        return tokens, ragged.keep(both, keep), ragged.keep(owners, keep)

    def _blocks(self, tokens, lengths, document, bounds):
        """Lay out the tokens between `bounds`, the first of which is 0, in rows."""

        def rows(values, fill):
            parts = tf.RaggedTensor.from_row_splits(
                values[: bounds[-1]], bounds, validate=False
            )
            return parts.to_tensor(fill, shape=[None, self._budget])

        owners = rows(tf.repeat(document, lengths), 0)
        sizes = bounds[1:] - bounds[:-1]
        inside = tf.sequence_mask(sizes, self._budget)
        found = {
            "token_ids": rows(tokens, self.pad_token_id),
            "sequence_ids": tf.where(inside, owners - owners[:, :1] + 1, 0),
            "lengths": sizes,
        }
        out = blocks(found, self.start_token_id, self.end_token_id, self.pad_token_id)
        if not self.sequence_ids:
            del out["sequence_ids"]
        return out


def cut(lengths: TFTensor, budget: int) -> tuple[TFTensor, TFTensor]:
    """Cut sequences that are longer than a budget into pieces.

    All pieces of a sequence except the last are as long as the budget.

    Args:
        lengths: int32 tensor of shape `(n,)`.
        budget: int.

    Returns:
        Int32 tensors of shape `(pieces,)`: the pieces' lengths, and the number of the
        sequence that each is a piece of.
    """
    # Example: lengths 3, 7 and a budget of 3 give pieces of 3, 3, 3, 1 tokens, of the
    # sequences 0, 1, 1, 1.
    counts = -(-lengths // budget)
    whole = tf.repeat(tf.range(tf.size(lengths)), counts)
    index = tf.ragged.range(counts).flat_values
    return tf.minimum(tf.gather(lengths, whole) - index * budget, budget), whole


def whole_texts(
    documents: TFDataset, break_lines: bool, packing: str = "best_fit"
) -> TFDataset:
    """Batch whole texts, for `packing="best_fit"` and others.

    Raises:
        ValueError: for `break_lines=False`, which has no meaning for whole texts.
    """
    if not break_lines:
        raise ValueError(
            f'`break_lines` must be `True` with packing="{packing}", which packs whole '
            "texts. Received: break_lines=False."
        )
    return batches_of_texts(documents, 1024)


def not_empty(dataset: TFDataset, message: str) -> TFDataset:
    """Make a pass over `dataset` raise an error if it ends without any element.

    Args:
        dataset: `tf.data.Dataset` of dense tensors.
        message: string. The message of the `tf.errors.InvalidArgumentError`.

    Returns:
        A `tf.data.Dataset` with the same elements.
    """
    placeholder = tf.nest.map_structure(
        lambda spec: tf.zeros([size or 0 for size in spec.shape], spec.dtype),
        dataset.element_spec,
    )

    def step(seen, marked):
        element, last = marked
        tf.debugging.Assert(seen | ~last, [message])
        return tf.constant(True), (element, last)

    end = tf.data.Dataset.from_tensors((placeholder, True))
    marked = dataset.map(lambda element: (element, False)).concatenate(end)
    marked = marked.scan(tf.constant(False), step).take_while(lambda _, last: ~last)
    return marked.map(lambda element, _: element)
