"""How other libraries write a family: a table for each library."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_bertfam.presets.families.parts.weight_maps import (
    KERNEL,
    OUTPUT_TABLE,
    WeightMap,
    WeightMaps,
    same,
)

# Stands for a key that a config must have.
REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class TransformersTable:
    """The names that a family has in `transformers`.

    Attributes:
        title: str. How names of its classes begin in `transformers`.
        prefix: str. Of the backbone's tensors in a model with a head.
        config: tuple of `(ours, theirs, default)`: arguments of the backbone's
            constructor, keys of a config, and the value of a config without it. Where
            an argument has two keys, they must have the same value.
        weights: tuple of `WeightMap`, the backbone's.
        heads: dict from the roles of heads to tuples of `WeightMap`.
        fixed: dict of arguments that every model of the family has.
        told_by: dict from names of tensors to the arguments that a checkpoint with
            such a tensor has.
        required_config: dict of values that a config must have, if it has the key.
        identities: names of dense layers that `transformers` always has, and a model
            here doesn't where they would not change the width. As identities they
            are none.
        refused: dict from patterns of names of tensors that no model here has to what
            was expected.
        pooled: endings of the architectures that have the pooler.
        endings: dict of endings of architectures that differ from other families'.
        dropouts: dict from roles of heads to dicts of keys of a config and the value
            without the key, of which the first that isn't `None` is the head's rate.
        required_heads: dict from roles of heads to dicts of keys of a config and the
            values that it must have for our head, that without the key first.
        head_activation: the activation of the head of masked language models in
            `transformers`, if it isn't the encoder's.
        signs: keys that tell a config without a `model_type`, as in the oldest
            checkpoints, from those of other families.
        output: name of the tensor that logits are computed by. Where a file has none,
            or one that is the input table, the two are tied.
        copies: dict from names of tensors that older files have as well to those that
            they are copies of. A file may lack an original that it has a copy of.
        constants: patterns of names of tensors that older files have as well and that
            no model needs.
        zeros: names of tensors that must be zero, as no model here has them.
        forms: pair of functions of a config, one that gives it with the keys of
            `config`, where `transformers` says it otherwise, and its inverse. They
            raise a `ValueError` for what can't be said.
        styles: dict from a key of a config to a dict from its values to the names of
            the styles of heads that they stand for, the first without the key.
        ties: whether logits are computed by the input's table if a file has no other.
            Else what is tied here is written twice, and a language model's file must
            have both, unless its config says that there is one.
        other_layouts: names of layouts that `transformers` has in a `tokenizer.json`,
            besides that of the rows that models were trained with.
        left_out: dict from roles of heads that files of others have, and that
            `transformers` leaves out, to what it does without.
        needed: dict of keys that a config of `transformers` can't have as `None` to
            what they are where neither model nor tokenizer says it.
        no_tokenizer: what to do in place of reading the tokenizer that `transformers`
            has for the family, where none here is the same; `None` for one that is.
        other_names: dict from keys of `styles` to their names in the release's own
            config.
        also_read: other keys that `forms` read.
        sign_file: name of a file that has to lie beside it, if any, unless the config
            has one type of token: the file may not be there.
    """

    title: str
    prefix: str
    config: tuple[tuple[str, str, Any], ...]
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
        """Map an output table that isn't the input's."""
        return same(OUTPUT_TABLE, self.output, transform=KERNEL) if self.output else ()

    def architecture(self, ending: str) -> str:
        """Name a class of `transformers`."""
        return self.title + self.endings.get(ending, ending)


# Names of tensors that a checkpoint has twice, and of those that they equal.
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
    """A backbone class of KerasHub.

    Attributes:
        backbone: name of the class.
        config: dict from keys of a config of `transformers` to arguments.
        fixed: dict of what a config of `transformers` has for all its models.
        weights: tuple of `WeightMap`s of the backbone, from paths of variables, or of
            attributes with dots between, where layers have no names of their own.
        heads: dict from endings of its tasks' names to `WeightMap`s.
        first_position: int. WeightMaps of positions that it leaves out.
        choices: dict from keys of a config of `transformers` to dicts from its values
            to the arguments that they stand for, where these are several.
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


# The names of a block's parts, which most families share.
BLOCK = ((r"(encoder|transformer)/layer_(\d+)/", r"\1.layer.\2."),)


@dataclasses.dataclass(frozen=True)
class TensorFlow1Table:
    """The names of a family's variables, and how its config differs.

    Attributes:
        signs: beginnings of names that only this family's checkpoints have. Of two
            families whose signs fit, the longer sign counts.
        names: pairs of a pattern of the original name and of that in `transformers`,
            applied in order, before those for all families.
        kernels: pattern of the variables that `transformers` has transposed.
        activation: key of the config for the activation. All have GELU's tanh form.
        renamed: dict from keys of `transformers` to those of the original config.
        head_width: keys of the width of a head, of the model and of the number of
            heads, where the config has all three.
        stacked: pattern of the variables that hold a tensor of two axes or more for
            each layer, their last part in its group. Those of two axes in all are one
            tensor for all layers.
        stacked_name: name of such a tensor in `transformers`, with `{layer}` and
            `{part}`.
        sizes_from_shapes: whether it was released without a config.
        generator: whether a second model, ELECTRA's generator, lies beside it.
        gin: whether it is Mesh TensorFlow's, whose config is a file of gin's.
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
