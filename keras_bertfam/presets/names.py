"""Where the published checkpoints are, by name. Their sizes are with the backbones."""

import dataclasses

import keras_hub

from keras_bertfam.models.base import TokenBackbone

TOKENIZER_FILES = {
    "word_piece": ("vocab.txt",),
    "byte_pair": ("vocab.json", "merges.txt"),
    "sentence_piece": ("spiece.model",),
}

# Kind of tokenizer, licence of the weights, and KerasHub's class, by our backbone.
_FAMILIES = {
    "AlbertBackbone": ("sentence_piece", "Apache-2.0", "AlbertBackbone"),
    "BertBackbone": ("word_piece", "Apache-2.0", "BertBackbone"),
    "DistilBertBackbone": ("word_piece", "Apache-2.0", "DistilBertBackbone"),
    "ElectraBackbone": ("word_piece", "Apache-2.0", "ElectraBackbone"),
    "RobertaBackbone": ("byte_pair", "MIT", "RobertaBackbone"),
    "SpanBertBackbone": ("word_piece", "CC-BY-NC-4.0", None),
    "XLNetBackbone": ("sentence_piece", "MIT", "XLNetBackbone"),
}
_OTHER_TOKENIZERS = {"distil_roberta_base_en": "byte_pair"}

_HUGGING_FACE = {
    "bert_tiny_en_uncased": "google/bert_uncased_L-2_H-128_A-2",
    "bert_mini_en_uncased": "google/bert_uncased_L-4_H-256_A-4",
    "bert_small_en_uncased": "google/bert_uncased_L-4_H-512_A-8",
    "bert_medium_en_uncased": "google/bert_uncased_L-8_H-512_A-8",
    "bert_base_en_uncased": "google-bert/bert-base-uncased",
    "bert_base_en": "google-bert/bert-base-cased",
    "bert_base_zh": "google-bert/bert-base-chinese",
    "bert_base_multi": "google-bert/bert-base-multilingual-cased",
    "bert_base_multi_uncased": "google-bert/bert-base-multilingual-uncased",
    "bert_large_en_uncased": "google-bert/bert-large-uncased",
    "bert_large_en": "google-bert/bert-large-cased",
    "bert_large_en_uncased_whole_word": (
        "google-bert/bert-large-uncased-whole-word-masking"
    ),
    "bert_large_en_whole_word": "google-bert/bert-large-cased-whole-word-masking",
    "roberta_base_en": "FacebookAI/roberta-base",
    "roberta_large_en": "FacebookAI/roberta-large",
    "distil_bert_base_en_uncased": "distilbert/distilbert-base-uncased",
    "distil_bert_base_en": "distilbert/distilbert-base-cased",
    "distil_bert_base_multi": "distilbert/distilbert-base-multilingual-cased",
    "distil_roberta_base_en": "distilbert/distilroberta-base",
    "spanbert_base_en_cased": "SpanBERT/spanbert-base-cased",
    "spanbert_large_en_cased": "SpanBERT/spanbert-large-cased",
    "xlnet_base_en_cased": "xlnet/xlnet-base-cased",
    "xlnet_large_en_cased": "xlnet/xlnet-large-cased",
}
_HUGGING_FACE |= {
    f"bert_l{layers}_h{width}_en_uncased": (
        f"google/bert_uncased_L-{layers}_H-{width}_A-{width // 64}"
    )
    for layers in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}
_HUGGING_FACE |= {
    f"electra_{size}_{part}_uncased_en": f"google/electra-{size}-{part}"
    for size in ("small", "base", "large")
    for part in ("discriminator", "generator")
}
_HUGGING_FACE |= {
    f"albert_{ours}{version}_en_uncased": f"albert/albert-{theirs}-v{number}"
    for ours, theirs in (
        ("base", "base"),
        ("large", "large"),
        ("extra_large", "xlarge"),
        ("extra_extra_large", "xxlarge"),
    )
    for version, number in (("", 2), ("_v1", 1))
}


@dataclasses.dataclass(frozen=True)
class PublishedPreset:
    """A published checkpoint.

    Attributes:
        name: str.
        backbone: class of its backbone.
        sources: tuple of handles, the first one that can be reached is taken:
            `hf://organisation/model`, which has the pre-trained heads as well, and
            KerasHub's `kaggle://...` where it has the model.
        tokenizer: `"word_piece"`, `"byte_pair"` or `"sentence_piece"`; `None`, as
            `license`, for a size that isn't ours.
        lowercase: bool. Whether the tokenizer lower-cases.
        license: str, SPDX identifier of the licence of the weights.
    """

    name: str
    backbone: type
    sources: tuple
    tokenizer: str
    lowercase: bool
    license: str

    @property
    def tokenizer_files(self):
        """Names of the tokenizer's files in the `hf://` source."""
        return TOKENIZER_FILES.get(self.tokenizer, ())

    @property
    def size(self):
        """Arguments of the backbone's constructor."""
        return self.backbone.presets_table[self.name]

    def complete(self, source):
        """A source whose tokenizer's config has what older ones left out."""
        if self.tokenizer != "word_piece":
            return source
        config = {"do_lower_case": self.lowercase, **source.tokenizer_config}
        return dataclasses.replace(source, tokenizer_config=config)


def published(backbone):
    """The published checkpoints of a family and of its subclasses.

    Args:
        backbone: a backbone class of `keras_bertfam.models`.

    Returns:
        Dict from names to `PublishedPreset`s.
    """
    presets = {name: _preset(backbone, name) for name in backbone.presets_table}
    for family in backbone.__subclasses__():
        presets = {**published(family), **presets}
    return presets


def _preset(backbone, name):
    families = (_FAMILIES.get(base.__name__) for base in backbone.__mro__)
    tokenizer, license_, keras_hub_name = next(filter(None, families), (None,) * 3)
    sources = []
    if name in _HUGGING_FACE:
        sources.append(f"hf://{_HUGGING_FACE[name]}")
    theirs = keras_hub_name and getattr(keras_hub.models, keras_hub_name, None)
    if theirs is not None and name in theirs.presets:
        sources.append(theirs.presets[name]["kaggle_handle"])
    return PublishedPreset(
        name,
        backbone,
        tuple(sources),
        _OTHER_TOKENIZERS.get(name, tokenizer),
        "uncased" in name,
        license_,
    )


class PresetTable(dict):
    """Names and their `PublishedPreset`s; printed, it is a table."""

    def __str__(self):
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


def list_presets(backbone=TokenBackbone):
    """The names that `from_preset()` knows, of backbones, tasks and preprocessors.

    Args:
        backbone: a backbone class of `keras_bertfam.models`, for its names only.

    Returns:
        A dict from names to objects with the attributes `backbone` (class),
        `size` (arguments of its constructor), `sources` (handles), `tokenizer`,
        `tokenizer_files` and `license`. Printed, it is a table.

    Example:

    ```python
    print(keras_bertfam.presets.list_presets(keras_bertfam.models.AlbertBackbone))
    ```
    """
    return PresetTable(published(backbone))
