"""The classes that a family's record is made of."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.tables import (
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)


@dataclasses.dataclass(frozen=True)
class PublishedSize:
    """A size that a paper or its authors published.

    Attributes:
        arguments: of the backbone's constructor, the family's own apart.
        source: repository of the weights on the Hugging Face hub, or `None`.
        tokenizer: kind of the tokenizer, if it isn't the family's; or
            `"tokenizer_json"` for one that is in such a file only, and
            `"sentence_piece_bpe"` and `"sentence_piece_spm"` for a model that is called
            `sentencepiece.bpe.model` and `spm.model`.
    """

    arguments: Mapping[str, Any]
    source: str | None = None
    tokenizer: str | None = None


def size(
    vocabulary_size: int,
    num_layers: int,
    hidden_dim: int,
    num_heads: int | None = None,
    *,
    source: str | None = None,
    tokenizer: str | None = None,
    **arguments: Any,
) -> PublishedSize:
    """Make a size with heads of 64 and an inner width of four times its own."""
    common = {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads or hidden_dim // 64,
        "hidden_dim": hidden_dim,
        "intermediate_dim": 4 * hidden_dim,
    }
    return PublishedSize({**common, **arguments}, source, tokenizer)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a family's rows: special tokens, and what separates segments.

    Attributes:
        name: what the argument `layout` of a preprocessor calls it.
        start_token: of the tokenizers of this layout; empty for rows without one.
        separators: end tokens between two segments.
        start_last: whether the start token is the row's last token.
        new_tokens: the start token, what separates segments and the end token, where
            these are new with fine-tuning. Their ids follow those of the tokenizer.
        ends: whether an end token is behind the text.
    """

    name: str
    start_token: str
    separators: int = 1
    start_last: bool = False
    new_tokens: tuple[str, ...] = ()
    ends: bool = True

    @property
    def first(self) -> int:
        """Tell where the first token is that isn't special."""
        return 0 if self.start_last or not self.start_token else 1

    def specials(self, segments: int) -> int:
        """Count the special tokens of a row of so many segments."""
        outer = bool(self.start_token) + self.ends
        return outer + self.separators * (segments - 1)


@dataclasses.dataclass(frozen=True)
class HeadStyle:
    """The head that a family's fine-tuned classifiers have.

    Attributes:
        name: what the argument `head_style` of a task calls it.
        activation: of the dense layer before the logits, `None` without one.
        dropout: the published rate.
        input_dropout: whether there is dropout before the dense layer as well.
        pooler: whether the backbone's own pooler is that dense layer, if it has one.
        token: whether it reads the row's `"first"` token, its `"last"`, which is the
            start token, or the token at its `"end"`, which ends the text; or the
            `"mean"` of all; or `"late"`, the mean after the activation, by which
            logits are the mean of each token's.
        norm: whether a norm follows the activation, both and the dense layer without
            biases.
        tokens: whether the heads that label tokens have that dense layer as well.
    """

    name: str
    activation: str | None
    dropout: float = 0.1
    input_dropout: bool = False
    pooler: bool = False
    token: str = "first"
    norm: bool = False
    tokens: bool = False

    def layers(self, backbone: Any) -> dict[str, Any]:
        """Give the arguments of `SummaryHead`, what comes before the logits."""
        return {
            "hidden_dim": None if self.activation is None else backbone.hidden_dim,
            "activation": self.activation,
            "norm_epsilon": backbone.layer_norm_epsilon if self.norm else None,
        }


@dataclasses.dataclass(frozen=True)
class Variant:
    """Sizes of a family that have fine-tuning recipes of their own.

    Attributes:
        hidden_dims: widths of the backbones that it is about.
        fine_tuning: as that of `Family`.
        num_layers: layers of these backbones, where other sizes have the same width.
    """

    hidden_dims: tuple[int, ...]
    fine_tuning: Mapping[str, FineTuningRecipe]
    num_layers: int | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family's record: all that is known of it but how it computes.

    Attributes:
        name: as `model_type` of `transformers`, if it has the family.
        backbone: name of its class in `keras_bertfam.models`.
        license: SPDX identifier of the licence of the published weights.
        tokenizer: `"word_piece"`, `"byte_pair"` or `"sentence_piece"`.
        tokenizer_class: name of the class, ours or KerasHub's.
        layout: `Layout` of its rows.
        head_style: `HeadStyle` of its fine-tuned heads.
        token_head: the head of its language models. `None`: a dense layer, activation,
            norm, table and bias for masked tokens, as BERT's, and the table alone for
            next ones, as GPT's. `"transform"`: the former for both. `"bias"`: the table
            and a bias for masked tokens. `"table"`: the table alone for both.
        other_styles: those of some of its heads.
        arguments: of the constructor, those whose defaults aren't the trunk's.
        sizes: the published ones by name.
        pretraining: the published recipes, by the name of a size; `""` for others.
        fine_tuning: the published recipes, by the name of a task; `""` for others.
        variants: sizes with other fine-tuning, by the ending of their name.
        transformers: how `transformers` writes it, if it does.
        reads: names of other families whose checkpoints the class takes, too.
        start_token_ids: what a text that an encoder-decoder writes begins with.
        keras_hub: KerasHub's class, if there is one.
        tensorflow1: how the original TensorFlow 1 code writes it, if it does.
    """

    name: str
    backbone: str
    license: str
    tokenizer: str
    tokenizer_class: str
    layout: Layout
    head_style: HeadStyle
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, PublishedSize] = dataclasses.field(default_factory=dict)
    pretraining: Mapping[str, PretrainingRecipe] = dataclasses.field(
        default_factory=dict
    )
    fine_tuning: Mapping[str, FineTuningRecipe] = dataclasses.field(
        default_factory=dict
    )
    variants: Mapping[str, Variant] = dataclasses.field(default_factory=dict)
    transformers: TransformersTable | None = None
    reads: tuple[str, ...] = ()
    other_styles: tuple[HeadStyle, ...] = ()
    token_head: str | None = None
    start_token_ids: tuple[int, ...] = ()
    keras_hub: KerasHubTable | None = None
    tensorflow1: TensorFlow1Table | None = None

    def derived(self, name: str, backbone: str, **changes: Any) -> "Family":
        """Make the record of a family that is like this one, but for the changes.

        Tokenizer, layout, head, arguments and recipes are this family's unless they are
        given. Sizes, and the names in other libraries, aren't inherited.
        """
        own: dict[str, Any] = {
            "sizes": {},
            "variants": {},
            "transformers": None,
            "reads": (),
            "keras_hub": None,
            "tensorflow1": None,
        }
        return dataclasses.replace(
            self, name=name, backbone=backbone, **{**own, **changes}
        )

    def pretraining_recipe(
        self, hidden_dim: int, tasks: Collection[str] = ()
    ) -> PretrainingRecipe:
        """Find the recipe of the published size that is nearest in width.

        Args:
            hidden_dim: int.
            tasks: names of classes. If sizes were trained by one of these, only they
                are looked at.
        """

        def recipe(name):
            return self.pretraining.get(name, self.pretraining[""])

        def distance(name):
            return abs(math.log(self.sizes[name].arguments["hidden_dim"] / hidden_dim))

        fitting = [name for name in self.sizes if recipe(name).task in tasks]
        return recipe(min(fitting or self.sizes, key=distance, default=""))

    def fine_tuning_recipes(
        self, hidden_dim: int | None = None, num_layers: int | None = None
    ) -> Mapping[str, FineTuningRecipe]:
        """Give the recipes for a backbone of a size, or those of most sizes."""
        for variant in self.variants.values():
            of_all = variant.num_layers is None or variant.num_layers == num_layers
            if hidden_dim in variant.hidden_dims and of_all:
                return variant.fine_tuning
        return self.fine_tuning
