"""The base of denoising objectives, and objectives by name."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.replacement import make_draw
from keras_bertfam.layers.data.base import KnownByName
from keras_bertfam.lazy import Registry
from keras_bertfam.types import Config, TFRagged, TFTensor


@checked
@dataclasses.dataclass(frozen=True)
class DenoisingVocabulary:
    """The ids of a tokenizer that objectives need.

    Args:
        size: int. Number of token ids.
        mask_token_id: int or `None`. The id in place of a masked token or span.
        sentinel_ids: tuple of ints. The ids in place of the first, second, ... span.
        special_token_ids: tuple of ints. Ids that are never drawn at random.
        sentence_end_ids: tuple of ints. Ids of tokens that end a sentence.
        named_token_ids: dict of str to int. Ids of the `token_names` of the objective.

    Example:

    ```python
    from keras_bertfam.layers.corruption.objectives import DenoisingVocabulary
    vocabulary = DenoisingVocabulary(30522, mask_token_id=103)
    tokens = tf.ragged.constant([[7592, 1010, 2026, 3899]], dtype="int32")
    noise = tf.ragged.constant([[False, False, True, True]])
    tokens.with_flat_values(
        tf.where(noise.flat_values, vocabulary.mask, tokens.flat_values))
    ```
    """

    size: int
    mask_token_id: int | None = None
    sentinel_ids: tuple[int, ...] = ()
    special_token_ids: tuple[int, ...] = ()
    sentence_end_ids: tuple[int, ...] = ()
    named_token_ids: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def mask(self) -> int:
        """int: the mask token's id; `DenoisingObjective.check` made sure it exists."""
        return cast(int, self.mask_token_id)

    def random_tokens(self) -> Callable[[TFTensor, TFTensor], TFTensor]:
        """Make a function from a shape and a seed to ids that aren't special."""
        left_out = {*self.special_token_ids, *self.sentinel_ids, self.mask_token_id}
        return make_draw([i for i in range(self.size) if i not in left_out], None)

    def without_sentinels(self, ids: set[int]) -> "DenoisingVocabulary":
        """Make a vocabulary in which some sentinels are special tokens instead."""
        return dataclasses.replace(
            self,
            sentinel_ids=tuple(i for i in self.sentinel_ids if i not in ids),
            special_token_ids=(*self.special_token_ids, *sorted(ids)),
        )


@dataclasses.dataclass(frozen=True)
class LengthLimits:
    """The most tokens that inputs and targets may have, special ones left out.

    Args:
        inputs: int, or int32 tensor `(texts,)`.
        targets: int, or int32 tensor `(texts,)`.
    """

    inputs: int | TFTensor
    targets: int | TFTensor

    def of_texts(self, texts: TFTensor, less: int = 0) -> "LengthLimits":
        """Select the limits of some of the texts.

        Args:
            texts: int tensor `(n,)`: the texts' numbers.
            less: int. How many tokens of the inputs are taken already.
        """
        sides = (self.inputs, self.targets)
        inputs, targets = (
            x if isinstance(x, int) else tf.gather(x, texts) for x in sides
        )
        return LengthLimits(inputs - less, targets)


@dataclasses.dataclass(frozen=True)
class Corrupted:
    """Corrupted texts.

    Args:
        inputs: ragged int32 tensor `(batch, None)`.
        targets: ragged int32 tensor `(batch, None)`.
        predicted: ragged bool tensor of the shape of `targets`: which targets are
            predicted. The decoder knows only these when it predicts what follows.
            `None` for all.

    Example:

    ```python
    tokens = tf.ragged.constant([[7, 17, 8, 5]], dtype="int32")
    keras_bertfam.layers.Corrupted(inputs=tokens[:, ::2], targets=tokens)
    ```
    """

    inputs: TFRagged
    targets: TFRagged
    predicted: TFRagged | None = None

    def known(self) -> TFRagged:
        """Return `predicted`; all true if it is `None`."""
        if self.predicted is not None:
            return self.predicted
        values = tf.ones_like(self.targets.flat_values, tf.bool)
        return self.targets.with_flat_values(values)


class DenoisingObjective(KnownByName):
    """Base of denoising objectives: small objects that make inputs and targets.

    A subclass follows four rules. It defines `corrupt`. What it draws depends on the
    seed alone. It keeps each constructor argument as an attribute of the same name,
    from which `get_config` is made. And it is registered with Keras, so that layers and
    preprocessors that hold it can be saved.

    Attributes:
        name: str or `None`. The name by which layers and preprocessors find it.
        uses_mask: bool. Whether it needs a mask token.
        uses_sentinels: bool. Whether it needs sentinels.

    Example:

    ```python
    @keras.saving.register_keras_serializable("my_project")
    class Backwards(keras_bertfam.layers.DenoisingObjective):
        '''Texts from their last token to their first.'''

        name = "backwards"

        def corrupt(self, tokens, vocabulary, room, seed):
            return keras_bertfam.layers.Corrupted(tf.reverse(tokens, [1]), tokens)

    layer = keras_bertfam.layers.DenoiseTokens("backwards", 6, vocabulary_size=20)
    layer([[7, 17, 8, 5]], seed=[0, 1])["encoder_token_ids"]
    ```
    """

    kind = "objective"
    named: ClassVar[Registry] = Registry()
    uses_mask: ClassVar[bool] = False
    uses_sentinels: ClassVar[bool] = False

    @property
    def token_names(self) -> list[str]:
        """list of str: tokens whose ids the objective takes from the vocabulary."""
        return []

    def check(self, vocabulary: DenoisingVocabulary, length: int) -> None:
        """Raise a `ValueError` if the vocabulary lacks an id that the objective needs.

        Args:
            vocabulary: `DenoisingVocabulary`.
            length: int. The most tokens of a text.
        """
        if self.uses_sentinels and not vocabulary.sentinel_ids:
            raise ValueError(
                "`sentinel_ids` must be the ids of a tokenizer's <extra_id_0>, "
                f"<extra_id_1>, ... for the objective {self.name!r}; "
                "`train_sentence_piece(..., sentinels=100)` learns a vocabulary with "
                "them. Received: none."
            )
        if self.uses_mask and vocabulary.mask_token_id is None:
            raise ValueError(
                "`mask_token_id` must be the id of a tokenizer's mask token or first "
                f"sentinel for the objective {self.name!r}. Received: None."
            )

    def lengths(self, inputs: int) -> tuple[int, int]:
        """Compute the lengths of texts and targets for a length of inputs.

        Args:
            inputs: int. Tokens of the inputs, without special tokens.

        Returns:
            Two ints: the most tokens of a text whose inputs fit, and the most tokens of
            such a text's targets.
        """
        return inputs, inputs

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        """Make inputs and targets from texts. Works in a graph.

        Args:
            tokens: ragged int32 tensor `(batch, None)`, without special tokens. Some
                texts can be empty.
            vocabulary: `DenoisingVocabulary`.
            room: `LengthLimits`. Inputs and targets of a text that is no longer than
                `lengths` says must fit into it.
            seed: integer tensor of shape `(2,)`.
        """
        raise TypeError(f"{type(self).__name__} must define `corrupt`.")


def get_objective(
    identifier: DenoisingObjective | Config | str | Sequence[Any],
) -> DenoisingObjective:
    """Return the objective that is meant by an object, a config, a name or a list.

    Args:
        identifier: `DenoisingObjective`; the config that `keras.saving` made of one;
            the name of one, such as `"random_spans"`; or a list of BART's noises, which
            are applied one after the other.
    """
    if isinstance(identifier, (list, tuple)):
        identifier = DenoisingObjective.named["bart"](identifier)
    objective: DenoisingObjective = DenoisingObjective.get(identifier)
    return objective


def check_noise_rate(rate: float) -> float:
    """Return a rate if it is above 0 and at most 0.99.

    Raises:
        ValueError: for another rate.
    """
    if not 0 < rate <= 0.99:
        raise ValueError(f"`rate` must be above 0 and at most 0.99. Received: {rate}.")
    return rate


def inverted(mask: TFRagged) -> TFRagged:
    """Invert a ragged mask."""
    return mask.with_flat_values(tf.logical_not(mask.flat_values))
