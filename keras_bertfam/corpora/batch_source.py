"""Batches of a prepared corpus: the numbers of their rows, and the rows' content."""

import dataclasses
import functools
import json
import os

import numpy as np

from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.corpora.permutation import permuted
from keras_bertfam.corpora.row_kinds import RowKind, Sharing
from keras_bertfam.corpora.row_reader import ENDS, STARTS, RowReader

# For rows that continue from batch to batch: after so many batches at most, a row goes
# to another place of the corpus.
_STEPS = 64


@dataclasses.dataclass(frozen=True)
class BatchSource:
    """The batches of a corpus; each depends on seed, pass and batch number alone.

    A permutation of all rows depends on seed and pass. Batch `k` has the rows at places
    `k * batch_size` to `(k + 1) * batch_size - 1` of it. They are computed, so no other
    batch has to be read first, and no list of rows is held in memory.

    Args:
        folder: path of the corpus.
        kind: `RowKind`. With `"windows"`, row `i` of a batch continues row `i` of the
            batch before, for up to 64 batches.
        batch_size: int.
        seed: int.
        pad_token_id: int.
        shuffled: bool.
        drop_remainder: bool. Whether the last batch is left out if it isn't full.
        slices: int. Number of parts in which a batch is read.
        partners: bool. Whether each row comes with a random one of another document.
        both_directions: bool. Whether half of the windows are read backwards.
        cache: see `RowIndex`.
        manifest: see `RowIndex`.
    """

    folder: str
    kind: RowKind
    batch_size: int
    seed: int = 0
    pad_token_id: int = 0
    shuffled: bool = True
    drop_remainder: bool = True
    slices: int = 1
    partners: bool = False
    both_directions: bool = False
    cache: str | None = None
    manifest: Manifest | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    @functools.cached_property
    def reader(self) -> RowReader:
        """RowReader: the reader of rows."""
        return RowReader(
            self.folder, self.kind, self.pad_token_id, self.manifest, self.cache
        )

    def to_json(self) -> str:
        """Write all fields but the manifest, for `from_json` in another process."""
        fields = {**vars(self), "kind": dataclasses.asdict(self.kind)}
        names = [field.name for field in dataclasses.fields(self)]
        names.remove("manifest")
        fields |= {"folder": os.path.abspath(self.folder)}
        return json.dumps({name: fields[name] for name in names})

    @classmethod
    def from_json(cls, text: str | bytes) -> "BatchSource":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        kind = fields.pop("kind")
        if kind["sharing"] is not None:
            costs = ("costs", "single_costs")
            tables = {key: kind["sharing"][key] for key in costs}
            tables = {key: x if x is None else tuple(x) for key, x in tables.items()}
            kind["sharing"] = Sharing(**{**kind["sharing"], **tables})
        return cls(kind=RowKind(**kind), **fields)

    @functools.cached_property
    def batches(self) -> int:
        """int: number of batches in a pass.

        Raises:
            ValueError: if the corpus is too small for one batch.
        """
        count = self.reader.index.count
        if self.kind.kind == "windows":
            batches = self._turns * self._steps
        else:
            rest = 0 if self.drop_remainder else self.batch_size - 1
            batches = (count + rest) // self.batch_size
        if batches < 1:
            what = "rows" if count else "text"
            raise ValueError(
                f"The corpus must have {what} for a batch at least: prepare more text, "
                "or make `batch_size` or `sequence_length` smaller. Received: "
                f"batch_size={self.batch_size}, and {count} rows of {self.kind.length} "
                f"tokens in {self.folder}."
            )
        return batches

    def read(self, epoch: int, batch: int, part: int = 0) -> dict[str, np.ndarray]:
        """Read a slice of a batch.

        Args:
            epoch: int. The pass.
            batch: int.
            part: int in [0, `slices`).

        Returns:
            The dict of `RowReader.read`. With `partners`, it has the same for the
            partners, under `other_...`. If sequences share rows, the dict is of
            sequences, and has `row`, int32 `(sequences,)`: the row of each. For windows
            it has `token_ids`; `starts_sentence`, bool of the same shape; and
            `continues` and `reversed_rows`, bool `(rows,)`.

        Raises:
            OSError, ValueError: as `RowReader.read`.
        """
        if self.kind.kind == "windows":
            return self._read_windows(epoch, batch, part)
        return self.read_rows(self.rows(epoch, batch, part), epoch)

    def read_rows(self, numbers: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        """Read rows by their numbers, with the partners of a pass; see `read`."""
        numbers, row = self.reader.index.sequences(numbers)
        shared = {}
        if self.kind.sharing is not None:
            shared = {"row": row.astype(np.int32)}
        if not self.partners:
            return {**self.reader.read(numbers), **shared}
        others = self.reader.others(numbers, self.seed, epoch, 1)
        found = self.reader.read(np.concatenate([numbers, others]))
        count = len(numbers)
        own = {name: x[:count] for name, x in found.items()}
        other = {f"other_{name}": x[count:] for name, x in found.items()}
        return {**own, **other, **shared}

    def rows(self, epoch: int, batch: int, part: int = 0) -> np.ndarray:
        """Number the rows of a slice of a batch, int64 `(rows,)`."""
        if self.kind.kind == "windows":
            return self._windows(epoch, batch, part)[0]
        size = self.batch_size // self.slices
        begin = batch * self.batch_size + part * size
        end = min(begin + size, self.reader.index.count)
        return self._in_order(np.arange(begin, end), self.reader.index.count, epoch)

    def _in_order(self, places, count, epoch):
        return permuted(places, count, self.seed, epoch) if self.shuffled else places

    @property
    def _streams(self):
        return self.batch_size // (2 if self.both_directions else 1)

    @functools.cached_property
    def _turns(self):
        """int: number of places in the corpus where a stream reads during a pass."""
        return -(-(self.reader.index.count // self._streams) // _STEPS)

    @functools.cached_property
    def _steps(self):
        """int: number of batches that a stream reads in one place."""
        return self.reader.index.count // self._streams // max(self._turns, 1)

    def _windows(self, epoch, batch, part):
        """Find the windows of a slice of a batch, and the windows read before them.

        Both are the same windows in the first batch of a place.
        """
        # Ten windows, two streams, not shuffled: each stream has a place of 5 windows.
        # Batch 3 has windows [3, 8], after [2, 7]. With `both_directions` and two more
        # rows, these read from the end of each place: [3, 8, 1, 6], after [2, 7, 2, 7].
        turn, step = divmod(batch, self._steps)
        size = self._streams // self.slices
        places = turn * self._streams + part * size + np.arange(size)
        stretches = self.reader.index.count // self._steps
        begins = self._in_order(places, stretches, epoch) * self._steps
        numbers, last = begins + step, begins - 1 + self._steps
        before = numbers - min(step, 1)
        if self.both_directions:
            numbers = np.concatenate([numbers, last - step])
            before = np.concatenate([before, last - step + min(step, 1)])
        return numbers, before

    def _read_windows(self, epoch, batch, part):
        numbers, before = self._windows(epoch, batch, part)
        bounds = self.reader.index.bounds
        shards, others = (
            np.searchsorted(bounds, x, side="right") for x in (numbers, before)
        )
        found = self.reader.read(numbers)
        ids, marks = found["token_ids"], found["marks"]
        reversed_rows = np.arange(len(ids)) >= self._streams // self.slices
        starts = marks & STARTS > 0
        starts[reversed_rows] = (marks & ENDS > 0)[reversed_rows, ::-1]
        ids[reversed_rows] = ids[reversed_rows, ::-1]
        return {
            "token_ids": ids,
            "starts_sentence": starts,
            "continues": (numbers != before) & (shards == others),
            "reversed_rows": reversed_rows,
        }
