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
        arguments: arguments of the backbone's constructor, without those that the whole
            family has.
        source: repository of the weights on the Hugging Face hub, or `None`.
        tokenizer: kind of the tokenizer, if it isn't the family's. `"tokenizer_json"`
            stands for a tokenizer with a `tokenizer.json` only, `"sentence_piece_bpe"`
            for a file `sentencepiece.bpe.model`, and `"sentence_piece_spm"` for a file
            `spm.model`.
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
    """Make a size whose heads are 64 wide and whose inner width is four times its own.

    Arguments may change both.
    """
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
    """The layout of a family's rows: the special tokens and their places.

    Attributes:
        name: the value of a preprocessor's argument `layout` that stands for it.
        start_token: the start token of the layout's tokenizers; empty for rows without
            one.
        separators: the number of end tokens between two segments.
        start_last: whether the start token is the row's last token.
        new_tokens: the start token, the separator of segments and the end token, if
            fine-tuning adds these three. Their ids follow those of the tokenizer.
        ends: whether an end token follows the text.
    """

    name: str
    start_token: str
    separators: int = 1
    start_last: bool = False
    new_tokens: tuple[str, ...] = ()
    ends: bool = True

    @property
    def first(self) -> int:
        """Give the position of the first token that isn't special."""
        return 0 if self.start_last or not self.start_token else 1

    def specials(self, segments: int) -> int:
        """Count the special tokens of a row with a number of segments."""
        outer = bool(self.start_token) + self.ends
        return outer + self.separators * (segments - 1)


@dataclasses.dataclass(frozen=True)
class HeadStyle:
    """The head of a family's fine-tuned classifiers.

    Attributes:
        name: the value of a task's argument `head_style` that stands for it.
        activation: activation of the dense layer before the logits; `None` for a head
            without this layer.
        dropout: the published rate.
        input_dropout: whether there is dropout before the dense layer as well.
        pooler: whether the backbone's pooler, if it has one, is the dense layer.
        token: the state that the head reads. `"first"` and `"last"` are the first and
            the last token of the row; the last one is the start token then. `"end"` is
            the token that ends the text. `"mean"` is the mean of all states. `"late"`
            takes the mean after the activation, so that the logits are the mean of the
            logits of all tokens.
        norm: whether a norm follows the activation. The norm and the dense layer then
            have no biases.
        tokens: whether the heads that label tokens have the dense layer as well.
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
        """Give the arguments of `SummaryHead` for the layers before the logits."""
        return {
            "hidden_dim": None if self.activation is None else backbone.hidden_dim,
            "activation": self.activation,
            "norm_epsilon": backbone.layer_norm_epsilon if self.norm else None,
        }


@dataclasses.dataclass(frozen=True)
class Variant:
    """Sizes of a family that have fine-tuning recipes of their own.

    Attributes:
        hidden_dims: widths of these backbones.
        fine_tuning: recipes, as in `Family`.
        num_layers: number of layers of these backbones, if other sizes have the same
            width.
    """

    hidden_dims: tuple[int, ...]
    fine_tuning: Mapping[str, FineTuningRecipe]
    num_layers: int | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family's record: all facts about it, except how it computes.

    Attributes:
        name: the `model_type` of `transformers`, if it has the family.
        backbone: name of the family's class in `keras_bertfam.models`.
        license: SPDX identifier of the licence of the published weights.
        tokenizer: `"word_piece"`, `"byte_pair"` or `"sentence_piece"`.
        tokenizer_class: name of the tokenizer's class, ours or KerasHub's.
        layout: `Layout` of its rows.
        head_style: `HeadStyle` of its fine-tuned heads.
        token_head: the head of its language models. With `None`, masked tokens are
            predicted by BERT's head (a dense layer, activation, norm, table and bias)
            and next tokens by GPT's (the table alone). `"transform"` stands for BERT's
            head for both, `"table"` for the table alone for both, and `"bias"` for the
            table and a bias for masked tokens.
        other_styles: other styles that some of its models' heads have.
        arguments: arguments of the constructor whose defaults differ from the trunk's.
        sizes: the published sizes by name.
        pretraining: the published recipes, by the name of a size; `""` for others.
        fine_tuning: the published recipes, by the name of a task; `""` for others.
        variants: sizes with other recipes of fine-tuning, by the ending of their names.
        transformers: the names in `transformers`, if it has the family.
        reads: names of other families whose checkpoints the class reads as well.
        start_token_ids: the first ids of a text that an encoder-decoder writes.
        keras_hub: the names in KerasHub, if it has the family.
        tensorflow1: the names in the original TensorFlow 1 code, if there is one.
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
        """Make the record of a family that differs from this one by some changes.

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
            tasks: names of tasks' classes. Sizes that were trained by one of these come
                before all others.
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
        """Give the recipes of a variant with this size, or else the family's."""
        for variant in self.variants.values():
            of_all = variant.num_layers is None or variant.num_layers == num_layers
            if hidden_dim in variant.hidden_dims and of_all:
                return variant.fine_tuning
        return self.fine_tuning
