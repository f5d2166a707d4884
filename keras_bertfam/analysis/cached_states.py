"""States of all layers, computed once for the same weights and texts."""

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.word_states import LayerStates, WordRows
from keras_bertfam.types import Model, Path, Tokenizer
from keras_bertfam.whole_files import file_digest, write_text, written_aside

_HASHED_AT_ONCE = 256
_VOUCHER = ".sha256"


def layer_states(
    model: Model,
    sentences: Sequence[Sequence[str]],
    pool: str = "first",
    cache: Path | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> Any:
    """Compute the states of each word in every layer, or read them from the cache.

    Args:
        model, sentences, pool, tokenizer, batch_size: see `embed_words`.
        cache: folder for the states of other calls, or `None`. A file's name is a
            digest of all that they are computed from: weights, settings, and the ids
            that the tokenizer makes of the sentences. Its numbers are read as they
            are needed; a damaged file is made anew.

    Returns:
        float32 array `(words, num_layers + 1, hidden_dim)` of the words of all
        sentences, the output of the embeddings first.

    Raises:
        ValueError: for what `embed_words` refuses.
    """
    rows = WordRows(model, sentences, tokenizer)
    backbone: Any = rows.backbone
    count = sum(map(len, rows.words))
    shape = (count, backbone.num_layers + 1, backbone.hidden_dim)
    if cache is None or not count:
        states = np.empty(shape, "float32")
        _fill(states, rows, pool, batch_size)
        return states
    os.makedirs(cache, exist_ok=True)
    path = os.path.join(cache, f"{_digest(rows, pool)}.npy")
    if not _is_whole(path):
        with written_aside(path) as part:
            states = np.lib.format.open_memmap(part, "w+", "float32", shape)
            _fill(states, rows, pool, batch_size)
            states.flush()
            write_text(f"{path}{_VOUCHER}", file_digest(part))
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _fill(states, rows, pool, batch_size):
    done, layers = 0, range(states.shape[1])
    all_of_them = LayerStates(rows.backbone, layers, "concat")
    for _, part in rows.vectors(all_of_them, pool, batch_size):
        states[done : done + len(part)] = part.reshape(-1, *states.shape[1:])
        done += len(part)


def _digest(rows, pool):
    backbone = rows.backbone
    config = {**backbone.get_config(), "name": None, "trainable": None}
    kind = [type(backbone).__name__, config, pool, [*map(len, rows.words)]]
    digest = hashlib.sha256(json.dumps(kind, sort_keys=True, default=str).encode())
    for array in _hashed(rows):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _hashed(rows):
    """Yield the arrays that the states are computed from."""
    for weight in rows.backbone.weights:
        yield ops.convert_to_numpy(weight)
    for batch in rows.batches(_HASHED_AT_ONCE):
        yield from (batch[name] for name in sorted(batch))


def _is_whole(path):
    """Tell whether a file has the digest beside it."""
    try:
        with open(f"{path}{_VOUCHER}", encoding="utf-8") as file:
            return file_digest(path) == file.read()
    except (OSError, ValueError):
        return False
