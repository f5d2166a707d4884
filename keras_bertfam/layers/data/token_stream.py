"""Documents as one stream of tokens, cut into full rows."""

import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.documents import tokenize_sentences
from keras_bertfam.layers.data.pipelines import PARALLEL, check_at_least
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset, Tokenizer


@checked
class PackStream:
    """Cuts the tokens of all documents into full rows: use it with `Dataset.apply`.

    Rows begin and end anywhere, in the middle of sentences and documents; only the last
    one may be padded.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        row_length: int. Tokens in a row.
        document_end_id: int or `None`. The id that goes after each document. Defaults
            to `None`: nothing does.
        pad_token_id: int. Defaults to `0`.
        documents_at_once: int. Defaults to `256`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids`, int32 `(row_length,)`; `padding_mask`, bool of that shape; and
        `sequence_ids`, int32 of that shape: which document of the row each token is
        of, 1, 2, ..., and 0 at padding.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    pack = keras_bertfam.layers.PackStream(tokenizer, 129, document_end_id=102)
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
        batches = check_documents(documents).batch(self.documents_at_once)
        nothing = tf.zeros([0], tf.int32)
        end = tf.data.Dataset.from_tensors((nothing, nothing, True))
        chunks = batches.map(self._tokens, **PARALLEL).concatenate(end)
        state = (nothing, nothing, tf.constant(0))
        return chunks.scan(state, self._step).unbatch()

    def _tokens(self, documents):
        """Take the tokens of documents, and the number of the document of each."""
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
