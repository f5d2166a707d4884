"""An index on disk: vectors, texts, and a manifest to check both against."""

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bertfam import parsing
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.retrieval.engines import KINDS, checked_settings, engine_kind
from keras_bertfam.retrieval.inverted_engine import NUMPY_ERRORS
from keras_bertfam.retrieval.passages import Passage, as_passage
from keras_bertfam.types import Config, Path
from keras_bertfam.version import __version__
from keras_bertfam.whole_files import file_digest

FORMAT = 1
MANIFEST = "manifest.json"
PASSAGES = "passages.jsonl"
SIZES = "tokens.npy"
_INNER_PRODUCT = 0  # FAISS's number of it
_FIELDS = {"dim": int, "count": int, "kind": str, "settings": dict, "files": dict}


class StoredIndex(NamedTuple):
    """The parts of an index in a folder.

    Attributes:
        manifest: dict.
        engine: index of FAISS, or what `EngineKind.make` gives in its place.
        passages: list of passages.
        sizes: list of how many vectors each passage has, or `None` for one each.
    """

    manifest: Config
    engine: Any
    passages: list[Passage]
    sizes: list[int] | None


def write(
    folder: Path,
    engine: Any,
    passages: Any,
    facts: Config,
    sizes: Sequence[int] | None = None,
) -> None:
    """Write an index to a new folder.

    Args:
        folder: path.
        engine: index of FAISS, or what `EngineKind.make` gives in its place.
        passages: iterable of passages.
        facts: dict of further entries of the manifest.
        sizes: how many vectors each passage has, or `None` for one each.
    """
    kind = KINDS[facts["kind"]]
    kind.write(engine, os.path.join(folder, kind.file))
    with open(os.path.join(folder, PASSAGES), "w", encoding="utf-8") as file:
        for passage in passages:
            file.write(json.dumps(passage, ensure_ascii=False) + "\n")
    names = [kind.file, PASSAGES]
    if sizes is not None:
        names.append(SIZES)
        np.save(os.path.join(folder, SIZES), np.asarray(sizes, "int64"))
    files = {name: _facts_of(os.path.join(folder, name)) for name in names}
    manifest = {"format": FORMAT, "version": __version__, **facts, "files": files}
    with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)


def read(folder: Path) -> StoredIndex:
    """Read the index of a folder, and check all of it.

    Raises:
        FileNotFoundError: if there is no such folder.
        CheckpointError: for a folder without a whole index.
    """
    folder = os.fspath(folder)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"`folder` must be one that an index was saved to. Received: {folder!r}."
        )
    manifest = _manifest(os.path.join(folder, MANIFEST))
    vectors = KINDS[manifest["kind"]].file
    sized = [SIZES] if SIZES in manifest["files"] else []
    for name in (vectors, PASSAGES, *sized):
        path = os.path.join(folder, name)
        there = os.path.lexists(path)
        found = _facts_of(reading.file_in(folder, name)) if there else None
        if found != manifest["files"].get(name):
            raise CheckpointError(
                f"{path} must be the file described in {MANIFEST}. Expected: "
                f"{manifest['files'].get(name)}. Received: {found}."
            )
    engine = _engine(os.path.join(folder, vectors), manifest)
    passages = _passages(os.path.join(folder, PASSAGES))
    sizes, count = None, engine.ntotal
    if sized:
        sizes = _sizes(os.path.join(folder, SIZES), count)
        count = len(sizes)
    counts = (count, len(passages))
    if counts != (manifest["count"],) * 2:
        raise CheckpointError(
            f"{folder!r} must have as many vectors and passages as {MANIFEST} says, "
            f"{manifest['count']}. Received: {counts[0]} and {counts[1]}."
        )
    return StoredIndex(manifest, engine, passages, sizes)


def _manifest(path):
    try:
        content = parsing.read_json(path)
    except FileNotFoundError:
        raise CheckpointError(
            f"The folder of an index must have a {MANIFEST}. Received: {path!r}, which "
            "isn't there."
        ) from None
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} must be of format {FORMAT}, which this version reads. Received: "
            f"{content.get('format') if isinstance(content, dict) else content!r}."
        )
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind):
            raise CheckpointError(
                f"{path} must have {name!r}, of type {kind.__name__}. Received: "
                f"{content.get(name)!r}."
            )
    try:
        sized = SIZES in content["files"]
        checked_settings(content["kind"], content["settings"], sized)
    except ValueError as error:
        raise CheckpointError(
            f"{path} must be the file of an index. {error}"
        ) from error
    return content


def _engine(path, manifest):
    settings = checked_settings(
        manifest["kind"], manifest["settings"], SIZES in manifest["files"]
    )
    kind = engine_kind(manifest["kind"], settings)
    try:
        engine = kind.read(path, settings)
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} must be vectors of kind={manifest['kind']!r}. {error}"
        ) from error
    expected = {
        "class": kind.class_name,
        "width": manifest["dim"],
        "metric": _INNER_PRODUCT,
    }
    received = {
        "class": type(engine).__name__,
        "width": engine.d,
        "metric": engine.metric_type,
    }
    if received != expected:
        raise CheckpointError(
            f"{path} must be what {MANIFEST} says, {expected}. Received: {received}."
        )
    return engine


def _sizes(path, total):
    """Read how many vectors each passage has."""
    try:
        sizes = np.load(path, allow_pickle=False)
    except NUMPY_ERRORS as error:
        raise CheckpointError(f"{path} must be an array: {error}.") from error
    sound = isinstance(sizes, np.ndarray) and sizes.dtype == "int64"
    sound = sound and sizes.ndim == 1 and bool((sizes > 0).all())
    if not sound or sum(sizes.tolist()) != total:
        raise CheckpointError(
            f"{path} must have a number of vectors for each passage, {total} in all. "
            "Received other numbers."
        )
    return [int(size) for size in sizes]


def _passages(path):
    passages = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            try:
                passages.append(as_passage(parsing.parse_json(line), number))
            except ValueError as error:
                raise CheckpointError(
                    f"{path} must have a passage in each line. {error}"
                ) from error
    return passages


def _facts_of(path):
    return {"bytes": os.path.getsize(path), "sha256": file_digest(path)}
