"""Published checkpoints by name, from the families' records."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras_hub

from keras_bertfam.lazy import load_all
from keras_bertfam.presets.checkpoints.source import CheckpointSource
from keras_bertfam.presets.families import BACKBONES

TOKENIZER_FILES = {
    "word_piece": ("vocab.txt",),
    "byte_pair": ("vocab.json", "merges.txt"),
    "sentence_piece": ("spiece.model",),
    "sentence_piece_bpe": ("sentencepiece.bpe.model",),
    "sentence_piece_spm": ("spm.model",),
    "tokenizer_json": ("tokenizer.json",),
}
# Of sentence-transformers: the first that there is holds the settings of an encoder.
TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in "bert roberta distilbert camembert albert xlm-roberta xlnet".split()
)


@dataclasses.dataclass(frozen=True)
class PublishedPreset:
    """A published checkpoint.

    Attributes:
        name: str.
        backbone: class of its backbone.
        sources: tuple of handles, of which the first reachable one is used. They are
            `hf://organisation/model`, which also has the pre-trained heads, and
            KerasHub's `kaggle://...`, if KerasHub has the model.
        tokenizer: `"word_piece"`, `"byte_pair"` or `"sentence_piece"`; `None` for a
            size that you have added yourself.
        lowercase: bool. Whether the tokenizer lower-cases.
        license: str, SPDX identifier of the weights' licence; `None` for a size that
            you have added yourself.
    """

    name: str
    backbone: Any
    sources: tuple[str, ...]
    tokenizer: str | None
    lowercase: bool
    license: str | None

    @property
    def tokenizer_files(self) -> tuple[str, ...]:
        """Name the tokenizer's files in the `hf://` source."""
        return TOKENIZER_FILES.get(self.tokenizer or "", ())

    @property
    def size(self) -> Mapping[str, Any]:
        """Give the arguments of the backbone's constructor."""
        return self.backbone.presets_table[self.name]

    def complete(self, source: CheckpointSource) -> CheckpointSource:
        """Add settings to a source that older tokenizer configs lack."""
        if self.tokenizer != "word_piece":
            return source
        config = {"do_lower_case": self.lowercase, **source.tokenizer_config}
        return dataclasses.replace(source, tokenizer_config=config)


def published(backbone: Any = None) -> dict[str, PublishedPreset]:
    """List the published checkpoints of a family and of its subclasses.

    Args:
        backbone: a backbone class of `keras_bertfam.models`; all of them by default.

    Returns:
        Dict from names to `PublishedPreset`s.
    """
    load_all()  # classes are found as subclasses
    if backbone is None:
        return {k: v for each in BACKBONES.values() for k, v in published(each).items()}
    presets = {name: _preset(backbone, name) for name in backbone.presets_table}
    for family in type.__subclasses__(backbone):
        own = vars(family).get("record")
        if own is not None and BACKBONES.get(own.name) is not family:
            continue  # a class that was defined again
        presets = {**published(family), **presets}
    return presets


def _preset(backbone, name):
    records = (getattr(base, "record", None) for base in backbone.__mro__)
    record = next((r for r in records if r and name in r.sizes), None)
    if record is None:  # a user's own size
        sources, tokenizer = [], backbone.record and backbone.record.tokenizer
    else:
        source, tokenizer = record.sizes[name].source, record.sizes[name].tokenizer
        sources = [f"hf://{source}"] if source else []
        tokenizer = tokenizer or record.tokenizer
        theirs = record.keras_hub
        theirs = theirs and getattr(keras_hub.models, theirs.backbone).presets
        if theirs and name in theirs:
            sources.append(theirs[name]["kaggle_handle"])
    record = record or backbone.record
    return PublishedPreset(
        name,
        backbone,
        tuple(sources),
        tokenizer,
        # MacBERT's vocabulary has no capitals, and its config doesn't say so.
        "uncased" in name or name.startswith("macbert_"),
        record and record.license,
    )


class PresetTable(dict):
    """Dict from names to `PublishedPreset`s, which prints as a table."""

    def __str__(self) -> str:
        rows = [("name", "layers", "width", "tokenizer", "licence", "source")]
        for name, preset in sorted(self.items()):
            size = preset.size
            shape = (str(size["num_layers"]), str(size["hidden_dim"]))
            source = preset.sources[0] if preset.sources else "none"
            row = (preset.tokenizer or "unknown", preset.license or "unknown", source)
            rows.append((name, *shape, *row))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
        )

    __repr__ = __str__


def list_presets(backbone: Any = None) -> PresetTable:
    """List the names that `from_preset()` of backbones, tasks and preprocessors knows.

    Args:
        backbone: a backbone class of `keras_bertfam.models`, to list only its names.
            Defaults to `None`: all names.

    Returns:
        A dict from names to objects with the attributes `backbone` (class),
        `size` (arguments of its constructor), `sources` (handles), `tokenizer`,
        `tokenizer_files` and `license`. It prints as a table.

    Example:

    ```python
    print(keras_bertfam.presets.list_presets(keras_bertfam.models.AlbertBackbone))
    ```
    """
    return PresetTable(published(backbone))
