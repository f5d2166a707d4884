"""Batches of several prepared corpora; each corpus has its own number of repeats."""

import dataclasses
import functools
import json

import numpy as np

from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.corpora.permutation import permuted
from keras_bertfam.corpora.row_kinds import RowKind


@dataclasses.dataclass(frozen=True)
class MixedSource:
    """Mixed batches of corpora; each depends on seed, pass and batch number alone.

    Each corpus has a random order of its rows. A pass takes the next rows of each
    order, as many as in any other pass, and mixes the corpora at random. After the last
    row of a corpus a new order begins. Rows are computed, as in `BatchSource`, so no
    other batch has to be read first.

    Args:
        sources: tuple of `BatchSource`, which differ in their corpora only.
        repeats: tuple of floats. How often a pass reads each corpus: 2 is twice, 0.5 is
            half of its rows.

    Raises:
        ValueError: for rows that continue from batch to batch.
    """

    sources: tuple[BatchSource, ...]
    repeats: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.kind.kind == "windows":
            raise ValueError(
                "`documents` must be one prepared corpus, or mixed text, where rows go "
                "on from batch to batch. Received: prepared corpora that are mixed."
            )

    @property
    def kind(self) -> RowKind:
        """RowKind: the kind of rows, the same for all corpora."""
        return self.sources[0].kind

    @property
    def batch_size(self) -> int:
        """int: number of rows in a batch."""
        return self.sources[0].batch_size

    @property
    def slices(self) -> int:
        """int: number of parts in which a batch is read."""
        return self.sources[0].slices

    @property
    def drop_remainder(self) -> bool:
        """bool: whether the last batch is left out if it isn't full."""
        return self.sources[0].drop_remainder

    @property
    def partners(self) -> bool:
        """bool: whether each row comes with one of another document of its corpus."""
        return self.sources[0].partners

    @property
    def both_directions(self) -> bool:
        """bool: whether half of the rows are read backwards."""
        return self.sources[0].both_directions

    def to_json(self) -> str:
        """Write all but the manifests, for `source_from_json` in another process."""
        return json.dumps(
            {
                "sources": [source.to_json() for source in self.sources],
                "repeats": self.repeats,
            }
        )

    @functools.cached_property
    def _sizes(self):
        """int64 array: number of rows in each corpus."""
        sizes = [source.reader.index.count for source in self.sources]
        for source, size in zip(self.sources, sizes, strict=True):
            if not size:
                raise ValueError(
                    "`corpora` must have text for a row each. Received: none of "
                    f"{self.kind.length} tokens in {source.folder}."
                )
        return np.array(sizes, np.int64)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """int64 array: number of rows that a pass takes from each corpus."""
        return np.maximum(1, np.round(self._sizes * self.repeats)).astype(np.int64)

    @functools.cached_property
    def batches(self) -> int:
        """int: number of batches in a pass.

        Raises:
            ValueError: if there are too few rows for one batch, or a corpus has none.
        """
        count = int(self.counts.sum())
        rest = 0 if self.drop_remainder else self.batch_size - 1
        batches = (count + rest) // self.batch_size
        if batches < 1:
            raise ValueError(
                "The corpora must have rows for a batch at least: prepare more text, "
                "or make `batch_size` or `sequence_length` smaller. Received: "
                f"batch_size={self.batch_size}, and {count} rows of "
                f"{self.kind.length} tokens."
            )
        return batches

    def rows(
        self, epoch: int, batch: int, part: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number the rows of a slice of a batch.

        Args:
            epoch: int. The pass.
            batch: int.
            part: int in [0, `slices`).

        Returns:
            Three int64 arrays `(rows,)`: the number of the corpus, of the pass over
            this corpus, and of the row in it.
        """
        # Corpora of 4 and 10 rows, with repeats 2 and 0.5: 8 and 5 rows a pass. If
        # `drawn` has 9, this is place 1 of corpus 1. In epoch 3 it is its place
        # 1 + 3 * 5 = 16: place 6 of pass 1 over its 10 rows.
        seed = self.sources[0].seed
        ends = np.cumsum(self.counts)
        size = self.batch_size // self.slices
        begin = batch * self.batch_size + part * size
        places = np.arange(begin, min(begin + size, int(ends[-1])))
        drawn = permuted(places, int(ends[-1]), seed, epoch)
        chosen = np.searchsorted(ends, drawn, side="right")
        place = drawn - (ends - self.counts)[chosen] + epoch * self.counts[chosen]
        passes, numbers = np.divmod(place, self._sizes[chosen])
        for corpus, number in {*zip(chosen.tolist(), passes.tolist(), strict=True)}:
            own = (chosen == corpus) & (passes == number)
            count = int(self._sizes[corpus])
            numbers[own] = permuted(numbers[own], count, seed, number)
        return chosen, passes, numbers

    def read(self, epoch: int, batch: int, part: int = 0) -> dict[str, np.ndarray]:
        """Read a slice of a batch; see `BatchSource.read`."""
        chosen, passes, numbers = self.rows(epoch, batch, part)
        found, rows = [], []
        for corpus, number in sorted(
            {*zip(chosen.tolist(), passes.tolist(), strict=True)}
        ):
            (places,) = np.nonzero((chosen == corpus) & (passes == number))
            read = self.sources[corpus].read_rows(numbers[places], number)
            found.append(read)
            rows.append(places[read["row"]] if "row" in read else places)
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        pad = self.sources[0].pad_token_id
        out = {
            name: _joined([each[name] for each in found], _blank(name, pad))[order]
            for name in found[0]
        }
        if "row" in out:
            out["row"] = row[order].astype(np.int32)
        return out


def _blank(name, pad):
    return pad if name.endswith("token_ids") else 0


def _joined(arrays, blank):
    """Concatenate arrays of rows, filled up to the width of the widest."""
    if arrays[0].ndim == 1:
        return np.concatenate(arrays)
    width = max(array.shape[1] for array in arrays)
    return np.concatenate(
        [
            np.pad(x, [(0, 0), (0, width - x.shape[1])], constant_values=blank)
            for x in arrays
        ]
    )


def source_from_json(text: str | bytes) -> BatchSource | MixedSource:
    """Read what `to_json` of either kind of source wrote."""
    fields = json.loads(text)
    if "repeats" not in fields:
        return BatchSource.from_json(text)
    sources = tuple(map(BatchSource.from_json, fields["sources"]))
    return MixedSource(sources, tuple(fields["repeats"]))
