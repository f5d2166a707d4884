"""The names that a family has in other libraries: a table for each library."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from keras_bertfam.presets.families.parts.weight_maps import (
    KERNEL,
    OUTPUT_TABLE,
    WeightMap,
    WeightMaps,
    same,
)

# Stands for a key that a config must have.
REQUIRED = object()
# Arguments, keys of a config, and what stands for keys that it lacks.
ConfigEntries: TypeAlias = tuple[tuple[str, str, Any], ...]


@dataclasses.dataclass(frozen=True)
class TransformersTable:
    """The names that a family has in `transformers`.

    Attributes:
        title: str. The beginning of its classes' names in `transformers`.
        prefix: str. The prefix of the backbone's tensors in a model with a head.
        config: tuple of `(ours, theirs, default)`: an argument of the backbone's
            constructor, a key of a config, and the value of a config without the key.
            If an argument has two keys, both must have the same value.
        weights: tuple of the backbone's `WeightMap`s.
        heads: dict from the roles of heads to tuples of `WeightMap`s.
        fixed: dict of arguments that every model of the family has.
        told_by: dict from names of tensors to the arguments that a checkpoint with
            such a tensor has.
        required_config: dict from keys to the values that a config with the key must
            have.
        identities: names of dense layers that every model of `transformers` has. Models
            here leave such a layer out if it would not change the width. In files it
            must then be an identity.
        refused: dict from patterns to expectations, for messages. Tensors whose names
            match a pattern are refused, as no model here has them.
        pooled: endings of the architectures that have the pooler.
        endings: dict from usual endings of architectures to those of this family.
        dropouts: dict from roles of heads to dicts of keys of a config and their values
            in a config without the key. The first value that isn't `None` is the head's
            rate.
        required_heads: dict from roles of heads to dicts, which lead from keys of a
            config to the values that they may have with our head. The first value
            stands for a config without the key.
        head_activation: the activation of the masked language model's head in
            `transformers`, if it isn't the encoder's.
        signs: keys by which a config without a `model_type`, as in the oldest
            checkpoints, is recognised.
        output: name of the output table's tensor. If a file lacks this tensor, or if it
            equals the token table, the two are tied.
        copies: dict from names of tensors that older files have as well to the names of
            their originals. A file may have the copy and lack the original.
        constants: patterns of names of tensors that older files have as well and that
            no model needs.
        zeros: names of tensors that must be zero, as no model here has them.
        forms: pair of functions of a config. The first one rewrites a config of
            `transformers` with the keys of `config`, and the second one is its inverse.
            They raise a `ValueError` for values that the other side can't have.
        styles: dict from a key of a config to a dict from its values to names of styles
            of heads. The first value stands for a config without the key.
        ties: whether `transformers` ties the logits to the token table if a file has no
            output table. If not, a tied table is written twice, and a language model's
            file must have both, unless its config says that there is one.
        other_layouts: names of further layouts in a `tokenizer.json` of `transformers`,
            besides that of the rows that models were trained with.
        left_out: dict from roles of heads to sentences, for warnings. `transformers`
            drops these heads, which files of other libraries have.
        needed: dict from keys that can't be `None` in a config of `transformers` to
            their values if neither the model nor the tokenizer gives one.
        no_tokenizer: what to do instead, if no tokenizer here equals that of
            `transformers` for the family. `None` if one does.
        other_names: dict from keys of `styles` to their names in the release's own
            config.
        also_read: other keys that `forms` read.
        sign_file: name of a file that must lie beside a config that `signs` recognise.
            It may be missing if the config has one type of token. `None` for no file.
    """

    title: str
    prefix: str
    config: ConfigEntries
    weights: tuple[WeightMap, ...]
    heads: Mapping[str, tuple[WeightMap, ...]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    told_by: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    required_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    identities: tuple[str, ...] = ()
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pooled: tuple[str, ...] = ()
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropouts: Mapping[str, Mapping[str, float | None]] = dataclasses.field(
        default_factory=dict
    )
    required_heads: Mapping[str, Mapping[str, tuple]] = dataclasses.field(
        default_factory=dict
    )
    head_activation: str | None = None
    signs: tuple[str, ...] = ()
    output: str | None = None
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    constants: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    forms: tuple[Callable[[dict], dict], Callable[[dict], dict]] | None = None
    styles: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    ties: bool = True
    other_layouts: tuple[str, ...] = ()
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    no_tokenizer: str | None = None
    other_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    also_read: tuple[str, ...] = ()
    sign_file: str | None = None

    @property
    def output_weights(self) -> WeightMaps:
        """Map an output table that isn't tied to the token table."""
        return same(OUTPUT_TABLE, self.output, transform=KERNEL) if self.output else ()

    def architecture(self, ending: str) -> str:
        """Name the class of `transformers` with an ending such as `"ForMaskedLM"`."""
        return self.title + self.endings.get(ending, ending)


# Names of copies of tensors in checkpoints, and names of their originals.
COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
    "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    "vocab_projector.weight": "embeddings.word_embeddings.weight",
    "generator_lm_head.weight": "embeddings.word_embeddings.weight",
    "lm_loss.weight": "word_embedding.weight",
}
CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")


@dataclasses.dataclass(frozen=True)
class KerasHubTable:
    """The names that a family has in KerasHub.

    Attributes:
        backbone: name of the backbone's class.
        config: dict from keys of a config of `transformers` to arguments.
        fixed: dict of keys of a config of `transformers` that are the same for all
            models of the class.
        weights: tuple of `WeightMap`s of the backbone. They start from paths of
            variables, or from attributes with dots between them if layers have no
            names.
        heads: dict from endings of its tasks' names to `WeightMap`s.
        first_position: int. The number of first rows of the table of positions that
            KerasHub leaves out.
        choices: dict from keys of a config of `transformers` to dicts, which lead from
            values to the several arguments that a value stands for.
    """

    backbone: str
    config: Mapping[str, str]
    fixed: Mapping[str, Any]
    weights: tuple[WeightMap, ...]
    heads: Mapping[str, tuple[WeightMap, ...]] = dataclasses.field(default_factory=dict)
    first_position: int = 0
    choices: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )


# Names of blocks that most families share.
BLOCK = ((r"(encoder|transformer)/layer_(\d+)/", r"\1.layer.\2."),)


@dataclasses.dataclass(frozen=True)
class TensorFlow1Table:
    """The names that a family has in the original code for TensorFlow 1.

    Attributes:
        signs: beginnings of names that only this family's checkpoints have. If the
            signs of two families fit, the longer sign counts.
        names: pairs of a pattern of the original name and its replacement in
            `transformers`. They are applied in order, before those for all families.
        kernels: pattern of the variables that are transposed in `transformers`.
        activation: key of the config for the activation. `gelu` is the tanh form.
        renamed: dict from keys of `transformers` to those of the original config.
        head_width: keys of the width of a head, of the width of the model and of the
            number of heads, if the config has all three.
        stacked: pattern of the variables that hold the tensors of all layers, stacked.
            Its group is the last part of their names. A variable of only two axes is
            one tensor for all layers.
        stacked_name: name of one layer's tensor in `transformers`, with `{layer}` and
            `{part}`.
        sizes_from_shapes: whether it was released without a config.
        generator: whether a second model, ELECTRA's generator, lies beside it.
        gin: whether Mesh TensorFlow wrote it, whose config is a file of gin.
    """

    signs: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()
    kernels: str = "/kernel$"
    activation: str = "hidden_act"
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    head_width: tuple[str, str, str] | None = None
    stacked: str | None = None
    stacked_name: str = ""
    sizes_from_shapes: bool = False
    generator: bool = False
    gin: bool = False
