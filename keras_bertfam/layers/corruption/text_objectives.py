"""T5's objectives whose targets are the whole text, and MASS."""

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.noise_masks import fragment_noise, iid_noise
from keras_bertfam.layers.corruption.noised_texts import (
    mask_each,
    replace_each,
    shuffle_tokens,
    text_lengths,
)
from keras_bertfam.layers.corruption.objectives import (
    Corrupted,
    DenoisingObjective,
    DenoisingVocabulary,
    LengthLimits,
    check_noise_rate,
)
from keras_bertfam.layers.corruption.replacement import check_rates
from keras_bertfam.layers.data.seeding import split_seed
from keras_bertfam.types import TFRagged, TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BertStyle(DenoisingObjective):
    """BERT's noise: each token is noise independently, and is masked, random or kept.

    Args:
        rate: float. The probability that a token is noise. Defaults to `0.15`.
        mask_token_rate: float. The share of the noise that is masked. Defaults to
            `0.9`, as in T5's code; BERT's is 0.8.
        random_token_rate: float. The share of the noise that is replaced by random
            tokens. Defaults to `0.1`.

    Example:

    ```python
    from keras_bertfam.layers.corruption.text_objectives import BertStyle
    objective = BertStyle(mask_token_rate=0.8)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.1.
    """

    name = "bert_style"
    uses_mask = True

    def __init__(
        self,
        rate: float = 0.15,
        mask_token_rate: float = 0.9,
        random_token_rate: float = 0.1,
    ) -> None:
        self.rate = check_noise_rate(rate)
        check_rates(rate, mask_token_rate, random_token_rate)
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        seeds = split_seed(seed, 2)
        inputs = replace_each(
            tokens,
            iid_noise(text_lengths(tokens), self.rate, seeds[0]),
            vocabulary.mask,
            vocabulary.random_tokens(),
            self.mask_token_rate,
            self.random_token_rate,
            seeds[1],
        )
        return Corrupted(inputs, tokens)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Mass(DenoisingObjective):
    """T5's form of MASS: noise is masked token by token; the target is the whole text.

    Args:
        rate: float. The probability that a token is noise. Defaults to `0.15`.

    Example:

    ```python
    from keras_bertfam.layers.corruption.text_objectives import Mass
    objective = Mass(rate=0.5)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.2.
    """

    name = "mass"
    uses_mask = True

    def __init__(self, rate: float = 0.15) -> None:
        self.rate = check_noise_rate(rate)

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        noise = iid_noise(text_lengths(tokens), self.rate, seed)
        return Corrupted(mask_each(tokens, noise, vocabulary.mask), tokens)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MassFragment(DenoisingObjective):
    """MASS as published: a fragment is masked, and only the fragment is predicted.

    The decoder gets no other token of the text. The fragment's tokens have the same
    positions in the decoder as in the text; all around them is masked, and no token
    attends to it.

    Args:
        rate: float. The share of the text that is the fragment. Defaults to `0.5`.
        mask_token_rate: float. The share of the fragment's tokens that are masked in
            the inputs. Defaults to `0.8`.
        random_token_rate: float. The share of the fragment's tokens that are replaced
            by random tokens; the rest is kept. Defaults to `0.1`.

    Example:

    ```python
    objective = keras_bertfam.layers.MassFragment()
    ```

    Reference: [Song et al., 2019](https://arxiv.org/abs/1905.02450), section 3.2.
    """

    name = "mass_fragment"
    uses_mask = True

    def __init__(
        self,
        rate: float = 0.5,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
    ) -> None:
        self.rate = check_noise_rate(rate)
        check_rates(rate, mask_token_rate, random_token_rate)
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        seeds = split_seed(seed, 2)
        noise = fragment_noise(text_lengths(tokens), self.rate, seeds[0])
        inputs = replace_each(
            tokens,
            noise,
            vocabulary.mask,
            vocabulary.random_tokens(),
            self.mask_token_rate,
            self.random_token_rate,
            seeds[1],
        )
        return Corrupted(inputs, tokens, noise)


@keras.saving.register_keras_serializable("keras_bertfam")
class Deshuffling(DenoisingObjective):
    """Inputs are the tokens in random order, and targets the text.

    Example:

    ```python
    from keras_bertfam.layers.corruption.text_objectives import Deshuffling
    objective = Deshuffling()
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.1.
    """

    name = "deshuffling"

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        return Corrupted(shuffle_tokens(tokens, seed), tokens)
