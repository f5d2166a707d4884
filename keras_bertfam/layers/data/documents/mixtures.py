"""Documents of several corpora; small corpora are read more often."""

from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.corpora.permutation import permuted
from keras_bertfam.layers.data.documents.reading import whole_documents
from keras_bertfam.layers.data.documents.shares import SamplingLaw
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.tokenizers.texts import (
    MixedDocuments,
    check_documents,
    without_languages,
)
from keras_bertfam.types import TFDataset, TFTensor

_TURNS_AT_ONCE = 1024


@as_written
def count_text(documents: TFDataset) -> tuple[int, int]:
    """Count whole documents and their characters, by reading them once."""

    def add(counts, pieces):
        texts = without_languages(pieces)
        size = tf.reduce_sum(tf.strings.length(texts, unit="UTF8_CHAR"))
        return counts + tf.stack([tf.constant(1, tf.int64), tf.cast(size, tf.int64)])

    zeros = tf.zeros(2, tf.int64)
    counted = whole_documents(documents).reduce(zeros, add)
    return int(counted[0]), int(counted[1])


class DocumentMixture(MixedDocuments):
    """Documents of several corpora by their shares; see `sample_corpora`.

    All passes have the same number of documents of a corpus. A pass goes on where the
    one before stopped, and from the last document to the first. The documents come in
    turns of one corpus each, and the turns are in random order.

    Args:
        corpora: dict from names to `tf.data.Dataset`s of scalar strings.
        sizes: dict from names to the number of documents of each corpus.
        law: `SamplingLaw`.
        consecutive: int. The number of documents of a turn.

    Attributes:
        repeats: dict from names to how often a pass has each document of the corpus.
        counts: dict from names to how many documents of the corpus a pass has.
    """

    def __init__(
        self,
        corpora: Mapping[str, TFDataset],
        sizes: Mapping[str, int],
        law: SamplingLaw,
        consecutive: int = 16,
    ) -> None:
        self.corpora = {name: check_documents(corpora[name]) for name in corpora}
        self.sizes = dict(sizes)
        self.law = law
        self.repeats = law.repeats
        self.consecutive = consecutive
        self.counts = {n: max(1, round(sizes[n] * self.repeats[n])) for n in corpora}

    def changed(
        self, exponent: float | None = None, names: Collection[str] | None = None
    ) -> "DocumentMixture":
        """Mix the same corpora in another way, see `SamplingLaw.changed`."""
        law = self.law.changed(exponent, names)
        corpora, sizes = (
            {name: each[name] for name in law.texts}
            for each in (self.corpora, self.sizes)
        )
        return DocumentMixture(corpora, sizes, law, self.consecutive)

    def turns(self, numbers: np.ndarray, *seed: int) -> np.ndarray:
        """Tell which corpus each document of given turns comes from.

        Args:
            numbers: int array, numbers of turns of a pass.
            *seed: ints. The seed of the order.

        Returns:
            int64 array: the number of a corpus for each document of these turns.
        """
        counts = np.array([*self.counts.values()])
        ends = np.cumsum(-(-counts // self.consecutive))
        drawn = permuted(numbers, int(ends[-1]), *seed)
        chosen = np.searchsorted(ends, drawn, side="right")
        rest = (counts - 1) % self.consecutive + 1  # documents of the last turn
        sizes = np.where(drawn == ends[chosen] - 1, rest[chosen], self.consecutive)
        return np.repeat(chosen, sizes)

    @as_written
    def of_pass(self, epoch: int | TFTensor, seed: int = 0) -> TFDataset:
        epoch = tf.cast(epoch, tf.int64)
        parts = []
        for name, count in self.counts.items():
            begin = epoch * count % self.sizes[name]
            whole = whole_documents(self.corpora[name])
            parts.append(whole.repeat().skip(begin).take(count))

        def chosen(numbers):
            turns = tf.numpy_function(
                lambda numbers, epoch: self.turns(numbers, seed, epoch),
                [numbers, epoch],
                tf.int64,
                stateful=False,
            )
            return tf.ensure_shape(turns, [None])

        turns = sum(-(-count // self.consecutive) for count in self.counts.values())
        numbers = tf.data.Dataset.range(turns).batch(_TURNS_AT_ONCE)
        choices = numbers.map(chosen, **PARALLEL).unbatch()
        return tf.data.Dataset.choose_from_datasets(
            parts, choices, stop_on_empty_dataset=False
        ).unbatch()
