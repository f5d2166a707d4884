"""BART's noises: the inputs are corrupted, and the target is the whole document."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_graph
from keras_bertfam.layers.corruption.noise_masks import budget_noise, poisson_spans
from keras_bertfam.layers.corruption.noised_texts import (
    drop_noise,
    insert_masks,
    mask_each,
    mask_per_span,
    rotate,
    shuffle_sentences,
    text_lengths,
)
from keras_bertfam.layers.corruption.objectives import (
    Corrupted,
    DenoisingObjective,
    DenoisingVocabulary,
    LengthLimits,
    check_noise_rate,
)
from keras_bertfam.layers.data.seeding import fold, split_seed
from keras_bertfam.types import TFRagged, TFTensor


class DocumentNoise(DenoisingObjective):
    """Base of objectives whose target is the whole text; subclasses define `noise`."""

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        """Make the inputs from texts. Works in a graph.

        Args:
            tokens: ragged int32 tensor `(batch, None)`.
            vocabulary: `DenoisingVocabulary`.
            room: int, or int32 tensor `(batch,)`. The most tokens of the inputs.
            seed: integer tensor of shape `(2,)`.
        """
        raise TypeError(f"{type(self).__name__} must define `noise`.")

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        noise = as_graph(self.noise)
        return Corrupted(noise(tokens, vocabulary, room.inputs, seed), tokens)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TokenMasking(DocumentNoise):
    """Masks `ceil(length * rate)` tokens of a text.

    Args:
        rate: float. Defaults to `0.15`.

    Example:

    ```python
    objective = keras_bertfam.layers.TokenMasking()
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2.
    """

    name = "token_masking"
    uses_mask = True

    def __init__(self, rate: float = 0.15) -> None:
        self.rate = check_noise_rate(rate)

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        noise = budget_noise(text_lengths(tokens), self.rate, seed)
        return mask_each(tokens, noise, vocabulary.mask)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TokenDeletion(DocumentNoise):
    """Deletes `ceil(length * rate)` tokens of a text, and leaves no sign of them.

    Args:
        rate: float. Defaults to `0.15`.

    Example:

    ```python
    objective = keras_bertfam.layers.TokenDeletion()
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2.
    """

    name = "token_deletion"

    def __init__(self, rate: float = 0.15) -> None:
        self.rate = check_noise_rate(rate)

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        noise = budget_noise(text_lengths(tokens), self.rate, seed)
        return drop_noise(tokens, noise)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TextInfilling(DocumentNoise):
    """Replaces spans of tokens by one mask each.

    The spans' lengths have a Poisson distribution. A span of length 0 inserts a mask.
    As in fairseq, spans are drawn until they cover `ceil(length * rate)` tokens.

    Args:
        rate: float. Defaults to `0.3`.
        mean_length: float. Mean of the Poisson distribution. Defaults to `3.0`.

    Example:

    ```python
    objective = keras_bertfam.layers.TextInfilling(rate=0.3)
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2,
    and fairseq's code.
    """

    name = "text_infilling"
    uses_mask = True

    def __init__(self, rate: float = 0.3, mean_length: float = 3.0) -> None:
        self.rate = check_noise_rate(rate)
        if not 0.1 <= mean_length <= 100:
            raise ValueError(
                f"`mean_length` must be from 0.1 to 100. Received: {mean_length}."
            )
        self.mean_length = mean_length

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        seeds = split_seed(seed, 2)
        noise, starts, insertions = poisson_spans(
            text_lengths(tokens), self.rate, self.mean_length, seeds[0]
        )
        masked = mask_per_span(tokens, noise, starts, vocabulary.mask)
        left = tf.maximum(room - text_lengths(masked), 0)
        insertions = tf.minimum(insertions, left)
        return insert_masks(masked, insertions, vocabulary.mask, seeds[1])


@keras.saving.register_keras_serializable("keras_bertfam")
class SentencePermutation(DocumentNoise):
    """Puts the sentences of a text in random order; a full stop ends a sentence.

    Example:

    ```python
    objective = keras_bertfam.layers.SentencePermutation()
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2.
    """

    name = "sentence_permutation"

    def check(self, vocabulary: DenoisingVocabulary, length: int) -> None:
        super().check(vocabulary, length)
        if not vocabulary.sentence_end_ids:
            raise ValueError(
                "`sentence_end_ids` must be the ids of full stops for the objective "
                "'sentence_permutation'. Received: none."
            )

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        return shuffle_sentences(tokens, vocabulary.sentence_end_ids, seed)


@keras.saving.register_keras_serializable("keras_bertfam")
class DocumentRotation(DocumentNoise):
    """Rotates a text: it begins at a random token, and the start moves to the end.

    Example:

    ```python
    objective = keras_bertfam.layers.DocumentRotation()
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2.
    """

    name = "document_rotation"

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        return rotate(tokens, seed)


@keras.saving.register_keras_serializable("keras_bertfam")
class Noises(DocumentNoise):
    """Applies several of BART's noises, one after the other.

    A list of noises as an `objective` stands for this class.

    Args:
        noises: sequence of objectives, configs or names. Defaults to the noises that
            BART was trained with: permuted sentences, then infilling.

    Example:

    ```python
    objective = keras_bertfam.layers.Noises(["token_deletion", "document_rotation"])
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2.
    """

    name = "bart"

    def __init__(
        self, noises: Sequence[Any] = ("sentence_permutation", "text_infilling")
    ) -> None:
        self.noises = [DenoisingObjective.get(noise) for noise in noises]
        others = [x for x in self.noises if not isinstance(x, DocumentNoise)]
        if others or not self.noises:
            names = sorted(
                name
                for name, cls in DenoisingObjective.named.items()
                if issubclass(cls, DocumentNoise) and cls is not Noises
            )
            received = [x.name or type(x).__name__ for x in self.noises]
            raise ValueError(
                f"A list of objectives must contain only {names}, whose target is the "
                f"whole text. Received: {received}."
            )

    def check(self, vocabulary: DenoisingVocabulary, length: int) -> None:
        for noise in self.noises:
            noise.check(vocabulary, length)

    def noise(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: int | TFTensor,
        seed: TFTensor,
    ) -> TFRagged:
        for number, noise in enumerate(self.noises):
            tokens = as_graph(noise.noise)(tokens, vocabulary, room, fold(seed, number))
        return tokens
