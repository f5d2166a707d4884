"""Several prepared corpora in place of one."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.corpora.mixed_source import MixedSource
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.documents.shares import SamplingLaw
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus


@dataclasses.dataclass(frozen=True)
class TokenMixture(TokenCorpus):
    """A mixture of prepared corpora; see `sample_corpora`.

    All corpora have the same tokenizer and settings of reading. The attributes of a
    `TokenCorpus` are those of the first one. Rows always come in random order.

    Args:
        folder, manifest, num_workers, worker_index, num_slices, epoch, cache: see
            `TokenCorpus`.
        corpora: dict from names to `TokenCorpus`.
        law: `SamplingLaw`.
    """

    corpora: Mapping[str, TokenCorpus] = dataclasses.field(default_factory=dict)
    law: SamplingLaw = dataclasses.field(default_factory=lambda: SamplingLaw({}, {}))

    @property
    def repeats(self) -> dict[str, float]:
        """dict: from names to how often a pass has each row of the corpus."""
        return self.law.repeats

    def changed(
        self, exponent: float | None = None, names: Collection[str] | None = None
    ) -> "TokenMixture":
        """Mix the same corpora in another way, see `SamplingLaw.changed`."""
        law = self.law.changed(exponent, names)
        corpora = {name: self.corpora[name] for name in law.texts}
        return dataclasses.replace(self, corpora=corpora, law=law)

    def count_tokens(self) -> np.ndarray:
        """Count how often each token occurs in a pass, on average.

        Returns:
            An int64 array of shape `(vocabulary_size,)`.
        """
        repeats = self.repeats
        counts: Any = sum(
            corpus.count_tokens() * repeats[name]
            for name, corpus in self.corpora.items()
        )
        return np.round(counts).astype(np.int64)

    def batch_source(
        self, kind: RowKind, batch_size: int, **settings: Any
    ) -> BatchSource | MixedSource:
        made: Any = [
            corpus.batch_source(kind, batch_size, **settings)
            for corpus in self.corpora.values()
        ]
        own = self.repeats
        return MixedSource(tuple(made), tuple(own[name] for name in self.corpora))
