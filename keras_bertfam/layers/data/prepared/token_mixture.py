"""Several prepared corpora in place of one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.corpora.mixed_source import MixedSource
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus


@dataclasses.dataclass(frozen=True)
class TokenMixture(TokenCorpus):
    """Prepared corpora that are mixed; see `sample_corpora`.

    What it has of a `TokenCorpus` is the first one's: all have the same tokenizer, and
    are read in the same way. Rows always come in random order.

    Args:
        folder: see `TokenCorpus`, and so are those up to `cache`.
        manifest: `Manifest`.
        num_workers: int.
        worker_index: int.
        num_slices: int.
        epoch: int or `None`.
        cache: path or `None`.
        corpora: dict from names to `TokenCorpus`.
        repeats: dict from names to how often a pass has each row.
    """

    corpora: Mapping[str, TokenCorpus] = dataclasses.field(default_factory=dict)
    repeats: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def count_tokens(self) -> np.ndarray:
        """Count how often each token occurs in a pass, on average.

        Returns:
            An int64 array of shape `(vocabulary_size,)`.
        """
        counts: Any = sum(
            corpus.count_tokens() * self.repeats[name]
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
        repeats = [self.repeats[name] for name in self.corpora]
        return MixedSource(tuple(made), tuple(repeats))
