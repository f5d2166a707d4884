"""Batches of a prepared corpus by number, read here or by workers of a service."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.corpora.manifest import TOKENIZER, Manifest
from keras_bertfam.corpora.mixed_source import MixedSource, source_from_json
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.corpora.shards import ShardReader
from keras_bertfam.layers.data import pipeline_warnings  # noqa: F401, by its name
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    check_at_least,
    register_by_name,
)
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import StreamPosition, batch_seed, fold
from keras_bertfam.types import Path, TFDataset, TFTensor


@checked
def data_worker(dispatcher_address: str, port: int = 0) -> Any:
    """Start a worker of `tf.data` service that can read prepared corpora.

    The service needs a dispatcher, any number of workers, and a trainer. Each is a
    process, on any machine that sees the corpus at the same path:

    ```text
    # The dispatcher:
    service = tf.data.experimental.service
    service.DispatchServer(service.DispatcherConfig(port=5050)).join()
    # A worker:
    keras_bertfam.layers.data_worker("localhost:5050").join()
    # The trainer, for each pass:
    corpus = keras_bertfam.layers.read_tokens("prepared", epoch=epoch)
    data = preprocessor.dataset(corpus, batch_size=64).apply(
        service.distribute(service.ShardingPolicy.DYNAMIC, "grpc://localhost:5050"))
    ```

    The batches are the same as without the service: each is a function of seed, pass
    and number. With `ShardingPolicy.DYNAMIC` a pass has each batch once, in the order
    in which they are ready. If a worker is killed, the pass lacks the batches that it
    was making.

    Args:
        dispatcher_address: str, `"host:port"`.
        port: int. The port to listen on; 0 for any free one. Defaults to `0`.

    Returns:
        A running `tf.data.experimental.service.WorkerServer`. Its `join()` waits until
        it ends.
    """
    service = tf.data.experimental.service
    config = service.WorkerConfig(dispatcher_address=dispatcher_address, port=port)
    return service.WorkerServer(config)


def read_by_name(
    source: str,
    names: list[str],
    types: list[tf.DType],
    epoch: TFTensor,
    batch: TFTensor,
    part: int,
) -> list[TFTensor]:
    """Read a slice of a batch by a function that other processes find by its name.

    Args:
        source: what `BatchSource.to_json` wrote.
        names: list of str. Which of the parts that are read to give.
        types: list of `tf.DType`, the dtypes of these parts.
        epoch: int64 scalar, the number of the pass.
        batch: int64 scalar, the number of the batch.
        part: int, the number of the slice.

    Returns:
        A list of tensors. Works in a graph.
    """
    inputs = [
        tf.constant(source),
        tf.constant(",".join(names)),
        epoch,
        batch,
        tf.constant(part, tf.int64),
    ]
    return tf.raw_ops.PyFuncStateless(input=inputs, token=_READ_IN_PROCESS, Tout=types)


def _read_in_process(source, names, epoch, batch, part):
    found = _source_from_json(source).read(int(epoch), int(batch), int(part))
    return [np.asarray(found[name]) for name in names.decode().split(",")]


_READ_IN_PROCESS = register_by_name(_read_in_process)
_source_from_json = functools.lru_cache(maxsize=8)(source_from_json)


_RECORDS_AT_ONCE = 4096


@checked
@dataclasses.dataclass(frozen=True)
class TokenCorpus:
    """A prepared corpus, which a preprocessor's `dataset` takes in place of documents.

    Args:
        folder: path.
        manifest: `Manifest`.
        num_workers, worker_index, num_slices, epoch, cache: see `read_tokens`.

    Example:

    ```python
    corpus = keras_bertfam.layers.read_tokens("prepared")
    counts = corpus.count_tokens()
    print(corpus.manifest.counts["tokens"], counts.argmax())
    ```
    """

    folder: str
    manifest: Manifest = dataclasses.field(repr=False)
    num_workers: int = 1
    worker_index: int = 0
    num_slices: int = 1
    epoch: int | None = None
    cache: str | None = None

    @property
    def tokenizer_folder(self) -> str:
        """str: the folder of the tokenizer, which `prepare` has saved as a preset."""
        return os.path.join(self.folder, TOKENIZER)

    def count_tokens(self) -> np.ndarray:
        """Count how often each token occurs, by reading the whole corpus.

        Returns:
            An int64 array of shape `(vocabulary_size,)`.
        """
        size = self.manifest.tokenizer["vocabulary_size"]
        counts = np.zeros(size, np.int64)
        for shard in self.manifest.shards:
            reader = ShardReader(f"{self.folder}/{shard.file}", self.manifest.dtype)
            for begin in range(0, len(reader), _RECORDS_AT_ONCE):
                end = min(begin + _RECORDS_AT_ONCE, len(reader))
                ids = [ids for ids, _ in reader.records(range(begin, end))]
                counts += np.bincount(np.concatenate(ids), minlength=size)
        return counts

    def batch_source(
        self, kind: RowKind, batch_size: int, **settings: Any
    ) -> BatchSource | MixedSource:
        """Make the object that reads batches.

        Args:
            kind: `RowKind`.
            batch_size: int.
            **settings: other arguments of `BatchSource`.
        """
        return BatchSource(
            self.folder,
            kind,
            batch_size,
            slices=self.num_slices,
            cache=self.cache,
            manifest=self.manifest,
            **settings,
        )


@checked
def read_tokens(
    folder: Path,
    num_workers: int = 1,
    worker_index: int = 0,
    num_slices: int | None = None,
    epoch: int | None = None,
    cache: Path | None = None,
) -> TokenCorpus:
    """Read a prepared corpus, which takes the place of documents and is tokenised.

    Pass the result to a preprocessor's `dataset`. The preprocessors of pre-training
    take it, except those that read words, characters, marks or titles of the text, and
    those for the user's own pairs.

    The order of a pass is a permutation of all rows. Batch `k` of a pass depends only
    on the preprocessor's seed, the pass, `k` and `num_slices`. Resuming a run makes no
    difference. Nothing is held in memory, and any batch can be read at once.

    The places of rows are found once for each sequence length and kind of rows, from
    the lengths of sentences, and kept in a folder beside the corpus. With
    `packing="best_fit"` this includes which documents, or pairs, share a row; it is the
    same in all passes.

    Args:
        folder: path of the folder that `python -m keras_bertfam prepare` wrote.
        num_workers: int. How many processes share each batch; this process reads its
            part of the `batch_size` rows. Leave it out under `tf.distribute`, which
            shares batches by itself. Defaults to `1`.
        worker_index: int in `[0, num_workers)`. Defaults to `0`.
        num_slices: int, a multiple of `num_workers`. In how many slices each batch is
            made; each slice has its own seed for masks. Runs with equal `num_slices`
            have equal batches, masks included, with any number of workers. Defaults to
            `num_workers`.
        epoch: int or `None`. Read only this pass, whatever the preprocessor's
            `position` says, as `tf.data` service needs it. Defaults to `None`.
        cache: path of a folder for the places of rows, if the corpus's own folder can't
            be written. Defaults to `rows` within the corpus.

    Returns:
        A `TokenCorpus`.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: for a folder that isn't a whole prepared corpus, or an argument out
            of its range.

    Example:

    ```python
    corpus = keras_bertfam.layers.read_tokens("prepared")
    task = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    batches = task.preprocessor.dataset(corpus, batch_size=64)
    ```
    """
    slices = num_workers if num_slices is None else num_slices
    check_at_least(1, num_workers=num_workers, num_slices=slices)
    check_at_least(0, worker_index=worker_index, epoch=epoch)
    if worker_index >= num_workers or slices % num_workers:
        raise ValueError(
            "`worker_index` must be less than `num_workers`, which must divide "
            f"`num_slices`. Received: worker_index={worker_index}, "
            f"num_workers={num_workers}, num_slices={slices}."
        )
    return TokenCorpus(
        str(folder),
        Manifest.read(folder),
        num_workers,
        worker_index,
        slices,
        epoch,
        None if cache is None else str(cache),
    )


def token_batches(
    corpus: TokenCorpus,
    rows: Rows,
    options: BatchOptions,
    seed: int,
    position: StreamPosition | None,
    corrupt: Callable[[dict[str, TFTensor], TFTensor], Any],
) -> tuple[TFDataset, int]:
    """Make the batches of a prepared corpus.

    Args:
        corpus: `TokenCorpus`.
        rows: `Rows`.
        options: `BatchOptions`.
        seed: int.
        position: `StreamPosition`, or `None` for the first pass.
        corrupt: function of a batch of rows and its seed that gives an example.

    Returns:
        A `tf.data.Dataset` of the examples, and the number of batches of a pass.

    Raises:
        ValueError: for options that a prepared corpus can't have.
    """
    make, count = batch_maker(corpus, rows, options, seed, corrupt)
    return _numbers(count, position, corpus.epoch).map(make, **PARALLEL), count


def batch_maker(
    corpus: TokenCorpus,
    rows: Rows,
    options: BatchOptions,
    seed: int,
    corrupt: Callable[[dict[str, TFTensor], TFTensor], Any],
) -> tuple[Callable[[TFTensor, TFTensor], Any], int]:
    """Make a function that makes any batch of a prepared corpus; see `token_batches`.

    Returns:
        A function of the numbers of a pass and a batch, int64 scalars, that works in a
        graph; and the number of batches of a pass.
    """
    _check(corpus, options)
    made = rows.token_rows(options)
    source = corpus.batch_source(
        made.kind,
        options.rows,
        seed=seed,
        pad_token_id=rows.tokenizer.pad_token_id,
        shuffled=options.training and options.shuffle_buffer > 0,
        drop_remainder=options.drops or corpus.num_slices > 1,
        partners=made.partners,
        both_directions=made.both_directions,
    )
    _check_slices(corpus, source, made.least_streams)
    own = corpus.num_slices // corpus.num_workers
    parts = range(corpus.worker_index * own, (corpus.worker_index + 1) * own)

    def make(epoch, batch):
        if options.duplicates is not None:
            epoch = epoch % options.duplicates
        whole = batch_seed(seed, epoch, batch)
        examples = []
        for part in parts:
            own_seed = whole if corpus.num_slices == 1 else fold(whole, part)
            found = _read_slice(source, corpus.epoch is not None, epoch, batch, part)
            found = _with_size(source, made.lay_out(found, fold(own_seed, 2)))
            examples.append(corrupt(rows.complete(found, own_seed), own_seed))
        if len(examples) == 1:
            return examples[0]
        return tf.nest.map_structure(lambda *x: tf.concat(x, 0), *examples)

    return make, source.batches


def _numbers(count, position, epoch):
    """Make a dataset of the numbers of pass and batch, beginning at the position."""

    def of_pass(epoch, first):
        numbers = tf.data.Dataset.range(first, count)
        return numbers.map(lambda batch: (epoch, batch))

    if position is None or epoch is not None:
        return of_pass(tf.constant(epoch or 0, tf.int64), 0)
    # Not inside of `flat_map`: TensorFlow crashes if its function holds a table.
    start = tf.data.Dataset.range(1).map(lambda _: position.begin_pass())
    return start.flat_map(of_pass)


def _check(corpus, options):
    for name, value, wanted in (
        ("shuffle_documents", options.shuffle_documents, 0),
        ("break_lines", options.break_lines, True),
        ("tokens_per_batch", options.tokens_per_batch, None),
    ):
        if value != wanted:
            raise ValueError(
                f"`{name}` must be {wanted} with a prepared corpus. Its sentences are "
                f"fixed, and its rows always come in random order. Received: {value}."
            )
    if corpus.num_slices > 1 and options.drop_remainder is False:
        raise ValueError(
            "`drop_remainder` must be `None` with a prepared corpus whose batches are "
            "read in slices of equal size. Received: False, "
            f"num_slices={corpus.num_slices}."
        )


def _check_slices(corpus, source, least_streams):
    directions = 2 if source.both_directions else 1
    each = corpus.num_slices * directions
    if source.batch_size % each:
        raise ValueError(
            f"`batch_size` must be a multiple of {each}, for "
            f"num_slices={corpus.num_slices} and {directions} direction(s) of text. "
            f"Received: {source.batch_size}."
        )
    if corpus.num_slices > 1 and source.batch_size < least_streams * each:
        raise ValueError(
            f"`batch_size` must be at least {least_streams * each}, for "
            f"num_slices={corpus.num_slices}, {directions} direction(s) of text, and "
            f"{least_streams} streams of each. Received: {source.batch_size}."
        )


def _read_slice(source, by_name, epoch, batch, part):
    """Read a slice of a batch as tensors. Works in a graph."""
    names, types, shapes = _signature(source)

    def read(epoch, batch):
        found = source.read(int(epoch), int(batch), part)
        return [found[name] for name in names]

    if by_name:
        outputs = read_by_name(source.to_json(), names, types, epoch, batch, part)
    else:
        outputs = tf.numpy_function(read, [epoch, batch], types, stateful=False)
    found = {
        name: tf.ensure_shape(x, [None, *shape])
        for name, x, shape in zip(names, outputs, shapes, strict=True)
    }
    if source.partners or source.kind.sharing is not None:
        return found
    return _with_size(source, found)


def _with_size(source, rows):
    """Set the static number of rows, if all batches have the same number."""
    if not (source.drop_remainder or source.kind.kind == "windows"):
        return rows
    size = source.batch_size // source.slices
    return {name: tf.ensure_shape(x, [size, *x.shape[1:]]) for name, x in rows.items()}


def _signature(source):
    """List the names, types and shapes of the parts that a source reads."""
    kind = source.kind
    width = [kind.width if kind.sharing is None else None]
    if kind.kind == "windows":
        parts = {
            "token_ids": (tf.int32, width),
            "starts_sentence": (tf.bool, width),
            "continues": (tf.bool, []),
            "reversed_rows": (tf.bool, []),
        }
    else:
        parts = {
            "token_ids": (tf.int32, width),
            "sequence_ids": (tf.int32, width),
            "lengths": (tf.int32, []),
        }
    if kind.in_documents:
        parts |= {"marks": (tf.int32, width), "targets": (tf.int32, [])}
    if source.partners:
        parts |= {f"other_{name}": part for name, part in parts.items()}
    if kind.sharing is not None:
        parts["row"] = (tf.int32, [])
    types, shapes = zip(*parts.values(), strict=True)
    return [*parts], [*types], shapes
