"""The manifest of a prepared corpus, `manifest.json` in its folder."""

import dataclasses
import functools
import hashlib
import json
import os
import re
import tempfile
from typing import Any, NamedTuple

import numpy as np

from keras_bertfam.parsing import read_json
from keras_bertfam.types import Config, Path, Tokenizer
from keras_bertfam.version import __version__
from keras_bertfam.whole_files import write_text

FILE = "manifest.json"
TOKENIZER = "tokenizer"  # folder of the tokenizer's preset
FORMAT = 1
_FILE_NAME = re.compile(r"tokens-\d{5,}-of-\d{5,}\.(array_record|tfrecord)")
# Entries of a tokenizer's config that don't change ids.
_UNRELATED = {"config_file", "dtype", "name", "sequence_length", "trainable"}


class Shard(NamedTuple):
    """The entry of a shard in a manifest.

    Attributes:
        file: name of the file with the shard's tokens.
        documents: int. Number of documents, like the next three.
        sentences: int.
        tokens: int.
        records: int.
        bytes: int. Size of the file.
        sha256: str. SHA-256 of the file, in hexadecimal.
        lengths_sha256: str. The same of the file with the lengths.

    Example:

    ```python
    from keras_bertfam.corpora.shards import read_lengths
    from keras_bertfam.corpora.manifest import Manifest
    shard = Manifest.read("prepared").shards[0]
    lengths = read_lengths("prepared", shard)
    ```
    """

    file: str
    documents: int
    sentences: int
    tokens: int
    records: int
    bytes: int
    sha256: str
    lengths_sha256: str

    @property
    def lengths_file(self) -> str:
        """str: name of the file with the shard's lengths."""
        stem = self.file.removeprefix("tokens").partition(".")[0]
        return f"lengths{stem}.npz"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of a prepared corpus.

    Args:
        tokenizer: dict of `digest`, `class_name` and `vocabulary_size`; see
            `describe_tokenizer`.
        dtype: `"uint16"` or `"uint32"`. Dtype of ids in records.
        shards: list of `Shard`.
        filters: list of dicts of `name`, `arguments` and `dropped`, the number of
            documents that the filter dropped.
        sources: list of dicts of `name` and `bytes`.
        settings: dict of the other arguments with which the corpus was prepared.
        version: str. Version of the package that wrote the manifest.

    Example:

    ```python
    from keras_bertfam.corpora.manifest import Manifest
    manifest = Manifest.read("prepared")
    manifest.counts["tokens"]
    ```
    """

    tokenizer: Config
    dtype: str
    shards: list[Shard]
    filters: list[Config] = dataclasses.field(default_factory=list)
    sources: list[Config] = dataclasses.field(default_factory=list)
    settings: Config = dataclasses.field(default_factory=dict)
    version: str = __version__

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """The number of `documents`, `sentences` and `tokens`."""
        names = ("documents", "sentences", "tokens")
        return {n: sum(getattr(shard, n) for shard in self.shards) for n in names}

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a prepared corpus.

        Args:
            folder: path.

        Raises:
            FileNotFoundError: if there is no such folder.
            ValueError: for a folder without a manifest, or one that can't be read.
        """
        folder = os.fspath(folder)
        path = os.path.join(folder, FILE)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                "`folder` must be the folder of a prepared corpus; `python -m "
                f"keras_bertfam prepare` writes one. Received: {folder!r}."
            )
        try:
            content = read_json(path, many=True)
        except FileNotFoundError:
            raise ValueError(
                f"`folder` must have a {FILE}, the last file of a prepared corpus to "
                f"be written: without it a corpus isn't whole. Received: {folder!r}."
            ) from None
        return cls._of(content, path)

    @classmethod
    def _of(cls, content, path):
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            received = content.get("format") if isinstance(content, dict) else content
            raise ValueError(
                f"{path} must be of format {FORMAT}, which this version reads. "
                f"Received: {received!r}."
            )
        try:
            if content["shard_columns"] != [*Shard._fields]:
                raise ValueError(f"shard_columns={content['shard_columns']!r}.")
            shards = [Shard(*row) for row in content["shards"]]
            names = {field.name for field in dataclasses.fields(cls)} - {"shards"}
            manifest = cls(shards=shards, **{name: content[name] for name in names})
            manifest._check(content["counts"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} must be the manifest of a prepared corpus. Received: "
                f"{type(error).__name__}: {error}"
            ) from error
        return manifest

    def _check(self, counts):
        kinds = {"digest": str, "class_name": str, "vocabulary_size": int}
        for name, kind in kinds.items():
            if not isinstance(self.tokenizer[name], kind):
                raise ValueError(f"tokenizer {name}={self.tokenizer[name]!r}.")
        if self.dtype != str(ids_dtype(self.tokenizer["vocabulary_size"])):
            raise ValueError(f"dtype={self.dtype!r}.")
        for shard in self.shards:
            if not _FILE_NAME.fullmatch(shard.file):
                raise ValueError(f"shard {shard.file!r}.")
        if counts != self.counts:
            raise ValueError(f"counts={counts}, and {self.counts} in shards.")

    def write(self, folder: Path) -> None:
        """Write the manifest to a folder, in one operation."""
        content = {"format": FORMAT, "version": self.version, "counts": self.counts}
        for name in ("tokenizer", "dtype", "filters", "sources", "settings"):
            content[name] = getattr(self, name)
        content["shard_columns"] = [*Shard._fields]
        lines = [f"{json.dumps(n)}: {json.dumps(v)}" for n, v in content.items()]
        rows = ",\n".join(json.dumps(shard) for shard in self.shards)
        lines.append(f'"shards": [\n{rows}\n]')
        write_text(os.path.join(folder, FILE), "{" + ",\n".join(lines) + "}\n")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise an error unless a tokenizer gives the ids that the corpus has.

        Args:
            tokenizer: a tokenizer layer.

        Raises:
            ValueError: if the corpus was prepared with another tokenizer.
        """
        received = describe_tokenizer(tokenizer)
        if received["digest"] != self.tokenizer["digest"]:
            raise ValueError(
                "`tokenizer` must be the one that the corpus was prepared with: "
                f"{self.tokenizer}. Received: {received}."
            )


def ids_dtype(vocabulary_size: int) -> np.dtype:
    """Choose the dtype of ids in records: uint16 up to 65536 ids, or uint32."""
    return np.dtype("uint16" if vocabulary_size <= 1 << 16 else "uint32")


def describe_tokenizer(tokenizer: Tokenizer) -> Config:
    """Describe a tokenizer for a manifest: digest, class and size."""
    return {
        "digest": tokenizer_digest(tokenizer),
        "class_name": type(tokenizer).__name__,
        "vocabulary_size": int(tokenizer.vocabulary_size()),
    }


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Compute a digest of what ids depend on: class, config and vocabulary.

    Args:
        tokenizer: a tokenizer layer with its vocabulary.

    Returns:
        Str, the SHA-256 in hexadecimal. It stays the same after saving and loading.
    """
    import keras  # imported here: commands check a folder without Keras

    config = {k: v for k, v in tokenizer.get_config().items() if k not in _UNRELATED}
    name = keras.saving.get_registered_name(type(tokenizer))
    digest = hashlib.sha256(_canonical([name, config]))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_assets(folder)
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            if name.endswith(".json"):  # a table, whose order means nothing
                content = _canonical(json.loads(content))
            digest.update(_canonical([name, len(content)]) + content)
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, default=str)
    return text.encode()


def check_output(output: str) -> None:
    """Raise a `ValueError` unless a path is new or an empty folder."""
    if os.path.lexists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise ValueError(
            "`output` must be a folder that is new or empty: a prepared corpus isn't "
            f"written over. Received: {output!r}."
        )
